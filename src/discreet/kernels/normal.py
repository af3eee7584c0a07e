"""Normal equations by row: the half-step of alternating least squares, and its sums without the solve.

For each row i of a sparse matrix with entries (j, value, weight) and fixed factors Y:

    A_i = Σ_j w_ij · y_j y_jᵀ,      b_i = Σ_j w_ij · value_ij · y_j,
    x_i = (A_i + S + ridge_i · I)⁻¹ b_i.

`solve_rows` gives the x_i without keeping the A_i, and `solve_rows_constant` where every y_j has one more coordinate
that is the same for all; `sum_rows` gives the b_i alone, and `discreet.kernels.exact` the A_i. The vector path gathers
the factors of a row into a packed buffer, adds PᵀP with the tiles of `discreet.kernels.simd`, and solves W rows at a
time.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import DTypeLike

from discreet.kernels import simd
from discreet.kernels.cholesky import (
    aligned,
    factor_interleaved,
    matrix_gap,
    padded,
    panels_size,
    solve_one,
    substitute,
)
from discreet.kernels.dense import tall_product
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
from discreet.kernels.threads import cost_cuts, even_cuts, run

PACK = 128  # entries gathered at a time: 128 rows of rank 128 are 64 kB, which stays in the second-level cache
DUAL_RANK = 96  # from this rank on, rows with few entries are solved in the dual
AHEAD = 128  # entries prefetched beyond those


class Entries(NamedTuple):
    """What a sparse matrix holds, row by row; arrays without elements stand for what is not given."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    offset: np.ndarray


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
    values: np.ndarray | None,
    Y: np.ndarray,
    ridge: np.ndarray,
    shared: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> np.ndarray:
    """Least-squares factors of every row.

    Parameters
    ----------
    indptr, indices, values : CSR arrays of n rows; int64, int32 and the type of `Y`
        Values are 1 where not given.
    Y : (m, r) float32 or float64
    ridge : (n,)
        Added to the diagonal, row by row. With no entries, no `shared` and a ridge of 0, a row's solution is 0.
    shared : (r, r), optional
        S, the same for every row.
    weights : (nnz,), optional
        Non-negative weights of the entries; 1 where not given.
    offset : (m,), optional
        What is subtracted from every value of a column.

    Returns
    -------
    (n, r) array of the type of `Y`
    """
    return _solve_rows(indptr, indices, values, Y, ridge, shared, weights, offset, 0.0)[0]


def solve_rows_constant(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray | None,
    Y: np.ndarray,
    ridge: np.ndarray,
    constant: float,
    shared: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`solve_rows` with one more coordinate, `constant` in every y: the factors (n, r) and its own (n,).

    S does not touch that coordinate. It is eliminated last, by a second right-hand side Σ w y, so that the matrices
    keep their size: one coordinate more would cost as much as a whole vector of them.
    """
    return _solve_rows(indptr, indices, values, Y, ridge, shared, weights, offset, constant)


def _solve_rows(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray | None, Y: np.ndarray, ridge: np.ndarray,
    shared: np.ndarray | None, weights: np.ndarray | None, offset: np.ndarray | None, constant: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    n, r = len(indptr) - 1, Y.shape[1]
    indices = np.ascontiguousarray(indices, np.int32)
    entries = Entries(frozen(indptr), frozen(indices), *(_ready(x, Y) for x in (values, weights, offset)))
    ridge, c, x0 = _ready(ridge, Y), Y.dtype.type(constant), np.zeros(n, Y.dtype)
    S = np.zeros((r, r), Y.dtype) if shared is None else _ready(shared, Y)
    assert ridge.shape == (n,)
    assert S.shape == (r, r)
    cost = np.diff(indptr).astype(np.float64) * r * r + r**3 / 1.5 + 100.0
    if not simd.enabled():
        if c:
            Y, S = np.column_stack([Y, np.full(len(Y), c)]), np.pad(S, (0, 1))
        X, P = np.empty((n, Y.shape[1]), Y.dtype), frozen(np.ascontiguousarray(Y))
        run(lambda a, b: _solve_plain(entries, P, ridge, S, X, a, b), cost_cuts(cost))
        return (np.ascontiguousarray(X[:, :r]), X[:, r].copy()) if c else (X, x0)
    W, R = simd.VECTOR_BYTES // Y.itemsize, padded(r, Y.itemsize)
    X = aligned_empty((n, R), Y.dtype)
    few = _solve_few(entries, Y, ridge, S, c, X, x0) if r >= DUAL_RANK else np.zeros(n, bool)
    rows = np.flatnonzero(~few)
    P, S = frozen(pad_columns(Y, R)), np.pad(S, (0, R - r))
    S[range(r, R), range(r, R)] = 1  # a padded coordinate gets the equation 1 · x = 0
    run(lambda a, b: _solve(entries, P, ridge, S, c, X, x0, rows, r, a, b), cost_cuts(cost[rows], W))
    return X if r == R else np.ascontiguousarray(X[:, :r]), x0


def _solve_few(
    entries: Entries, Y: np.ndarray, ridge: np.ndarray, S: np.ndarray, constant: float, X: np.ndarray, x0: np.ndarray
) -> np.ndarray:
    """Solve the rows with few entries in the dual (see there), and say which they were."""
    from discreet.kernels.dual import prefers_dual, solve_dual

    (r, R), W, counts = (Y.shape[1], X.shape[1]), simd.VECTOR_BYTES // Y.itemsize, np.diff(entries.indptr)
    few = prefers_dual(counts, r, W)
    if not few.any():
        return few
    D, Q = np.linalg.eigh(S.astype(np.float64)) if S.any() else (np.zeros(r), np.eye(r))
    D = np.maximum(D, 0)
    least = 0.0 if constant else D[0]
    few &= least + ridge > 1e-6 * (D[-1] + ridge)  # an almost singular B has no inverse root to speak of
    rows = np.flatnonzero(few)
    rows = rows[np.argsort(counts[rows], kind="stable")]
    P = frozen(pad_columns(tall_product(Y, Q.astype(Y.dtype)) if S.any() else Y, R))
    Qt = pad_columns(np.pad(Q.T, ((0, R - r), (0, 0))).astype(Y.dtype), R)
    D = np.append(D, np.ones(R - r)).astype(Y.dtype)
    cost = counts[rows] * 1.0 * (counts[rows] + 64) * r
    run(lambda a, b: solve_dual(entries, P, ridge, D, Qt, constant, rows, X, x0, a, b), cost_cuts(cost, W))
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
    indices, c = np.ascontiguousarray(indices, np.int32), np.ascontiguousarray(c)
    if not simd.enabled():
        b = np.zeros((n, r), Y.dtype)
        run(lambda start, stop: _sums_plain(indptr, indices, c, Y, b, whole, start, stop), cuts)
        return b
    P = pad_columns(Y, padded(r, Y.itemsize))
    b = np.zeros((n, P.shape[1]), Y.dtype)
    run(lambda start, stop: _sums(indptr, indices, c, P, b, whole, start, stop), cuts)
    return b if r == P.shape[1] else np.ascontiguousarray(b[:, :r])


def _ready(x: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    return frozen(np.empty(0, like.dtype) if x is None else np.ascontiguousarray(x, like.dtype))


def frozen(x: np.ndarray) -> np.ndarray:
    """A view that cannot be written to: numba compiles anew for every mixture of arrays that can and that cannot."""
    x = x.view()
    x.flags.writeable = False
    return x


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory on a cache-line boundary. It comes from numpy, which asks for large pages: factors are read at random."""
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + 64, np.uint8)
    skip = -buffer.ctypes.data % 64
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def on_cache_lines(Y: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """Y (as `dtype`) where kernels want it, so that they need no copy of their own if its rows are whole vectors."""
    kind = np.dtype(dtype or Y.dtype)
    if kind == Y.dtype:
        return pad_columns(Y, Y.shape[1])
    P = aligned_empty(Y.shape, kind)
    run(lambda a, b: P.__setitem__(slice(a, b), Y[a:b]), even_cuts(len(Y)))
    return P


def pad_columns(Y: np.ndarray, R: int) -> np.ndarray:
    """Y with zero columns up to R, on a cache-line boundary."""
    if Y.shape[1] == R and Y.flags.c_contiguous and Y.ctypes.data % 64 == 0:
        return Y
    P = aligned_empty((len(Y), R), Y.dtype)
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
def read_targets(entries: Entries, first: int, K: int, v: np.ndarray, root: np.ndarray) -> None:
    """``√w (value − offset)`` of K entries to v, and ``√w`` to root, which holds ones where nothing has weights."""
    _, indices, values, weights, offset = entries
    for k in range(K):
        v[k] = values[first + k] if len(values) else 1
    if len(offset):
        for k in range(K):
            v[k] -= offset[indices[first + k]]
    if len(weights):
        for k in range(K):
            root[k] = np.sqrt(weights[first + k])
            v[k] *= root[k]


@njit(nogil=True, cache=True)
def _add_row(
    entries: Entries, Y: np.ndarray, i: int, P: np.ndarray, v: np.ndarray, root: np.ndarray,
    S: int, A: int, b: int, h: int,
) -> tuple[float, float]:  # fmt: skip
    """``A = S + Σ w y yᵀ`` and ``b += Σ w value y`` over row i; with a place for it, ``h += Σ w y``, Σ w, Σ w value."""
    indptr, indices, _, weights, _ = entries
    R, base, packed, targets, roots = Y.shape[1], Y.ctypes.data, P.ctypes.data, v.ctypes.data, root.ctypes.data
    source, weight, value = S, 0.0, 0.0
    if indptr[i] == indptr[i + 1]:
        add_gram(P, packed, 0, S, A, R)
    for first in range(indptr[i], indptr[i + 1], PACK):
        K = min(PACK, indptr[i + 1] - first)
        index = indices.ctypes.data + first * 4
        read_targets(entries, first, K, v, root)
        if len(weights):
            gather_scaled(P, base, index, roots, K, packed, R)
        else:
            gather(P, base, index, K, packed, R)
        add_sum(P, packed, targets, K, b, R)
        if h:
            add_sum(P, packed, roots, K, h, R)
            for k in range(K):
                weight += root[k] * root[k]
                value += root[k] * v[k]
        prefetch_rows(Y, indices, first + K, indptr[i + 1])
        add_gram(P, packed, K, source, A, R)
        source = A
    return weight, value


@njit(nogil=True, cache=True)
def _solve(
    entries: Entries, Y: np.ndarray, ridge: np.ndarray, S: np.ndarray, constant: float, X: np.ndarray, x0: np.ndarray,
    rows: np.ndarray, r: int, start: int, stop: int,
) -> None:  # fmt: skip
    R, W, s = Y.shape[1], lanes(Y), Y.itemsize
    gap = matrix_gap(Y, R)
    Ap, Tp, bp, Bp = aligned(Y, W * gap), aligned(Y, panels_size(Y, R)), aligned(Y, W * R), aligned(Y, R * W)
    P, v, root = aligned(Y, PACK * R).reshape((PACK, R)), aligned(Y, PACK), np.ones(PACK, Y.dtype)
    b, hp, sums = bp.reshape((W, R)), aligned(Y, W * R), aligned(Y, W * R).reshape((W, R))
    h, weight, value = hp.reshape((W, R)), np.zeros(W), np.zeros(W)
    for first in range(start, stop, W):
        last = min(first + W, stop)
        b[:] = 0
        h[:] = 0
        for lane in range(W):
            i = rows[min(first + lane, stop - 1)]  # empty lanes of the last group repeat its last row
            at = lane * R * s
            weight[lane], value[lane] = _add_row(
                entries, Y, i, P, v, root, S.ctypes.data, Ap.ctypes.data + lane * gap * s, bp.ctypes.data + at,
                hp.ctypes.data + at if constant else 0,
            )  # fmt: skip
            for k in range(r):
                Ap[lane * gap + k * R + k] += ridge[i]
        factor_interleaved(Y, Ap.ctypes.data, Tp.ctypes.data, R)
        substitute(Y, bp.ctypes.data, Tp.ctypes.data, Bp.ctypes.data, R)
        if constant:
            sums[:] = h
            substitute(Y, hp.ctypes.data, Tp.ctypes.data, Bp.ctypes.data, R)
        for lane in range(last - first):
            i, z = rows[first + lane], Y.dtype.type(0)
            if constant:
                pivot, left = weight[lane] + ridge[i] / constant**2, value[lane]
                for k in range(r):
                    pivot -= sums[lane, k] * h[lane, k]
                    left -= sums[lane, k] * b[lane, k]
                z = Y.dtype.type(left / pivot) if pivot > 1e-30 else z
                x0[i] = z / constant
            for k in range(R):
                X[i, k] = b[lane, k] - z * h[lane, k]


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
def _add_row_plain(entries: Entries, Y: np.ndarray, start: int, stop: int, A: np.ndarray, b: np.ndarray) -> None:
    r, one = Y.shape[1], Y.dtype.type(1)
    _, indices, values, weights, offset = entries
    for e in range(start, stop):
        y = Y[indices[e]]
        w = weights[e] if len(weights) else one
        value = (values[e] if len(values) else one) - (offset[indices[e]] if len(offset) else one * 0)
        for k in range(r):
            f = w * y[k]
            b[k] += f * value
            for j in range(k, r):
                A[k, j] += f * y[j]


@njit(nogil=True, cache=True)
def _solve_plain(
    entries: Entries, Y: np.ndarray, ridge: np.ndarray, S: np.ndarray, X: np.ndarray, start: int, stop: int
) -> None:
    A = np.empty_like(S)
    for i in range(start, stop):
        A[:] = S
        X[i] = 0
        for k in range(len(S)):
            A[k, k] += ridge[i]
        _add_row_plain(entries, Y, entries.indptr[i], entries.indptr[i + 1], A, X[i])
        solve_one(A, X[i])
