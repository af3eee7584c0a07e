"""Every registered statistic: an example, adversaries who cannot move it too far, one who can,
a planted fault.
"""

import importlib
import math
import pkgutil
from dataclasses import fields

import numpy as np
import pytest

import discreet.privacy
from discreet.privacy.statistics.base import STATISTICS, Statistic
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.centered_pairs import CenteredPairSums
from discreet.privacy.statistics.choice_moments import ChoiceMoments, ProfileInputs
from discreet.privacy.statistics.communities import CommunityCounts, LeftOutHits, Mixture
from discreet.privacy.statistics.contributions import (
    ContributedCovariance,
    GlobalGram,
    ItemCounts,
    ItemGrams,
    ItemSums,
    ItemTotals,
    RatingCount,
    RatingSum,
)
from discreet.privacy.statistics.covariance import PairCounts, ResidualCovariance
from discreet.privacy.statistics.gradients import (
    BiasGradient,
    ClippedGradient,
    Size,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.statistics.pairs import LikeCounts, PairSums
from discreet.privacy.statistics.regression import CrossProducts, FeatureGram, RowMoments
from discreet.privacy.statistics.user_effects import (
    FitMoments,
    LeaveOneOutGains,
    PriorMoments,
    ResidualPairs,
    SolutionGram,
)
from discreet.privacy.statistics.user_totals import UserCount, UserValues
from discreet.privacy.users.sealed_users import seal, seal_rows, seal_values
from discreet.privacy.users.steps import (
    Choose,
    ComputeResiduals,
    Solve,
    SubtractBaseline,
    WeighEntries,
)
from support.fault_helpers import FAULTS
from support.sealed_helpers import NORMS, RELATIONS, distance, exact, make, quick

N_ITEMS = 5
V = np.array([[1.0, 0.5], [-0.5, 1.0], [2.0, -1.0], [0.0, 3.0], [1.0, 1.0]])
POPULARITY = np.array([3.0, 2.0, 2.0, 1.0, 0.0])
BOUNDS = Bounds(items=3, rating=1.5, center=3.0, norm=0.8)
ORDINARY = [{0: 4.0, 2: 3.0, 4: 5.0}, {1: 1.0, 2: 2.0, 3: 3.0}]
EXTREMES = [
    {},
    dict.fromkeys(range(N_ITEMS), 1e30),
    dict.fromkeys(range(N_ITEMS), -1e30),
    {2: 1e30},
    {2: -1e30},
    {3: 1e30, 4: 1e30},
    {0: -1e30, 1: 1e30, 2: math.nan},
]


def solved(rows):
    users = seal(make(rows, N_ITEMS), BOUNDS)
    users.apply(Choose())
    users.apply(Solve(V, 1e-3))
    return users


def walking(rows):
    walk = seal(make(rows, N_ITEMS), BOUNDS)
    walk.apply(WeighEntries(np.linspace(0.5, 1.0, N_ITEMS)))
    walk.apply(Solve(V, 1e-3, center=0.0, stretch=True))
    walk.apply(ComputeResiduals(V, 0.9))
    return walk


def measured(rows):
    """Two numbers of each user, its sum of ratings and its first one, as large as they may be."""
    return np.array([[sum(row.values()), next(iter(row.values()), 0.0)] for row in rows])


def observed(rows):
    """Each rating as a row of two features and two targets."""
    counts = [len(row) for row in rows]
    numbers = [(y, item - 1.0, y, -item) for row in rows for item, y in row.items()]
    return np.concatenate([[0], np.cumsum(counts)]), np.array(numbers)


def alone(rows):
    users = seal(make(rows, N_ITEMS), BOUNDS)
    users.apply(WeighEntries(np.ones(N_ITEMS)))
    users.apply(Solve(V, 1e-3, center=0.0, prior_count=1e-3, stretch=True))
    users.apply(ComputeResiduals(V, 0.9, relative=True))
    return users


def choice_moments():
    """Of two features without factors; the second says much."""
    none = np.zeros((N_ITEMS, 0), np.float32)
    starts = np.array([np.arange(N_ITEMS + 1), N_ITEMS + np.arange(N_ITEMS + 1)])
    values = np.array([0, 0, 1, 1, 1, 2, 3, 2, 3, 3], np.int32)
    popularity = np.log(POPULARITY + 1)
    inverse = np.array([2.0, 2.0, 90.0, 90.0])
    public = (popularity, POPULARITY + 1, none.T, none, none[0], 0.1, starts, values, inverse, 1.0)
    inputs = ProfileInputs(np.arange(N_ITEMS), *public)
    return ChoiceMoments(inputs, np.ones(3), np.ones(1), left_out=3, levels=1)


#: Items 0 to 2 of one community, 3 and 4 of another.
MIXTURE = Mixture(
    np.array([[9, 1], [9, 1], [9, 1], [1, 9], [1, 9]], np.float32) / 30, np.full(2, 0.5), 0.1, 5
)


#: By the name in the registry: the statistic of some rows, and a planted fault that is of this
#: statistic.
EXAMPLES = {
    "item counts": (
        lambda rows: solved(rows).sum(ItemCounts()),
        "counts are charged as if a user had few items",
    ),
    "item totals": (lambda rows: solved(rows).sum(ItemTotals()), "√k is forgotten for totals"),
    "item Gram matrices": (
        lambda rows: solved(rows).sum(ItemGrams()),
        "√k is forgotten for Gram matrices",
    ),
    "item sums": (
        lambda rows: solved(rows).sum(ItemSums()),
        "√k is forgotten for right-hand sides",
    ),
    "global Gram matrix": (
        lambda rows: solved(rows).sum(GlobalGram()),
        "a Gram matrix is charged by the norm of a third",
    ),
    "covariance of contributions": (
        lambda rows: solved(rows).sum(ContributedCovariance(0.7)),
        "covariance rows are not clipped",
    ),
    "sum of ratings": (
        lambda rows: solved(rows).sum(RatingSum()),
        "the sum of ratings is charged with √k instead of k",
    ),
    "number of ratings": (
        lambda rows: solved(rows).sum(RatingCount()),
        "the number of ratings is charged with √k instead of k",
    ),
    "residual gradient": (
        lambda rows: walking(rows).sum(WeightedResidualGradient()),
        "residuals on a descent are not clipped",
    ),
    "bias gradient": (
        lambda rows: walking(rows).sum(BiasGradient()),
        "a gradient of biases is charged by half of the clipping bound",
    ),
    "weight counts": (
        lambda rows: walking(rows).sum(WeightCounts()),
        "weights of entries are not of norm 1",
    ),
    "size": (lambda rows: walking(rows).sum(Size(1.0)), "three numbers are charged as one"),
    "covariance of residuals": (
        lambda rows: solved(rows).copy_after(SubtractBaseline()).sum(ResidualCovariance(0.7)),
        "rows of residuals are not clipped",
    ),
    "pair counts": (
        lambda rows: solved(rows).copy_after(SubtractBaseline()).sum(PairCounts()),
        "pairs are divided by too little",
    ),
    "pair sums": (lambda rows: solved(rows).sum(PairSums()), "pairs are counted in both triangles"),
    "centered pair sums": (
        lambda rows: solved(rows).sum(CenteredPairSums(POPULARITY)),
        "centered pairs are divided by the root of their norm",
    ),
    "choice moments": (
        lambda rows: solved(rows).sum(choice_moments()),
        "choice moments are charged by half of their clipping bound",
    ),
    "community counts": (
        lambda rows: solved(rows).sum(CommunityCounts(MIXTURE)),
        "items of a community are not of norm 1",
    ),
    "left-out hits": (
        lambda rows: solved(rows).sum(LeftOutHits(MIXTURE, POPULARITY + 1, best=1)),
        "left-out hits are charged by half of their range",
    ),
    "like counts": (lambda rows: solved(rows).sum(LikeCounts()), "likes are not of norm 1"),
    "prior moments": (
        lambda rows: alone(rows).sum(PriorMoments(V, 1e-3, 0.0, 1e-3, 1.0)),
        "moments of a prior are not clipped",
    ),
    "fit moments": (
        lambda rows: alone(rows).sum(FitMoments(1.0, 1e12, 1e-3)),
        "two moments are charged as one",
    ),
    "solution Gram matrix": (
        lambda rows: alone(rows).sum(SolutionGram(0, 2, 0.7)),
        "solutions are not clipped for their Gram matrix",
    ),
    "residual pairs": (
        lambda rows: alone(rows).sum(ResidualPairs(np.arange(N_ITEMS))),
        "pairs of residuals are charged as if they had no sign",
    ),
    "left-out gains": (
        lambda rows: alone(rows).sum(
            LeaveOneOutGains(V, 1.0, 0.0, 1e-3, np.zeros(N_ITEMS), 1, (1,), 1e-3, 1.0)
        ),
        "gains are not clipped below",
    ),
    "number of users": (lambda rows: solved(rows).sum(UserCount()), "users are counted twice"),
    "user values": (
        lambda rows: seal_values(lambda: measured(rows)).sum(UserValues((1.0, 0.25))),
        "what users measured is not clipped",
    ),
    "feature Gram matrix": (
        lambda rows: seal_rows(lambda: observed(rows)).sum(FeatureGram(2, 0.8, 0.7, 2)),
        "features are not clipped",
    ),
    "feature-target products": (
        lambda rows: seal_rows(lambda: observed(rows)).sum(CrossProducts(2, 0.8, 0.7, 2)),
        "products with targets are charged as if they had no sign",
    ),
    "row moments": (
        lambda rows: seal_rows(lambda: observed(rows)).sum(RowMoments(2, 0.8, 0.7, 2)),
        "all rows of a user count",
    ),
    "clipped gradient": (
        lambda rows: solved(rows).sum(ClippedGradient(V, 0.9)),
        "a user's gradient is not clipped",
    ),
}


def worlds():
    """Rows, and the same rows in which one person is missing or is somebody else."""
    for who in EXTREMES:
        whole = [*ORDINARY, who]
        yield "add-remove", whole, ORDINARY
        for instead in EXTREMES:
            if instead is not who:
                yield "replace-one", whole, [*ORDINARY, instead]


def furthest(name):
    """The largest movement of the statistic over its sensitivity, by relation and norm."""
    ask, _ = EXAMPLES[name]
    found = dict.fromkeys([(relation, norm) for relation in RELATIONS for norm in NORMS], 0.0)
    for relation, whole, other in worlds():
        statistic = ask(whole)
        before = exact(statistic)
        after = exact(ask(other))
        for norm in NORMS:
            moved = distance(before, after, statistic, norm) / statistic.sensitivity(relation, norm)
            found[relation, norm] = max(found[relation, norm], moved)
    return found


def test_every_registered_statistic_is_here_and_nothing_else():
    for module in pkgutil.walk_packages(discreet.privacy.__path__, "discreet.privacy."):
        importlib.import_module(module.name)
    assert set(EXAMPLES) == set(STATISTICS)
    for kind in STATISTICS.values():
        assert issubclass(kind, Statistic)
        assert kind.__doc__, "a statistic says what it is and why its sensitivity holds"
        assert kind.__dataclass_params__.frozen
        assert all(field.name != "block" for field in fields(kind))


def test_nobody_moves_a_statistic_further_than_it_says():
    with quick():
        for name in EXAMPLES:
            for case, moved in furthest(name).items():
                assert moved <= 1.0, (name, case, moved)


@pytest.mark.parametrize("name", EXAMPLES)
def test_somebody_comes_near(name):
    """A sensitivity that nobody comes near would be noise for nothing: the exact worst cases
    are in other files.
    """
    with quick():
        assert furthest(name)["add-remove", "l2"] > 0.5


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_fault_of_it_is_planted(name):
    _, fault = EXAMPLES[name]
    assert fault in FAULTS, f"plant a fault of {name!r} in fault_helpers.py"
