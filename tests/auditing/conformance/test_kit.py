"""The conformance kit: our private models keep every rule, and each planted fault is named by
the rule it breaks.
"""

from dataclasses import replace

import numpy as np
import pytest

import discreet
from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.kernels import threads
from discreet.models.dpals import DPALS
from discreet.models.dpmf import DPMF, rating, rating_training
from discreet.models.private import PrivateRecommender
from discreet.privacy.noise import sources as noise
from discreet.privacy.noise.sources import SecureNoise, SeededNoise
from discreet.privacy.release.session import Session
from discreet.privacy.statistics.user_effects import SolutionGram
from discreet.privacy.users import steps
from discreet.testing import (
    ConformanceError,
    PrivateModelConformance,
    check_private_model,
    rule_names,
)
from support import planted_models as planted

SMALL = {"epsilon": 4.0, "rating_range": (1.0, 5.0)}
PAPER = SMALL | {"max_items": 6}
PLAIN = {
    "epsilon": 4.0,
    "max_items": 30,
    "item_fraction": 1.0,
    "rating_range": (1.0, 5.0),
    "rating_bound": 2.0,
    "regularization": 5.0,
    "noise_ridge": 0.0,
    "user_normalizer": 100.0,
    "initial_scale": 0.3,
    "iterations": 2,
    "factors": 3,
}
QUICK = [name for name in rule_names() if name != "re-priced"]

HOUSE = {
    "usual": {},
    "ranking, replace-one": {"neighboring": "replace-one"},
    "ratings": {"goal": "rating"},
    "no factors": {"goal": "rating", "factors": 0},
    "even weights": {"goal": "rating", "rarity": 0.0},
    "replace-one": {"goal": "rating", "neighboring": "replace-one"},
    "no popularity": {"goal": "rating", "popularity": False},
    "papers' conversion, range from data": {
        "goal": "rating",
        "accountant": "rdp",
        "delta": 1e-5,
        "rating_range": None,
    },
}
SOLVING = {
    "usual": {"max_items": 6},
    "global mean, growing steps": {"centering": "global", "growth": 2.0, "max_items": 6},
    "replace-one": {"neighboring": "replace-one", "max_items": 6},
    "implicit": {"goal": "ranking", "max_items": 6},
    "replace-one, implicit": {"neighboring": "replace-one", "goal": "ranking", "max_items": 6},
    "constant, one count": {
        "centering": 3.0,
        "user_norm": 0.7,
        "recount": False,
        "sampling": "uniform",
        "max_items": 6,
    },
    "spectral": {"initialization": "spectral", "item_fraction": 1.0},
    "resample, unobserved": {
        "resample": True,
        "unobserved_weight": 0.1,
        "orthonormalize": True,
        "projection": False,
        "max_items": 6,
    },
    "not isometric": {"isometric": False, "max_items": 6},
    "sigmas": {
        "sigmas": {"counts": 9.0, "recounts": 9.0, "gram": 5.0, "sum": 5.0},
        "epsilon": 50.0,
        "max_items": 6,
    },
    "papers' conversion, range from data": {
        "accountant": "rdp",
        "delta": 1e-5,
        "rating_range": None,
        "max_items": 6,
    },
}


@pytest.fixture(autouse=True)
def _small():
    """These fits are so small that starting threads takes longer."""
    threads.set_threads(1)
    yield
    threads.set_threads(None)


CASES = [
    pytest.param(kind, name, given, id=f"{kind.__name__}, {name}")
    for kind, options in ((DPMF, HOUSE), (DPALS, SOLVING))
    for name, given in options.items()
]


@pytest.mark.parametrize(("kind", "name", "given"), CASES)
def test_our_models_keep_every_rule(kind, name, given):
    rules = (
        rule_names() if name.startswith(("usual", "no factors", "papers' conversion")) else QUICK
    )
    model = kind.configure(**({"factors": 3} | SMALL | given))
    report = check_private_model(model, people=8, draws=2000, rules=rules)
    assert report.passed
    assert [check.rule for check in report.checks] == rules
    assert [check.rule for check in report.checks if check.passed is None] == ["zero noise"]
    assert "BROKEN" not in str(report)
    assert report.to_dict()["passed"] is True


def test_neighbors_reach_the_sensitivity():
    """A kit whose people never go to the edge would find nothing."""
    report = check_private_model(DPALS(3, **PAPER), people=10, rules=["neighbors"])
    shares = report.checks[0].detail.split(": ")[1].split(", ")
    assert shares == ["counts 1.00", "recounts 1.00", "sum 1.00", "gram 1.00"]
    model = DPMF.configure(factors=3, iterations=2, **SMALL, goal="rating")
    report = check_private_model(model, people=10, rules=["neighbors"])
    shares = dict(
        part.rsplit(" ", 1) for part in report.checks[0].detail.split(": ")[1].split(", ")
    )
    assert set(shares) == {planned.name for planned in model.plan(23).releases}
    reached = {name: float(share) for name, share in shares.items()}
    # the worst users for moments and gains need columns of their own: test_own_solve has them
    assert reached.pop("prior moments") > 0.7
    for name in ("residual moments", *rating.CHECKS):
        assert reached.pop(name) > 0.8
    assert set(reached.values()) == {1.0}


def dense_dpals(model: DPALS, ratings: Ratings) -> np.ndarray:
    """DPALS without noise where every item is frequent and everybody contributes everything, in
    plain numpy.
    """
    M = np.zeros((ratings.n_users, ratings.n_items), bool)
    Y = np.zeros(M.shape)
    who = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    M[who, ratings.indices], Y[who, ratings.indices] = True, ratings.values
    given = model.algorithm_
    explicit, r, c = given.goal == "rating", given.factors, M.sum(axis=1)
    if explicit:
        Y = np.where(M, Y - ((Y.sum(axis=1) + 3 * 3.0) / (c + 3))[:, None], 0)
    else:
        Y = M.astype(float)
    weight, ridge, i = given.unobserved_weight, given.regularization, given.intercept
    counts = np.maximum(M.sum(axis=0), 1.0)
    item_ridge = ridge * counts**0.5 * counts.sum() / (counts**1.5).sum()
    V = given.initial_scale * np.random.default_rng(model.random_state).standard_normal(
        (ratings.n_items, r)
    )
    Z, b = np.clip(Y, -2, 2) if explicit else Y, np.zeros(ratings.n_items)
    for _ in range(given.iterations):
        every = weight * V.T @ V
        U = np.array(
            [
                np.linalg.solve(
                    V[m].T @ V[m] + every + ridge * max(n, 1) / 100 * np.eye(r), V[m].T @ (y - b)[m]
                )
                for m, y, n in zip(M, Y, c, strict=True)
            ]
        )
        U *= np.minimum(1.0, np.sqrt(1 - i * i) / np.maximum(np.linalg.norm(U, axis=1), 1e-300))[
            :, None
        ]
        X = np.column_stack([np.full(len(U), i), U]) if i else U
        every = weight * X.T @ X
        W = np.array(
            [
                np.linalg.solve(X[m].T @ X[m] + every + g * np.eye(X.shape[1]), X[m].T @ y[m])
                for m, y, g in zip(M.T, Z.T, item_ridge, strict=True)
            ]
        )
        V, b = (W[:, 1:], i * W[:, 0]) if i else (W, b)
    return V


@pytest.mark.parametrize(
    ("goal", "intercept"), [("rating", 0.0), ("rating", 0.5), ("ranking", 0.0)]
)
def test_dpals_without_noise_is_plain_alternating_least_squares(goal, intercept):
    weight = 0.0 if goal == "rating" else 0.6
    model = DPALS.configure(goal=goal, intercept=intercept, unobserved_weight=weight, **PLAIN)
    report = check_private_model(model, twin=dense_dpals, rules=["zero noise"], tolerance=1e-3)
    assert report.checks[0].passed is True
    with pytest.raises(ConformanceError, match=r"zero noise.*off by"):
        check_private_model(
            model, twin=lambda m, r: 1.01 * dense_dpals(m, r), rules=["zero noise"], tolerance=1e-3
        )


def test_the_kit_takes_ratings_of_ones_own():
    rng = np.random.default_rng(0)
    there = rng.random((150, 12)) < 0.7
    user, item = np.nonzero(there)
    names = np.array([f"reader-{u:04d}" for u in user], object)
    ratings = Ratings.from_arrays(
        names, item, rng.integers(1, 6, len(user)), item_ids=np.arange(12)
    )
    for relation in ("add-remove", "replace-one"):
        model = DPALS(2, epsilon=20.0, neighboring=relation)
        assert check_private_model(model, ratings=ratings, people=5, draws=500, rules=QUICK).passed
        assert not hasattr(model, "item_ids_")  # the kit works on copies


def test_small_budgets_get_larger_crowds():
    check_private_model(DPALS(2, epsilon=0.3), people=2, draws=500, rules=["plan", "neighbors"])


def test_what_cannot_be_checked_is_said():
    with pytest.raises(ConfigError, match="ALS is no PrivateRecommender"):
        check_private_model(discreet.ALS())
    with pytest.raises(ConfigError, match="no rule 'speed'"):
        check_private_model(DPALS(epsilon=1.0), rules=["speed"])


# ------------------------------------------------------------ planted faults: models


@pytest.mark.parametrize(
    ("kind", "rule", "words"),
    planted.RULES_BROKEN,
    ids=[f"{kind.__name__}, {rule}" for kind, rule, _ in planted.RULES_BROKEN],
)
def test_a_bad_model_is_named_by_the_rule_it_breaks(kind, rule, words):
    model = kind(3, **{"random_state": 1, **PAPER})
    with pytest.raises(ConformanceError, match=f"BROKEN +{rule}: .*{words}") as caught:
        check_private_model(model, people=8, draws=0, rules=[rule, "fit"])
    assert caught.value.report.broken == [rule]
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (planted.ReleasesTwice, ["plan"]),
        (planted.ScalesByN, ["post-processing"]),
        (planted.SavesTheNumberOfUsers, ["post-processing", "saved folder"]),
        (planted.PrintsTheShape, ["silence"]),
        (planted.Reveals, ["plan", "before data", "one access", "statement"]),
    ],
)
def test_no_other_rule_is_blamed(kind, broken):
    with pytest.raises(ConformanceError) as caught:
        check_private_model(kind(3, **PAPER), people=8, draws=0)
    assert caught.value.report.broken == broken


# ------------------------------------------------------------ planted faults: the door itself


def broken_rules(model=None, **options):
    with pytest.raises(ConformanceError) as caught:
        check_private_model(
            model or DPALS(3, **PAPER), people=8, rules=QUICK, **({"draws": 3000} | options)
        )
    return caught.value.report.broken


def taking_steps():
    """DPMF for ratings with so little noise that factors are always worth it."""
    return DPMF.configure(factors=3, goal="rating", gate=1e9, **SMALL | {"epsilon": 400.0})


def scaled_noise(factor, original):
    def add(self, values, mechanism, weights=None, grid=None):
        return original(self, values, type(mechanism)(mechanism.scale * factor), weights, grid)

    return add


@pytest.mark.parametrize("kind", [SecureNoise, SeededNoise])
@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_noise_of_another_size_is_found(monkeypatch, kind, factor):
    monkeypatch.setattr(kind, "add", scaled_noise(factor, kind.add))
    assert broken_rules() == ["noise"]


def test_halving_off_diagonal_noise_once_more_is_found(monkeypatch):
    original = SecureNoise.add

    def add(self, values, mechanism, weights=None, grid=None):
        return original(
            self, values, mechanism, None if weights is None else np.asarray(weights) ** 2, grid
        )

    monkeypatch.setattr(SecureNoise, "add", add)
    assert broken_rules() == ["noise"]


def test_seeded_noise_that_is_called_secure_is_found(monkeypatch):
    monkeypatch.setattr(noise.os, "urandom", lambda n: bytes(n))
    assert broken_rules(draws=0) == ["secure noise"]


def test_vectors_that_are_not_cut_are_found(monkeypatch):
    cut = steps.clip_rows
    given = SMALL | {"regularization": 0.01}
    monkeypatch.setattr(
        steps, "clip_rows", lambda U, bounds, *rest: 9 * cut(U, replace(bounds, norm=1e6), *rest)
    )
    assert "neighbors" in broken_rules(DPALS(3, **given))
    assert "neighbors" in broken_rules(taking_steps())


def test_solutions_that_are_not_cut_are_found(monkeypatch):
    """What users' own coefficients say of each other is cut by itself."""
    for module in (rating, rating_training):
        monkeypatch.setattr(module, "longest_solution", lambda rank: 1e-3)
    original = SolutionGram.reach
    monkeypatch.setattr(
        SolutionGram, "reach", lambda self, public: replace(original(self, public), l2=0.9)
    )
    assert "neighbors" in broken_rules(taking_steps())


def test_a_session_that_releases_without_end_is_found(monkeypatch):
    original = Session._admit

    def admit(self, planned, shape):
        self._left[planned.name] += 1
        original(self, planned, shape)

    monkeypatch.setattr(Session, "_admit", admit)
    monkeypatch.setattr(Session, "finish", lambda self: self.statement)
    assert "extra release" in broken_rules(draws=0)


def test_a_ledger_that_costs_more_than_it_states_is_found(monkeypatch):
    from discreet.privacy.accounting import pricing as accounting

    monkeypatch.setattr(accounting, "independent_epsilon", lambda events, delta: 4.1)
    with pytest.raises(ConformanceError, match=r"re-priced.*4\.1"):
        check_private_model(DPALS(3, **SMALL), rules=["re-priced"], draws=0)


# ------------------------------------------------------------ as tests of somebody's own


class TestConformance(PrivateModelConformance):
    people, draws, tolerance, twin = 6, 1000, 1e-3, dense_dpals

    def make(self) -> PrivateRecommender:
        return DPALS.configure(intercept=0.5, unobserved_weight=0.0, **PLAIN | {"factors": 2})


def test_the_class_has_one_test_per_rule_and_they_fail_where_they_should():
    class OfABadModel(PrivateModelConformance):
        people, draws = 4, 0

        def make(self):
            return planted.PrintsTheShape(2, **SMALL)

    tests = [name for name in dir(OfABadModel) if name.startswith("test_")]
    assert len(tests) == len(rule_names())
    mine = OfABadModel()
    mine.test_plan()
    with pytest.raises(AssertionError, match=r"BROKEN +silence"):
        mine.test_silence()
    with pytest.raises(Exception, match="no twin was given"):
        mine.test_zero_noise()
    with pytest.raises(NotImplementedError, match="def make"):
        PrivateModelConformance().make()
