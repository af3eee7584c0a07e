"""A saved folder holds every number that its read-outs need: a later version with other defaults
predicts the same.

Models are fitted and saved; then every default and every constant of the packages is changed, and
the folder is read.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import sys
from functools import partial
from numbers import Real

import numpy as np
import pytest

import discreet
import discreet.models
import discreet.privacy
from discreet.models import MODELS as NAMES
from discreet.models import fold_in
from discreet.models.algorithm import ALGORITHMS

PRIVATE = {"epsilon": 50.0, "rating_range": (1.0, 5.0), "noise": "seeded", "random_state": 0}
MODELS = {
    "ALS": partial(discreet.ALS, 3, iterations=2),
    "ALS, given": partial(discreet.ALS, 3, iterations=2, regularization=4.0, intercepts=False),
    "ALS, implicit": partial(discreet.ALS, 3, iterations=2, goal="ranking"),
    "IRLS": partial(discreet.IRLS, 3, iterations=2),
    "EASE": partial(discreet.EASE, 5.0),
    "Bias": discreet.Bias,
    "Popularity": discreet.Popularity,
    "DPMF": partial(discreet.DPMF, **PRIVATE),
    "DPMF, profiles": partial(
        discreet.DPMF, item_features={j: "ab"[j % 2] for j in range(1000)}, **PRIVATE
    ),
    "DPMF, communities": partial(
        discreet.DPMF.configure, route="communities", **(PRIVATE | {"epsilon": 1000.0})
    ),
    "DPMF, ratings": partial(discreet.DPMF, goal="rating", **PRIVATE),
    "DPMF, no factors": partial(discreet.DPMF, 0, goal="rating", **PRIVATE),
    "DPMF, range from data": partial(
        discreet.DPMF, 2, goal="rating", **(PRIVATE | {"rating_range": None})
    ),
    "DPMF, a fixed prior": partial(
        discreet.DPMF.configure, goal="rating", taste=0.02, slope=0.0, **PRIVATE
    ),
    "DPALS": partial(discreet.DPALS, **PRIVATE),
    "DPALS, global mean": partial(discreet.DPALS.configure, centering="global", **PRIVATE),
    "DPALS, implicit": partial(discreet.DPALS, goal="ranking", **PRIVATE),
    "DPALS, ridge by signal": partial(
        discreet.DPALS.configure, goal="ranking", regularization="by signal", **PRIVATE
    ),
    "DPLMC": partial(discreet.DPLMC, 4, **PRIVATE),
    "DPLMC, spectral": partial(
        discreet.DPLMC.configure, factors=4, initialization="spectral", **PRIVATE
    ),
    "HuberALS": partial(discreet.HuberALS, **PRIVATE),
    "HuberALS, irls": partial(discreet.HuberALS, solver="irls", **PRIVATE),
    "DPFrankWolfe": partial(discreet.DPFrankWolfe, **PRIVATE),
    "DPFrankWolfe, by steps": partial(discreet.DPFrankWolfe.configure, folding="steps", **PRIVATE),
    "DPSVD": partial(discreet.DPSVD, **PRIVATE),
    "DPSVD, by density": partial(discreet.DPSVD.configure, density=0.3, **PRIVATE),
    "DPSGLD": partial(discreet.DPSGLD, iterations=3, **PRIVATE),
    "DPSGD": partial(discreet.DPSGD, iterations=3, accountant="gdp", **PRIVATE),
}
#: What a read-out may do with numbers that are written in its code: count, halve, double, and keep
#: from dividing by 0.
HARMLESS = {0, 1, -1, 2, 0.5}
#: Says which numbers are refused: another version may refuse a folder in a sentence, but not read
#: it otherwise.
REFUSED = {"SMALLEST_DELTA", "LEAST_RATE"}


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((300, 25)) < 0.4)
    taste = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 25))
    stars = np.clip(np.round(3 + taste[user, item]), 1, 5)
    return discreet.Ratings.from_arrays(user, item, stars, item_ids=range(25))


@pytest.fixture(scope="module")
def saved(ratings, tmp_path_factory):
    """The folder of every model, and what it said before it was written."""
    folder, found = tmp_path_factory.mktemp("pinned"), {}
    for name, make in MODELS.items():
        model = make().fit(ratings)
        model.save(folder / name)
        found[name] = folder / name, said(model, ratings)
    return found


def said(model, ratings):
    """Predictions, and lists for many and for one."""
    histories = ratings.select_users(np.arange(60), by="index")
    return [
        model.predict(histories, ratings.select_users(np.arange(80), by="index")),
        *model.recommend_many(histories, n=6, diversity=0.0),
        *model.recommend({0: 5.0, 3: 1.0, 7: 4.0}, n=6, diversity=0.0),
        *model.recommend([1, 2], n=6, diversity=0.0),
    ]


# ------------------------------------------------------------ another version


#: What they hold are limits, which refuse what nobody can mean, and no numbers that anything is
#: predicted with.
LIMITS = (
    "discreet.models.parameters",
    "discreet.privacy.accounting.budget",
    "discreet.privacy.accounting.pricing",
)


def our_modules():
    for package in (discreet.models, discreet.privacy):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found.name)
    ours = [
        name
        for name in sorted(sys.modules)
        if name.startswith(("discreet.models", "discreet.privacy"))
    ]
    return [sys.modules[name] for name in ours if name not in LIMITS]


def is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)


def another(value):
    """A number, or numbers, other than these."""
    if isinstance(value, tuple):
        return tuple(another(one) for one in value)
    return value + 3 if isinstance(value, int) else 1.7 * value + 0.3


def is_constant(name, value):
    numbers = isinstance(value, tuple) and len(value) > 0 and all(map(is_number, value))
    return name.lstrip("_").isupper() and name not in REFUSED and (is_number(value) or numbers)


def functions_of(module):
    """Its functions and the methods of its classes, constructors of dataclasses among them."""
    for thing in list(vars(module).values()):
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(thing):
            yield inspect.unwrap(thing)
        elif inspect.isclass(thing):
            yield from (
                inspect.unwrap(method)
                for method in vars(thing).values()
                if inspect.isfunction(method)
            )


def other_default(function, value):
    """Constructors have every default changed, other functions their numbers."""
    if is_number(value) or (isinstance(value, tuple) and value and all(map(is_number, value))):
        return another(value)
    if function.__name__ != "__init__":
        return value
    if isinstance(value, str):
        return "changed"
    return 0.123 if value is None else value


def change_everything(monkeypatch):
    """Every constant and every default of the models and of privacy; returns how many of each."""
    constants, defaults = 0, 0
    for module in our_modules():
        for name, value in list(vars(module).items()):
            if is_constant(name, value):
                monkeypatch.setattr(module, name, another(value))
                constants += 1
        for function in functions_of(module):
            if module is fold_in and function.__name__ == "__init__":
                continue  # what is left out of a read-out is off: see below
            given = function.__defaults__ or ()
            by_name = function.__kwdefaults__ or {}
            if given:
                monkeypatch.setattr(
                    function, "__defaults__", tuple(other_default(function, v) for v in given)
                )
            if by_name:
                changed = {name: other_default(function, v) for name, v in by_name.items()}
                monkeypatch.setattr(function, "__kwdefaults__", changed)
            defaults += len(given) + len(by_name)
    return constants, defaults


def test_what_is_left_out_of_a_read_out_is_off():
    """So its defaults are no settings: nothing is centered, counted, masked or iterated that
    was not asked for.
    """
    for kind in fold_in.KINDS.values():
        for entry in dataclasses.fields(kind):
            if entry.default is not dataclasses.MISSING:
                assert entry.default in (0, None, False, "constant", "all"), (kind, entry.name)


def test_every_kind_of_model_and_algorithm_is_here():
    assert {name.split(",")[0] for name in MODELS} == set(NAMES)
    made = [make() for make in MODELS.values()]
    algorithms = {model.make_algorithm().name for model in made if hasattr(model, "algorithm")}
    assert algorithms == set(ALGORITHMS)


def test_another_version_is_another_version(monkeypatch):
    """Defaults and constants are found and changed, so that the next test can fail."""
    before = discreet.DPMF(epsilon=1.0, goal="rating").resolve(9)
    constants, defaults = change_everything(monkeypatch)
    assert constants > 40
    assert defaults > 300
    assert discreet.models.dpals.LARGE == 10_003
    assert discreet.DPMF(epsilon=1.0, random_state=0, item_features=None).delta == pytest.approx(
        0.3 + 1.7e-6
    )
    assert type(before)().rarity == pytest.approx(1.7 * 0.3 + 0.3)
    assert dataclasses.replace(before).rarity == 0.3


def test_a_folder_predicts_the_same_whatever_the_defaults_are_by_then(saved, ratings, monkeypatch):
    change_everything(monkeypatch)
    off = []
    for name, (folder, before) in saved.items():
        after = said(discreet.load(folder), ratings)
        if not all(map(np.array_equal, before, after)):
            off.append(name)
    assert not off


# ------------------------------------------------------------ numbers that have no name


def numbers_in(code):
    """Numbers written in the code, but for those that are harmless or guard against division by
    0.
    """
    return {
        value
        for value in code.co_consts
        if is_number(value) and value not in HARMLESS and not 0 < abs(value) <= 1e-9
    }


@pytest.mark.parametrize("name", MODELS)
def test_no_number_is_hidden_in_the_code_that_reads_out(name, saved, ratings):
    """A default that is a literal inside a function could not be changed above: so there are
    none.
    """
    folder, _ = saved[name]
    model, ran = discreet.load(folder), set()

    def watch(frame, event, _):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("discreet.models"):
            ran.add(frame.f_code)

    sys.setprofile(watch)
    try:
        said(model, ratings)
    finally:
        sys.setprofile(None)
    assert {"fold", "predict"} <= {code.co_name for code in ran}
    assert {f"{code.co_qualname}": numbers for code in ran if (numbers := numbers_in(code))} == {}
