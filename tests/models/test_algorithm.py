"""What holds for every algorithm: it is a value, it resolves without data or side effects, and
it survives JSON.
"""

import copy
import dataclasses
import importlib
import inspect
import itertools
import json
import math
import pkgutil

import numpy as np
import pytest

import discreet
from discreet import models
from discreet.errors import ConfigError, DataError
from discreet.models.algorithm import ALGORITHMS, Algorithm, algorithm_class, algorithm_from
from discreet.models.dpals import NoisySolve
from discreet.models.dplmc import ProjectedGradient
from discreet.models.dpmf.ranking import PairRanking
from discreet.models.dpmf.rating import RatingFactorization
from discreet.models.dpsgd import PoissonDescent
from discreet.models.dpsgld import Langevin
from discreet.models.dpsvd import CovarianceSVD
from discreet.models.frank_wolfe import FrankWolfe
from discreet.models.huber_als import RobustSolve
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.users.sealed_users import seal

BUDGET = Budget(2.0, 1e-5)
RANGE = (1.0, 5.0)
SIGMAS = dict.fromkeys(("counts", "recounts", "gram", "sum"), 200.0)
VALUES = {
    "pair ranking": PairRanking(),
    "pair ranking, everything": PairRanking(factors=3, like_threshold="everything", gate=2.0),
    "residual gradient": RatingFactorization(),
    "residual gradient, no factors": RatingFactorization(factors=0, shares={"counts": 0.1}),
    "residual gradient, a fixed prior": RatingFactorization(slope=0.0, regularization=1.0),
    "noisy solve": NoisySolve(),
    "noisy solve, implicit": NoisySolve(goal="ranking"),
    "noisy solve, by signal": NoisySolve(goal="ranking", regularization="by signal"),
    "noisy solve, spectral": NoisySolve(
        factors=4, initialization="spectral", centering="global", growth=2.0
    ),
    "noisy solve, sigmas": NoisySolve(sigmas=SIGMAS),
    "projected gradient": ProjectedGradient(),
    "projected gradient, spectral": ProjectedGradient(
        factors=4, initialization="spectral", initial_epsilon=0.5
    ),
    "projected gradient, printed": ProjectedGradient(
        constants="printed", ratings_per_item=9.0, ratings_per_user=4.0
    ),
    "robust solve": RobustSolve(),
    "robust solve, Laplace": RobustSolve(mechanism="laplace", solver="irls", inner_iterations=2),
    "Frank–Wolfe": FrankWolfe(),
    "Frank–Wolfe, all items": FrankWolfe(item_fraction=1.0, nuclear_norm=20.0, folding="steps"),
    "covariance SVD": CovarianceSVD(),
    "covariance SVD, by density": CovarianceSVD(density=0.2, weighted=False, centering="items"),
    "Langevin": Langevin(),
    "Poisson descent": PoissonDescent(iterations=3),
}
every = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)


def accountant_of(value):
    return "auto" if isinstance(value, RobustSolve) else "gdp"


def everything_pure(value, n_items=30):
    """What can be said of a resolved algorithm without data."""
    nobody = discreet.Ratings.from_indices(
        [0], [], [], np.zeros(0, np.int64), np.arange(n_items), catalog=True
    )
    bounds = value.bounds()
    found = value.statistics(seal(nobody, bounds))
    return {
        "bounds": bounds,
        "releases": value.releases(n_items),
        "plan": value.plan(n_items, BUDGET, accountant_of(value)),
        "assumptions": value.assumptions(),
        "shapes": {name: tuple(statistic.shape) for name, statistic in found.items()},
    }


# ------------------------------------------------------------ all of them


def test_every_algorithm_is_known_by_its_name_and_is_a_frozen_value():
    for module in pkgutil.walk_packages(models.__path__, "discreet.models."):
        importlib.import_module(module.name)

    def below(kind):
        return {kind, *(deep for sub in kind.__subclasses__() for deep in below(sub))}

    package = models.__name__
    concrete = {
        k
        for k in below(Algorithm)
        if not inspect.isabstract(k) and k.__module__.startswith(package)
    }
    assert {kind.name: kind for kind in concrete} == {
        name: algorithm_class(name) for name in ALGORITHMS
    }
    assert {type(value) for value in VALUES.values()} == concrete
    for kind in concrete:
        assert kind.__dataclass_params__.frozen, kind
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind().factors = 3


# ------------------------------------------------------------ pure


def open_fields(value):
    return [f.name for f in dataclasses.fields(value) if getattr(value, f.name) is None]


@every
def test_resolving_leaves_nothing_open_and_changes_nothing(value):
    before = copy.deepcopy(value)
    resolved = value.resolve(BUDGET, 30, RANGE)
    assert value == before
    assert open_fields(resolved) == []
    assert resolved is not value
    assert value.resolve(BUDGET, 30, RANGE) == resolved
    assert resolved.resolve(BUDGET, 30, RANGE) == resolved, "what is resolved stays as it is"
    assert resolved.resolve(Budget(20.0, 1e-5), 30_000, RANGE) == resolved, (
        "also on other items, for another budget"
    )
    given = {
        f.name: getattr(value, f.name)
        for f in dataclasses.fields(value)
        if getattr(value, f.name) is not None
    }
    assert {name: getattr(resolved, name) for name in given} == given, (
        "what is given stays as it was given"
    )


@every
def test_plans_and_bounds_are_pure(value):
    resolved = value.resolve(BUDGET, 30, RANGE)
    before = copy.deepcopy(vars(resolved))
    first = everything_pure(resolved)
    assert vars(resolved) == before
    assert everything_pure(resolved) == first
    names = [str(line) for line in first["releases"]]
    assert [release.name for release in first["plan"].releases] == names
    assert set(names) <= set(first["shapes"])
    for line in first["releases"]:
        assert line.shape in (
            None,
            first["shapes"][str(line)],
        ), "shapes are planned as they will be, or left open"


SHELLS = {
    "DPMF": discreet.DPMF(epsilon=2.0),
    "DPMF, ratings": discreet.DPMF(epsilon=2.0, goal="rating"),
    "DPMF, features": discreet.DPMF(epsilon=2.0, item_features=np.ones((30, 2)), goal="rating"),
    "DPALS": discreet.DPALS(epsilon=2.0, goal="ranking"),
    "DPALS, method": discreet.DPALS(epsilon=2.0, algorithm=NoisySolve(centering="global")),
    "DPLMC": discreet.DPLMC(epsilon=2.0, rating_range=(1, 5)),
    "HuberALS": discreet.HuberALS(epsilon=2.0),
    "DPFrankWolfe": discreet.DPFrankWolfe(epsilon=2.0),
    "DPSVD": discreet.DPSVD(epsilon=2.0),
    "DPSGLD": discreet.DPSGLD(epsilon=2.0),
    "DPSGD": discreet.DPSGD(epsilon=2.0, accountant="gdp"),
}


@pytest.mark.parametrize("model", SHELLS.values(), ids=SHELLS)
def test_asking_a_model_what_it_would_do_does_not_change_it(model):
    before = dict(vars(model))
    method = copy.deepcopy(model.algorithm)

    def asked():
        model.check()
        return (
            model.make_algorithm(),
            model.resolve(30),
            model.resolve(50).bounds(),
            model.plan(30),
            model.price_list(30),
        )

    first = asked()
    assert asked() == first
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert model.algorithm == method
    assert open_fields(first[1]) == []


# ------------------------------------------------------------ as a document


@every
def test_an_algorithm_comes_back_from_json(value):
    for one in (value, value.resolve(BUDGET, 30, RANGE)):
        document = one.to_dict()
        assert algorithm_from(document) == one
        again = algorithm_from(json.loads(json.dumps(document, allow_nan=False)))
        assert again == one
        assert type(again) is type(one)
        kinds = [
            {f.name: type(getattr(x, f.name)) for f in dataclasses.fields(x)} for x in (again, one)
        ]
        assert kinds[0] == kinds[1]


@every
def test_a_document_with_other_fields_is_refused_instead_of_guessed(value):
    document = value.to_dict()
    missing = {name: field for name, field in document.items() if name != "factors"}
    for wrong in (missing, document | {"color": 3}, document | {"name": "alchemy"}, {}):
        with pytest.raises(
            DataError,
            match=r"has other parameters .*\. Load it with the version .*|unknown algorithm",
        ):
            algorithm_from(wrong)


def test_a_field_added_later_has_its_old_meaning_in_an_old_folder(monkeypatch):
    now = PairRanking(gate=2.0)
    old = {name: field for name, field in now.to_dict().items() if name != "gate"}
    monkeypatch.setattr(PairRanking, "added_later", {"gate": 0.25})
    assert algorithm_from(old) == PairRanking(gate=0.25)
    assert algorithm_from(now.to_dict()) == now


@every
def test_what_was_added_later_is_a_field(value):
    assert set(value.added_later) <= {entry.name for entry in dataclasses.fields(value)}


# ------------------------------------------------------------ what is wrong is said


STRANGE = [
    "a",
    "",
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -1.5,
    [],
    (),
    {},
    {"a": 1},
    (1, 2),
    object(),
    None,
    True,
]


def outcome(kind, **given):
    """The resolved algorithm, or the words with which it is refused; any other exception is
    raised.
    """
    try:
        resolved = kind(**given).resolve(BUDGET, 30, RANGE)
        everything_pure(resolved)
    except ConfigError as error:
        return str(error)
    return resolved


@pytest.mark.parametrize("name", ALGORITHMS)
def test_whatever_is_given_is_taken_or_refused_by_name(name):
    """Never a TypeError from the middle of a formula, and never a number that is none."""
    kind = algorithm_class(name)
    feedbacks = [{}, {"goal": "ranking"}] if kind is NoisySolve else [{}]
    # the model checks that
    names = [field.name for field in dataclasses.fields(kind) if field.name != "rating_range"]
    for field, strange, more in itertools.product(names, STRANGE, feedbacks):
        found = outcome(kind, **(more | {field: strange}))
        if isinstance(found, str):
            assert field in found, (field, strange, found)
            continue
        kept = getattr(found, field)
        assert isinstance(kept, (int, float, str, dict)), (field, strange, kept)
        assert not isinstance(kept, float) or math.isfinite(kept), (field, strange, kept)
        assert open_fields(found) == []


# ------------------------------------------------------------ shells around them


def test_a_parameter_and_an_algorithm_that_has_it_are_refused():
    with pytest.raises(ConfigError, match=r"Pass either factors or algorithm, not both\."):
        discreet.DPMF(3, epsilon=1.0, algorithm=RatingFactorization(), goal="rating").check()
    with pytest.raises(
        ConfigError,
        match="algorithm is a NoisySolve, but DPMF needs a value of RatingFactorization",
    ):
        discreet.DPMF(epsilon=1.0, algorithm=NoisySolve(), goal="rating").check()
    with pytest.raises(
        ConfigError, match="algorithm is a RatingFactorization, but DPMF needs a value of"
    ):
        discreet.DPMF(epsilon=1.0, algorithm=RatingFactorization, goal="rating").check()
    with pytest.raises(
        ConfigError, match="algorithm is a str, but HuberALS needs a value of RobustSolve"
    ):
        discreet.HuberALS(epsilon=1.0, algorithm="as printed").check()


def test_an_algorithm_must_not_contradict_its_model():
    for method, given, words in (
        (
            NoisySolve(goal="ranking"),
            {},
            "algorithm has goal='ranking', but DPALS has goal='rating'",
        ),
        (
            NoisySolve(rating_range=(0, 9)),
            {},
            r"algorithm has rating_range=\(0, 9\). Pass rating_range to DPALS instead",
        ),
        (NoisySolve(rating_range=(0, 9)), {"rating_range": (1, 5)}, "algorithm has rating_range="),
    ):
        with pytest.raises(ConfigError, match=words):
            discreet.DPALS(epsilon=1.0, algorithm=method, **given).check()
    resolved = discreet.DPALS(epsilon=1.0, rating_range=(1, 5), goal="ranking").resolve(30)
    again = discreet.DPALS(epsilon=1.0, rating_range=(1, 5), goal="ranking", algorithm=resolved)
    assert again.resolve(30) == resolved


def test_a_method_is_the_same_as_its_knobs():
    one = discreet.DPALS(4, epsilon=1.0, max_items=20, goal="ranking")
    other = discreet.DPALS(
        epsilon=1.0, goal="ranking", algorithm=NoisySolve(factors=4, max_items=20)
    )
    third = discreet.DPALS.configure(
        epsilon=1.0, goal="ranking", factors=4, max_items=20, isometric=True
    )
    assert one.make_algorithm() == other.make_algorithm() == third.make_algorithm()
    assert one.plan(50) == other.plan(50) == third.plan(50)
    assert third.algorithm == NoisySolve(factors=4, max_items=20, isometric=True)
    assert third.factors is None


def test_epsilon_must_be_said():
    for kind in {type(model) for model in SHELLS.values()}:
        with pytest.raises(TypeError, match="epsilon"):
            kind()
