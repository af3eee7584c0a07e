"""Centered pairs: every user with a pair moves the released sum by at most 1, to the last unit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.centered_pairs import (
    BITS,
    KAPPA,
    CenteredPairSums,
    center_reals,
    center_units,
    pair_norms,
    pair_norms_numpy,
    whole_direction,
)
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import GradeRatings, ThresholdRatings
from support.privacy_reference import fold_triangle
from support.sealed_helpers import NORMS, RELATIONS, distance, exact, floating, make, quick

N_ITEMS = 7
POPULARITIES = {
    "even": np.ones(N_ITEMS),
    "falling": np.linspace(9.0, 0.5, N_ITEMS),
    "one item": np.eye(N_ITEMS)[0],
    "two items": np.array([1.0, 1.0, 0, 0, 0, 0, 0]),
    "none": np.zeros(N_ITEMS),
    "tiny": np.full(N_ITEMS, 1e-200),
}
STEPS = {"liked": ThresholdRatings(3.5), "graded": GradeRatings(1.0, 5.0)}
EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 5.0, 3: 4.0, 5: 4.5}, {0: 5.0}]
ADVERSARIES = [
    {},
    EVERYTHING,
    {0: 5.0, 1: 5.0},
    {0: 5.0, 6: 5.0},
    {5: 5.0, 6: 5.0},
    {0: 5.0},
    {0: 5.0, 1: 1.2, 2: 1.2},
    {1: math.nan, 2: 3.0, 4: math.inf},
]


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def centered(rows, popularity, step="graded"):
    users = seal(make(rows, N_ITEMS), Bounds(items=10**9, rating=5.0))
    users.apply(STEPS[step])
    levels = 1 if step == "liked" else 20
    return users.sum(CenteredPairSums(popularity, levels))


def assert_neighbors(rows, who, instead, popularity, observe, step="graded"):
    after = {
        "add-remove": rows[:who] + rows[who + 1 :],
        "replace-one": [*rows[:who], instead, *rows[who + 1 :]],
    }
    one = centered(rows, popularity, step)
    for relation in RELATIONS:
        moved = observe(one), observe(centered(after[relation], popularity, step))
        for norm in NORMS:
            assert distance(*moved, one, norm) <= one.sensitivity(relation, norm)
        if relation == "add-remove":
            assert np.abs(moved[0] - moved[1]).max() <= one.sensitivity(relation, "inf")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("popularity", POPULARITIES)
def test_adversaries_on_the_grid(popularity, step):
    for adversary in ADVERSARIES:
        for instead in (EVERYTHING, {5: 4.0, 6: 4.0}, {}):
            rows = [ORDINARY[0], adversary, *ORDINARY[1:]]
            assert_neighbors(rows, 1, instead, POPULARITIES[popularity], exact, step)


ratings_given = st.sampled_from([1.0, 1.2, 2.0, 3.3, 4.0, 5.0, math.nan])
histories = st.dictionaries(st.integers(0, N_ITEMS - 1), ratings_given, max_size=N_ITEMS)
popularities = st.lists(st.floats(0.0, 100.0), min_size=N_ITEMS, max_size=N_ITEMS)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(histories, min_size=1, max_size=5),
    instead=histories,
    popularity=popularities,
    coarse=st.sampled_from([0.0, 3e5, 3e7]),
)
def test_neighbors(rows, instead, popularity, coarse):
    """Without tolerance, on the grid and in float64."""
    p = np.array(popularity)
    assert_neighbors(rows, 0, instead, p, lambda statistic: exact(statistic, coarse))
    assert_neighbors(rows, 0, instead, p, floating)


@pytest.mark.parametrize("popularity", POPULARITIES)
def test_every_user_with_a_pair_reaches_the_sensitivity(popularity):
    p = POPULARITIES[popularity]
    for who in ({0: 5.0, 1: 5.0}, {0: 5.0, 3: 4.0, 4: 2.0}, EVERYTHING):
        one, none = (exact(centered(rows, p)) for rows in ([*ORDINARY, who], ORDINARY))
        assert 0.999 <= np.linalg.norm(one - none) <= 1


def test_each_user_leaves_room_for_rounding():
    """On a coarse grid: what one user adds, centered and rounded, stays a unit per item below 1."""
    for rows in ([{0: 5.0, 1: 5.0}], [EVERYTHING], [{0: 5.0, 6: 5.0}]):
        grid = 4.0**-5
        found = centered(rows, POPULARITIES["falling"], "liked").compute(KEY, grid=grid)
        assert grid * np.linalg.norm(found) <= 1 - N_ITEMS * grid


def test_replaced_users_are_nearly_two_apart():
    """Two users who add opposite numbers to the same pairs: why replacing costs 2 and not √2."""
    p = np.array([1.0, 1.0, 0.0])
    users = [
        seal(make([row], 3), Bounds(items=10**9, rating=5.0)).sum(CenteredPairSums(p, 1))
        for row in ({0: 5.0, 2: 5.0}, {1: 5.0, 2: 5.0})
    ]
    apart = distance(*map(exact, users), users[0], "l2")
    assert 2**0.5 < apart <= users[0].sensitivity("replace-one", "l2")
    assert users[0].sensitivity("replace-one", "l2") == 2.0


def test_the_norm_is_what_its_specification_says_and_never_less():
    rng = np.random.default_rng(0)
    for m in (2, 3, 10, 40):
        p = whole_direction(rng.random(m) ** 3) / 2.0**BITS
        rows = [np.flatnonzero(rng.random(m) < rng.random()) for _ in range(50)]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        indices = np.concatenate(rows).astype(np.int32)
        level = rng.integers(1, 21, len(indices)).astype(np.uint8)
        q = pair_norms(indptr, indices, level, p)
        expected = pair_norms_numpy(indptr, indices, level, p)
        assert np.allclose(q, expected, rtol=1e-5)
        assert (q >= expected * (1 - 1e-13)).all()


def center_exactly(S, P):
    """(3) in fractions, for a folded triangle of a few items, and its distance in units."""
    m = len(P)
    p = [Fraction(int(x), 2**BITS) for x in P]
    A = [[Fraction(int(S[j][k])) if j != k else Fraction(0) for k in range(m)] for j in range(m)]
    kappa = Fraction(KAPPA)
    W = [[Fraction(j == k) - kappa * p[j] * p[k] for k in range(m)] for j in range(m)]
    WA = [[sum(W[j][i] * A[i][k] for i in range(m)) for k in range(m)] for j in range(m)]
    return [[sum(WA[j][i] * W[i][k] for i in range(m)) for k in range(m)] for j in range(m)]


@pytest.mark.parametrize("m", [2, 3, 6, 7])
@pytest.mark.parametrize("size", [10, 2**40, 2**61])
def test_centering_is_off_the_real_map_by_at_most_one_unit_per_item(m, size):
    """Whatever the sum is: against fractions, up to the largest numbers."""
    rng = np.random.default_rng(m)
    P = whole_direction(rng.random(m) + 0.01)
    A = np.triu(rng.integers(-size, size, (m, m)), 1)
    A = A + A.T
    found = center_units(fold_triangle(A), P)
    expected = center_exactly(A, P)
    folded = fold_triangle(np.array(expected, object))
    off = [int(x) - y for x, y in zip(found.ravel(), folded.ravel(), strict=True)]
    assert math.sqrt(float(sum(x * x for x in off))) <= m
    reals = center_reals(fold_triangle(A).astype(np.float64), P)
    assert np.allclose(reals, folded.astype(np.float64), atol=1e-12 * size)


def test_blocks_of_rows_are_parts_of_the_whole():
    statistic = centered([*ORDINARY, EVERYTHING] * 5, POPULARITIES["falling"])
    whole = statistic.compute(KEY, grid=4.0**-14)
    parts = [statistic.compute(KEY, grid=4.0**-14, rows=slice(at, at + 1)) for at in range(3)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.allclose(statistic.compute(KEY), whole * 4.0**-14, atol=1e-4)


def test_a_popularity_that_cannot_be_is_refused():
    for wrong in (np.full(N_ITEMS, -1.0), np.ones(3), np.full(N_ITEMS, math.nan)):
        with pytest.raises(ConfigError, match="popularity"):
            centered(ORDINARY, wrong)
