"""Huber weights stay behind glass and keep every bound: both relations, ℓ₁ and ℓ₂, adversarial
people.
"""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.kernels import set_threads
from discreet.privacy.accounting.budget import Budget
from discreet.privacy.accounting.mechanisms import Huber
from discreet.privacy.release.plan import Plan
from discreet.privacy.release.session import Session
from discreet.privacy.release.unsafe import under_noised
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemCounts, ItemGrams, ItemSums
from discreet.privacy.users.steps import Reweigh, huber_weights
from support.privacy_reference import huber_weights_numpy
from support.sealed_helpers import (
    NORMS,
    RELATIONS,
    distance,
    exact,
    floating,
    prepared,
    quick,
    rarest,
    uniform,
)

N_ITEMS = 6
CASES = {
    "l2": (
        Bounds(items=3, rating=0.9, center="user", prior_mean=3, prior_count=2, norm=0.7),
        uniform,
        0.0,
    ),
    "l1": (Bounds(items=3, rating=0.5, center=3.0, norm=1.0, norm_l1=0.8), rarest, 0.0),
    "l1 with intercept": (
        Bounds(items=2, rating=1.3, center="user", norm=1.0, norm_l1=1.0),
        uniform,
        0.5,
    ),
    "l2 with intercept": (Bounds(items=4, rating=1.3, center=3.0, norm=1.0), uniform, 0.5),
    "bounded in l1": (
        Bounds(items=3, rating=1.0, center="user", norm=0.5, norm_l1=0.7),
        uniform,
        0.0,
    ),
    "unbounded, as good as": (Bounds(items=50, rating=1e9, norm=1e9), uniform, 0.0),
}
STATISTICS = {
    "counts": lambda users: users.sum(ItemCounts()),
    "grams": lambda users: users.sum(ItemGrams()),
    "sums": lambda users: users.sum(ItemSums()),
}
BAD = [0.0, 1.0, 5.0, -2.5, 1e-38, 1e30, -1e30, 3.4e38, -3.4e38, math.nan, math.inf, -math.inf]
IDS = list(range(40, 60))
values = st.sampled_from(BAD) | st.floats(width=32)
histories = st.dictionaries(st.integers(0, N_ITEMS - 1), values, max_size=N_ITEMS)
giants = st.lists(values, min_size=N_ITEMS, max_size=N_ITEMS).map(lambda v: dict(enumerate(v)))


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def robust(rows, case, V, alpha, ids=None):
    bounds, steps, intercept = CASES[case]
    users = prepared(
        rows,
        N_ITEMS,
        bounds,
        V,
        steps,
        ids=IDS[: len(rows)] if ids is None else ids,
        intercept=intercept,
    )
    W = np.column_stack([np.full(N_ITEMS, 0.7), V]) if intercept else V
    return users.copy_after(Reweigh(W, alpha))


def assert_neighbors(rows, who, instead, case, V, alpha, observe):
    ids = IDS[: len(rows)]
    other = {
        "add-remove": robust(
            rows[:who] + rows[who + 1 :], case, V, alpha, ids[:who] + ids[who + 1 :]
        ),
        "replace-one": robust([*rows[:who], instead, *rows[who + 1 :]], case, V, alpha),
    }
    before = robust(rows, case, V, alpha)
    for name, ask in STATISTICS.items():
        statistic = ask(before)
        whole = observe(statistic)
        for relation in RELATIONS:
            moved = observe(ask(other[relation]))
            assert np.isfinite(moved).all(), name
            for norm in NORMS:
                stated = statistic.sensitivity(relation, norm)
                assert distance(whole, moved, statistic, norm) <= stated, (name, relation, norm)
            if relation == "add-remove":
                assert np.abs(whole - moved).max() <= statistic.sensitivity(relation, "inf"), name


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_neighbors(case, data):
    rows = data.draw(st.lists(histories | giants, min_size=1, max_size=4))
    who = data.draw(st.integers(0, len(rows) - 1))
    V = np.random.default_rng(data.draw(st.integers(0, 99))).normal(
        size=(N_ITEMS, data.draw(st.integers(1, 3)))
    )
    V *= data.draw(st.sampled_from([0.0, 0.1, 1.0, 1e9]))
    alpha = data.draw(st.sampled_from([1e-9, 0.3, 1.0, 1e9]))
    observe = data.draw(st.sampled_from([exact, floating]))
    assert_neighbors(rows, who, data.draw(histories | giants), case, V, alpha, observe)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("alpha", [1e-6, 0.5, 1e6])
def test_adversaries(case, alpha):
    ordinary = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 2.0, 3: 3.0}]
    adversaries = [
        dict.fromkeys(range(N_ITEMS), 5.0),
        dict.fromkeys(range(N_ITEMS), -1e30),
        {0: math.nan, 1: math.inf},
        {},
        {0: 1e30, 1: -1e30, 2: 3.4e38},
    ]
    for adversary in adversaries:
        for V in (np.eye(N_ITEMS, 2), np.zeros((N_ITEMS, 2)), np.full((N_ITEMS, 2), 1e-3)):
            rows = [ordinary[0], adversary, ordinary[1]]
            assert_neighbors(rows, 1, adversaries[0], case, V, alpha, exact)


def test_weights_are_reached_and_never_exceed_one():
    """A residual within α has weight 1, one of twice α has ½: and the sums show it."""
    rows = [{0: 3.0}, {1: 1.0}]
    users = prepared(
        rows, 2, Bounds(items=2, rating=5.0, norm=1.0), np.zeros((2, 1)), uniform, intercept=0.999
    )
    plain = floating(users.sum(ItemSums()))
    V = np.array([[0.0, 0.0], [1.0, 0.0]])  # predicts 0 and nearly 1
    weighted = floating(users.copy_after(Reweigh(V, 1.5)).sum(ItemSums()))
    assert weighted[0, 0] == pytest.approx(plain[0, 0] / 2, rel=1e-5)
    assert weighted[1, 0] == pytest.approx(plain[1, 0], rel=1e-12)
    huge = users.copy_after(Reweigh(V, 1e9))
    for ask in STATISTICS.values():
        assert np.array_equal(floating(ask(huge)), floating(ask(users)))


def test_the_kernel_is_its_numpy_twin_and_nobody_changes_another():
    rng = np.random.default_rng(3)
    n, U, V = 5000, rng.normal(size=(50, 7)).astype(np.float32), rng.normal(size=(20, 7))
    item, user, value = (
        rng.integers(0, 20, n),
        rng.integers(0, 50, n).astype(np.int32),
        rng.normal(size=n),
    )
    value[7], U[3] = np.nan, np.inf
    expected = huber_weights_numpy(item, user, value, U, V, 0.8)
    found = huber_weights(item, user, value, U, V, 0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (found[user == 3] == 0).all()
    assert found.max() == 1.0
    for threads in (1, 3):
        set_threads(threads)
        assert np.array_equal(
            huber_weights(item[100:], user[100:], value[100:], U, V, 0.8), found[100:]
        )


def test_bad_arguments():
    users = prepared([{0: 1.0}], 2, Bounds(items=1, rating=1.0), np.eye(2), uniform)
    with pytest.raises(ConfigError, match="rank 3"):
        users.copy_after(Reweigh(np.zeros((2, 3)), 1.0))
    with pytest.raises(ConfigError, match="alpha"):
        users.copy_after(Reweigh(np.eye(2), 0.0))


def test_under_noised_is_recorded_before_and_makes_epsilon_infinite():
    users = prepared([{0: 1.0}], 2, Bounds(items=1, rating=1.0), np.eye(2), uniform)
    session = Session(Plan((), Budget(1.0)), "seeded", 0)
    statistic, noise = users.sum(ItemSums()), Huber(3.0)
    draws = [
        under_noised(session, "sum", statistic, noise, np.random.default_rng(i)) for i in range(400)
    ]
    entry = session.ledger.entries[0]
    assert (entry.mechanism, entry.alpha, entry.unsafe) == ("huber", 3.0, True)
    assert entry.noise_multiplier * entry.sensitivity == pytest.approx(noise.standard_deviation)
    assert session.statement.epsilon == math.inf
    residual = np.array(draws) - statistic.compute(KEY)
    assert residual.std() == pytest.approx(noise.standard_deviation, rel=0.1)
    bare = under_noised(session, "sum", statistic, None, np.random.default_rng(0))
    assert np.array_equal(bare, statistic.compute(KEY))
