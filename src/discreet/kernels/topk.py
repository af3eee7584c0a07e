"""The k best items of every user, without holding all users' scores in memory.

A score is the chain ``((b_j + u_1 v_j1) + u_2 v_j2) + …``, always in this order: no bit of a user's
list depends on the other users. (A BLAS product lacks this property: its arithmetic at the edge of
a block depends on the number of rows.) Scores of a block of users and items are computed in
register tiles. While they are in the cache, each user's row is compared with the k-th best score so
far. Almost every chunk is below it and costs one comparison per vector.

For many users and a catalog with a long tail, most scores are never computed. Items are then sorted
by their largest factor, so that those of a panel are alike, and the score of a user on any item of
a panel is at most u⁺ · max v + u⁻ · min v, a matrix product over panels. A panel is left out where
this is below the k-th best score so far. The lists have the same bits: every score is the same
chain, and equal scores are in the same order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from discreet._numba import njit
from discreet.kernels import simd
from discreet.kernels.gather import allocate_aligned_array
from discreet.kernels.simd import (
    ADDRESS,
    SCORE_VECTORS,
    TILE_ROWS,
    Emit,
    address,
    intrinsic,
    score_row,
    score_tile,
)
from discreet.kernels.threads import even_cuts, run, thread_count
from discreet.kernels.validation import floats, same_length, sparse_rows

# A block of scores, users × items, is half a megabyte: it stays in the second-level cache between
# product and scan.
ITEMS = 2048
USERS = 64
CHUNK = 64  # scores compared with the threshold before one branch
TILE = SCORE_VECTORS * simd.VECTOR_BYTES // 4  # items of a register tile
PLAIN = 512  # items that portable loops take at a time
# Sorted panels are a second copy of the factors, which single queries should not need.
MANY_USERS = 256
TRIED = 16  # users whose lists decide whether sorted panels help
MOST_VISITED = 0.3  # of the panels: finding bounds and visiting single panels cost more per item
HEAD = 16  # panels that are visited before there is a k-th best score to compare bounds with
GROUP = 8  # panels that are compared together first


class SortedPanels(NamedTuple):
    """Panels of items sorted by their largest absolute factor, with the limits of each panel.

    Parameters
    ----------
    panels : (p, r, width)
    items : (p * width,) int32
        Positions in the catalog; padded with the number of items.
    places : (m,) int32
        Where an item of the catalog stands.
    limits : (2 r, p) float32
        Largest and, below, smallest factors of each panel.
    group_limits : (2 r, groups) float32
        The same of `GROUP` panels.
    largest : (r,) float64
        Largest absolute factors of all items.
    """

    panels: np.ndarray
    items: np.ndarray
    places: np.ndarray
    limits: np.ndarray
    group_limits: np.ndarray
    largest: np.ndarray


class Panels:
    """Item factors (m, r), packed for register tiles on first use and kept for repeated queries."""

    def __init__(self, V: np.ndarray) -> None:
        # Scores are float32 throughout: twice the lanes of float64, and far below the noise of a
        # model.
        self.V = floats("V", V, 2, np.float32)
        self.shape = self.V.shape
        self._packed: dict[int, np.ndarray] = {}
        self._long_tail: dict[int, bool] = {}  # by k; decides about speed alone

    def __len__(self) -> int:
        return len(self.V)

    def pack(self, width: int) -> np.ndarray:
        """Return the factors as [panel][r][width], the last panel padded with 0."""
        if width not in self._packed:
            self._packed[width] = _panels(self.V, width)
        return self._packed[width]

    @cached_property
    def panels_by_size(self) -> SortedPanels:
        """The factors, sorted by their largest absolute value and packed for register tiles."""
        m, r = self.shape
        order = np.argsort(-np.abs(self.V).max(axis=1), kind="stable").astype(np.int32)
        places = np.empty(m, np.int32)
        places[order] = np.arange(m, dtype=np.int32)
        starts = np.arange(0, m, TILE)
        # Memory: one panel at a time, and not a sorted copy besides the packed one.
        panels = _panels(self.V, TILE, order)
        limits = np.empty((2 * r, len(starts)), np.float32)
        for p, start in enumerate(starts):
            own = self.V[order[start : start + TILE]]
            limits[:r, p] = own.max(axis=0)
            limits[r:, p] = own.min(axis=0)
        items = np.full(len(panels) * TILE, m, np.int32)
        items[:m] = order
        largest = np.abs(limits).max(axis=1).reshape(2, r).max(axis=0).astype(np.float64)
        groups = np.arange(0, len(starts), GROUP)
        group_limits = np.vstack(
            [
                np.maximum.reduceat(limits[:r], groups, axis=1),
                np.minimum.reduceat(limits[r:], groups, axis=1),
            ]
        )
        return SortedPanels(panels, items, places, limits, group_limits, largest)


def top_k(
    U: np.ndarray,
    V: np.ndarray | Panels,
    bias: np.ndarray,
    k: int,
    seen: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best `k` items of each user by ``u · v_j + bias_j``.

    Parameters
    ----------
    U : (n, r), V : (m, r) or `Panels` of them, bias : (m,)
        A bias of -inf excludes an item.
    seen : (indptr, indices), optional
        CSR rows of items to exclude, one row per user; indices sorted within a row.

    Returns
    -------
    items : (n, k) int32, best first, padded with -1
    scores : (n, k) float32, padded with -inf

    Ties are broken as in `reference.top_k`.
    """
    U, bias = floats("U", U, 2, np.float32), floats("bias", bias, 1, np.float32)
    V = V if isinstance(V, Panels) else Panels(V)
    same_length("vectors of users and of items", U.shape[1], V.shape[1])
    same_length("items and biases", len(V), len(bias))
    n, m = len(U), len(V)
    # Without `seen`, empty rows: the scan then needs no second form.
    indptr, indices = seen if seen else (np.zeros(n + 1, np.int64), np.empty(0, np.int32))
    indptr, indices = sparse_rows(indptr, indices, n, m)
    # -1 and -inf mark places that stay empty when fewer than k items may be recommended.
    items = np.full((n, k), -1, np.int32)
    scores = np.full((n, k), -np.inf, np.float32)
    if _is_tail_long(U, V, bias, k):
        _find_sorted(U, V.panels_by_size, bias, (indptr, indices), items, scores)
    else:
        _find(U, V, bias, (indptr, indices), items, scores)
    _sort_rows(items, scores)
    return items, scores


def _find(
    U: np.ndarray,
    V: Panels,
    bias: np.ndarray,
    seen: tuple[np.ndarray, np.ndarray],
    items: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Write the best items and their scores as heaps, from all scores."""
    indptr, indices = seen
    n, m = len(U), len(V)
    width, scored = (TILE, _score) if simd.enabled() else (PLAIN, _score_plain)
    panels = V.pack(width)
    # Chains start at the bias, so that it is added first for every item, in both implementations.
    starts = np.zeros((len(panels), width), np.float32)
    starts.ravel()[:m] = bias
    # A block has few users and many items, or many users and few items.
    users = max(min(USERS, n), 1)
    step = max(min(USERS * ITEMS // users // width, len(panels)), 1)

    def work(start: int, stop: int) -> None:
        # Items are visited in ascending order, so one cursor per user passes over `seen` once.
        cursor = indptr[start:stop].copy()
        S = allocate_aligned_array((users, step * width), np.dtype(np.float32))
        # Users are packed as well: a tile reads TILE_ROWS of their coordinates from one cache
        # line.
        P = allocate_aligned_array(
            (-(-users // TILE_ROWS), U.shape[1], TILE_ROWS), np.dtype(np.float32)
        )
        for first in range(start, stop, USERS):
            last = min(first + USERS, stop)
            own = slice(first, last)
            _pack(U[own], P)
            for p in range(0, len(panels), step):
                scored(P, panels[p : p + step], starts[p : p + step], S, last - first)
                _scan(
                    S[: last - first, : m - p * width],
                    p * width,
                    indptr[first : last + 1],
                    indices,
                    cursor[first - start : last - start],
                    items[own],
                    scores[own],
                )

    if n == 1:  # starting threads takes longer than one query
        work(0, 1)
    else:
        # Cuts at multiples of USERS; several pieces per thread even out users with long rows.
        run(work, even_cuts(n, USERS, pieces=max(-(-n // (4 * USERS)), thread_count())))


def _is_tail_long(U: np.ndarray, V: Panels, bias: np.ndarray, k: int) -> bool:
    """Try on a few users, once, whether most panels of many items can be left out."""
    n, m = len(U), len(V)
    few = n < MANY_USERS or m < 2 * ITEMS
    if few or not 0 < k <= m or not V.shape[1] or not simd.enabled():
        return False
    if k not in V._long_tail:
        some = U[:: n // TRIED][:TRIED]
        with np.errstate(all="ignore"):
            scores = some @ V.V.T + bias
            worst = np.partition(scores, m - k, axis=1)[:, m - k]
            starts = _pad(bias, V.panels_by_size)
            bounds = _limit_scores(some, V.panels_by_size.limits, starts.max(axis=1))
            bounds += _limit_rounding(some, V.panels_by_size, starts)
            V._long_tail[k] = bool((bounds >= worst[:, None]).mean() <= MOST_VISITED)
        if not any(V._long_tail.values()):
            del V.panels_by_size  # a second copy of the factors
    return V._long_tail[k]


def _pad(bias: np.ndarray, V: SortedPanels) -> np.ndarray:
    """Return the biases as (panel, width); places of no item have −inf."""
    padded = np.append(bias, np.float32(-np.inf))[V.items]
    return padded.reshape(len(V.panels), -1)


def _limit_scores(U: np.ndarray, limits: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Bound the scores of users (n, r) by limits and largest biases: (n, panels) float32.

    A bound that is no number, where factors are not finite, is below nothing.
    """
    with np.errstate(all="ignore"):
        bounds = np.hstack([np.maximum(U, 0), np.minimum(U, 0)]) @ limits
        bounds += starts
    return np.asarray(bounds)


def _limit_rounding(U: np.ndarray, V: SortedPanels, starts: np.ndarray) -> np.ndarray:
    """Bound by how much rounding changes a score of each user and its bound: (n, 1) float32."""
    r = U.shape[1]
    with np.errstate(all="ignore"):
        finite = np.abs(starts[np.isfinite(starts)]).max(initial=0.0)
        terms = np.abs(U).astype(np.float64) @ V.largest + finite
        return np.asarray(((2 * r + 8) * 2.0**-22 * terms).astype(np.float32)[:, None])


def _find_sorted(
    U: np.ndarray,
    V: SortedPanels,
    bias: np.ndarray,
    seen: tuple[np.ndarray, np.ndarray],
    items: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Do `_find` from the scores of those panels that may have one of the best items."""
    indptr, indices = seen
    r = U.shape[1]
    starts = _pad(bias, V)
    largest = starts.max(axis=1)
    of_groups = np.maximum.reduceat(largest, np.arange(0, len(largest), GROUP))
    rounding = _limit_rounding(U, V, starts)
    head = np.arange(min(HEAD, len(largest)))
    anything = np.full((USERS, len(head)), np.inf, np.float32)

    def work(start: int, stop: int) -> None:
        S = allocate_aligned_array((TILE_ROWS, TILE), np.dtype(np.float32))
        P = allocate_aligned_array((-(-USERS // TILE_ROWS), r, TILE_ROWS), np.dtype(np.float32))
        hidden = np.zeros((USERS, len(V.items) // 8 + 1), np.uint8)
        for first in range(start, stop, USERS):
            own = slice(first, min(first + USERS, stop))
            rows = indptr[first : own.stop + 1]
            to = (V.items, hidden, S, items[own], scores[own])
            _pack(U[own], P)
            _hide(rows, indices, V.places, hidden, True)
            _visit(P, V.panels, starts, head, anything, *to)
            few = _limit_scores(U[own], V.group_limits, of_groups) + rounding[own]
            group = ~(few < scores[own, :1]).all(axis=0)  # also where a bound is no number
            left = np.flatnonzero(np.repeat(group, GROUP)[: len(largest)])
            left = left[left >= len(head)]
            bounds = _limit_scores(U[own], V.limits[:, left], largest[left]) + rounding[own]
            _visit(P, V.panels, starts, left, bounds, *to)
            _hide(rows, indices, V.places, hidden, False)

    n = len(U)
    run(work, even_cuts(n, USERS, pieces=max(-(-n // (4 * USERS)), thread_count())))


def _panels(V: np.ndarray, width: int, order: np.ndarray | None = None) -> np.ndarray:
    """Pack items for tiles as [panel][r][width], the last panel padded with 0."""
    m, r = V.shape
    n = -(-len(V) // width)
    panels = allocate_aligned_array((n, r, width), V.dtype)
    # Padded items score their bias of 0, but the scan never reads beyond m.
    panels[m // width :] = 0
    for at in range(n):
        part = slice(at * width, (at + 1) * width)
        own = V[part] if order is None else V[order[part]]
        panels[at, :, : len(own)] = own.T
    return panels


@njit(nogil=True, cache=True)
def _pack(U: np.ndarray, P: np.ndarray) -> None:
    """Pack users for tiles as [tile][r][TILE_ROWS], padded with 0."""
    tiles, r, rows = P.shape
    for t in range(tiles):
        for a in range(rows):
            i = t * rows + a
            for k in range(r):
                P[t, k, a] = U[i, k] if i < len(U) else np.float32(0)


@njit(nogil=True, cache=True)
def _score(P: np.ndarray, panels: np.ndarray, starts: np.ndarray, S: np.ndarray, n: int) -> None:
    """Score n users on the items of some panels: whole tiles, and single rows for the rest.

    Every score is one chain of additions over the coordinates, in a tile and in a row alike, so
    that a user's scores do not depend on who else is in the block.
    """
    r = P.shape[1]
    rows = P.shape[2]
    width = panels.shape[2]
    s = S.itemsize
    line = S.shape[1] * s
    for p in range(len(panels)):
        Q = address(panels) + p * r * width * s
        start = address(starts) + p * width * s
        C = address(S) + p * width * s
        for t in range(n // rows):
            own = address(P) + t * r * rows * s
            score_tile(S, own, rows * s, Q, width * s, r, start, C + t * rows * line, line)
        for i in range(n // rows * rows, n):
            own = address(P) + (i // rows * r * rows + i % rows) * s
            score_row(S, own, rows * s, Q, width * s, r, start, C + i * line, line)


@njit(nogil=True, cache=True)
def _score_plain(
    P: np.ndarray, panels: np.ndarray, starts: np.ndarray, S: np.ndarray, n: int
) -> None:
    """Do `_score` in portable loops, without fastmath, so that every row is rounded alike."""
    r, rows, width = P.shape[1], P.shape[2], panels.shape[2]
    for p in range(len(panels)):
        Q = panels[p]
        for i in range(n):
            u = P[i // rows, :, i % rows]
            row = S[i, p * width : (p + 1) * width]
            for j in range(width):
                row[j] = starts[p, j]
            k = 0
            # Four coordinates at a time, to write the row a quarter as often.
            while k + 4 <= r:
                u0, u1, u2, u3 = u[k], u[k + 1], u[k + 2], u[k + 3]
                q0, q1, q2, q3 = Q[k], Q[k + 1], Q[k + 2], Q[k + 3]
                for j in range(width):
                    row[j] = (((row[j] + u0 * q0[j]) + u1 * q1[j]) + u2 * q2[j]) + u3 * q3[j]
                k += 4
            while k < r:
                u0, q0 = u[k], Q[k]
                for j in range(width):
                    row[j] += u0 * q0[j]
                k += 1


@njit(nogil=True, cache=True)
def _before(score: float, item: int, other_score: float, other_item: int) -> bool:
    # Equal scores are ordered by position, which makes lists independent of the order of blocks.
    return score > other_score or (score == other_score and item < other_item)


@njit(nogil=True, cache=True)
def _sift(items: np.ndarray, scores: np.ndarray, item: int, score: float) -> None:
    """Replace the root, the worst item kept, by (item, score), and restore the heap."""
    k = len(items)
    at = 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        right = child + 1
        if right < k and _before(scores[child], items[child], scores[right], items[right]):
            child = right
        # The hole moves down instead of swapping: half the writes.
        if not _before(score, item, scores[child], items[child]):
            break
        items[at], scores[at] = items[child], scores[child]
        at = child
    items[at] = item
    scores[at] = score


def _any(comparison: str, count: int) -> Any:
    """Make a test whether one of so many float32 scores is above a threshold, or not below it.

    Vector comparisons, written out: LLVM does not vectorize the loop, which takes 28 times as long.
    """

    @intrinsic
    def test(typingctx: Any, row: Any, threshold: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            e = Emit(builder, types.Array(types.float32, 1, "C"))
            limit = e.splat_value(args[1])
            found = None
            for at in range(0, count, e.lanes):
                met = builder.fcmp_ordered(comparison, e.load(args[0], 4 * at), limit)
                found = met if found is None else builder.or_(found, met)
            bits = ir.IntType(e.lanes)
            return builder.icmp_unsigned("!=", builder.bitcast(found, bits), bits(0))

        return types.boolean(ADDRESS, types.float32), generate

    return test


_any_above = _any(">", CHUNK)
_any_at_least = _any(">=", TILE)


@njit(nogil=True, cache=True)
def _scan(
    S: np.ndarray,
    first: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    cursor: np.ndarray,
    items: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Insert the scores of items first, first + 1, … into each user's heap, worst at the root."""
    width = S.shape[1]
    for i in range(S.shape[0]):
        row = S[i]
        at = cursor[i]
        end = indptr[i + 1]
        while at < end and indices[at] < first + width:
            # Overwriting the score keeps the scan below free of a test for every item.
            row[indices[at] - first] = -np.inf
            at += 1
        cursor[i] = at
        for start in range(0, width, CHUNK):
            stop = min(start + CHUNK, width)
            # The heap is rarely reached. The last items of all are fewer, and compared one by one.
            if stop - start < CHUNK or _any_above(address(row) + 4 * start, scores[i, 0]):
                for j in range(start, stop):
                    # The threshold is read again: an insertion in this chunk may have raised it.
                    # Strictly above,
                    # because of equal scores the earlier item is kept.
                    if row[j] > scores[i, 0]:
                        _sift(items[i], scores[i], first + j, row[j])


@njit(nogil=True, cache=True)
def _hide(
    indptr: np.ndarray, indices: np.ndarray, places: np.ndarray, hidden: np.ndarray, on: bool
) -> None:
    """Set the bits of the places of seen items, or clear them."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            place = places[indices[e]]
            bit = np.uint8(1 << (place & 7))
            if on:
                hidden[i, place >> 3] |= bit
            else:
                hidden[i, place >> 3] = 0


@njit(nogil=True, cache=True)
def _visit(
    P: np.ndarray,
    panels: np.ndarray,
    starts: np.ndarray,
    which: np.ndarray,
    bounds: np.ndarray,
    order: np.ndarray,
    hidden: np.ndarray,
    S: np.ndarray,
    items: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Score which panels may have one of the best items of a tile of users, and insert these."""
    n = len(items)
    r = P.shape[1]
    rows = P.shape[2]
    width = panels.shape[2]
    s = S.itemsize
    for at in range(len(which)):
        p = which[at]
        for t in range(-(-n // rows)):
            wanted = False
            for i in range(t * rows, min((t + 1) * rows, n)):
                # also where the bound is no number
                wanted |= not bounds[i, at] < scores[i, 0]
            if not wanted:
                continue
            own = address(P) + t * r * rows * s
            Q = address(panels) + p * r * width * s
            start = address(starts) + p * width * s
            score_tile(S, own, rows * s, Q, width * s, r, start, address(S), width * s)
            for i in range(t * rows, min((t + 1) * rows, n)):
                row = S[i - t * rows]
                if not _any_at_least(address(row), scores[i, 0]):
                    continue
                for j in range(width):
                    place = p * width + j
                    # Of equal scores the first item in the catalog is kept, so the order of visits
                    # does not matter.
                    better = _before(row[j], order[place], scores[i, 0], items[i, 0])
                    if better and not hidden[i, place >> 3] >> (place & 7) & 1:
                        _sift(items[i], scores[i], order[place], row[j])


@njit(nogil=True, cache=True)
def _sort_rows(items: np.ndarray, scores: np.ndarray) -> None:
    """Sort each heap to a list, best first, by moving the root to the end repeatedly."""
    for i in range(items.shape[0]):
        # Heap sort in place: k is small, and no second array per user is needed.
        for last in range(items.shape[1] - 1, 0, -1):
            item, score = items[i, last], scores[i, last]
            items[i, last], scores[i, last] = items[i, 0], scores[i, 0]
            _sift(items[i, :last], scores[i, :last], item, score)
