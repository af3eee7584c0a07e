"""What is public can be had by the names in the documentation, and says its own name when it is
called wrongly.
"""

import inspect
import subprocess
import sys

import pytest

import discreet
from discreet.errors import ConfigError
from discreet.models import MODELS, model_class


@pytest.mark.parametrize("name", MODELS)
def test_misspelled_keywords_name_the_class_and_the_near_miss(name):
    cls = model_class(name)
    known = cls.parameter_names()
    needed = {"epsilon": 1.0} if "epsilon" in known else {}
    for wrong in [f"{known[0]}n", "no_such_thing"] if known else ["no_such_thing"]:
        for call in (cls, cls(**needed).set_params):
            with pytest.raises((TypeError, ConfigError)) as caught:
                call(**{wrong: 1})
            answer = (
                f"did you mean {known[0]!r}?"
                if wrong != "no_such_thing"
                else f"it has {', '.join(known) or 'none'}"
            )
            assert str(caught.value) == f"{name} has no parameter {wrong!r}: {answer}"
    with pytest.raises(
        TypeError, match=rf"^{name}\(.*too many positional arguments; pass parameters by name$"
    ):
        cls(*range(50))


def test_a_subclass_goes_by_its_own_name():
    class Mine(discreet.DPALS):
        pass

    with pytest.raises(
        TypeError, match=r"^Mine has no parameter 'epsilonn': did you mean 'epsilon'"
    ):
        Mine(epsilonn=1)


def test_signatures_are_shown_as_they_are():
    shown = inspect.signature(discreet.DPALS).parameters
    assert list(shown) == discreet.DPALS.parameter_names()
    assert shown["delta"].default == 1e-6


@pytest.mark.parametrize(
    "code",
    [
        "from discreet.mechanisms import Huber; Huber(alpha=1.5, scale=2.0)",
        "import discreet.mechanisms; discreet.mechanisms.Gaussian(1.0)",
        "from discreet import mechanisms; mechanisms.Laplace(1.0)",
        "import discreet; discreet.mechanisms.Huber(alpha=1.5, scale=2.0)",
        "import discreet; discreet.write_report",
        "from discreet.report import write_report",
        "import discreet; discreet.errors.ConfigError",
        "from discreet import *; DPALS, report, mechanisms",
    ],
)
def test_documented_imports_work_in_a_fresh_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    for name in discreet.__all__:
        assert getattr(discreet, name) is not None
