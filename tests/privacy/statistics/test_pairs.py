"""Pairs of items: every person moves their sum by the same length, and never by more, to the
last unit of the grid.
"""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.kernels import set_threads
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics import pairs
from discreet.privacy.statistics.base import STATISTICS
from discreet.privacy.statistics.bounds import SHAVE, Bounds
from discreet.privacy.statistics.pairs import (
    LEVELS,
    LikeCounts,
    PairSums,
    add_likes,
    fold_shape,
    grade_ratings,
    pair_weights,
    power_sums,
    sort_by_item,
    unfold_triangle,
)
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import GradeRatings, Restrict, ThresholdRatings
from support.privacy_reference import (
    add_likes_numpy,
    fold_triangle,
    pair_sums_numpy,
    power_sums_numpy,
)
from support.sealed_helpers import NORMS, RELATIONS, distance, exact, floating, make, quick

N_ITEMS = 7
CORES = {
    "all": None,
    "some": np.array([1, 2, 4, 5, 6]),
    "out of order": np.array([6, 0, 3, 2]),
    "two": np.array([0, 1]),
}
STEPS = {"liked": ThresholdRatings(3.5), "graded": GradeRatings(1.0, 5.0)}
EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 5.0, 3: 4.0, 5: 4.5}, {0: 5.0}]
ADVERSARIES = [
    {},
    EVERYTHING,
    dict.fromkeys(range(N_ITEMS), 1e30),
    {0: 5.0, 1: 5.0},
    {0: 5.0},
    {1: math.nan, 2: 3.0, 4: math.inf},
    {0: 3.4e38, 1: -3.4e38, 5: 4.0},
    dict.fromkeys(range(N_ITEMS), 0.0),
]


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def statistics(rows, core="all", step=STEPS["graded"]):
    users = seal(make(rows, N_ITEMS), Bounds(items=10**9, rating=5.0))
    users.apply(step)
    if CORES[core] is not None:
        users = users.copy_after(Restrict(CORES[core]))
    levels = LEVELS if isinstance(step, GradeRatings) else 1
    return {
        "pair sums": users.sum(PairSums(levels)),
        "active users": users.sum(UserCount(active=True)),
        "like counts": users.sum(LikeCounts(levels)),
    }


def assert_neighbors(rows, who, instead, core, observe, step=STEPS["graded"]):
    after = {
        "add-remove": rows[:who] + rows[who + 1 :],
        "replace-one": [*rows[:who], instead, *rows[who + 1 :]],
    }
    before = statistics(rows, core, step)
    for relation in RELATIONS:
        other = statistics(after[relation], core, step)
        for name, one in before.items():
            moved = observe(one), observe(other[name])
            assert np.isfinite(moved[1]).all()
            for norm in NORMS:
                assert distance(*moved, one, norm) <= one.sensitivity(relation, norm), (
                    name,
                    relation,
                    norm,
                )
            if relation == "add-remove":
                assert np.abs(moved[0] - moved[1]).max(initial=0) <= one.sensitivity(
                    relation, "inf"
                ), name


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("core", CORES)
def test_adversaries_on_the_grid(core, step):
    for adversary in ADVERSARIES:
        for instead in (EVERYTHING, {5: 4.0, 6: 4.0}, {}):
            assert_neighbors(
                [ORDINARY[0], adversary, *ORDINARY[1:]], 1, instead, core, exact, STEPS[step]
            )


ratings_given = st.sampled_from([1.0, 1.2, 2.0, 3.3, 4.0, 5.0, math.nan])
histories = st.dictionaries(st.integers(0, N_ITEMS - 1), ratings_given, max_size=N_ITEMS)


@pytest.mark.parametrize("core", CORES)
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data(), coarse=st.sampled_from([0.0, 3e5]))
def test_neighbors(core, data, coarse):
    """Without tolerance, on the grid and in float64."""
    rows = data.draw(st.lists(histories, min_size=1, max_size=5))
    who = data.draw(st.integers(0, len(rows) - 1))
    instead = data.draw(histories)
    assert_neighbors(rows, who, instead, core, lambda statistic: exact(statistic, coarse))
    assert_neighbors(rows, who, instead, core, floating)


LIKED = {
    "two": {0: 5.0, 1: 5.0},
    "two others": {5: 5.0, 6: 5.0},
    "three": {0: 5.0, 3: 5.0, 4: 5.0},
    "four, not alike": {0: 5.0, 3: 4.0, 4: 2.0, 5: 1.4},
    "all": EVERYTHING,
}


@pytest.mark.parametrize("who", LIKED)
def test_every_user_reaches_the_sensitivity_and_does_not_pass_it(who):
    """ℓ₂: anybody with a pair; ℓ₁: whoever likes everything; one entry: whoever likes two items."""
    one, none = (
        statistics([ORDINARY[1], LIKED[who]])["pair sums"],
        statistics([ORDINARY[1]])["pair sums"],
    )
    assert (
        0.999
        <= distance(exact(one), exact(none), one, "l2") / one.sensitivity("add-remove", "l2")
        <= 1
    )
    if who == "all":
        assert (
            0.999
            <= distance(exact(one), exact(none), one, "l1") / one.sensitivity("add-remove", "l1")
            <= 1
        )
    if who == "two":
        assert (
            0.999
            <= np.abs(exact(one) - exact(none)).max() / one.sensitivity("add-remove", "inf")
            <= 1
        )


def test_a_pair_of_users_reaches_the_sensitivity_of_replacing():
    one, other = (
        statistics([ORDINARY[1], LIKED[who]])["pair sums"] for who in ("two", "two others")
    )
    assert (
        0.999
        <= distance(exact(one), exact(other), one, "l2") / one.sensitivity("replace-one", "l2")
        <= 1
    )
    few = [
        statistics([ORDINARY[1], row], "two")["active users"]
        for row in (LIKED["two"], LIKED["two others"])
    ]
    assert (
        0.999
        <= distance(*map(exact, few), few[0], "l2") / few[0].sensitivity("replace-one", "l2")
        <= 1
    )


def test_no_grid_makes_a_contribution_larger():
    """On the coarsest grids as well: what is truncated is the contribution to a pair, not the
    sum.
    """
    for n in range(N_ITEMS + 1):
        sums = statistics([dict.fromkeys(range(n), 5.0)], step=STEPS["liked"])["pair sums"]
        real = math.sqrt(2 / (n * (n - 1))) if n > 1 else 0.0
        for grid in (4.0**-14, 4.0**-4, 4.0**-1):
            found = sums.compute(KEY, grid=grid)
            assert found.dtype == np.int64
            assert set(found.ravel().tolist()) <= {0, math.trunc(SHAVE * real / grid)}
            assert grid * found.max(initial=0) <= real


def test_no_grid_makes_a_graded_contribution_larger():
    """Entry by entry, against the definition in plain Python."""
    row = LIKED["four, not alike"]
    sums = statistics([row])["pair sums"]
    level = np.zeros(N_ITEMS)
    level[list(row)] = [round(LEVELS * (rating - 1) / 4) for rating in row.values()]
    q = math.sqrt((level**2).sum() ** 2 - (level**4).sum())
    real = fold_triangle(math.sqrt(2) * np.outer(level, level) / q)
    for grid in (4.0**-14, 4.0**-9, 4.0**-5):
        found = sums.compute(KEY, grid=grid)
        assert found.dtype == np.int64
        assert (grid * found <= real).all()
        assert (grid * found >= real - 2e-6 - grid * LEVELS**2).all()


def test_many_users_are_added_exactly():
    rows = [dict.fromkeys(range(3), 5.0)] * 1000
    one, all_of_them = (
        statistics(people)["pair sums"].compute(KEY, grid=4.0**-14) for people in (rows[:1], rows)
    )
    assert np.array_equal(all_of_them, 1000 * one)


@pytest.mark.parametrize("m", [0, 1, 2, 3, 8, 9])
def test_a_triangle_is_folded_without_loss(m):
    A = np.arange(m * m, dtype=np.float64).reshape(m, m)
    A = np.triu(A, 1) + np.triu(A, 1).T
    folded = fold_triangle(A)
    assert folded.shape == fold_shape(m)
    assert folded.size == m * (m - 1) // 2
    found = np.zeros_like(A)
    for start in range(0, len(folded), 2):
        unfold_triangle(folded[start : start + 2], start, found)
    assert np.array_equal(found, A)


@pytest.mark.parametrize("levels", [1, LEVELS])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("m", [1, 2, 30, 31])
def test_the_kernel_does_what_its_twin_says(m, threads, levels):
    rng = np.random.default_rng(m)
    rows = [
        {int(item): float(rng.choice([2, 3.5, 5])) for item in np.flatnonzero(rng.random(m) < 0.3)}
        for _ in range(200)
    ]
    ratings = make(rows, m)
    users = seal(ratings, Bounds(items=10**9, rating=5.0))
    level = np.ones(ratings.n_ratings, np.uint8)
    if levels > 1:
        users.apply(GradeRatings(1.0, 5.0))
        level = grade_ratings(ratings.values, 1.0, 5.0).astype(np.uint8)
    sums = users.sum(PairSums(levels))
    grid = 4.0**-13
    whole = np.trunc(pair_weights(ratings.indptr, level) / grid).astype(np.int64)
    expected = pair_sums_numpy(ratings.indptr, ratings.indices, level, whole, m)
    set_threads(threads)
    assert np.array_equal(sums.compute(KEY, grid=grid), expected)
    parts = [
        sums.compute(KEY, grid=grid, rows=slice(at, at + 4)) for at in range(0, len(expected), 4)
    ]
    assert np.array_equal(np.concatenate([*parts, expected[:0]]), expected)
    assert np.allclose(sums.compute(KEY), grid * expected, atol=200 * grid * levels**2)


@pytest.mark.parametrize("grid", [None, 4.0**-13])
def test_one_pass_does_what_its_twin_says(grid):
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 100))])
    indices = rng.integers(0, 6, indptr[-1]).astype(np.int32)
    level = rng.integers(0, LEVELS + 1, indptr[-1]).astype(np.uint8)
    assert np.array_equal(power_sums(indptr, level), power_sums_numpy(indptr, level))
    given = (indptr, indices, level, rng.random(100), 6, grid)
    assert np.allclose(
        add_likes(*given), add_likes_numpy(*given), rtol=1e-12, atol=0 if grid is None else 0.5
    )


def test_blocks_of_users_change_nothing(monkeypatch):
    rows = [*ORDINARY, EVERYTHING] * 20
    whole = statistics(rows)["pair sums"].compute(KEY, grid=4.0**-13)
    monkeypatch.setattr(pairs, "IN_CACHE", 7)
    assert np.array_equal(statistics(rows)["pair sums"].compute(KEY, grid=4.0**-13), whole)


def test_the_order_of_a_core_changes_nothing_but_the_order():
    in_order, turned = (
        seal(make(ORDINARY, N_ITEMS), Bounds(items=10**9))
        .copy_after(Restrict(np.array(core)))
        .sum(PairSums())
        .compute(KEY)
        for core in ([0, 2, 3, 5], [5, 3, 2, 0])
    )
    A, B = np.zeros((4, 4)), np.zeros((4, 4))
    unfold_triangle(in_order, 0, A)
    unfold_triangle(turned, 0, B)
    assert np.array_equal(A, B[::-1, ::-1])
    items, levels = sort_by_item(np.array([0, 2, 3]), np.array([4, 1, 0]), np.array([7, 8, 9]))
    assert np.array_equal(items, [1, 4, 0])
    assert np.array_equal(levels, [8, 7, 9])


def test_only_what_is_liked_counts():
    rows = [{0: 5.0, 1: 3.0, 2: 4.0}, {1: 1.0}, {0: math.nan, 1: 5.0}]
    found = statistics(rows, step=ThresholdRatings(4.0))
    assert exact(found["active users"]) == pytest.approx([2.0])
    assert exact(found["like counts"]) == pytest.approx(
        [0.5**0.5, 1, 0.5**0.5, 0, 0, 0, 0], rel=1e-5
    )
    with pytest.raises(ConfigError, match="least"):
        statistics(rows, step=ThresholdRatings(math.nan))


def test_a_five_says_more_than_a_four_and_a_one_says_nothing():
    found = statistics([{0: 5.0, 1: 3.0, 2: 4.0}, {1: 1.0}])
    assert exact(found["active users"]) == pytest.approx([1.0])
    length = math.sqrt(1 + 0.25 + 0.5625)
    assert exact(found["like counts"]) == pytest.approx(
        [1 / length, 0.5 / length, 0.75 / length, 0, 0, 0, 0], rel=1e-5
    )
    assert grade_ratings(np.array([-3.0, 1.0, 1.05, 2.0, 5.0, 9.0]), 1.0, 5.0).tolist() == [
        0,
        0,
        0,
        5,
        20,
        20,
    ]
    for wrong in (GradeRatings(5.0, 1.0), GradeRatings(1.0, math.inf)):
        with pytest.raises(ConfigError, match=r"cannot be graded|high"):
            statistics(ORDINARY, step=wrong)
    with pytest.raises(ConfigError, match="levels is 21"):
        seal(make(ORDINARY, N_ITEMS), Bounds(items=10**9)).sum(PairSums(21))


def test_they_are_registered():
    assert STATISTICS["pair sums"] is PairSums
    assert STATISTICS["number of users"] is UserCount
    assert STATISTICS["like counts"] is LikeCounts


def test_items_are_sorted_also_after_users_without_any():
    """The kernel writes out of bounds otherwise."""
    for indptr in ([0, 0, 2], [0, 0, 0, 2], [0, 0, 2, 2]):
        items, levels = sort_by_item(np.array(indptr), np.array([4, 1]), np.array([7, 8]))
        assert items.tolist() == [1, 4]
        assert levels.tolist() == [8, 7]
