"""Moments of a choice model: whatever a user has, it adds a vector of norm 1 at most."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.kernels import reference
from discreet.kernels.profiles import find_value_sets, profile_scores
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.choice_moments import (
    CLIP,
    ChoiceMoments,
    ProfileInputs,
    clip_moments,
)
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import GradeRatings
from support.sealed_helpers import NORMS, RELATIONS, distance, exact, floating, make, quick

N_ITEMS = 6
STARTS = np.array([[0, 1, 2, 4, 5, 5, 6], [6, 7, 8, 9, 10, 11, 12]], np.int64)
EXPONENTS = np.array([0.0, 1.0])
VALUES = np.array([0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3], np.int32)


def inputs(r=2, scale=1.0):
    """Public numbers of six items, two features and r factors, as large as they are said to be."""
    rng = np.random.default_rng(0)
    candidates = np.array([0, 1, 2, 4, 5])
    return ProfileInputs(
        candidates,
        scale * np.linspace(0.0, -2.0, 5),
        np.linspace(9.0, 1.0, 5),
        (scale * rng.standard_normal((r, 5))).astype(np.float32),
        (scale * rng.standard_normal((N_ITEMS, r))).astype(np.float32),
        np.ones(r, np.float32),
        0.05,
        STARTS,
        VALUES,
        scale * np.array([2.0, 3.0, 2.0, 50.0]),
        10.0,
    )


def moments(rows, given=None, ids=None, **options):
    given = inputs() if given is None else given
    d = given.size
    users = seal(make(rows, N_ITEMS, ids), Bounds(items=10**9, rating=5.0))
    users.apply(GradeRatings(1.0, 5.0))
    weights = options.pop("weights", np.ones(d))
    return users.sum(ChoiceMoments(given, weights, EXPONENTS, best=3, **options))


ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.5, 2: 5.0, 3: 4.0, 5: 4.5}, {0: 5.0}]
EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ADVERSARIES = [
    {},
    EVERYTHING,
    {0: 5.0},
    {0: 5.0, 3: 5.0},
    {4: 5.0, 5: 5.0},
    {0: 1e30, 1: -1e30, 5: 4.0},
    {1: math.nan, 2: 3.0, 4: math.inf},
]
HUGE = {"usual": 1.0, "large": 40.0, "overflowing": 1e30}


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def assert_neighbors(rows, who, instead, observe, given):
    ids = list(range(len(rows)))
    others = ids[:who] + ids[who + 1 :]
    after = {
        "add-remove": (rows[:who] + rows[who + 1 :], others),
        "replace-one": (
            [*rows[:who], instead, *rows[who + 1 :]],
            [*ids[:who], 99, *ids[who + 1 :]],
        ),
    }
    one = moments(rows, given, ids, left_out=2)
    for relation in RELATIONS:
        changed, their_ids = after[relation]
        moved = observe(one), observe(moments(changed, given, their_ids, left_out=2))
        assert np.isfinite(moved[1]).all()
        for norm in NORMS:
            assert distance(*moved, one, norm) <= one.sensitivity(relation, norm)


@pytest.mark.parametrize("scale", HUGE)
@pytest.mark.parametrize("r", [0, 2])
def test_adversaries_on_the_grid(r, scale):
    """Whatever the public numbers are, too."""
    for adversary in ADVERSARIES:
        for instead in (EVERYTHING, {4: 5.0, 5: 4.0}, {}):
            rows = [ORDINARY[0], adversary, *ORDINARY[1:]]
            assert_neighbors(rows, 1, instead, exact, inputs(r, HUGE[scale]))


histories = st.dictionaries(
    st.integers(0, N_ITEMS - 1), st.sampled_from([1.0, 2.0, 3.3, 5.0]), max_size=N_ITEMS
)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(histories, min_size=1, max_size=4), instead=histories, r=st.integers(0, 2))
def test_neighbors(rows, instead, r):
    for observe in (exact, floating):
        assert_neighbors(rows, 0, instead, observe, inputs(r))


def test_the_sensitivity_is_reached():
    """Gradient and curvature both at the clip: norm 1."""
    z = clip_moments(np.array([[3.0, 0.0, 7.0, 0.0, 0.0], [0.0, 2.0, 0.0, 9.0, 0.0]]))
    assert np.linalg.norm(z, axis=1) == pytest.approx([math.sqrt(0.6 * 9 / 49 + 0.4)] * 2, rel=0.2)
    both = clip_moments(np.array([[CLIP, 0.0, CLIP, 0.0, 0.0]]))
    assert np.linalg.norm(both) == pytest.approx(1.0)
    assert np.linalg.norm(clip_moments(np.full((1, 5), 1e300))) <= 1.0
    assert not clip_moments(np.array([[np.nan, 1.0, 1.0, 1.0, 1.0]])).any()


def test_replaced_users_with_opposite_gradients():
    """Further than √2 apart, which would be enough for sums without signs."""
    one, other = (moments([row], inputs(0)) for row in ({2: 5.0, 4: 5.0}, {0: 5.0, 1: 5.0, 5: 5.0}))
    apart = distance(exact(one), exact(other), one, "l2")
    assert math.sqrt(2) < apart <= one.sensitivity("replace-one", "l2")


def plain_moments(row, out, w):
    """Of a user who leaves out these items, by the definition."""
    given = inputs()
    x_all = {item: (value - 1) / 4 for item, value in row.items()}
    kept = np.array([item for item in row if item not in out])
    x = np.array([x_all[item] for item in kept])
    lifts = reference.log_lifts(kept, x, STARTS, VALUES, given.inverse, given.tau)
    u = given.base + (x @ given.gain[kept]) / np.linalg.norm(x)
    ratio = np.maximum(u @ given.factors / np.exp(given.popularity), given.floor)
    plain = np.vstack([given.popularity, np.log(ratio), lifts[:, given.candidates]])
    place = {item: k for k, item in enumerate(given.candidates.tolist())}
    allowed = [k for item, k in place.items() if item not in kept]
    chosen = set()
    for power in EXPONENTS:
        scores = plain[0] + plain[1] + power * (plain[2] + plain[3])
        chosen |= set(sorted(allowed, key=lambda k: -scores[k])[:3])
    X = plain.copy()
    norm = math.sqrt(sum(one**2 for one in x_all.values()))
    for item in out:
        count = given.counts[place[item]]
        X[0, place[item]] += math.log((count - x_all[item] / norm) / count)
    U = sorted(chosen)
    p = np.exp(w @ X[:, U])
    p /= p.sum()
    mean = X[:, U] @ p
    H = ((X[:, U] - mean[:, None]) * p) @ (X[:, U] - mean[:, None]).T
    found = [place[item] for item in out if place[item] in chosen]
    g = sum((X[:, k] - mean for k in found), np.zeros(4)) / len(out)
    H = H * len(found) / len(out)
    return clip_moments(np.append(g, H[np.triu_indices(4)])[None])[0]


@pytest.mark.parametrize(
    ("row", "best"),
    [({0: 5.0, 2: 5.0, 3: 3.0}, [0, 2]), ({0: 5.0, 1: 5.0, 3: 3.0, 4: 5.0}, [0, 1, 4])],
)
def test_moments_are_those_of_a_plain_computation(row, best):
    """Half of the items may be left out; where a user begins follows from its id."""
    w = np.array([1.0, 0.5, 0.3, -0.2])
    found = floating(moments([row], weights=w, least_level=20, left_out=9))
    expected = [plain_moments(row, out, w) for out in combinations(best, len(row) // 2)]
    assert min(np.abs(found - one).max() for one in expected) < 1e-5
    assert np.abs(found).max() > 0


def test_scores_are_those_of_their_specification():
    rng = np.random.default_rng(1)
    given = inputs()
    popularity = np.linspace(0.0, -2.0, N_ITEMS)
    lists = (STARTS, VALUES, given.inverse)
    for factors, second in ((0, 0.0), (2, 0.7), (2, 0.0)):
        V = rng.standard_normal((N_ITEMS, factors)).astype(np.float32)
        for _ in range(10):
            at = np.flatnonzero(rng.random(N_ITEMS) < 0.5)
            u = rng.standard_normal(factors).astype(np.float32)
            weights = (1.3, second, np.array([0.4, -0.2]))
            asked = (at, rng.random(len(at)), u, V, popularity, weights, 0.05, lists, 10.0)
            assert np.allclose(profile_scores(*asked), reference.profile_scores(*asked), atol=1e-6)


def test_a_part_of_the_users_is_drawn_from_their_ids():
    rows = [*ORDINARY, EVERYTHING] * 30
    ids = range(1, 121)
    whole, none = (np.abs(floating(moments(rows, ids=ids, part=p))).sum() for p in (1.0, 1e-9))
    some = floating(moments(rows, ids=ids, part=0.5))
    assert none == 0 < np.abs(some).sum() < whole
    assert np.array_equal(some, floating(moments(rows, ids=ids, part=0.5)))


@pytest.mark.parametrize("many", [1, 9])
def test_equal_sets_of_values_are_found_once(many):
    """By the values in their order, of each feature; also where every item has its own."""
    rng = np.random.default_rng(many)
    lengths = rng.integers(0, 3, (2, 40))
    starts = np.zeros((2, 41), np.int64)
    starts[:, 1:] = lengths.cumsum(axis=1)
    starts[1] += starts[0, -1]
    values = rng.integers(0, many, starts[1, -1]).astype(np.int32)
    sets = find_value_sets(starts[:, :-1], starts[:, 1:], values)
    for f in range(2):
        lists = [tuple(values[starts[f, j] : starts[f, j + 1]]) for j in range(40)]
        for j, one in enumerate(sets.set_of[f]):
            assert tuple(sets.values[sets.begin[one] : sets.begin[one + 1]]) == lists[j]
        assert sets.first[f + 1] - sets.first[f] == len(set(lists))


def test_what_does_not_fit_is_refused():
    good = inputs()
    for name, wrong in (
        ("counts", 0 * good.counts),
        ("popularity", good.popularity[:2]),
        ("candidates", good.candidates + 9),
        ("starts", STARTS[:, ::-1]),
        ("values", VALUES + 9),
        ("gain", good.gain[:2]),
    ):
        with pytest.raises(ConfigError, match=name):
            moments(ORDINARY, replace(good, **{name: wrong}))
    with pytest.raises(ConfigError, match="tau"):
        moments(ORDINARY, replace(good, tau=0.0))


def test_grids_are_whole_numbers():
    assert moments(ORDINARY).compute(KEY, grid=4.0**-10).dtype == np.int64
