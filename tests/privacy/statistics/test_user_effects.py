"""Users who solve for what is personal: no statistic moves by more than it says, whoever comes
or goes.
"""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.kernels import reference
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.gradients import BiasGradient, WeightedResidualGradient
from discreet.privacy.statistics.user_effects import (
    FitMoments,
    LeaveOneOutGains,
    PriorMoments,
    ResidualPairs,
    SolutionGram,
)
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import ComputeResiduals, Solve, WeighEntries
from support.sealed_helpers import NORMS, RELATIONS, block, distance, exact, floating, make, quick

N_ITEMS, OWN, RANK = 6, 1, 2
BOUNDS = Bounds(items=10**9, rating=2.0, center=3.0, norm=0.7)
BIAS = np.linspace(-1, 1, N_ITEMS)
CORE = np.array([0, 1, 3, 4, 5])
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 2.0, 3: 3.0, 5: 1.0}, {0: 2.0}]
EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ADVERSARIES = [
    {},
    EVERYTHING,
    dict.fromkeys(range(N_ITEMS), 1e30),
    {0: -1e30, 3: 1e30},
    {2: 5.0},
    {1: math.nan, 3: 3.0},
    {0: math.inf, 4: -math.inf},
    {0: 3.4e38, 1: -3.4e38, 5: 2.0},
    {0: 5.0, 1: 3.0000001, 3: 1.0},
    dict.fromkeys(range(N_ITEMS), 3.0),
]


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def solve(V, ridge, center, prior_count, bias, first, intercept=0.0):
    """The step of users with coefficients of their own, as DPMF for ratings takes it."""
    return Solve(
        V,
        ridge,
        bias=bias,
        intercept=intercept,
        center=center,
        prior_count=prior_count,
        first=first,
        stretch=True,
    )


def solved(rows, V, intercept=0.3, ids=None, prior_count=2.0):
    users = seal(make(rows, N_ITEMS, ids), BOUNDS)
    users.apply(WeighEntries(np.linspace(0.1, 1.0, N_ITEMS)))
    users.apply(solve(V, 0.5, 0.2, prior_count, BIAS, OWN, intercept))
    users.apply(ComputeResiduals(V, 0.9, BIAS, relative=True))
    return users


def statistics(V):
    return {
        "prior moments": PriorMoments(V, 0.5, 0.2, 2.0, 0.5),
        "fit moments": FitMoments(2.0, 1.0, 2.0),
        "solution Gram matrix": SolutionGram(OWN, RANK, 1.5),
        "residual pairs": ResidualPairs(CORE),
        "left-out gains": LeaveOneOutGains(V, 0.5, 0.2, 2.0, BIAS, OWN, (1, 2), 0.5, 2.0),
        "left-out gains of some": LeaveOneOutGains(
            V, 0.5, 0.2, 2.0, BIAS, OWN, (2,), 0.5, 2.0, 0.6
        ),
        "residual gradient": WeightedResidualGradient(),
        "bias gradient": BiasGradient(),
    }


def assert_neighbors(rows, who, instead, V, observe, slack=0.0):
    others = {
        "add-remove": (rows[:who] + rows[who + 1 :], [i for i in range(len(rows)) if i != who]),
        "replace-one": ([*rows[:who], instead, *rows[who + 1 :]], list(range(len(rows)))),
    }
    before = solved(rows, V, ids=list(range(len(rows))))
    for relation in RELATIONS:
        after = solved(others[relation][0], V, ids=others[relation][1])
        for name, statistic in statistics(V).items():
            one, other = before.sum(statistic), after.sum(statistic)
            moved = observe(one), observe(other)
            for norm in NORMS:
                stated = one.sensitivity(relation, norm)
                assert distance(*moved, one, norm) <= stated * (1 + slack), (name, relation, norm)
            if relation == "add-remove":
                assert np.abs(moved[0] - moved[1]).max() <= one.sensitivity(relation, "inf") * (
                    1 + slack
                ), name


def test_adversaries_on_the_grid():
    for V in (
        np.eye(N_ITEMS, OWN + RANK),
        np.full((N_ITEMS, OWN + RANK), 1e18),
        np.zeros((N_ITEMS, OWN + RANK)),
    ):
        for adversary in ADVERSARIES:
            for instead in (EVERYTHING, {0: -1e30, 1: -1e30}):
                rows = [ORDINARY[0], adversary, *ORDINARY[1:]]
                assert_neighbors(rows, 1, instead, V.astype(np.float32), exact)


values = st.sampled_from([0.0, 1.0, 5.0, -2.5, 1e-38, 1e30, math.nan, math.inf]) | st.floats(
    width=32
)
histories = st.dictionaries(st.integers(0, N_ITEMS - 1), values, max_size=N_ITEMS)


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(histories, min_size=1, max_size=4),
    instead=histories,
    seed=st.integers(0, 99),
    size=st.sampled_from([1e-18, 0.1, 1.0, 1e18]),
    coarse=st.sampled_from([0.0, 3e5]),
)
def test_neighbors(rows, instead, seed, size, coarse):
    V = (np.random.default_rng(seed).normal(size=(N_ITEMS, OWN + RANK)) * size).astype(np.float32)
    who = seed % len(rows)
    assert_neighbors(rows, who, instead, V, lambda statistic: exact(statistic, coarse))
    assert_neighbors(
        rows, who, instead, V, floating, slack=2 * len(rows) * (len(rows) + 3) * 2.0**-24
    )


def test_the_sensitivities_are_reached():
    V = np.zeros((N_ITEMS, OWN + RANK), np.float32)
    V[0, 1] = V[1, 2] = 1.0

    def apart(one, other, name):
        before, after = (solved(rows, V).sum(statistics(V)[name]) for rows in (one, other))
        return distance(exact(before), exact(after), before, "l2")

    same, opposite = {0: 3.0 + 1e6, 1: 3.0 + 1e6 + 5}, {0: 3.0 + 1e6, 1: 3.0 - 1e6}
    assert apart([same], [], "residual pairs") == pytest.approx(1.0, rel=1e-3)
    assert apart([same], [opposite], "residual pairs") == pytest.approx(2.0, rel=1e-3)
    assert apart([{0: 1e6}], [], "solution Gram matrix") == pytest.approx(1.0, rel=1e-3)
    assert apart([{0: 1e6}], [{1: 1e6}], "solution Gram matrix") == pytest.approx(2**0.5, rel=1e-3)
    # whom two columns help as much as can be, and whom they mislead as much
    V[:, 1] = V[:, 2] = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
    helped = {j: 3.0 + 1e3 * V[j, 1] for j in range(N_ITEMS)}
    misled = {j: 3.0 + 1e3 * (1 if j < 4 else -4 * V[j, 1]) for j in range(N_ITEMS)}
    assert apart([helped], [], "left-out gains") == pytest.approx(1.0, rel=1e-3)
    assert apart([helped], [misled], "left-out gains") == pytest.approx(2.0, rel=1e-3)


def test_the_sensitivities_of_moments_are_reached():
    def moved(users, statistic):
        total = users.sum(statistic)
        return distance(exact(total), 0 * exact(total), total, "l2") / total.sensitivity(
            "add-remove", "l2"
        )

    # somebody who has used up nothing of its ratings, and fits badly
    fits_badly = solved(
        [dict.fromkeys(range(N_ITEMS), 3.8)], np.zeros((N_ITEMS, 3), np.float32), prior_count=1e9
    )
    length = float(block(fits_badly)["length"][0])
    assert moved(fits_badly, FitMoments(length**2 / 2, 1.0, 1e9)) == pytest.approx(1.0, rel=1e-3)
    # somebody all of whose coefficients are known well, and far larger than a prior says
    V = 1e3 * np.random.default_rng(5).normal(size=(N_ITEMS, 3)).astype(np.float32)
    known = V.astype(float) @ np.array([40.0, -50.0, 60.0]) + 5e3
    far = solved([dict(enumerate((3.0 + known).tolist()))], V, prior_count=1e-3)
    assert moved(far, PriorMoments(V, 0.5, 0.2, 1e-3, 0.5)) == pytest.approx(1.0, rel=1e-2)


def test_gains_are_those_of_the_users_who_take_part():
    rng = np.random.default_rng(2)
    V = rng.normal(size=(N_ITEMS, OWN + RANK)).astype(np.float32)
    rows = [{j: 3.0 + rng.normal() for j in range(N_ITEMS)} for _ in range(400)]
    each = [
        floating(solved([row], V, ids=[i]).sum(statistics(V)["left-out gains"]))
        for i, row in enumerate(rows)
    ]
    users = solved(rows, V, ids=list(range(400)))
    np.testing.assert_allclose(
        floating(users.sum(statistics(V)["left-out gains"])), np.sum(each, axis=0)
    )
    some = [
        solved([row], V, ids=[i]).sum(statistics(V)["left-out gains of some"])
        for i, row in enumerate(rows)
    ]
    taking_part = np.array([floating(one)[0] != 0 for one in some])
    assert 200 < taking_part.sum() < 280  # of 400 with probability 0.6
    both = 2**0.5 * np.array(each)[taking_part, 1].sum()
    np.testing.assert_allclose(floating(users.sum(statistics(V)["left-out gains of some"])), [both])


def test_moments_say_how_wrong_a_prior_is():
    """E t = s (ω*/ω − 1): people whose level has 1.5 times the variance that the prior gives it."""
    rng = np.random.default_rng(0)
    V = np.zeros((N_ITEMS, 1), np.float32)
    level = 1.5**0.5 * rng.standard_normal(4000)
    rows = [{j: 3.0 + o + rng.standard_normal() for j in range(N_ITEMS)} for o in level]
    users = seal(make(rows, N_ITEMS), BOUNDS)
    users.apply(WeighEntries(np.ones(N_ITEMS)))
    users.apply(solve(V, 1.0, 0.0, 1.0, np.zeros(N_ITEMS), 1))
    statistic = PriorMoments(V, 1.0, 0.0, 1.0, 1.0)
    t, s = floating(users.sum(statistic)) / len(rows)
    kept = reference.inverse_diagonals(np.array([0, N_ITEMS]), np.arange(N_ITEMS), V, 1.0, 1.0)[0]
    np.testing.assert_allclose(s, (1 - kept) ** 2, rtol=1e-4)
    assert t[0] == pytest.approx(0.0, abs=1e-4)  # nothing is known of a column that is 0
    assert 0.5 < t[1] / (s[1] * 0.5 / 3) < 1.0  # but for what is cut


def test_the_vector_is_the_direction_of_what_was_learned():
    rng = np.random.default_rng(1)
    V = rng.normal(size=(N_ITEMS, OWN + RANK)).astype(np.float32)
    users = solved(ORDINARY, V)
    state = block(users)
    vectors, solution = state["vectors"], state["solution"]
    assert users.rank == RANK + 1
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 0.7, rtol=1e-5)
    learned = solution[:, OWN:] / np.linalg.norm(solution[:, OWN:], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors[:, 1:], math.sqrt(0.49 - 0.09) * learned, rtol=1e-4)
    for i, row in enumerate(ORDINARY):
        at, y = list(row), np.array(list(row.values())) - 3.0
        A = np.column_stack([V[at], np.ones(len(at))])
        x = np.linalg.solve(A.T @ A + np.diag([0.5] * 3 + [2.0]), A.T @ (y - BIAS[at] - 0.2))
        np.testing.assert_allclose([*solution[i], state["offset"][i] - 0.2], x, atol=1e-4)


def test_wrong_numbers_are_refused():
    users = solved(ORDINARY, np.ones((N_ITEMS, 3), np.float32))
    for statistic in (ResidualPairs(np.array([3, 1])), ResidualPairs(np.array([0, N_ITEMS]))):
        with pytest.raises(ConfigError, match="ascending order"):
            users.sum(statistic)
    for ranks in ((), (2, 1), (3,), (0, 1)):
        with pytest.raises(ConfigError, match="must rise from 1 to the 2 learned columns"):
            users.sum(
                LeaveOneOutGains(np.ones((N_ITEMS, 3)), 0.5, 0.2, 2.0, BIAS, 1, ranks, 0.5, 2.0)
            )
    with pytest.raises(ConfigError, match="first is 4"):
        users.apply(solve(np.ones((N_ITEMS, 3), np.float32), 0.5, 0.2, 2.0, BIAS, 4))
