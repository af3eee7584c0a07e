"""Item pairs: a sum over pairs of items that users like together, of sensitivity 1.

A user likes its items by whole levels a_ij from 1 to `LEVELS` (`GradeRatings` makes them of
ratings), or all alike, a_ij = 1 (`ThresholdRatings`, and histories that say only *that* an item was
chosen). It adds to each pair of its items, j < k,

    p_i,jk = √2 a_ij a_ik / q_i,     q_i² = (Σ_j a_ij²)² − Σ_j a_ij⁴ = 2 Σ_{j<k} a_ij² a_ik²,

which is √2/√(n_i (n_i − 1)) for n_i items that are liked alike, and nothing where it has no pair.

    statistic                     remove, ℓ₂   replace, ℓ₂   remove, ℓ₁      replace, ℓ₁   one entry
    pair sums     Σ_i p_i,jk         1            √2            √(m(m − 1)/2)   twice         1
    like counts   Σ_i a_ij/‖a_i‖     1            √2            √m              twice         1

*Proof*, with m items. ‖p_i‖₂² = 2 Σ_{j<k} a_ij² a_ik² / q_i² = 1: every user with a pair reaches
the bound, none passes it. No entry is negative, so ⟨p_i, p_k⟩ ≥ 0 and ‖p_i − p_k‖₂² ≤ ‖p_i‖² +
‖p_k‖² ≤ 2; two users without a common pair reach it. ‖p_i‖₁ ≤ √(m(m − 1)/2) ‖p_i‖₂ by Cauchy and
Schwarz, and a user who likes all equally reaches it. An entry is at most the norm; a user with
two items reaches that. The same holds for the counts: their norm is 1 by definition.

Rounding: q_i² is a whole number, added up in int64 (below 2⁶³ for seven million items); a root and
a quotient in float64 are off by a few 2⁻⁵³ at most, and √2/q_i is multiplied by `SHAVE` = 1 − 2⁻²⁰
before it is truncated toward zero on the grid. So what one user adds to a pair is a whole number of
units, the same for all its pairs, times the whole number a_ij a_ik: exact in int64, and never above
the real one, entry by entry, so that no norm can grow. It depends on nothing but the user's own
levels, which the statistic itself cuts to 0 … `LEVELS`.

The diagonal is not there: it says nothing of pairs. The strict upper triangle of an m × m matrix is
laid out as a rectangle (`fold_shape`): a long row of it and a short one make one row, of the same
length for all. So there is noise on every number that is released and on no other, and blocks of
rows cost about as much as each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.kernels.threads import cost_cuts, run
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    register,
    weigh_by_age,
)
from discreet.privacy.statistics.bounds import SHAVE

IN_CACHE = 1 << 18  # entries of users whose pairs are added up together
_MIRRORED = 64  # rows of a matrix: whole cache lines of its columns
LEVELS = 20  # of liking: steps of 1/20 hold stars, half stars and points of ten


def grade_ratings(
    rating: NDArray[Any], low: float, high: float, levels: int = LEVELS
) -> NDArray[np.int64]:
    """Levels from 0 to `levels` of ratings."""
    place = np.clip((rating - low) / (high - low), 0.0, 1.0)
    return np.rint(levels * place).astype(np.int64)


# ------------------------------------------------------------------ statistics


@register("pair sums")
@dataclass(frozen=True)
class PairSums(Statistic):
    """Σ_i p_i,jk for each pair of items, as a folded strict triangle.

    The users' items are those that are left after `Restrict`: a core chosen from public
    numbers.

    Parameters
    ----------
    levels : int
        Of liking; 1 where all items of a user are liked alike, which is faster.
    """

    levels: int = LEVELS

    def check(self, public: Public) -> None:
        check_levels(self.levels)

    def shape(self, public: Public) -> tuple[int, ...]:
        return fold_shape(public.n_items)

    def reach(self, public: Public) -> SensitivityBounds:
        pairs = public.n_items * (public.n_items - 1) / 2
        return SensitivityBounds(1.0, max(math.sqrt(pairs), 1.0), 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        level = levels_of(block, self.levels)
        each = weigh_by_age(block, pair_weights(block.indptr, level))
        whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
        indices, level = sort_by_item(block.indptr, block.indices, level)
        return PairAdder(block.indptr, indices, level, whole, public.n_items).rows

    @staticmethod
    def entry_deviation(deviations: Iterable[float]) -> float:
        """Compute the noise deviation of one entry of the matrix, Σ_i p_i,jk/√2.

        Releases with these deviations (`Plan.deviation`) are averaged by their noise; a single one
        gives its own over √2.
        """
        return math.sqrt(0.5 / sum(deviation**-2 for deviation in deviations))

    @staticmethod
    def unpack(rows: NDArray[Any], start: int, A: NDArray[Any], weight: float) -> None:
        """Add weight · Σ_i p_i,jk/√2, from released rows `start`, `start` + 1, …, to both triangles
        of A.
        """
        part = rows * (weight / math.sqrt(2.0))
        unfold_triangle(part.astype(A.dtype), start, A, add=True)


@register("like counts")
@dataclass(frozen=True)
class LikeCounts(Statistic):
    """Σ_i a_ij/‖a_i‖ for each item j, shape (n_items,)."""

    levels: int = LEVELS

    def check(self, public: Public) -> None:
        check_levels(self.levels)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, max(math.sqrt(public.n_items), 1.0), 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        level = levels_of(block, self.levels)
        share = SHAVE / np.sqrt(np.maximum(power_sums(block.indptr, level)[0], 1))
        share = weigh_by_age(block, share)
        sums = add_likes(block.indptr, block.indices, level, share, public.n_items, grid)
        return lambda rows: sums[rows].copy()  # noise is added in place


def check_levels(levels: int) -> None:
    """Raise a `ConfigError` unless there can be so many."""
    if not 1 <= levels <= LEVELS:
        raise ConfigError(f"levels is {levels!r}, but must be a whole number from 1 to {LEVELS}")


def levels_of(block: Block, most: int) -> NDArray[np.uint8]:
    """a_ij: what the users' values say, cut here so that nothing can be larger."""
    return np.clip(block.values, 0, most).astype(np.uint8)


def pair_weights(indptr: NDArray[np.int64], level: NDArray[np.uint8]) -> NDArray[np.float64]:
    """√2/q_i: what a user adds to a pair for each unit of a_ij a_ik."""
    second, fourth = power_sums(indptr, level)
    squared = second**2 - fourth
    return np.where(squared > 0, SHAVE * math.sqrt(2.0) / np.sqrt(np.maximum(squared, 1)), 0.0)


# ------------------------------------------------------------------ each user's own numbers


def power_sums(indptr: np.ndarray, level: np.ndarray) -> NDArray[np.int64]:
    """Compute the same in one pass."""
    # By numpy, here and below: every allocation in compiled code is compiled as well.
    sums = np.zeros((2, len(indptr) - 1), np.int64)
    _power_sums(indptr, level, sums)
    return sums


@njit(nogil=True, cache=True)
def _power_sums(indptr: np.ndarray, level: np.ndarray, sums: np.ndarray) -> None:
    for i in range(len(indptr) - 1):
        for entry in range(indptr[i], indptr[i + 1]):
            square = np.int64(level[entry]) * np.int64(level[entry])
            sums[0, i] += square
            sums[1, i] += square * square


def add_likes(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    level: NDArray[Any],
    share: NDArray[Any],
    m: int,
    grid: float | None,
) -> NDArray[Any]:
    """Add the same in one pass: int64 in units of the grid, or float64 without one."""
    sums = np.zeros(m, np.float64 if grid is None else np.int64)
    _add_likes(indptr, indices, level, share, 1.0 if grid is None else 1 / grid, sums)
    return sums


@njit(nogil=True, cache=True)
def _add_likes(
    indptr: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    share: np.ndarray,
    per_unit: float,
    sums: np.ndarray,
) -> None:
    """Add the likes of a block. A grid is a power of four, so that dividing by it is exact; storing
    in int64 truncates.
    """
    for i in range(len(indptr) - 1):
        for entry in range(indptr[i], indptr[i + 1]):
            sums[indices[entry]] += sums.dtype.type(share[i] * level[entry] * per_unit)


# ------------------------------------------------------------------ a strict triangle as a
# rectangle


def fold_shape(m: int) -> tuple[int, int]:
    """Return (⌊m/2⌋, columns) with exactly m(m − 1)/2 entries."""
    return (m // 2, max(m - 1, 0) if m % 2 == 0 else m)


def folds(m: int, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Return (row of the rectangle, row j of the triangle that it begins with, row of the triangle
    that it ends with).

    Row j of the triangle has the m − 1 − j entries (j, j + 1), (j, j + 2), …
    """
    last = m - 1 if m % 2 == 0 else m - 2
    for row in range(start, stop):
        yield row, row, last - row


def fold_triangle(A: NDArray[Any]) -> NDArray[Any]:
    """Return the strict upper triangle of A (m, m) as a rectangle."""
    m = len(A)
    folded = np.empty(fold_shape(m), A.dtype)
    for row, j, k in folds(m, 0, len(folded)):
        folded[row] = np.concatenate([A[j, j + 1 :], A[k, k + 1 :]])
    return folded


def unfold_triangle(
    folded: NDArray[Any], start: int, A: NDArray[Any], *, add: bool = False
) -> None:
    """Write rows `start`, `start` + 1, … of the rectangle into both triangles of A (m, m), or
    add them.
    """
    m = len(A)
    written = list(folds(m, start, start + len(folded)))
    for row, j, k in written:
        for i, part in (
            (j, folded[row - start, : m - 1 - j]),
            (k, folded[row - start, m - 1 - j :]),
        ):
            if add:
                A[i, i + 1 :] += part
            else:
                A[i, i + 1 :] = part
    if written:
        (_, above, lowest), (_, below, highest) = written[0], written[-1]
        _mirror_rows(A, above, below + 1)
        _mirror_rows(A, highest, lowest + 1)


def _mirror_rows(A: NDArray[Any], start: int, stop: int) -> None:
    """Copy rows of the upper triangle to columns, some at a time: a column alone would read one
    number from each cache line of the matrix.
    """
    for first in range(start, stop, _MIRRORED):
        last = min(first + _MIRRORED, stop)
        A[last:, first:last] = A[first:last, last:].T
        for i in range(first, last):
            A[i + 1 : last, i] = A[i, i + 1 : last]


# ------------------------------------------------------------------ adding up pairs


def sort_by_item(
    indptr: NDArray[Any], indices: NDArray[Any], level: NDArray[Any]
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the items of each user in ascending order; only renumbered ones are out of order."""
    last = np.zeros(max(len(indices), 1), bool)
    last[indptr[1:][np.diff(indptr) > 0] - 1] = True  # a user without items has no last one
    if (np.diff(indices) > 0)[~last[: max(len(indices) - 1, 0)]].all():
        return np.ascontiguousarray(indices, np.int32), level
    user = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((indices, user))
    return np.ascontiguousarray(indices[order], np.int32), level[order]


class PairAdder:
    """Rows of the folded triangle for users with ascending items and one number each.

    A user with item j adds its number at the items after it, in row j of the triangle. Users come
    in blocks whose items stay in the cache while all rows take from them, and within a block by
    item. Every row belongs to one thread, so that nothing depends on the number of threads, and
    whole numbers are exact in any order.
    """

    def __init__(
        self,
        indptr: NDArray[Any],
        indices: NDArray[np.int32],
        level: NDArray[np.uint8],
        w: NDArray[Any],
        m: int,
    ) -> None:
        self.m = m
        self.level = level
        self.indices = indices.astype(np.uint16) if m <= 1 << 16 else indices
        self.blocks = np.unique(np.append(np.arange(0, indptr[-1], IN_CACHE), indptr[-1]))
        n = len(indices)
        self.after = np.empty(n, np.int32)
        self.each = np.empty(n, w.dtype)
        self.entry = np.empty(n, np.int64)
        self.start = np.zeros((max(len(self.blocks) - 1, 1), m + 1), np.int64)
        self.cost = np.zeros(m, np.int64)
        _by_item(
            indptr,
            indices,
            level,
            w,
            self.blocks,
            self.after,
            self.each,
            self.entry,
            self.start,
            self.cost,
            np.empty(m, np.int64),
        )

    def rows(self, rows: slice) -> NDArray[Any]:
        folded = np.zeros((rows.stop - rows.start, fold_shape(self.m)[1]), self.each.dtype)
        both = np.array(
            [(j, k) for _, j, k in folds(self.m, rows.start, rows.stop)], np.int64
        ).reshape(-1, 2)
        cost = self.cost[both].sum(axis=1) + self.m

        def work(begin: int, stop: int) -> None:
            _add_rows(
                both[begin:stop],
                self.after,
                self.each,
                self.entry,
                self.start,
                self.indices,
                self.level,
                folded[begin:stop],
            )

        run(work, cost_cuts(cost))
        return folded


@njit(nogil=True, cache=True)
def _by_item(
    indptr: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    w: np.ndarray,
    blocks: np.ndarray,
    after: np.ndarray,
    each: np.ndarray,
    entry: np.ndarray,
    start: np.ndarray,
    cost: np.ndarray,
    place: np.ndarray,
) -> None:
    """Count, for each entry, how many of its user come after it, and its number times its level;
    entries by block and item.

    Also where the entries of block b and item j begin, start[b, j], and what each item will cost;
    both are 0 before. `place` (m,) is workspace.
    """
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            after[e] = indptr[i + 1] - e - 1
            each[e] = w[i] * level[e]
            cost[indices[e]] += after[e]
    for b in range(len(blocks) - 1):
        for e in range(blocks[b], blocks[b + 1]):
            start[b, indices[e] + 1] += 1
        start[b, 0] = blocks[b]
        for j in range(len(place)):
            start[b, j + 1] += start[b, j]
            place[j] = start[b, j]
        for e in range(blocks[b], blocks[b + 1]):
            entry[place[indices[e]]] = e
            place[indices[e]] += 1


@njit(nogil=True, cache=True)
def _add_rows(
    both: np.ndarray,
    after: np.ndarray,
    each: np.ndarray,
    entry: np.ndarray,
    start: np.ndarray,
    indices: np.ndarray,
    level: np.ndarray,
    folded: np.ndarray,
) -> None:
    """Rows of the rectangle; `both` are the two rows of the triangle in each of them."""
    m = start.shape[1] - 1
    for b in range(len(start)):
        for row in range(len(both)):
            offset = 0
            for j in both[row]:
                into = folded[row, offset : offset + m - 1 - j]
                for at in range(start[b, j], start[b, j + 1]):
                    e = entry[at]
                    for k in range(e + 1, e + 1 + after[e]):
                        into[np.int64(indices[k]) - j - 1] += each[e] * level[k]
                offset += m - 1 - j
