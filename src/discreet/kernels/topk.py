"""The k best items of every user, without holding all users' scores in memory.

A score is the chain ``((b_j + u_1 v_j1) + u_2 v_j2) + …``, always in this order: no bit of a user's
list depends on the other users. (A BLAS product lacks this property: its arithmetic at the edge of
a block depends on the number of rows.) Scores of a block of users and items are computed in
register tiles. While they are in the cache, each user's row is compared with the k-th best score so
far. Almost every chunk is below it and costs one comparison per vector.
"""

from __future__ import annotations

from typing import Any

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


class Panels:
    """Item factors (m, r), packed for register tiles on first use and kept for repeated queries."""

    def __init__(self, V: np.ndarray) -> None:
        # Scores are float32 throughout: twice the lanes of float64, and far below the noise of a
        # model.
        self.V = floats("V", V, 2, np.float32)
        self.shape = self.V.shape
        self._packed: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.V)

    def pack(self, width: int) -> np.ndarray:
        """Return the factors as [panel][r][width], the last panel padded with 0."""
        if width not in self._packed:
            self._packed[width] = _panels(self.V, width)
        return self._packed[width]


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
    _sort_rows(items, scores)
    return items, scores


def _panels(V: np.ndarray, width: int) -> np.ndarray:
    """Pack items for tiles as [panel][r][width], the last panel padded with 0."""
    m, r = V.shape
    n = -(-len(V) // width)
    panels = allocate_aligned_array((n, r, width), V.dtype)
    # Padded items score their bias of 0, but the scan never reads beyond m.
    panels[m // width :] = 0
    for at in range(n):
        own = V[at * width : (at + 1) * width]
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


@intrinsic
def _any_above(typingctx: Any, row: Any, threshold: Any) -> Any:
    """Return whether one of `CHUNK` float32 scores is above the threshold.

    Vector comparisons, written out: LLVM does not vectorize the loop, which takes 28 times as long.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        e = Emit(builder, types.Array(types.float32, 1, "C"))
        limit = e.splat_value(args[1])
        found = None
        for at in range(0, CHUNK, e.lanes):
            above = builder.fcmp_ordered(">", e.load(args[0], 4 * at), limit)
            found = above if found is None else builder.or_(found, above)
        bits = ir.IntType(e.lanes)
        return builder.icmp_unsigned("!=", builder.bitcast(found, bits), bits(0))

    return types.boolean(ADDRESS, types.float32), generate


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
def _sort_rows(items: np.ndarray, scores: np.ndarray) -> None:
    """Sort each heap to a list, best first, by moving the root to the end repeatedly."""
    for i in range(items.shape[0]):
        # Heap sort in place: k is small, and no second array per user is needed.
        for last in range(items.shape[1] - 1, 0, -1):
            item, score = items[i, last], scores[i, last]
            items[i, last], scores[i, last] = items[i, 0], scores[i, 0]
            _sift(items[i, :last], scores[i, :last], item, score)
