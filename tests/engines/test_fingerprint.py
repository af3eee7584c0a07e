"""The fingerprint of a machine compares every compiled function that trainings of DPMF use."""

import contextlib
import functools
import importlib
import pkgutil
import sys

import numpy as np
import pytest

import discreet
import discreet.privacy.statistics
import discreet.privacy.users
from discreet.auditing.conformance.adversarial_ratings import make_ratings
from discreet.engines import fingerprint

#: Which compute nothing.
WITHOUT_NUMBERS = ("discreet.kernels.threads.", "discreet.kernels.gather.allocate_aligned_array")
#: What becomes of numbers that are released already.
AFTER_RELEASE = (
    "discreet.privacy.statistics.base._unpack",
    "discreet.kernels.grams.symmetric_of",
)


def modules():
    """Everything that users' steps and sums are made of."""
    for package in (discreet.privacy.users, discreet.privacy.statistics):
        for found in pkgutil.iter_modules(package.__path__):
            yield importlib.import_module(f"{package.__name__}.{found.name}")


def is_kernel(value):
    home = getattr(value, "__module__", None) or ""
    known = home.startswith("discreet.kernels") and callable(value) and not isinstance(value, type)
    return known or hasattr(value, "py_func")


@contextlib.contextmanager
def watching(monkeypatch, change=None):
    """Collect the names of compiled functions that are called; `change` is made to what one of
    them returns.
    """
    called = set()

    def watched(name, function):
        @functools.wraps(function)
        def call(*given, **options):
            called.add(name)
            found = function(*given, **options)
            return change(found) if change is not None and name == change.name else found

        return call

    with monkeypatch.context() as patched:
        for module in modules():
            for attribute, value in list(vars(module).items()):
                name = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', attribute)}"
                if is_kernel(value) and not name.startswith((*WITHOUT_NUMBERS, *AFTER_RELEASE)):
                    patched.setattr(module, attribute, watched(name, value))
        yield called


@pytest.mark.parametrize(
    "options", [{}, {"goal": "rating"}, {"route": "communities"}], ids=["", "rating", "communities"]
)
def test_every_kernel_that_dpmf_uses_is_compared(monkeypatch, options):
    # compiles what is not compiled yet, which would not find the functions that are watched
    fingerprint.canary()
    with watching(monkeypatch) as compared:
        fingerprint.canary()
    ratings = make_ratings(640, far=False)
    for epsilon in (8.0, 400.0):  # with much noise, and with so little that all stages are worth it
        model = discreet.DPMF.configure(epsilon=epsilon, rating_range=(1.0, 5.0), **options)
        model.fit(ratings)
        with watching(monkeypatch) as used:
            model.fit(ratings)
        assert used
        assert used - compared == set()


class Changed:
    """Change the largest number that one kernel gives, by a thousandth."""

    def __init__(self, name):
        self.name = name

    def __call__(self, found):
        first = found[0] if isinstance(found, tuple) else found
        flat = first.reshape(-1)
        at = int(np.argmax(np.abs(flat)))
        flat[at] = flat[at] * 1.001 if flat.dtype.kind == "f" else flat[at] + 1
        return found


@pytest.mark.parametrize(
    "name",
    [
        "least_squares.solve_rows_constant",
        "gradient.sum_columns",
        "grams.add_pair_products",
        "integer_sums.pack_grams",
    ],
)
def test_a_kernel_that_gives_other_numbers_gives_another_fingerprint(monkeypatch, name):
    before = fingerprint.canary()
    with watching(monkeypatch, Changed(f"discreet.kernels.{name}")) as called:
        after = fingerprint.canary()
    assert f"discreet.kernels.{name}" in called
    assert after != before == fingerprint.canary()


def test_the_fingerprint_does_not_change_with_its_surroundings():
    assert fingerprint.fingerprint() == fingerprint.fingerprint()
    assert "check" in fingerprint.fingerprint()
    assert "numba" in sys.modules
