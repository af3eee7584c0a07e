"""Counts by community and left-out hits move by at most their sensitivity for any user."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError
from discreet.kernels import reference
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.communities import CommunityCounts, LeftOutHits, Mixture
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import GradeRatings
from support.sealed_helpers import NORMS, RELATIONS, distance, exact, floating, make, quick

N_ITEMS = 6
#: Items 0–2 belong to the first community and 3–5 to the second.
P = np.array([[9, 1], [9, 1], [9, 1], [1, 9], [1, 9], [1, 9]], np.float32) / 30
MIXTURE = Mixture(P, np.full(2, 0.5), 0.1, 5)
COUNTS = np.array([9.0, 8.0, 1.0, 1.0, 1.0, 1.0])


def counts(rows, mixture=MIXTURE, ids=None, levels=20):
    return _sealed(rows, ids).sum(CommunityCounts(mixture, levels))


def hits(rows, mixture=MIXTURE, ids=None, best=1, **options):
    statistic = LeftOutHits(mixture, COUNTS, best=best, **options)
    return _sealed(rows, ids).sum(statistic)


def _sealed(rows, ids):
    users = seal(make(rows, N_ITEMS, ids), Bounds(items=10**9, rating=5.0))
    users.apply(GradeRatings(1.0, 5.0))
    return users


ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.5, 2: 5.0, 3: 4.0, 5: 4.5}, {0: 5.0}]
EVERYTHING = dict.fromkeys(range(N_ITEMS), 5.0)
ADVERSARIES = [
    {},
    EVERYTHING,
    {0: 5.0},
    {5: 5.0},
    {0: 5.0, 1: 5.0, 2: 5.0},
    {3: 5.0, 4: 5.0, 5: 1.2},
    {0: 1e30, 1: -1e30, 5: 4.0},
    {1: math.nan, 2: 3.0, 4: math.inf},
]
STATISTICS = {"counts": counts, "hits": hits}


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def assert_neighbors(rows, who, instead, observe, statistic):
    ids = list(range(len(rows)))
    others = ids[:who] + ids[who + 1 :]
    after = {
        "add-remove": (rows[:who] + rows[who + 1 :], others),
        "replace-one": (
            [*rows[:who], instead, *rows[who + 1 :]],
            [*ids[:who], 99, *ids[who + 1 :]],
        ),
    }
    one = statistic(rows, ids=ids)
    for relation in RELATIONS:
        changed, their_ids = after[relation]
        moved = observe(one), observe(statistic(changed, ids=their_ids))
        assert np.isfinite(moved[1]).all()
        for norm in NORMS:
            assert distance(*moved, one, norm) <= one.sensitivity(relation, norm)


@pytest.mark.parametrize("name", STATISTICS)
def test_adversaries_on_the_grid(name):
    for adversary in ADVERSARIES:
        for instead in (EVERYTHING, {4: 5.0, 5: 4.0}, {}):
            rows = [ORDINARY[0], adversary, *ORDINARY[1:]]
            assert_neighbors(rows, 1, instead, exact, STATISTICS[name])


histories = st.dictionaries(
    st.integers(0, N_ITEMS - 1), st.sampled_from([1.0, 2.0, 3.3, 5.0]), max_size=N_ITEMS
)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(histories, min_size=1, max_size=4), instead=histories)
def test_neighbors(rows, instead):
    for statistic in STATISTICS.values():
        for observe in (exact, floating):
            assert_neighbors(rows, 0, instead, observe, statistic)


@pytest.mark.parametrize("who", ADVERSARIES[1:6])
def test_every_user_with_items_reaches_the_sensitivity_and_does_not_pass_it(who):
    """In one column."""
    one = counts([who])
    moved = exact(one)
    assert 1 - 1e-4 < np.linalg.norm(moved) <= one.sensitivity("add-remove", "l2")
    assert (moved > 0).any(axis=0).sum() == 1


def test_replaced_users_of_two_communities_are_root_two_apart():
    first, second = (counts([dict.fromkeys(items, 5.0)]) for items in ([0, 1, 2], [3, 4]))
    apart = distance(exact(first), exact(second), first, "l2")
    assert math.sqrt(2) * (1 - 1e-4) < apart <= first.sensitivity("replace-one", "l2")


def test_no_grid_makes_a_contribution_larger():
    """Every entry is truncated toward zero, on coarse grids as well."""
    rows = [*ORDINARY, EVERYTHING, {0: 5.0, 1: 3.0}]
    for row in rows:
        real = floating(counts([row]))
        for power in (2, 5, 10):
            grid = 4.0**-power
            units = counts([row]).compute(KEY, grid=grid)
            assert units.dtype == np.int64
            assert (units * grid <= real).all()
            assert (units >= 0).all()


@pytest.mark.parametrize("name", STATISTICS)
def test_what_a_user_adds_does_not_depend_on_others(name):
    rows = [{0: 5.0, 1: 3.0}, {0: 5.0, 2: 1.5}, {3: 4.0, 4: 2.0}, {1: 2.0}]
    alone = [exact(STATISTICS[name]([row], ids=[i])) for i, row in enumerate(rows)]
    np.testing.assert_array_equal(exact(STATISTICS[name](rows)), sum(alone))


def test_counts_are_those_of_a_plain_computation():
    rows = [{0: 5.0, 1: 3.0, 4: 2.0}, {3: 4.0, 5: 5.0}, {}]
    expected = np.zeros((N_ITEMS, 2))
    for row in rows:
        a = np.zeros(N_ITEMS)
        a[list(row)] = np.rint(5 * (np.array(list(row.values())) - 1)) / 20
        theta = reference.mixture_weights(
            np.array([0, N_ITEMS]), np.arange(N_ITEMS), a, P, MIXTURE.prior, 0.1, 5
        )
        if a.any():
            expected[:, theta[0].argmax()] += a / np.linalg.norm(a)
    np.testing.assert_allclose(floating(counts(rows)), expected, rtol=1e-5)


def test_hits_of_communities_and_of_popularity():
    """Popularity ranks the left-out item 0 first; the mixture, items of the own community."""
    popular = {0: 5.0, 3: 5.0, 4: 5.0}
    tasteful = {3: 5.0, 4: 5.0, 5: 5.0}
    assert floating(hits([tasteful]))[0] == pytest.approx(1.0)
    assert floating(hits([popular], left_out=3))[0] == pytest.approx(-1 / 3)
    assert floating(hits([tasteful], handicap=2.0))[0] == pytest.approx(0.5)
    assert floating(hits([{0: 5.0}, {}]))[0] == 0.0


def test_replaced_users_with_opposite_hits_are_two_apart():
    against = replace(MIXTURE, P=P[:, ::-1].copy())
    one = hits([{3: 5.0, 4: 5.0, 5: 5.0}], best=3)
    other = hits([{0: 5.0, 1: 5.0}], mixture=against, best=1)
    assert exact(one)[0] > 0.99
    assert abs(exact(other)[0]) <= 1.0


def test_users_take_their_own_part_out():
    """An item that the user alone has chosen is not found by its own contribution."""
    own = {4: 5.0, 5: 5.0}
    mixture = replace(MIXTURE, P=(P * np.array([1, 1, 1, 0.8, 1, 1])[:, None]).astype(np.float32))
    found = []
    for count in (50.0, 1.0):
        statistic = LeftOutHits(mixture, np.full(N_ITEMS, count), best=1)
        found.append(floating(_sealed([own], None).sum(statistic))[0])
    assert found == [1.0, 0.0]


def test_users_are_counted_or_held_out_for_the_check():
    """Each user for one of the two, whoever else is there."""
    rows = [{3: 5.0, 4: 5.0, 5: 5.0} for _ in range(400)]
    users = _sealed(rows, None)
    counted = floating(users.sum(CommunityCounts(MIXTURE, held_out=0.3))).sum() / math.sqrt(3)
    checked = floating(users.sum(LeftOutHits(MIXTURE, COUNTS, best=1, held_out=0.3)))[0]
    assert counted + checked == pytest.approx(400, rel=1e-5)
    assert 80 < checked < 160


@pytest.mark.parametrize(
    "broken",
    [
        CommunityCounts(replace(MIXTURE, P=np.zeros_like(P))),
        CommunityCounts(replace(MIXTURE, P=P.astype(np.float64))),
        CommunityCounts(replace(MIXTURE, P=P[:3])),
        CommunityCounts(replace(MIXTURE, strength=0.0)),
        CommunityCounts(MIXTURE, levels=99),
        LeftOutHits(MIXTURE, np.zeros(N_ITEMS)),
        LeftOutHits(MIXTURE, COUNTS, handicap=0.5),
    ],
)
def test_public_numbers_are_checked_before_ratings_are_read(broken):
    with pytest.raises(ConfigError):
        _sealed(ORDINARY, None).sum(broken)
