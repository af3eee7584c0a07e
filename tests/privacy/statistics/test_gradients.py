"""Users who follow gradients: no statistic moves by more than it says, and nobody touches
anybody else.
"""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError, PrivacyError
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import GlobalGram
from discreet.privacy.statistics.gradients import (
    BiasGradient,
    Size,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import (
    ComputeResiduals,
    GradientStep,
    Solve,
    StartFrom,
    WeighEntries,
)
from support.sealed_helpers import NORMS, RELATIONS, block, distance, exact, floating, make, quick

N_ITEMS, RANK = 6, 2
BOUNDS = {
    "constant": Bounds(items=10**9, rating=2.0, center=3.0, norm=0.7),
    "own mean": Bounds(
        items=10**9, rating=1.0, center="user", prior_mean=3, prior_count=3, norm=2.0
    ),
    "bounded in l1": Bounds(items=10**9, rating=1.0, center=3.0, norm=1.0, norm_l1=0.8),
    "implicit": Bounds(items=10**9, norm=1.0),
}
R = np.array([[0.5, -0.2], [-0.2, 0.1]])


def paper(walk, V, b):
    """Algorithm 1, some steps on the way."""
    walk.apply(StartFrom(0.3 * V))
    walk.apply(ComputeResiduals(V, 1.3))
    walk.apply(GradientStep(0.1, R, 0.05))
    walk.apply(ComputeResiduals(V, 1.3))


def scaled(walk, V, b):
    walk.apply(WeighEntries(np.linspace(0.1, 1.0, N_ITEMS)))
    walk.apply(Solve(V, 0.1, bias=b, center=0.3, stretch=True))
    walk.apply(ComputeResiduals(V, 0.9, bias=b))


def intercept(walk, V, b):
    """The scaled steps with biases in the first coordinate."""
    walk.apply(WeighEntries(np.linspace(0.1, 1.0, N_ITEMS)))
    walk.apply(Solve(V, 0.1, bias=b, center=0.3, stretch=True, intercept=0.5))
    walk.apply(ComputeResiduals(np.column_stack([b, V]), 0.9))


def unobserved(walk, V, b):
    walk.apply(WeighEntries(np.ones(N_ITEMS)))
    walk.apply(Solve(V, 1.0, unobserved=0.3))
    walk.apply(ComputeResiduals(V, 1.0))


WAYS = {"paper": paper, "scaled": scaled, "intercept": intercept, "unobserved": unobserved}
STATISTICS = {
    "gradient": lambda walk: walk.sum(WeightedResidualGradient()),
    "bias_gradient": lambda walk: walk.sum(BiasGradient()),
    "gram": lambda walk: walk.sum(GlobalGram()),
    "size": lambda walk: walk.sum(Size(1.5)),
    "counts": lambda walk: walk.sum(WeightCounts()),
}
BAD = [0.0, 1.0, 5.0, -2.5, 1e-38, 1e30, -3.4e38, math.nan, math.inf, -math.inf]
EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ADVERSARIES = [
    {},
    EVERYTHING,
    dict.fromkeys(range(N_ITEMS), 1e30),
    {0: -1e30, 3: 1e30},
    {2: 5.0},
    {2: 1.0},
    {1: math.nan, 2: 3.0},
    {0: math.inf, 4: -math.inf},
    {0: 3.4e38, 1: -3.4e38, 5: 2.0},
    dict.fromkeys(range(N_ITEMS), 0.0),
]
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 2.0, 3: 3.0, 5: 1.0}, {0: 2.0}]


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def walked(rows, bounds, way, V, b, ids=None):
    walk = seal(make(rows, N_ITEMS, ids), BOUNDS[bounds])
    WAYS[way](walk, V, b)
    return walk


def assert_neighbors(rows, who, instead, bounds, way, V, b, observe, slack=0.0):
    others = {
        "add-remove": (rows[:who] + rows[who + 1 :], [i for i in range(len(rows)) if i != who]),
        "replace-one": ([*rows[:who], instead, *rows[who + 1 :]], list(range(len(rows)))),
    }
    before = walked(rows, bounds, way, V, b, list(range(len(rows))))
    for relation in RELATIONS:
        after = walked(others[relation][0], bounds, way, V, b, others[relation][1])
        for name, ask in STATISTICS.items():
            if name == "counts" and way == "paper":
                continue
            one, other = ask(before), ask(after)
            moved = observe(one), observe(other)
            for norm in NORMS:
                stated = one.sensitivity(relation, norm)
                assert distance(*moved, one, norm) <= stated * (1 + slack), (name, relation, norm)
            if relation == "add-remove":
                assert np.abs(moved[0] - moved[1]).max() <= one.sensitivity(relation, "inf") * (
                    1 + slack
                ), name


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("way", WAYS)
def test_adversaries_on_the_grid(bounds, way):
    b = np.linspace(-1, 1, N_ITEMS)
    for V in (np.eye(N_ITEMS, RANK), np.full((N_ITEMS, RANK), 1e18)):
        for adversary in ADVERSARIES:
            for instead in (EVERYTHING, {0: -1e30, 1: -1e30}):
                rows = [ORDINARY[0], adversary, *ORDINARY[1:]]
                assert_neighbors(rows, 1, instead, bounds, way, V.astype(np.float32), b, exact)


values = st.sampled_from(BAD) | st.floats(width=32)
histories = st.dictionaries(st.integers(0, N_ITEMS - 1), values, max_size=N_ITEMS)


@st.composite
def worlds(draw):
    rows = draw(st.lists(histories, min_size=1, max_size=5))
    V = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(N_ITEMS, RANK))
    V = (V * draw(st.sampled_from([1e-18, 0.1, 1.0, 1e18]))).astype(np.float32)
    return rows, draw(st.integers(0, len(rows) - 1)), draw(histories), V


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(world=worlds(), coarse=st.sampled_from([0.0, 3e5]))
def test_neighbors(bounds, way, world, coarse):
    """Without tolerance on the grid, and up to the rounding of float32 sums for seeded noise."""
    rows, who, instead, V = world
    b = np.full(N_ITEMS, 0.5)
    assert_neighbors(
        rows, who, instead, bounds, way, V, b, lambda statistic: exact(statistic, coarse)
    )
    n = len(rows)
    assert_neighbors(
        rows, who, instead, bounds, way, V, b, floating, slack=2 * n * (n + 3) * 2.0**-24
    )


def test_the_sensitivities_are_reached():
    """Two users who are as far apart as the bounds allow: nothing smaller than the table is
    true (erratum 9).
    """
    bounds = Bounds(items=10**9, rating=9.0, center=0.0, norm=0.5)

    def statistics(rows):
        walk = seal(make(rows, 4), bounds)
        walk.apply(StartFrom(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])))
        walk.apply(ComputeResiduals(np.zeros((4, 2)), 2.0))
        return {
            "gradient": walk.sum(WeightedResidualGradient()),
            "bias_gradient": walk.sum(BiasGradient()),
            "gram": walk.sum(GlobalGram()),
            "size": walk.sum(Size(9.0)),
        }

    def apart(one, other, name):
        one, other = statistics(one)[name], statistics(other)[name]
        return distance(exact(one), exact(other), one, "l2")

    high, low, every = (
        [{0: 90.0}],
        [dict.fromkeys(range(4), -90.0)],
        [dict.fromkeys(range(4), 90.0)],
    )
    assert apart(high, [], "gradient") == pytest.approx(2.0 * 0.5, rel=1e-3)
    assert apart(high, [], "bias_gradient") == pytest.approx(2.0, rel=1e-3)
    assert apart(high, [{0: -90.0}], "bias_gradient") == pytest.approx(4.0, rel=1e-3)
    assert apart(high, [], "gram") == pytest.approx(0.25, rel=1e-3)
    # orthogonal vectors
    assert apart(high, [{1: 90.0}], "gram") == pytest.approx(2**0.5 * 0.25, rel=1e-3)
    assert apart(low, [], "size") == pytest.approx(3**0.5, rel=1e-3)
    # 5^½ for a user with a mean and without ratings
    assert 2.1 < apart(every, [{0: -90.0}], "size") <= 5**0.5


def test_other_users_stay_as_they_are_to_the_last_bit():
    rng = np.random.default_rng(0)
    rows = [
        {
            int(j): float(rng.integers(1, 6))
            for j in rng.choice(30, rng.integers(1, 20), replace=False)
        }
        for _ in range(41)
    ]
    rows[7], rows[20] = {0: 1e30, 7: math.nan}, {}
    for r in (1, 3, 17, 64):
        V, turn = rng.normal(size=(30, r)).astype(np.float32), rng.normal(size=(r, r))

        def states(rows, V=V, turn=turn, r=r):
            walk = seal(make(rows, 30), Bounds(items=10**9, rating=2.0, center=3.0, norm=0.8))
            walk.apply(StartFrom(0.1 * V))
            walk.apply(ComputeResiduals(V, 1.0))
            walk.apply(GradientStep(0.05, turn, 0.1))
            first = block(walk)["vectors"]
            walk.apply(Solve(V, 0.5, center=0.2, stretch=True))
            now = block(walk)
            return np.hstack([first, now["vectors"], now["offset"][:, None]])

        everyone = states(rows)
        assert np.isfinite(everyone).all()
        for gone in (0, 7, 19, 20, 40):
            assert np.array_equal(
                states(rows[:gone] + rows[gone + 1 :]), np.delete(everyone, gone, axis=0)
            )


def test_it_is_sealed_and_says_what_is_missing():
    walk = seal(make(ORDINARY, N_ITEMS), BOUNDS["constant"])
    with pytest.raises(PrivacyError):
        np.asarray(walk)
    with pytest.raises(PrivacyError):
        len(walk)
    with pytest.raises(ConfigError, match="ComputeResiduals first"):
        walk.sum(BiasGradient())
    with pytest.raises(ConfigError, match="WeighEntries first"):
        walk.sum(WeightCounts())
    with pytest.raises(ConfigError, match="positive finite numbers"):
        walk.apply(WeighEntries(np.zeros(N_ITEMS)))
    walk.apply(StartFrom(np.eye(N_ITEMS, 2)))
    with pytest.raises(ConfigError, match="ComputeResiduals first"):
        walk.apply(GradientStep(0.1, R, 0.1))
    with pytest.raises(ConfigError, match="of rank 3 do not fit"):
        walk.apply(ComputeResiduals(np.eye(N_ITEMS, 3), 1.0))


def test_no_grid_makes_a_contribution_larger():
    """Weights and residuals are rounded toward zero, on grids down to a unit for a contribution."""
    rows = [dict.fromkeys(range(3), 5.0)]
    walk = walked(rows, "constant", "scaled", np.eye(N_ITEMS, RANK), np.zeros(N_ITEMS))
    for name in ("counts", "bias_gradient", "gradient", "size"):
        statistic = STATISTICS[name](walk)
        for power in range(-14, 3):
            value = 4.0**power * statistic.compute(KEY, grid=4.0**power)
            for norm in NORMS:
                stated = statistic.sensitivity("add-remove", norm)
                assert distance(value, 0 * value, statistic, norm) <= stated, (name, power, norm)
