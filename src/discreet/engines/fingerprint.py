"""Check that machines compute the same bits, by a fingerprint of their software and a small sum.

Vector and plain kernels round differently in the last bits, and so may two versions of a library or
two processors. If a user's contribution differed between machines, a retried task would change a
released number. So all machines of a training must have the same `fingerprint`. It contains a
digest of the steps and sums of DPMF (ranking and rating) and DPALS on fixed, invented users, so
that every kernel used there is compared.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.simd import VECTOR_BYTES, enabled
from discreet.kernels.threads import one_thread
from discreet.privacy.statistics.base import Block, Public, Statistic
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.statistics.centered_pairs import CenteredPairSums
from discreet.privacy.statistics.communities import CommunityCounts, LeftOutHits, Mixture
from discreet.privacy.statistics.contributions import ItemCounts, ItemGrams, ItemSums
from discreet.privacy.statistics.gradients import (
    BiasGradient,
    Size,
    WeightCounts,
    WeightedResidualGradient,
)
from discreet.privacy.statistics.pairs import LikeCounts, PairSums
from discreet.privacy.statistics.user_effects import (
    FitMoments,
    LeaveOneOutGains,
    PriorMoments,
    ResidualPairs,
    SolutionGram,
)
from discreet.privacy.statistics.user_totals import UserCount
from discreet.privacy.users.sealed_users import sealed_block
from discreet.privacy.users.steps import (
    Choose,
    ComputeResiduals,
    GradeRatings,
    Restrict,
    Solve,
    UserStep,
    WeighEntries,
)
from discreet.version import __version__

#: Fine enough that the sums show a difference in the last bits of a float32.
GRID = 4.0**-14


@lru_cache(maxsize=2)
def _fingerprint(vector: bool) -> str:
    import numba

    kernels = f"vectors of {VECTOR_BYTES} bytes" if vector else "plain kernels"
    return (
        f"discreet {__version__}, {kernels}, {platform.machine()}, numpy {np.__version__}, numba"
        f" {numba.__version__}, check {canary()}"
    )


def fingerprint() -> str:
    """Return library, kernels, processor and the digest of a fixed computation, all public."""
    return _fingerprint(enabled())


def canary() -> str:
    """Return a digest of the results of fixed, public users in steps and sums of DPMF and DPALS."""
    digest = hashlib.sha256()
    with one_thread(), np.errstate(all="ignore"):
        for array in (*_ranking(), *_rating(), *_least_squares()):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


def _ranking() -> Iterator[NDArray[Any]]:
    """Compute DPMF for ranking: counts of likes, by community as well, and pairs of items."""
    block, public = _after(*_users(Bounds(items=1, rating=4.0)), GradeRatings(1.0, 5.0))
    yield from _sums(block, public, LikeCounts(), UserCount(active=True))
    P = np.random.default_rng(23).random((public.n_items, 5)).astype(np.float32) + np.float32(0.01)
    mixture = Mixture(P, np.full(5, 0.2), 0.25, 5)
    counts = np.linspace(9.0, 1.0, public.n_items)
    hits = LeftOutHits(mixture, counts, best=3)
    yield from _sums(block, public, CommunityCounts(mixture), hits)
    core = Restrict(np.arange(0, public.n_items, 2))
    centered = CenteredPairSums(np.linspace(2.0, 1.0, len(core.items)))
    yield from _sums(*_after(block, public, core), PairSums(), centered)


def _rating() -> Iterator[NDArray[Any]]:
    """Compute DPMF for ratings: users' solutions, their residuals, and the sums released."""
    block, public = _users(Bounds(items=1, rating=4.0))
    m = public.n_items
    V = np.random.default_rng(21).standard_normal((m, 6)).astype(np.float32)
    bias = np.linspace(-0.5, 0.5, m)
    ridge = 2.0
    center = 0.25
    prior_count = 3.0
    first = 2
    steps = (
        WeighEntries(np.linspace(1.0, 2.0, m)),
        Solve(
            V,
            ridge,
            bias=bias,
            intercept=0.3,
            center=center,
            prior_count=prior_count,
            first=first,
            stretch=True,
        ),
        ComputeResiduals(V, 1.5, bias, relative=True),
    )
    block, public = _after(block, public, *steps)
    yield from (block[name] for name in ("solution", "vectors", "offset", "residual", "length"))
    yield from _sums(
        block,
        public,
        Size(2.0),
        WeightCounts(),
        PriorMoments(V, ridge, center, prior_count, 1.0),
        FitMoments(4.0, 1.0, prior_count),
        SolutionGram(first, V.shape[1] - first, 1.0),
        ResidualPairs(np.arange(0, m, 2)),
        LeaveOneOutGains(V, ridge, center, prior_count, bias, first, (1, 3), 1.0, 5.0),
        BiasGradient(),
        WeightedResidualGradient(),
    )


def _least_squares() -> Iterator[NDArray[Any]]:
    """Compute DPALS: users' vectors, and sums over the items that they contribute."""
    block, public = _users(Bounds(items=6, rating=2.0))
    V = np.random.default_rng(22).standard_normal((public.n_items, 8)).astype(np.float32)
    block, public = _after(block, public, Choose(), Solve(V, 2.0, unobserved=0.1))
    yield block["vectors"]
    yield from _sums(block, public, ItemCounts(), ItemGrams(), ItemSums())


def _users(bounds: Bounds) -> tuple[Block, Public]:
    """Make invented users, the same on every machine."""
    rng = np.random.default_rng(20)
    n = 64
    m = 50
    counts = rng.integers(1, 30, n)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([np.sort(rng.permutation(m)[:count]) for count in counts]).astype(
        np.int32
    )
    ratings = rng.integers(1, 6, len(indices)).astype(np.float32)
    keys = rng.integers(0, 2**63, n).astype(np.uint64)
    return sealed_block(indptr, indices, ratings, keys, bounds), Public(bounds, m)


def _after(block: Block, public: Public, *steps: UserStep) -> tuple[Block, Public]:
    for step in steps:
        before, public = public, step.check(public)
        block = step.run(block, before)
    return block, public


def _sums(block: Block, public: Public, *statistics: Statistic) -> Iterator[NDArray[Any]]:
    for statistic in statistics:
        statistic.check(public)
        rows = slice(0, statistic.shape(public)[0])
        found = statistic.partial(block, public, GRID)(rows)
        yield statistic.transform(lambda _, rows, found=found: found[rows], public)(GRID, rows)
