"""Normal equations by row: the half-step of alternating least squares, and its sums without the solve.

For each row i of a sparse matrix with entries (j, value, weight) and fixed factors Y:

    A_i = Σ_j w_ij · y_j y_jᵀ,      b_i = Σ_j w_ij · value_ij · y_j,
    x_i = (A_i + S + ridge_i · I)⁻¹ b_i.

`solve_rows` gives the x_i without keeping the A_i; `sum_rows` gives the b_i alone, and `discreet.kernels.exact` the
A_i. The vector path gathers the factors of a row into a packed buffer, adds PᵀP with the tiles of
`discreet.kernels.simd`, and solves W rows at a time.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import njit

from discreet.kernels import simd
from discreet.kernels.cholesky import aligned, matrix_gap, padded, panels_size, solve_interleaved, solve_one
from discreet.kernels.simd import (
    TILE_ROWS,
    gather,
    gather_scaled,
    gather_truncated,
    lanes,
    prefetch,
    row_1,
    row_4,
    row_8,
    tile_1,
    tile_2,
    tile_3,
)
from discreet.kernels.threads import cost_cuts, run

PACK = 128  # entries gathered at a time: 128 rows of rank 128 are 64 kB, which stays in the second-level cache
DUAL_RANK = 96  # from this rank on, rows with few entries are solved in the dual
AHEAD = 128  # entries prefetched beyond those


def gram_rows_numpy(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A and b as above: the first half of `solve_rows_numpy`."""
    w = np.ones_like(values) if weights is None else weights
    rows = [slice(a, b) for a, b in pairwise(indptr)]
    A = [(w[s, None] * Y[indices[s]]).T @ Y[indices[s]] for s in rows]
    b = [(w[s] * values[s]) @ Y[indices[s]] for s in rows]
    return np.array(A).reshape(-1, Y.shape[1], Y.shape[1]), np.array(b).reshape(-1, Y.shape[1])


def solve_rows_numpy(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    Y: np.ndarray,
    ridge: np.ndarray,
    shared: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """x as above: the specification of `solve_rows`."""
    A, b = gram_rows_numpy(indptr, indices, values, Y, weights)
    S = 0 if shared is None else shared
    return np.linalg.solve(A + S + ridge[:, None, None] * np.eye(Y.shape[1]), b[..., None])[..., 0]


def solve_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    Y: np.ndarray,
    ridge: np.ndarray,
    shared: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Least-squares factors of every row.

    Parameters
    ----------
    indptr, indices, values : CSR arrays of n rows; int64, int32 and the type of `Y`
    Y : (m, r) float32 or float64
    ridge : (n,)
        Added to the diagonal, row by row. With no entries, no `shared` and a ridge of 0, a row's solution is 0.
    shared : (r, r), optional
        S, the same for every row.
    weights : (nnz,), optional
        Non-negative weights of the entries; 1 where not given.

    Returns
    -------
    (n, r) array of the type of `Y`
    """
    n, r = len(indptr) - 1, Y.shape[1]
    ridge, weights = _ready(ridge, Y), _ready(weights, Y)
    S = np.zeros((r, r), Y.dtype) if shared is None else _ready(shared, Y)
    assert ridge.shape == (n,)
    assert S.shape == (r, r)
    cost = np.diff(indptr).astype(np.float64) * r * r + r**3 / 1.5 + 100.0
    if not simd.enabled():
        X = np.empty((n, r), Y.dtype)
        run(lambda a, b: _solve_plain(indptr, indices, values, weights, Y, ridge, S, X, a, b), cost_cuts(cost))
        return X
    W, R = simd.VECTOR_BYTES // Y.itemsize, padded(r, Y.itemsize)
    X = _empty((n, R), Y.dtype)
    few = _solve_few(indptr, indices, values, weights, Y, ridge, S, X) if r >= DUAL_RANK else np.zeros(n, bool)
    rows = np.flatnonzero(~few)
    P, S = pad_columns(Y, R), np.pad(S, (0, R - r))
    S[range(r, R), range(r, R)] = 1  # a padded coordinate gets the equation 1 · x = 0
    run(lambda a, b: _solve(indptr, indices, values, weights, P, ridge, S, X, rows, r, a, b), cost_cuts(cost[rows], W))
    return X if r == R else np.ascontiguousarray(X[:, :r])


def _solve_few(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, Y: np.ndarray,
    ridge: np.ndarray, S: np.ndarray, X: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Solve the rows with few entries in the dual (see there), and say which they were."""
    from discreet.kernels.dual import prefers_dual, solve_dual

    (r, R), W, counts = (Y.shape[1], X.shape[1]), simd.VECTOR_BYTES // Y.itemsize, np.diff(indptr)
    few = prefers_dual(counts, r, W)
    if not few.any():
        return few
    D, Q = np.linalg.eigh(S.astype(np.float64)) if S.any() else (np.zeros(r), np.eye(r))
    D = np.maximum(D, 0)
    few &= D[0] + ridge > 1e-6 * (D[-1] + ridge)  # an almost singular B has no inverse root to speak of
    rows = np.flatnonzero(few)
    rows = rows[np.argsort(counts[rows], kind="stable")]
    P = pad_columns((Y @ Q.astype(Y.dtype)) if S.any() else Y, R)
    Qt = pad_columns(np.pad(Q.T, ((0, R - r), (0, 0))).astype(Y.dtype), R)
    D = np.append(D, np.ones(R - r)).astype(Y.dtype)
    cost = counts[rows] * 1.0 * (counts[rows] + 64) * r
    run(lambda a, b: solve_dual(indptr, indices, values, weights, P, ridge, D, Qt, rows, X, a, b), cost_cuts(cost, W))
    return few


def sum_rows_numpy(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """``Σ_j c_ij y_j`` for each row: the specification of `sum_rows`."""
    return np.array([c[a:b] @ Y[indices[a:b]] for a, b in pairwise(indptr)]).reshape(-1, Y.shape[1])


def sum_rows(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """``Σ_j c_ij y_j`` (n, r) for each row."""
    return sums(indptr, indices, c, Y, whole=False)


def sums(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray, whole: bool) -> np.ndarray:
    """``Σ_j c_ij y_j`` for each row, of terms rounded towards zero if `whole`."""
    n, r, cuts = len(indptr) - 1, Y.shape[1], cost_cuts(np.diff(indptr) + 1.0)
    assert c.dtype == Y.dtype
    if not simd.enabled():
        b = np.zeros((n, r), Y.dtype)
        run(lambda start, stop: _sums_plain(indptr, indices, c, Y, b, whole, start, stop), cuts)
        return b
    P = pad_columns(Y, padded(r, Y.itemsize))
    b = np.zeros((n, P.shape[1]), Y.dtype)
    run(lambda start, stop: _sums(indptr, indices, c, P, b, whole, start, stop), cuts)
    return b if r == P.shape[1] else np.ascontiguousarray(b[:, :r])


def _ready(x: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    return np.empty(0, like.dtype) if x is None else np.ascontiguousarray(x, like.dtype)


def _empty(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Memory on a cache-line boundary. It comes from numpy, which asks for large pages: factors are read at random."""
    size = shape[0] * shape[1] * dtype.itemsize
    buffer = np.empty(size + 64, np.uint8)
    skip = -buffer.ctypes.data % 64
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def pad_columns(Y: np.ndarray, R: int) -> np.ndarray:
    """Y with zero columns up to R, on a cache-line boundary."""
    if Y.shape[1] == R and Y.flags.c_contiguous and Y.ctypes.data % 64 == 0:
        return Y
    P = _empty((len(Y), R), Y.dtype)
    P[:, : Y.shape[1]] = Y
    P[:, Y.shape[1] :] = 0
    return P


@njit(nogil=True, cache=True)
def add_gram(like: np.ndarray, P: int, K: int, S: int, A: int, R: int) -> None:
    """``A = S + PᵀP`` on the tiles of the upper triangle; P is [K][R], S and A are [R][R]."""
    W, s = lanes(like), like.itemsize
    line = R * s
    for i in range(0, R, W):
        j, left = i, (R - i) // W
        while left > 0:
            step = 3 if left >= 3 and left != 4 else min(left, 2)  # 4 = 2 + 2 beats 3 + 1
            for h in range(i, i + W, TILE_ROWS if step > 1 else W):
                p, q, at = P + h * s, P + j * s, (h * R + j) * s
                if step == 3:
                    tile_3(like, p, line, q, line, K, S + at, A + at, line)
                elif step == 2:
                    tile_2(like, p, line, q, line, K, S + at, A + at, line)
                else:
                    tile_1(like, p, line, q, line, K, S + at, A + at, line)
            j += step * W
            left -= step


@njit(nogil=True, cache=True)
def add_sum(like: np.ndarray, P: int, v: int, K: int, b: int, R: int) -> None:
    """``b += vᵀP``; v is [K] and b is [R]."""
    W, s = lanes(like), like.itemsize
    line, j = R * s, 0
    while j < R:
        left = (R - j) // W
        at = j * s
        if left >= 8:
            row_8(like, v, s, P + at, line, K, b + at, b + at, line)
            j += 8 * W
        elif left >= 4:
            row_4(like, v, s, P + at, line, K, b + at, b + at, line)
            j += 4 * W
        else:
            row_1(like, v, s, P + at, line, K, b + at, b + at, line)
            j += W


@njit(nogil=True, cache=True)
def prefetch_rows(Y: np.ndarray, indices: np.ndarray, first: int, end: int) -> None:
    """Ask for the rows of Y that the entries from `first` on name, not beyond `end`."""
    line = Y.shape[1] * Y.itemsize
    for k in range(first, min(end, first + AHEAD)):
        address = Y.ctypes.data + np.int64(indices[k]) * line
        for at in range(0, line, 64):
            prefetch(address + at)


@njit(nogil=True, cache=True)
def _add_row(
    indices: np.ndarray, values: np.ndarray, weights: np.ndarray, Y: np.ndarray,
    start: int, stop: int, end: int, P: np.ndarray, v: np.ndarray, S: int, A: int, b: int,
) -> None:  # fmt: skip
    """``A = S + Σ w y yᵀ`` and ``b += Σ w value y`` over the entries start..stop; prefetch no further than `end`."""
    R, s = Y.shape[1], Y.itemsize
    base, packed = Y.ctypes.data, P.ctypes.data
    source = S
    if start == stop:
        add_gram(P, packed, 0, S, A, R)
    for first in range(start, stop, PACK):
        K = min(PACK, stop - first)
        index = indices.ctypes.data + first * 4
        if len(weights):
            for k in range(K):
                v[k] = np.sqrt(weights[first + k])
            gather_scaled(P, base, index, v.ctypes.data, K, packed, R)
            for k in range(K):
                v[k] *= values[first + k]
            add_sum(P, packed, v.ctypes.data, K, b, R)
        else:
            gather(P, base, index, K, packed, R)
            add_sum(P, packed, values.ctypes.data + first * s, K, b, R)
        prefetch_rows(Y, indices, first + K, end)
        add_gram(P, packed, K, source, A, R)
        source = A


@njit(nogil=True, cache=True)
def _solve(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, Y: np.ndarray,
    ridge: np.ndarray, S: np.ndarray, X: np.ndarray, rows: np.ndarray, r: int, start: int, stop: int,
) -> None:  # fmt: skip
    R, W, s = Y.shape[1], lanes(Y), Y.itemsize
    gap = matrix_gap(Y, R)
    Ap, Tp, bp, Bp = aligned(Y, W * gap), aligned(Y, panels_size(Y, R)), aligned(Y, W * R), aligned(Y, R * W)
    P, v = aligned(Y, PACK * R).reshape((PACK, R)), aligned(Y, PACK)
    b = bp.reshape((W, R))
    for first in range(start, stop, W):
        last = min(first + W, stop)
        b[:] = 0
        for lane in range(W):
            i = rows[min(first + lane, stop - 1)]  # empty lanes of the last group repeat its last row
            _add_row(
                indices, values, weights, Y, indptr[i], indptr[i + 1], indptr[i + 1], P, v,
                S.ctypes.data, Ap.ctypes.data + lane * gap * s, bp.ctypes.data + lane * R * s,
            )  # fmt: skip
            for k in range(r):
                Ap[lane * gap + k * R + k] += ridge[i]
        solve_interleaved(Y, Ap.ctypes.data, bp.ctypes.data, Tp.ctypes.data, Bp.ctypes.data, R)
        for lane in range(last - first):
            for k in range(R):
                X[rows[first + lane], k] = b[lane, k]


@njit(nogil=True, cache=True)
def _sums(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray, b: np.ndarray, whole: bool,
    start: int, stop: int,
) -> None:  # fmt: skip
    R, s = Y.shape[1], Y.itemsize
    P, one = aligned(Y, PACK * R), np.ones(PACK, Y.dtype)
    for i in range(start, stop):
        for first in range(indptr[i], indptr[i + 1], PACK):
            K = min(PACK, indptr[i + 1] - first)
            index, factor = indices.ctypes.data + first * 4, c.ctypes.data + first * s
            prefetch_rows(Y, indices, first + K, indptr[stop])
            if whole:
                gather_truncated(P, Y.ctypes.data, index, factor, K, P.ctypes.data, R)
                factor = one.ctypes.data
            else:
                gather(P, Y.ctypes.data, index, K, P.ctypes.data, R)
            add_sum(P, P.ctypes.data, factor, K, b.ctypes.data + i * R * s, R)


@njit(nogil=True, cache=True)
def _sums_plain(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray, b: np.ndarray, whole: bool,
    start: int, stop: int,
) -> None:  # fmt: skip
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            for k in range(Y.shape[1]):
                x = c[e] * Y[indices[e], k]
                b[i, k] += np.trunc(x) if whole else x


@njit(nogil=True, cache=True, fastmath=True)
def _add_row_plain(
    indices: np.ndarray, values: np.ndarray, weights: np.ndarray, Y: np.ndarray, start: int, stop: int,
    A: np.ndarray, b: np.ndarray,
) -> None:  # fmt: skip
    r = Y.shape[1]
    for e in range(start, stop):
        y = Y[indices[e]]
        w = weights[e] if len(weights) else Y.dtype.type(1)
        for k in range(r):
            f = w * y[k]
            b[k] += f * values[e]
            for j in range(k, r):
                A[k, j] += f * y[j]


@njit(nogil=True, cache=True)
def _solve_plain(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, Y: np.ndarray,
    ridge: np.ndarray, S: np.ndarray, X: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    A = np.empty_like(S)
    for i in range(start, stop):
        A[:] = S
        X[i] = 0
        for k in range(len(S)):
            A[k, k] += ridge[i]
        _add_row_plain(indices, values, weights, Y, indptr[i], indptr[i + 1], A, X[i])
        solve_one(A, X[i])
