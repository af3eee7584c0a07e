"""Small sets of users, and every statistic that can be asked of them."""

import contextlib
import math

import numpy as np

from discreet.data.ratings import Ratings
from discreet.kernels import set_threads
from discreet.privacy.noise.sources import grid_for
from discreet.privacy.sealed import KEY
from discreet.privacy.statistics.contributions import (
    ContributedCovariance,
    GlobalGram,
    ItemCounts,
    ItemGrams,
    ItemSums,
    RatingCount,
    RatingSum,
)
from discreet.privacy.statistics.gradients import WeightedResidualGradient
from discreet.privacy.users.sealed_users import seal
from discreet.privacy.users.steps import Choose, ComputeResiduals, Recenter, Restrict, Solve

RELATIONS = ("add-remove", "replace-one")
NORMS = ("l2", "l1")
#: Everything that `Users` offers. Those above the line need contributions, those with V need
#: vectors.
STATISTICS = {
    "item_counts": lambda users, V: users.sum(ItemCounts()),
    "rating_sum": lambda users, V: users.sum(RatingSum()),
    "rating_count": lambda users, V: users.sum(RatingCount()),
    "covariance": lambda users, V: users.sum(ContributedCovariance(0.8)),
    "item_grams": lambda users, V: users.sum(ItemGrams()),
    "item_grams, not isometric": lambda users, V: users.sum(ItemGrams(isometric=False)),
    "item_sums": lambda users, V: users.sum(ItemSums()),
    "global_gram": lambda users, V: users.sum(GlobalGram()),
    "gradient": lambda users, V: users.copy_after(ComputeResiduals(V, 1.3)).sum(
        WeightedResidualGradient()
    ),
}


def make(rows, n_items, ids=None):
    """Ratings from one dictionary {item: rating} per user, by the constructor that trusts its
    caller.
    """
    counts = [len(row) for row in rows]
    items = [item for row in rows for item in sorted(row)]
    values = [row[item] for row in rows for item in sorted(row)]
    user_ids = np.arange(len(rows)) if ids is None else np.fromiter(ids, object, len(ids))
    with np.errstate(over="ignore"):
        return Ratings.from_indices(
            np.concatenate([[0], np.cumsum(counts)]),
            np.array(items, np.int32),
            np.array(values, np.float32),
            user_ids,
            np.arange(n_items),
            catalog=True,
        )


def prepared(
    rows, n_items, bounds, V, steps, *, ids=None, ridge=1e-3, bias=None, seed=0, **solving
):
    """Sealed users who have taken `steps` (of restricting, centering and choosing) and formed
    their vectors.
    """
    users = seal(make(rows, n_items, ids), bounds, seed=seed)
    fewer = steps(users)
    users = users if fewer is None else fewer
    bias = None if bias is None else bias[: users.n_items]
    users.apply(Solve(V[: users.n_items], ridge, bias=bias, **solving))
    return users


def uniform(users):
    users.apply(Choose())


def rarest(users):
    users.apply(Choose(np.linspace(1.0, 2.0, users.n_items)))


def restrict_recenter_rarest(users):
    """As DPALS does with a released mean: sample, fewer items, another center, sample again."""
    users.apply(Choose(draw=3))
    fewer = users.copy_after(Restrict(np.array([4, 0, 2])))
    fewer.apply(Recenter(2.5))
    fewer.apply(Choose(np.array([1.0, 1.0, 0.5])))
    return fewer


def exact(statistic, deviation=None):
    """The statistic as a secure release computes it: on the grid that goes with noise of that
    deviation (finest: 0).
    """
    grid = grid_for(statistic.sensitivity("add-remove", "inf"), deviation or 1e-300)
    whole = statistic.compute(KEY, grid=grid)
    assert np.array_equal(whole, np.rint(whole))
    assert np.abs(whole).max(initial=0) < 2.0**53
    return whole * grid


def floating(statistic):
    """The statistic as seeded noise sees it."""
    return statistic.compute(KEY).astype(np.float64)


def distance(a, b, statistic, norm):
    """How far apart two values of a statistic are, in the norm that it is priced by."""
    weights = statistic.weights(norm)
    difference = (a - b) * (1.0 if weights is None else weights)
    return (
        math.sqrt(math.fsum((difference**2).ravel()))
        if norm == "l2"
        else math.fsum(np.abs(difference).ravel())
    )


@contextlib.contextmanager
def quick():
    """Kernels on one thread: for a thousand tiny calls instead of one large one."""
    set_threads(1)
    try:
        yield
    finally:
        set_threads(None)


def block(users):
    """The only block of users in one machine's memory, opened."""
    (only,) = users.open(KEY)
    return only
