"""Sensitivities are reached, not only kept: for every statistic there is a worst user, and a
worst pair of users.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from discreet.errors import ConfigError, PrivacyError
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.base import (
    Public,
    SensitivityBounds,
    Statistic,
    isometry,
    pack,
    triangle_size,
    unpack,
)
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.contributions import ContributedCovariance
from discreet.privacy.statistics.gradients import residuals
from discreet.privacy.statistics.sums import Sum
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose, Solve
from support.privacy_reference import residuals_numpy
from support.sealed_helpers import STATISTICS, distance, exact, make, quick

TIGHT = 0.999
N, RANK, K = 12, 3, 4
STEER = np.full(N, -1e9)  # a public bias that decides every user's vector, whatever it rated


@pytest.fixture(autouse=True)
def quickly():
    with quick():
        yield


def ratings_of(items, rating):
    return dict.fromkeys(items, rating)


FIRST, LAST, NOTHING = range(K), range(N - K, N), {}
HIGH, LOW = ratings_of(FIRST, 1e6), ratings_of(FIRST, -1e6)
ALL_HIGH, ALL_LOW = ratings_of(range(N), 1e6), ratings_of(range(N), -1e6)
ELSEWHERE = ratings_of(LAST, 1e6)
#: Directions of the item factors, and so of the vectors: those of the first half of the items, and
#: of the rest.
ALONG = {"axes": (np.eye(RANK)[0], np.eye(RANK)[1]), "ones": (np.ones(RANK), np.ones(RANK))}
ALL_L1 = {"norm": 0.7, "norm_l1": 0.7}

#: statistic, relation, norm, direction of vectors, further bounds, the two histories (None: no user
#: at all)
WORST = [
    ("item_counts", "add-remove", "l2", "axes", {}, HIGH, None),
    ("item_counts", "add-remove", "l1", "axes", {}, HIGH, None),
    ("item_counts", "replace-one", "l2", "axes", {}, HIGH, ELSEWHERE),
    ("item_counts", "replace-one", "l1", "axes", {}, HIGH, ELSEWHERE),
    ("item_grams", "add-remove", "l2", "axes", {}, HIGH, None),
    ("item_grams", "add-remove", "l2", "ones", {}, HIGH, None),
    ("item_grams", "add-remove", "l1", "ones", {}, HIGH, None),
    ("item_grams", "add-remove", "l1", "axes", ALL_L1, HIGH, None),
    ("item_grams", "replace-one", "l2", "ones", {}, HIGH, ELSEWHERE),
    ("item_grams", "replace-one", "l1", "ones", {}, HIGH, ELSEWHERE),
    ("item_grams, not isometric", "add-remove", "l2", "axes", {}, HIGH, None),
    ("item_grams, not isometric", "add-remove", "l1", "ones", {}, HIGH, None),
    ("item_grams, not isometric", "replace-one", "l2", "axes", {}, HIGH, ELSEWHERE),
    ("item_grams, not isometric", "replace-one", "l1", "ones", {}, HIGH, ELSEWHERE),
    ("item_sums", "add-remove", "l2", "axes", {}, HIGH, None),
    ("item_sums", "add-remove", "l1", "ones", {}, HIGH, None),
    ("item_sums", "add-remove", "l1", "axes", ALL_L1, HIGH, None),
    ("item_sums", "replace-one", "l2", "axes", {}, HIGH, LOW),
    ("item_sums", "replace-one", "l1", "ones", {}, HIGH, LOW),
    ("global_gram", "add-remove", "l2", "ones", {}, HIGH, None),
    ("global_gram", "add-remove", "l1", "ones", {}, HIGH, None),
    ("global_gram", "replace-one", "l2", "axes", {}, HIGH, ELSEWHERE),
    ("global_gram", "replace-one", "l1", "axes", ALL_L1, HIGH, ELSEWHERE),
    ("covariance", "add-remove", "l2", "axes", {}, HIGH, None),
    ("covariance", "add-remove", "l1", "axes", {}, HIGH, None),
    ("covariance", "replace-one", "l2", "axes", {}, HIGH, ELSEWHERE),
    ("covariance", "replace-one", "l1", "axes", {}, HIGH, ELSEWHERE),
    ("gradient", "add-remove", "l2", "axes", {}, HIGH, None),
    ("gradient", "add-remove", "l1", "ones", {}, ALL_HIGH, None),
    ("gradient", "replace-one", "l2", "axes", {}, HIGH, LOW),
    ("gradient", "replace-one", "l1", "ones", {}, ALL_HIGH, ALL_LOW),
    ("rating_sum", "add-remove", "l2", "axes", {}, HIGH, None),
    ("rating_sum", "replace-one", "l2", "axes", {}, HIGH, LOW),
    ("rating_sum", "replace-one", "l2", "axes", {"rating": None}, HIGH, NOTHING),
    ("rating_sum", "replace-one", "l1", "axes", {}, HIGH, LOW),
    ("rating_count", "add-remove", "l2", "axes", {}, HIGH, None),
    ("rating_count", "replace-one", "l2", "axes", {}, HIGH, NOTHING),
    ("rating_count", "replace-one", "l1", "axes", {}, HIGH, NOTHING),
]


def statistic_of(name, history, along="axes", **further):
    """The statistic over one ordinary user and, unless it is None, the user with this history."""
    bounds = Bounds(**({"rating": 1.5, "center": 0.0, "norm": 0.7, "items": K} | further))
    direction = np.where(np.arange(N)[:, None] < N / 2, ALONG[along][0], ALONG[along][1])
    V = (1e-3 * direction / np.linalg.norm(direction, axis=1, keepdims=True)).astype(np.float32)
    users = seal(make([{0: 1.0, N - 1: 3.0}] + [history] * (history is not None), N), bounds)
    users.apply(Choose(np.arange(N)))
    users.apply(Solve(V, 1e-9, bias=STEER))
    return STATISTICS[name](users, V)


@pytest.mark.parametrize(("name", "relation", "norm", "along", "further", "one", "other"), WORST)
def test_the_worst_user_reaches_the_sensitivity_and_does_not_pass_it(
    name, relation, norm, along, further, one, other
):
    present, absent = (statistic_of(name, history, along, **further) for history in (one, other))
    reached = distance(exact(present), exact(absent), present, norm) / present.sensitivity(
        relation, norm
    )
    assert TIGHT <= reached <= 1


def test_every_statistic_relation_and_norm_has_its_worst_case():
    wanted = {
        (name, relation, norm)
        for name in STATISTICS
        for relation in ("add-remove", "replace-one")
        for norm in ("l2", "l1")
    }
    # where the norms are the same
    one_number = {(name, "add-remove", "l1") for name in ("rating_sum", "rating_count")}
    assert wanted - {case[:3] for case in WORST} == one_number


@pytest.mark.parametrize("name", STATISTICS)
def test_one_entry_can_hold_all_that_it_may(name):
    """Only the grid depends on this bound."""
    history = ALL_HIGH if name in ("rating_sum", "rating_count") else {3: 1e6}
    present, absent = (statistic_of(name, one) for one in (history, None))
    most = np.abs(exact(present) - exact(absent)).max()
    assert TIGHT <= most / present.sensitivity("add-remove", "inf") <= 1


def test_more_items_allowed_than_there_are_is_all_of_them():
    """k is the number of items then, and the price is what k items can do."""
    for name in ("item_counts", "item_grams", "item_sums", "covariance", "rating_sum"):
        present, absent = (statistic_of(name, history, items=1000) for history in (ALL_HIGH, None))
        assert (
            TIGHT
            <= distance(exact(present), exact(absent), present, "l2")
            / present.sensitivity("add-remove", "l2")
            <= 1
        )


def test_a_covariance_bound_that_cuts_nothing_is_not_paid_for():
    users = seal(make([HIGH], N), Bounds(items=K, rating=1.5))
    users.apply(Choose())
    assert users.sum(ContributedCovariance(100.0)).sensitivity("add-remove", "l2") == K * 1.5**2
    assert users.sum(ContributedCovariance(1.0)).sensitivity("add-remove", "l2") == 1.0


@pytest.mark.parametrize("name", STATISTICS)
def test_no_grid_makes_a_contribution_larger(name):
    """Rounding goes toward zero, per contribution: on grids of every size, down to a few units
    for a contribution.
    """
    for further in ({}, {"rating": 0.7, "norm": 0.9}):
        present, absent, replaced = (
            statistic_of(name, one, "ones", **further) for one in (HIGH, None, LOW)
        )
        for power in range(-14, 3):
            grid = 4.0**power
            values = [
                grid * statistic.compute(KEY, grid=grid)
                for statistic in (present, absent, replaced)
            ]
            for norm in ("l2", "l1"):
                for relation, other in (("add-remove", values[1]), ("replace-one", values[2])):
                    assert distance(values[0], other, present, norm) <= present.sensitivity(
                        relation, norm
                    )


# ---------------------------------------------------------------------- worst pairs by search
# (erratum 9)


def ball(x, radius):
    return x * min(1.0, radius / max(np.linalg.norm(x), 1e-12))


def search(objective, size, starts=12):
    """The largest value found from many starts."""
    rng = np.random.default_rng(0)
    return max(
        -minimize(lambda x: -objective(x), rng.normal(size=size), method="Powell").fun
        for _ in range(starts)
    )


@pytest.mark.parametrize("rank", [2, 3])
def test_worst_pair_for_r_by_search(rank):
    """Δ(R) = √2 α₁² for replacing a user and α₁² for removing one; the theorem prices 2 α₁²."""
    alpha = 0.7

    def moved(x):
        u, v = (ball(part, alpha) for part in np.split(x, 2))
        return np.linalg.norm(np.outer(u, u) - np.outer(v, v))

    worst = search(moved, 2 * rank)
    stated = statistic_of("global_gram", HIGH, norm=alpha)
    assert worst == pytest.approx(math.sqrt(2) * alpha**2, rel=1e-5)
    assert worst <= stated.sensitivity("replace-one", "l2") * (1 + 1e-9)
    assert stated.sensitivity("replace-one", "l2") == pytest.approx(
        math.sqrt(2) * alpha**2, rel=1e-12
    )
    assert stated.sensitivity("add-remove", "l2") == pytest.approx(alpha**2, rel=1e-12)


def test_worst_pair_for_the_gradient_by_search():
    """Δ(grad) = 2 G α₁ for replacing and G α₁ for removing; proof and theorem have 4 G α₁ and
    √8 G α₁.
    """
    alpha, G, items, rank = 0.7, 1.3, 3, 2

    def moved(x):
        u, v, e, f = np.split(x, [rank, 2 * rank, 2 * rank + items])
        return np.linalg.norm(
            np.outer(ball(e, G), ball(u, alpha)) - np.outer(ball(f, G), ball(v, alpha))
        )

    worst = search(moved, 2 * (rank + items))
    stated = statistic_of("gradient", HIGH, norm=alpha)  # G is 1.3 there
    assert worst == pytest.approx(2 * G * alpha, rel=1e-5)
    assert worst <= stated.sensitivity("replace-one", "l2") * (1 + 1e-9)
    assert stated.sensitivity("replace-one", "l2") == pytest.approx(2 * G * alpha, rel=1e-12)
    assert stated.sensitivity("add-remove", "l2") == pytest.approx(G * alpha, rel=1e-12)


# ---------------------------------------------------------------------- the parts


def test_packing_and_back():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 4, 4))
    A += A.transpose(0, 2, 1)
    packed = pack(A)
    assert packed.shape == (5, triangle_size(4))
    assert np.array_equal(packed, A[:, *np.triu_indices(4)])
    assert np.array_equal(unpack(packed, 4), A)
    weighted = packed * isometry(4)
    assert np.linalg.norm(weighted, axis=1) == pytest.approx(
        np.linalg.norm(A, axis=(1, 2)), rel=1e-14
    )


def test_residuals_equal_their_numpy_twin():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 9, 40)
    indptr, indices = (
        np.concatenate([[0], np.cumsum(counts)]),
        rng.integers(0, 20, counts.sum()).astype(np.int32),
    )
    y, U, V = (
        rng.normal(size=len(indices)),
        rng.normal(size=(40, 5)).astype("f4"),
        rng.normal(size=(20, 5)),
    )
    y[3], y[9] = np.inf, np.nan
    for largest in (0.3, 2.0, 1e6):
        fast, plain = (f(indptr, indices, y, U, V, largest) for f in (residuals, residuals_numpy))
        assert fast == pytest.approx(plain, rel=1e-12, abs=1e-12)
        row = np.repeat(np.arange(40), counts)
        assert np.sqrt(np.bincount(row, fast**2, minlength=40)).max() <= largest * (1 + 1e-12)


class FourNumbers(Statistic):
    """A statistic that is computed by a function of its own."""

    def shape(self, public):
        return (4,)

    def reach(self, public):
        return SensitivityBounds(1.0, 2.0, 1.0, 2.0)

    def partial(self, block, public, grid):
        raise NotImplementedError


def sum_by(compute):
    return Sum(FourNumbers(), Public(Bounds(items=1), 4), compute)


def test_a_relation_or_norm_that_is_not_known_has_no_sensitivity():
    statistic = sum_by(lambda grid, rows: np.zeros(4))
    for relation, norm in (("replace_one", "l2"), ("add-remove", "L2"), ("", "l1")):
        with pytest.raises(ConfigError, match="no sensitivity"):
            statistic.sensitivity(relation, norm)


def test_a_block_of_rows_has_no_gaps():
    statistic = sum_by(lambda grid, rows: np.arange(4.0)[rows])
    assert statistic.compute(KEY, rows=slice(1, 3)).tolist() == [1.0, 2.0]
    for rows in (slice(0, 4, 2), slice(3, 1), slice(None, None, -1)):
        with pytest.raises(ConfigError, match="rows"):
            statistic.compute(KEY, rows=rows)


def test_an_error_inside_a_statistic_says_nothing_and_drags_nothing_along():
    def broken(grid, rows):
        raise ValueError("user 4711 rated 5.0")

    with pytest.raises(PrivacyError) as caught:
        sum_by(broken).compute(KEY)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
