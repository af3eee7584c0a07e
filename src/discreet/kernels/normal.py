"""Normal equations by row: the half-step of alternating least squares, and its sums without the solve.

For each row i of a sparse matrix with entries (j, value, weight) and fixed factors Y:

    A_i = Σ_j w_ij · y_j y_jᵀ,      b_i = Σ_j w_ij · value_ij · y_j,
    x_i = (A_i + S + ridge_i · I)⁻¹ b_i.

`solve_rows` gives the x_i without keeping the A_i; `gram_rows` gives A_i and b_i. The vector path gathers the factors of
a row into a packed buffer, adds PᵀP with the tiles of `discreet.kernels.simd`, and solves W rows at a time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from discreet.kernels import simd
from discreet.kernels.cholesky import aligned, padded, solve_interleaved, solve_one
from discreet.kernels.simd import TILE_ROWS, lanes, prefetch, row_1, row_4, row_8, tile_1, tile_2, tile_3
from discreet.kernels.threads import cost_cuts, run

PACK = 128  # entries gathered at a time: 128 rows of rank 128 are 64 kB, which stays in the second-level cache
AHEAD = 48  # entries prefetched beyond those


def gram_rows_numpy(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A and b as above: the specification of `gram_rows`."""
    w = np.ones_like(values) if weights is None else weights
    rows = [slice(a, b) for a, b in zip(indptr[:-1], indptr[1:], strict=True)]
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
        work = lambda start, stop: _solve_plain(indptr, indices, values, weights, Y, ridge, S, X, start, stop)
        run(work, cost_cuts(cost))
        return X
    W, R = simd.VECTOR_BYTES // Y.itemsize, padded(r, Y.itemsize)
    P, S = _pad(Y, R), np.pad(S, (0, R - r))
    S[range(r, R), range(r, R)] = 1  # a padded coordinate gets the equation 1 · x = 0
    X = np.empty((n, R), Y.dtype)
    run(lambda a, b: _solve(indptr, indices, values, weights, P, ridge, S, X, r, a, b), cost_cuts(cost, W))
    return X if R == r else np.ascontiguousarray(X[:, :r])


def gram_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    Y: np.ndarray,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Gram matrix (n, r, r) and right-hand side (n, r) of every row; parameters as for `solve_rows`.

    Callers that cannot hold n · r² numbers pass a block of rows: ``indptr[a : b + 1]`` works as it is.
    """
    n, r = len(indptr) - 1, Y.shape[1]
    weights = _ready(weights, Y)
    cost = np.diff(indptr).astype(np.float64) * r + r * 8.0
    if not simd.enabled():
        A, b = np.empty((n, r, r), Y.dtype), np.empty((n, r), Y.dtype)
        run(lambda i, j: _gram_plain(indptr, indices, values, weights, Y, A, b, i, j), cost_cuts(cost))
        return A, b
    R = padded(r, Y.itemsize)
    P = _pad(Y, R)
    A, b = np.empty((n, R, R), Y.dtype), np.empty((n, R), Y.dtype)
    run(lambda i, j: _gram(indptr, indices, values, weights, P, A, b, i, j), cost_cuts(cost))
    return (A, b) if R == r else (np.ascontiguousarray(A[:, :r, :r]), np.ascontiguousarray(b[:, :r]))


def _ready(x: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    return np.empty(0, like.dtype) if x is None else np.ascontiguousarray(x, like.dtype)


def _pad(Y: np.ndarray, R: int) -> np.ndarray:
    """Y with zero columns up to R, on a cache-line boundary."""
    if Y.shape[1] == R and Y.flags.c_contiguous and Y.ctypes.data % 64 == 0:
        return Y
    P = aligned(Y[:0], len(Y) * R).reshape(len(Y), R)
    P[:, : Y.shape[1]] = Y
    P[:, Y.shape[1] :] = 0
    return P


@njit(nogil=True, cache=True)
def _add_gram(like: np.ndarray, P: int, K: int, A: int, R: int) -> None:
    """``A += PᵀP`` on the tiles of the upper triangle; P is [K][R] and A is [R][R]."""
    W, s = lanes(like), like.itemsize
    line = R * s
    for i in range(0, R, W):
        j, left = i, (R - i) // W
        while left > 0:
            step = 3 if left >= 3 and left != 4 else min(left, 2)  # 4 = 2 + 2 beats 3 + 1
            for h in range(i, i + W, TILE_ROWS if step > 1 else W):
                p, q, c = P + h * s, P + j * s, A + (h * R + j) * s
                if step == 3:
                    tile_3(like, p, line, q, line, K, c, line)
                elif step == 2:
                    tile_2(like, p, line, q, line, K, c, line)
                else:
                    tile_1(like, p, line, q, line, K, c, line)
            j += step * W
            left -= step


@njit(nogil=True, cache=True)
def _add_sum(like: np.ndarray, P: int, v: int, K: int, b: int, R: int) -> None:
    """``b += vᵀP``; v is [K] and b is [R]."""
    W, s = lanes(like), like.itemsize
    line, j = R * s, 0
    while j < R:
        left = (R - j) // W
        if left >= 8:
            row_8(like, v, s, P + j * s, line, K, b + j * s, line)
            j += 8 * W
        elif left >= 4:
            row_4(like, v, s, P + j * s, line, K, b + j * s, line)
            j += 4 * W
        else:
            row_1(like, v, s, P + j * s, line, K, b + j * s, line)
            j += W


@njit(nogil=True, cache=True)
def _add_row(
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    Y: np.ndarray,
    start: int,
    stop: int,
    end: int,
    P: np.ndarray,
    v: np.ndarray,
    A: int,
    b: int,
) -> None:
    """Add the entries start..stop of one row to the matrix at A and the vector at b; prefetch no further than `end`."""
    R, s = Y.shape[1], Y.itemsize
    base = Y.ctypes.data
    for first in range(start, stop, PACK):
        K = min(PACK, stop - first)
        for k in range(K):
            y, p = Y[indices[first + k]], P[k]
            if len(weights):
                q = np.sqrt(weights[first + k])
                v[k] = q * values[first + k]
                for c in range(R):
                    p[c] = q * y[c]
            else:
                v[k] = values[first + k]
                for c in range(R):
                    p[c] = y[c]
        for k in range(first + K, min(end, first + K + AHEAD)):
            address = base + np.int64(indices[k]) * R * s
            for line in range(0, R * s, 64):
                prefetch(address + line)
        _add_sum(P, P.ctypes.data, v.ctypes.data, K, b, R)
        _add_gram(P, P.ctypes.data, K, A, R)


@njit(nogil=True, cache=True)
def _solve(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    Y: np.ndarray,
    ridge: np.ndarray,
    S: np.ndarray,
    X: np.ndarray,
    r: int,
    start: int,
    stop: int,
) -> None:
    R, W, s = Y.shape[1], lanes(Y), Y.itemsize
    Ap, Tp, bp, Bp = aligned(Y, W * R * R), aligned(Y, R * R * W), aligned(Y, W * R), aligned(Y, R * W)
    P, v = aligned(Y, PACK * R).reshape((PACK, R)), aligned(Y, PACK)
    A, b = Ap.reshape((W, R, R)), bp.reshape((W, R))
    for first in range(start, stop, W):
        last = min(first + W, stop)
        b[:] = 0
        for lane in range(W):
            A[lane] = S
            if first + lane < last:
                for k in range(r):
                    A[lane, k, k] += ridge[first + lane]
                _add_row(
                    indices, values, weights, Y, indptr[first + lane], indptr[first + lane + 1], indptr[last], P, v,
                    Ap.ctypes.data + lane * R * R * s, bp.ctypes.data + lane * R * s,
                )  # fmt: skip
        solve_interleaved(Y, Ap.ctypes.data, bp.ctypes.data, Tp.ctypes.data, Bp.ctypes.data, R)
        for lane in range(last - first):
            X[first + lane] = b[lane]


@njit(nogil=True, cache=True)
def _gram(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    Y: np.ndarray,
    A: np.ndarray,
    b: np.ndarray,
    start: int,
    stop: int,
) -> None:
    R, s = Y.shape[1], Y.itemsize
    P, v = aligned(Y, PACK * R).reshape((PACK, R)), aligned(Y, PACK)
    for i in range(start, stop):
        A[i] = 0
        b[i] = 0
        _add_row(
            indices, values, weights, Y, indptr[i], indptr[i + 1], indptr[stop], P, v,
            A.ctypes.data + i * R * R * s, b.ctypes.data + i * R * s,
        )  # fmt: skip
        for k in range(R):
            for j in range(k):
                A[i, k, j] = A[i, j, k]


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


@njit(nogil=True, cache=True)
def _gram_plain(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, weights: np.ndarray, Y: np.ndarray,
    A: np.ndarray, b: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    for i in range(start, stop):
        A[i] = 0
        b[i] = 0
        _add_row_plain(indices, values, weights, Y, indptr[i], indptr[i + 1], A[i], b[i])
        for k in range(Y.shape[1]):
            for j in range(k):
                A[i, k, j] = A[i, j, k]
