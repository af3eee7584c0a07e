"""Which items people like together: a sum over pairs of items that every person moves by the same length.

Histories here say only *that* an item was chosen (`KeepLiked` decides from ratings what counts). A user with the items
Ω_i, n_i of them, adds the same number to each of its n_i (n_i − 1)/2 pairs j < k, and nothing where n_i < 2:

    p_i,jk = √2 x_ij x_ik / q_i,     q_i² = (Σ_j x_ij²)² − Σ_j x_ij⁴ = n_i (n_i − 1)   for x_ij ∈ {0, 1}.

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁      replace, ℓ₁   one entry
    pair sums     Σ_i p_i,jk         1            √2            √(m(m − 1)/2)   twice         1
    active users  Σ_i [n_i > 0]      1            1             1               1             1

*Proof*, with m items. ‖p_i‖₂² = n(n − 1)/2 · 2/(n(n − 1)) = 1: every user with a pair reaches the bound, none passes
it. No entry is negative, so ⟨p_i, p_k⟩ ≥ 0 and ‖p_i − p_k‖₂² ≤ ‖p_i‖² + ‖p_k‖² ≤ 2; two users without a common pair
reach it. ‖p_i‖₁ = n(n − 1)/2 · √(2/(n(n − 1))) = √(n(n − 1)/2), which grows with n ≤ m. An entry is at most
√(2/(n(n − 1))) ≤ 1, and that at n = 2.

Rounding: n(n − 1) is a whole number below 2⁵³, so that a product, a root and a quotient in float64 are off by a few
2⁻⁵³ at most; the number is multiplied by `SHAVE` = 1 − 2⁻²⁰ before it is truncated towards zero on the grid. So no
contribution on the grid is above the real one, entry by entry, and no norm can grow. A user's number is one integer,
the same for all its pairs; int64 adds them up exactly. It depends on nothing but the user's own n_i.

The diagonal is not there: it would be Σ x_ij/n_i, which says nothing of pairs. The strict upper triangle of an m × m
matrix is laid out as a rectangle (`folded_shape`): a long row of it and a short one make one row, of the same length
for all. So there is noise on every number that is released and on no other, and blocks of rows cost about as much as
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.compiling import njit
from discreet.kernels.threads import cost_cuts, run
from discreet.privacy.people.block import Block, OwnStep, Public, Statistic
from discreet.privacy.people.bounds import SHAVE, public_number
from discreet.privacy.statistics.contributions import Rows
from discreet.privacy.statistics.sums import Reach, per_user_total, registered

# ------------------------------------------------------------------ steps


@dataclass(frozen=True)
class KeepLiked(OwnStep):
    """Keep what was rated with at least `least`, a public number; from then on only the choice counts."""

    least: float

    what = "what the users like"

    def check(self, public: Public) -> Public:
        public_number("least", self.least)
        return Public(public.bounds, public.n_items)

    def run(self, block: Block, public: Public) -> Block:
        rating = block.values.astype(np.float64) + np.repeat(block.mean, block.counts)
        keep = np.flatnonzero(rating >= self.least)
        indptr = np.searchsorted(keep, block.indptr)
        ones = np.ones(len(keep), np.float32)
        return replace(
            block, indptr=indptr, indices=block.indices[keep], values=ones, mean=np.zeros_like(block.mean), state={}
        )


# ------------------------------------------------------------------ statistics


@registered("pair sums")
@dataclass(frozen=True)
class PairSums(Statistic):
    """Σ_i √2 / √(n_i (n_i − 1)) for each pair of items that i has both of, as a folded strict triangle.

    The users' items are those that are left after `Users.restrict`: a core chosen from public numbers.
    """

    def check(self, public: Public) -> None:
        """Every history has pairs, or adds nothing."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return folded_shape(public.n_items)

    def reach(self, public: Public) -> Reach:
        pairs = public.n_items * (public.n_items - 1) / 2
        return Reach(1.0, max(math.sqrt(pairs), 1.0), 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        each = pair_weights(block.counts)
        whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
        adder = _Adder(block.indptr, ascending(block.indptr, block.indices), whole, public.n_items)
        return adder.rows


@registered("active users")
@dataclass(frozen=True)
class ActiveUsers(Statistic):
    """How many users have an item at all, shape (1,)."""

    def check(self, public: Public) -> None:
        """Anybody can be counted."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> Reach:
        return Reach(1.0, 1.0, 1.0, 1.0, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        there = (block.counts > 0).astype(np.float64)
        return lambda rows: per_user_total(there, grid)[rows]


def pair_weights(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """What a user with so many items adds to each of its pairs."""
    pairs = counts.astype(np.float64) * np.maximum(counts - 1, 0)
    return np.where(pairs > 0, SHAVE * math.sqrt(2.0) / np.sqrt(np.maximum(pairs, 1.0)), 0.0)


# ------------------------------------------------------------------ a strict triangle as a rectangle


def folded_shape(m: int) -> tuple[int, int]:
    """(⌊m/2⌋, columns) with exactly m(m − 1)/2 entries."""
    return (m // 2, max(m - 1, 0) if m % 2 == 0 else m)


def folds(m: int, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """(row of the rectangle, row j of the triangle that it begins with, row of the triangle that it ends with).

    Row j of the triangle has the m − 1 − j entries (j, j + 1), (j, j + 2), …
    """
    last = m - 1 if m % 2 == 0 else m - 2
    for row in range(start, stop):
        yield row, row, last - row


def fold_triangle(A: NDArray[Any]) -> NDArray[Any]:
    """The strict upper triangle of A (m, m) as a rectangle."""
    m = len(A)
    folded = np.empty(folded_shape(m), A.dtype)
    for row, j, k in folds(m, 0, len(folded)):
        folded[row] = np.concatenate([A[j, j + 1 :], A[k, k + 1 :]])
    return folded


def unfold_triangle(folded: NDArray[Any], start: int, A: NDArray[Any]) -> None:
    """Write rows `start`, `start` + 1, … of the rectangle into both triangles of A (m, m)."""
    m = len(A)
    for row, j, k in folds(m, start, start + len(folded)):
        for i, part in ((j, folded[row - start, : m - 1 - j]), (k, folded[row - start, m - 1 - j :])):
            A[i, i + 1 :] = part
            A[i + 1 :, i] = part


# ------------------------------------------------------------------ adding up pairs


def pair_sums_numpy(indptr: NDArray[Any], indices: NDArray[Any], w: NDArray[Any], m: int) -> NDArray[Any]:
    """Xᵀ diag(w) X above the diagonal, folded: the specification of `_Adder`."""
    X = np.zeros((len(indptr) - 1, m), w.dtype)
    X[np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices] = 1
    return fold_triangle(X.T @ (w[:, None] * X))


def ascending(indptr: NDArray[Any], indices: NDArray[Any]) -> NDArray[np.int32]:
    """The items of each user in ascending order, which they are in unless somebody renumbered them otherwise."""
    user = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    step = np.diff(indices)
    if ((step > 0) | (np.diff(user) > 0)).all():
        return np.ascontiguousarray(indices, np.int32)
    return np.ascontiguousarray(indices[np.lexsort((indices, user))], np.int32)


class _Adder:
    """Rows of the folded triangle for users with ascending items and one number each.

    Row j of the triangle is added up by itself, in the cache: whoever has item j adds its number at the items after it.
    Every row belongs to one thread, and users come in their order, so that no bit depends on the number of threads.
    """

    def __init__(self, indptr: NDArray[Any], indices: NDArray[np.int32], w: NDArray[Any], m: int) -> None:
        counts = np.diff(indptr)
        self.indices = indices
        self.entry = np.argsort(indices, kind="stable")  # entries by item, and by user among those
        self.start = np.searchsorted(indices[self.entry], np.arange(m + 1))
        self.end = np.repeat(indptr[1:], counts)
        self.w = np.repeat(w, counts)
        self.m = m
        after = self.end - np.arange(len(indices)) - 1  # how many items of the user come after each
        self.cost = np.bincount(indices, after, minlength=m)

    def rows(self, rows: slice) -> NDArray[Any]:
        m = self.m
        folded = np.zeros((rows.stop - rows.start, folded_shape(m)[1]), self.w.dtype)
        both = list(folds(m, rows.start, rows.stop))
        cost = np.array([self.cost[j] + self.cost[k] for _, j, k in both]) + m

        def work(begin: int, stop: int) -> None:
            for row, j, k in both[begin:stop]:
                into = folded[row - rows.start]
                for i, part in ((j, into[: m - 1 - j]), (k, into[m - 1 - j :])):
                    entries = self.entry[self.start[i] : self.start[i + 1]]
                    _add_row(entries, self.end, self.indices, self.w, i + 1, part)

        run(work, cost_cuts(cost))
        return folded


@njit(nogil=True, cache=True)
def _add_row(
    entries: np.ndarray, end: np.ndarray, indices: np.ndarray, w: np.ndarray, first: int, row: np.ndarray
) -> None:
    """Add every user's number at the items after this one; `row` begins with item `first`."""
    for e in entries:
        for at in range(e + 1, end[e]):
            row[indices[at] - first] += w[e]
