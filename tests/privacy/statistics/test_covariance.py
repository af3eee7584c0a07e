"""Residuals and covariances of the baselines: no user moves them further than they say, and
they are what they say.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import ConfigError, PrivacyError
from discreet.privacy.statistics.base import unpack
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ItemTotals
from discreet.privacy.statistics.covariance import PairCounts, ResidualCovariance
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.steps import Choose, FrankWolfeStep, SubtractBaseline, frank_wolfe_step
from support.batch_helpers import ADVERSARIES, N_ITEMS, ORDINARY, sealed
from support.sealed_helpers import NORMS, RELATIONS, distance, exact, floating, quick

BOUNDS = {
    "own mean": Bounds(items=3, rating=0.9, center="user", prior_mean=3, prior_count=2),
    "constant": Bounds(items=2, rating=2.0, center=3.0),
}
B = np.linspace(-1.0, 1.0, N_ITEMS)


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def walked(users):
    rows = users.copy_after(SubtractBaseline())
    for seed in range(3):
        v = np.random.default_rng(seed).normal(size=N_ITEMS)
        rows.apply(FrankWolfeStep(v / np.linalg.norm(v), 0.3, 50.0, 0.5, 1.5))
    return rows


STATISTICS = {
    "covariance": lambda users: users.copy_after(SubtractBaseline()).sum(ResidualCovariance(0.8)),
    "covariance after steps": lambda users: walked(users).sum(ResidualCovariance(1.1)),
    "covariance per rating": (
        lambda users: users.copy_after(SubtractBaseline(B, 2.0, 0.7)).sum(
            ResidualCovariance(0.7, per_rating=True)
        )
    ),
    "pair_counts": lambda users: users.copy_after(SubtractBaseline(B, 2.0, 0.7)).sum(PairCounts()),
    "item_totals": lambda users: users.sum(ItemTotals()),
    "crowd": lambda users: users.sum(UserCount()),
}


def assert_moves_no_further(bounds, rows, who, instead, observe, slack=0.0):
    ids = list(range(50, 50 + len(rows)))
    left = [n for n in range(len(rows)) if n != who]
    replaced = [instead if n == who else row for n, row in enumerate(rows)]
    people = {
        "whole": sealed(rows, bounds, ids),
        "add-remove": sealed([rows[n] for n in left], bounds, [ids[n] for n in left]),
        "replace-one": sealed(replaced, bounds, ids),
    }
    for users in people.values():
        users.apply(Choose())
    for name, ask in STATISTICS.items():
        statistic = ask(people["whole"])
        before = observe(statistic)
        for relation in RELATIONS:
            after = observe(ask(people[relation]))
            assert np.isfinite(after).all(), name
            for norm in NORMS:
                stated = statistic.sensitivity(relation, norm)
                assert distance(before, after, statistic, norm) <= stated * (1 + slack), (
                    name,
                    relation,
                    norm,
                )
            if relation == "add-remove":
                assert np.abs(before - after).max() <= statistic.sensitivity(relation, "inf") * (
                    1 + slack
                ), name


@pytest.mark.parametrize("case", BOUNDS)
@pytest.mark.parametrize("row", ADVERSARIES)
def test_no_adversary_moves_them_further(case, row):
    rows = [*ORDINARY, ADVERSARIES[row]]
    for instead in (ADVERSARIES["both"], ORDINARY[1], {}):
        assert_moves_no_further(BOUNDS[case], rows, len(rows) - 1, instead, exact)
        assert_moves_no_further(BOUNDS[case], rows, len(rows) - 1, instead, floating, slack=1e-9)


histories = st.dictionaries(st.integers(0, N_ITEMS - 1), st.floats(width=32), max_size=N_ITEMS)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    case=st.sampled_from(sorted(BOUNDS)),
    rows=st.lists(histories, min_size=1, max_size=4),
    instead=histories,
)
def test_no_user_moves_them_further(case, rows, instead):
    assert_moves_no_further(BOUNDS[case], rows, 0, instead, lambda s: exact(s, 3e-3))


def test_the_bounds_are_reached():
    """By somebody with every item; two of them without a common direction, for replacing."""
    users = sealed(
        [ADVERSARIES["every item, far too high"]], Bounds(items=6, rating=1.0, center=0.0)
    )
    users.apply(Choose())
    for name in ("covariance", "pair_counts", "item_totals", "crowd"):
        statistic = STATISTICS[name](users)
        moved = distance(floating(statistic), 0.0, statistic, "l2")
        assert 0.999 < moved / statistic.sensitivity("add-remove", "l2") <= 1, name


def test_covariance_is_of_the_rows():
    users = sealed(ORDINARY, Bounds(items=6, rating=9.0, center=3.0))
    R = np.zeros((len(ORDINARY), N_ITEMS))
    for n, row in enumerate(ORDINARY):
        for item, value in row.items():
            R[n, item] = value - 3.0
    found = unpack(
        floating(users.copy_after(SubtractBaseline()).sum(ResidualCovariance(100.0))), N_ITEMS
    )[0]
    np.testing.assert_allclose(found, R.T @ R, rtol=1e-5)
    np.testing.assert_allclose(
        unpack(exact(users.copy_after(SubtractBaseline()).sum(ResidualCovariance(100.0))), N_ITEMS)[
            0
        ],
        R.T @ R,
        atol=0.1,
    )


def test_residuals_are_of_what_is_left():
    """Item offsets, then the user's own damped mean, then the clamp."""
    row = {0: 4.0, 2: 3.0, 4: 5.0}
    left = np.array([value - 3.0 - B[item] for item, value in row.items()])
    left = np.clip(left - left.sum() / (3 + 2.0), -0.5, 0.5)
    rows = sealed([row], Bounds(items=6, rating=9.0, center=3.0)).copy_after(
        SubtractBaseline(B, 2.0, 0.5)
    )
    found = unpack(floating(rows.sum(ResidualCovariance(100.0))), N_ITEMS)[0]
    np.testing.assert_allclose(np.diag(found)[[0, 2, 4]], left**2, rtol=1e-5)


def test_a_step_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    Y, v, size, gamma, length, largest = (
        rng.normal(size=(3, 5)),
        rng.normal(size=5),
        4.0,
        0.25,
        2.0,
        1.2,
    )
    F = rng.normal(size=(3, 5))
    row = np.repeat(np.arange(3), 5)
    fitted, coefficient, shrink = frank_wolfe_step(
        row, 3, np.tile(v, 3), Y.ravel(), F.ravel(), length, size, gamma, largest
    )
    u = (F - Y) @ v / length
    expected = (1 - gamma) * F - gamma * size * np.outer(u, v)
    expected *= np.minimum(1, largest / np.linalg.norm(expected, axis=1))[:, None]
    np.testing.assert_allclose(fitted.reshape(3, 5), expected)
    np.testing.assert_allclose(
        shrink[:, None] * ((1 - gamma) * F + np.outer(coefficient, v)), expected
    )


def test_residuals_stay_sealed():
    rows = sealed(ORDINARY, BOUNDS["constant"]).copy_after(SubtractBaseline())
    assert repr(rows) == "<sealed ratings of 6 items>"
    for look in (len, list, np.asarray):
        with pytest.raises(PrivacyError):
            look(rows)
    with pytest.raises(ConfigError, match="finite numbers"):
        rows.apply(FrankWolfeStep(np.full(N_ITEMS, np.nan), 1.0, 1.0, 0.5, 1.0))
