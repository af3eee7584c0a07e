"""Gather rows into a packed buffer and accumulate their sums, for least squares.

A kernel reads the rows of Y that the entries of a sparse row refer to. It gathers up to `PACK` of
them into a buffer P, prefetches the next ones, and accumulates PᵀP (`add_gram`), vᵀP (`add_sum`) or
both (`add_turned`) in registers. Y is aligned to cache lines and padded to whole vectors by
`pad_columns`. `sum_rows` is the simplest use.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from discreet._numba import njit
from discreet.kernels import simd
from discreet.kernels.cholesky import allocate_aligned, pad_rank
from discreet.kernels.simd import (
    CORNER_VECTORS,
    TILE_ROWS,
    address,
    corner_0,
    corner_0_both,
    corner_1,
    corner_1_both,
    corner_2,
    gather,
    gather_truncated,
    lanes,
    prefetch,
    row_1,
    row_2,
    row_4,
    row_8,
    tile_1,
    tile_2,
    tile_3,
)
from discreet.kernels.threads import cost_cuts, even_cuts, run
from discreet.kernels.validation import floats, same_length, sparse_rows

# Entries gathered at a time: 128 rows of rank 128 are 64 kB, which stays in the second-level cache.
PACK = 128
AHEAD = 128  # entries prefetched beyond those: the next pack


def frozen(x: np.ndarray) -> np.ndarray:
    """Return a read-only view: numba compiles again for every mix of writable and read-only."""
    # A view: the caller's own array stays writable.
    x = x.view()
    x.flags.writeable = False
    return x


def allocate_aligned_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate memory aligned to cache lines.

    By numpy, which requests huge pages: factors are read at random, and would miss the TLB.
    """
    size = math.prod(shape) * dtype.itemsize
    # 64 bytes more than needed leave space for the alignment.
    buffer = np.empty(size + 64, np.uint8)
    skip = -buffer.ctypes.data % 64
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def on_cache_lines(Y: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """Return Y (as `dtype`) aligned for vector kernels, with zero columns up to whole vectors.

    Kernels that accept it take the original number of columns as `columns`.
    """
    kind = np.dtype(dtype or Y.dtype)
    r = Y.shape[1]
    R = pad_rank(r, kind.itemsize) if simd.enabled() else r
    if kind == Y.dtype:
        return pad_columns(Y, R)
    P = allocate_aligned_array((len(Y), R), kind)

    def fill(a: int, b: int) -> None:
        P[a:b, :r] = Y[a:b]
        P[a:b, r:] = 0

    run(fill, even_cuts(len(Y)))
    return P


def pad_columns(Y: np.ndarray, R: int) -> np.ndarray:
    """Return Y with zero columns up to R, aligned to cache lines."""
    # Already in shape: repeated calls with the same factors copy nothing.
    if Y.shape[1] == R and Y.flags.c_contiguous and Y.ctypes.data % 64 == 0:
        return Y
    P = allocate_aligned_array((len(Y), R), Y.dtype)
    P[:, : Y.shape[1]] = Y
    P[:, Y.shape[1] :] = 0
    return P


@njit(inline="always", nogil=True, cache=True)
def prefetch_rows(Y: np.ndarray, indices: np.ndarray, first: int, end: int) -> None:
    """Prefetch the rows of Y for the entries from `first` on, before `end`."""
    line = Y.shape[1] * Y.itemsize
    # Never beyond `end`: those indices may be of another block, or not exist.
    for k in range(first, min(end, first + AHEAD)):
        row = address(Y) + np.int64(indices[k]) * line
        # One request per cache line of the row.
        for at in range(0, line, 64):
            prefetch(row + at)


@njit(inline="always", nogil=True, cache=True)
def add_gram(like: np.ndarray, P: int, K: int, S: int, A: int, R: int) -> None:
    """Set ``A = S + PᵀP`` on the tiles of the upper triangle; P is [K][R], S and A are [R][R]."""
    for i in range(0, R, lanes(like)):
        _add_tiles(like, P, K, S, A, R, i, i)


@njit(inner=True, nogil=True, cache=True)
def _add_tiles(like: np.ndarray, P: int, K: int, S: int, A: int, R: int, i: int, j: int) -> None:
    """Do `add_gram` for the W rows from i and the columns from j."""
    W = lanes(like)
    s = like.itemsize
    line = R * s
    left = (R - j) // W
    while left > 0:
        step = 3 if left >= 3 and left != 4 else min(left, 2)  # 2 + 2 is faster than 3 + 1
        # A tile is as tall as the registers allow; a narrow one has space for all W rows.
        for h in range(i, i + W, min(TILE_ROWS, W) if step > 1 else W):
            p = P + h * s
            q = P + j * s
            at = (h * R + j) * s
            if step == 3:
                tile_3(like, p, line, q, line, K, S + at, A + at, line)
            elif step == 2:
                tile_2(like, p, line, q, line, K, S + at, A + at, line)
            else:
                tile_1(like, p, line, q, line, K, S + at, A + at, line)
        j += step * W
        left -= step


def rotate_blocks(S: np.ndarray, W: int) -> np.ndarray:
    """Rotate the diagonal blocks of a symmetric matrix as in `add_turned`.

    Lane a of row i + d is ``S[i + a, i + (a + d) % W]``; rows d > W / 2 of a block are unused. Each
    pair of coordinates is then computed once, by multiplying a vector with its rotations.
    """
    return S.take(_turns(len(S), W))


@lru_cache(maxsize=8)
def _turns(R: int, W: int) -> np.ndarray:
    """Return the source of every entry of a rotated matrix.

    Cached, because computing it takes longer than solving one history.
    """
    places = np.arange(R * R).reshape(R, R)
    found = places.copy()
    lane = np.arange(W)
    for i in range(0, R, W):
        # Rotations by more than half repeat products of the other half.
        for d in range(W // 2 + 1):
            found[i + d, i : i + W] = places[i + lane, i + (lane + d) % W]
    return found


@njit(inline="always", nogil=True, cache=True)
def add_turned(
    like: np.ndarray,
    P: int,
    index: int,
    K: int,
    v: int,
    b: int,
    w: int,
    h: int,
    S: int,
    A: int,
    R: int,
    Y: int,
    ahead: int,
) -> None:
    """Set ``A = S + XᵀX`` with rotated diagonal blocks, and add ``b += vᵀX`` and ``h += wᵀX``.

    X are the K rows of P at `index`. With more than two blocks they have been gathered, `index`
    counts from 0, and h is 0 (none). The rows of Y for the K numbers at `ahead` are
    prefetched.
    """
    W = lanes(like)
    s = like.itemsize
    line = R * s
    # The lower half of the last tile is computed with the last block, which has no tile itself.
    half = TILE_ROWS if TILE_ROWS < W else 0
    for i in range(0, R, W):
        left = (R - i) // W - 1
        x = i * s
        p = x
        q = x + W * s
        own = (i * R + i) * s
        at = own + W * s
        # The last block has no tile to its right; it takes over half of the one before.
        if left == 0 and i > 0 and half:
            p = x - half * s
            q = x
            at = own - half * line
        bx = b + x
        hx = h + x
        yx = Y + x
        s0 = S + own
        a0 = A + own
        s1 = S + at
        a1 = A + at
        if left == 0 and (i == 0 or half == 0):
            if h:
                corner_0_both(
                    like, P, index, K, line, x, x, x, v, bx, s0, a0, s0, a0, line, yx, ahead, w, hx
                )
            else:
                corner_0(
                    like, P, index, K, line, x, x, x, v, bx, s0, a0, s0, a0, line, yx, ahead, w, hx
                )
        elif left <= 1:
            if h:
                corner_1_both(
                    like, P, index, K, line, x, p, q, v, bx, s0, a0, s1, a1, line, yx, ahead, w, hx
                )
            else:
                corner_1(
                    like, P, index, K, line, x, p, q, v, bx, s0, a0, s1, a1, line, yx, ahead, w, hx
                )
        # Registers suffice for a tile of two vectors next to the corner.
        elif CORNER_VECTORS == 2:
            corner_2(
                like, P, index, K, line, x, p, q, v, bx, s0, a0, s1, a1, line, yx, ahead, w, hx
            )
            if half:
                rest = half * line
                tile_2(like, P + p + half * s, line, P + q, line, K, s1 + rest, a1 + rest, line)
            _add_tiles(like, P, K, S, A, R, i, i + 3 * W)
        else:
            corner_0(
                like, P, index, K, line, x, x, x, v, bx, s0, a0, s0, a0, line, yx, ahead, w, hx
            )
            _add_tiles(like, P, K, S, A, R, i, i + W)


@njit(inner=True, nogil=True, cache=True)
def add_sum(like: np.ndarray, P: int, v: int, K: int, b: int, R: int) -> None:
    """Add ``b += vᵀP``; v is [K] and b is [R]."""
    W = lanes(like)
    s = like.itemsize
    line = R * s
    j = 0
    while j < R:
        left = (R - j) // W
        at = j * s
        if left >= 8:
            row_8(like, v, s, P + at, line, K, b + at, b + at, line)
            j += 8 * W
        elif left >= 4:
            row_4(like, v, s, P + at, line, K, b + at, b + at, line)
            j += 4 * W
        elif left >= 2:  # two sums at a time: a single one waits for its own latency
            row_2(like, v, s, P + at, line, K, b + at, b + at, line)
            j += 2 * W
        else:
            row_1(like, v, s, P + at, line, K, b + at, b + at, line)
            j += W


def sum_rows(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return ``Σ_j c_ij y_j`` (n, r) of each row."""
    return sums(indptr, indices, c, Y, whole=False)


def sums(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    whole: bool,
    columns: int | None = None,
) -> np.ndarray:
    """Return ``Σ_j c_ij y_j`` of each row, with terms rounded toward zero if `whole`.

    `columns` is the number of columns of Y without padding. Default: all.
    """
    Y = floats("Y", Y, 2)
    c = floats("c", c, 1)
    assert c.dtype == Y.dtype
    indptr, indices = sparse_rows(indptr, indices, None, len(Y))
    same_length("c and indices", len(c), len(indices))
    n = len(indptr) - 1
    r = columns or Y.shape[1]
    cuts = np.array([0, n]) if n == 1 else cost_cuts(np.diff(indptr) + 1.0)
    if not simd.enabled():
        b = np.zeros((n, r), Y.dtype)
        run(lambda start, stop: _sums_plain(indptr, indices, c, Y, b, whole, start, stop), cuts)
        return b
    # Padded columns sum to 0 and are cut off below.
    P = pad_columns(Y, pad_rank(r, Y.itemsize))
    b = np.zeros((n, P.shape[1]), Y.dtype)
    if n == 1:  # starting threads takes longer than one row
        _sums(indptr, indices, c, P, b, whole, 0, 1)
    else:
        run(lambda start, stop: _sums(indptr, indices, c, P, b, whole, start, stop), cuts)
    return b if r == P.shape[1] else np.ascontiguousarray(b[:, :r])


@njit(nogil=True, cache=True)
def _sums(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    b: np.ndarray,
    whole: bool,
    start: int,
    stop: int,
) -> None:
    R, s = Y.shape[1], Y.itemsize
    P = allocate_aligned(Y, PACK * R)
    # Truncated rows carry their factor already; the sum then multiplies by 1.
    one = np.ones(PACK, Y.dtype)
    for i in range(start, stop):
        for first in range(indptr[i], indptr[i + 1], PACK):
            K = min(PACK, indptr[i + 1] - first)
            index, factor = address(indices) + first * 4, address(c) + first * s
            # Before the arithmetic of this pack, which hides the latency of the next.
            prefetch_rows(Y, indices, first + K, indptr[stop])
            if whole:
                gather_truncated(P, address(Y), index, factor, K, address(P), R)
                factor = address(one)
            else:
                gather(P, address(Y), index, K, address(P), R)
            add_sum(P, address(P), factor, K, address(b) + i * R * s, R)


@njit(nogil=True, cache=True)
def _sums_plain(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    b: np.ndarray,
    whole: bool,
    start: int,
    stop: int,
) -> None:
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            for k in range(Y.shape[1]):
                x = c[e] * Y[indices[e], k]
                b[i, k] += np.trunc(x) if whole else x
