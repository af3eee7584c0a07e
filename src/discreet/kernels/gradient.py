"""Residuals by row, clipped to a norm, and each row's gradient, in one pass over the entries.

For each row i of a sparse matrix with entries (j, y, w), row factors U, column factors V and biases
b, o:

    e_ij = u_i · v_j + b_j + o_i − y_ij,   g_i = Σ_j e_ij v_j,
    x_i = (w_ij e_ij)_j, clipped to ‖x_i‖ ≤ largest.

`sum_columns` sums Σ_i x_ij u_i for each column j, and `turn_rows` updates every row factor to
u_i − a g_i − b u_iᵀR. No bit of a row depends on other rows or on the number of threads: each row
is summed on its own, in the order of its entries.
"""

from __future__ import annotations

import numpy as np

from discreet._numba import njit
from discreet.kernels.simd import address, prefetch
from discreet.kernels.threads import cost_cuts, even_cuts, run
from discreet.kernels.validation import floats, same_length, sparse_rows

_AHEAD = 6  # entries to prefetch ahead: about the latency of memory
_SUMS = 1 << 28  # bytes of partial sums of all pieces together: limits memory for large catalogs

#: Sums over coordinates may be reordered for vector registers; NaN and infinity are respected.
_ORDER = {"reassoc", "contract", "nsz"}


def residual_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    largest: float,
    bias: np.ndarray,
    offset: np.ndarray,
    weights: np.ndarray | None = None,
    own: bool = True,
    lengths: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted, clipped residuals (nnz,), and row gradients (n, r) of the plain residuals.

    Parameters
    ----------
    indptr, indices, y : CSR arrays of n rows; int64, int32 and the type of `U`
    U, V : (n, r), (m, r) of one type, float32 or float64
    largest : the norm to which a row of residuals is clipped
    bias, offset : (m,), (n,)
    weights : (nnz,), optional; 1 if not given
    own : False skips the gradients, which then have no rows
    lengths : (n,) float64, optional; output, the norms of the weighted residuals before clipping
    """
    U = floats("U", U, 2)
    kind = U.dtype
    V = floats("V", V, 2, kind)
    indptr, indices = sparse_rows(indptr, indices, len(U), len(V))
    # An empty array stands for none: numba compiles one signature for both.
    w = np.empty(0, kind) if weights is None else weights
    y, w, bias, offset = (np.ascontiguousarray(a, kind) for a in (y, w, bias, offset))
    same_length("vectors of rows and of columns", U.shape[1], V.shape[1])
    same_length("values and indices", len(y), len(indices))
    same_length("weights and indices", len(indices) if weights is None else len(w), len(indices))
    same_length("biases and columns", len(bias), len(V))
    same_length("offsets and rows", len(offset), len(U))
    x = np.empty(len(indices), kind)
    g = np.zeros((len(U) if own else 0, U.shape[1]), kind)
    long = np.empty(0) if lengths is None else lengths
    same_length("lengths and rows", len(U) if lengths is None else len(long), len(U))
    cuts = cost_cuts(np.diff(indptr) + 1.0)
    run(
        lambda a, b: _residuals(
            indptr, indices, y, w, bias, offset, U, V, float(largest), x, g, long, a, b
        ),
        cuts,
    )
    return x, g


def sum_columns(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    U: np.ndarray,
    m: int,
    unit: float | None = None,
) -> np.ndarray:
    """Return ``Σ_i c_ij u_i`` (m, r), by adding each row's vector to the sums of its columns.

    The sums are far smaller than U and stay in the cache, so this is faster than gathering U in
    column order.

    Parameters
    ----------
    indptr, indices, c : CSR arrays of n rows
    U : (n, r) float32 or float64
    unit : float, optional
        A power of two: terms are in this unit and rounded toward zero, so their sums (float64) are
        integers.
    """
    U = floats("U", U, 2)
    indptr, indices = sparse_rows(indptr, indices, len(U), m)
    same_length("c and indices", len(c), len(indices))
    kind = U.dtype if unit is None else np.dtype(np.float64)
    size = m * U.shape[1] * kind.itemsize
    # Independent of the number of threads, so that sums are too.
    pieces = int(np.clip(_SUMS // max(size, 1), 1, 8))
    cuts = cost_cuts(np.diff(indptr) + 1.0, pieces=pieces)
    sums = {int(start): np.zeros((m, U.shape[1]), kind) for start in cuts[:-1]}
    # 1/unit is a power of two, so multiplying by it is exact.
    c, factor = np.ascontiguousarray(c, kind), kind.type(1.0 if unit is None else 1.0 / unit)
    run(lambda a, b: _scatter(indptr, indices, c, U, factor, unit is not None, sums[a], a, b), cuts)
    # Without rows there is no piece 0.
    total = sums.pop(0, np.zeros((m, U.shape[1]), kind))
    for start in sorted(sums):
        total += sums[start]
    return total


def share_rows(indptr: np.ndarray, indices: np.ndarray, q: np.ndarray, most: float) -> np.ndarray:
    """Return w_ij = most · √(q_j / Σ_j q_j) of each entry (nnz,) float32, summed over its row.

    Parameters
    ----------
    indptr, indices : CSR arrays; int64 and int32
    q : (m,) float64, not negative
    """
    w = np.empty(len(indices), np.float32)
    run(
        lambda start, stop: _share(indptr, indices, q, most, w, start, stop),
        cost_cuts(np.diff(indptr) + 1.0),
    )
    return w


@njit(nogil=True, cache=True, error_model="numpy")
def _share(
    indptr: np.ndarray,
    indices: np.ndarray,
    q: np.ndarray,
    most: float,
    w: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for i in range(start, stop):
        whole = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            whole += q[indices[at]]
        # Items with q = 0 only: the shares become 0, not NaN.
        whole = max(whole, 1e-300)
        for at in range(indptr[i], indptr[i + 1]):
            w[at] = most * np.sqrt(q[indices[at]] / whole)


def turn_rows(U: np.ndarray, g: np.ndarray, R: np.ndarray, a: float, b: float) -> np.ndarray:
    """Return ``U − a g − b U R`` (n, r), row by row; the numpy reference is that expression."""
    U = floats("U", U, 2)
    R, g = np.ascontiguousarray(R, U.dtype), np.ascontiguousarray(g, U.dtype)
    same_length("rows and gradients", len(U), len(g))
    assert g.shape == U.shape
    assert R.shape == (U.shape[1], U.shape[1])
    turned = np.empty_like(U)
    run(
        lambda start, stop: _turn(U, g, R, U.dtype.type(a), U.dtype.type(b), turned, start, stop),
        even_cuts(len(U)),
    )
    return turned


@njit(nogil=True, cache=True, fastmath=_ORDER, error_model="numpy")
def _residuals(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    offset: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    largest: float,
    x: np.ndarray,
    g: np.ndarray,
    long: np.ndarray,
    start: int,
    stop: int,
) -> None:
    r = U.shape[1]
    own = len(g) > 0
    weighted = len(w) > 0
    mine = np.zeros(U.shape[1], U.dtype)
    line = r * V.itemsize
    end = indptr[stop]
    for i in range(start, stop):
        u = U[i]
        square = 0.0
        for k in range(r):
            mine[k] = 0
        for at in range(indptr[i], indptr[i + 1]):
            # Clamped to the last entry: an address beyond it is not ours to compute.
            ahead = address(V) + np.int64(indices[min(at + _AHEAD, end - 1)]) * line
            for byte in range(0, line, 64):
                prefetch(ahead + byte)
            j = indices[at]
            v = V[j]
            e = bias[j] + offset[i] - y[at]
            for k in range(r):
                e += u[k] * v[k]
            # Not np.isfinite, which the compiler may remove with these fastmath flags.
            if not abs(e) <= 1e300:
                # A diverging user contributes 0 instead of spoiling the sums of all users.
                e = U.dtype.type(0)
            if own:
                for k in range(r):
                    # The gradient of the user is unweighted and unclipped: it never leaves the
                    # user.
                    mine[k] += e * v[k]
            if weighted:
                e *= w[at]
            x[at] = e
            # In float64, because the norm decides the clipping, on which the guarantee depends.
            square += np.float64(e) * np.float64(e)
        if own:
            # Element by element: for whole arrays numba compiles error messages, which is slow.
            for k in range(r):
                g[i, k] = mine[k]
        length = np.sqrt(square)
        if len(long) > 0:
            long[i] = length
        if length > largest:
            for at in range(indptr[i], indptr[i + 1]):
                # The whole row is scaled, so that its direction stays.
                x[at] *= largest / length


@njit(nogil=True, cache=True)
def _scatter(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    U: np.ndarray,
    factor: float,
    whole: bool,
    sums: np.ndarray,
    start: int,
    stop: int,
) -> None:
    r = U.shape[1]
    line = U.shape[1] * sums.itemsize
    own = np.empty(U.shape[1], sums.dtype)
    end = indptr[stop]
    for i in range(start, stop):
        for k in range(r):
            # In the type of the sums, converted once per row.
            own[k] = U[i, k]
        for e in range(indptr[i], indptr[i + 1]):
            ahead = address(sums) + np.int64(indices[min(e + _AHEAD, end - 1)]) * line
            for at in range(0, line, 64):
                prefetch(ahead + at)
            f = c[e] * factor
            into = sums[indices[e]]
            if whole:
                for k in range(r):
                    # Toward zero: a user's rounded contribution is never larger than the exact
                    # one.
                    into[k] += np.trunc(f * own[k])
            else:
                for k in range(r):
                    into[k] += f * own[k]


@njit(nogil=True, cache=True, fastmath=_ORDER)
def _turn(
    U: np.ndarray,
    g: np.ndarray,
    R: np.ndarray,
    a: float,
    b: float,
    turned: np.ndarray,
    start: int,
    stop: int,
) -> None:
    r = U.shape[1]
    new = np.empty(U.shape[1], U.dtype)
    for i in range(start, stop):
        u, own = U[i], g[i]
        for k in range(r):
            new[k] = u[k] - a * own[k]
        h = 0
        while h + 4 <= r:  # four rows of R at a time, to write the sum a quarter as often
            f0 = b * u[h]
            f1 = b * u[h + 1]
            f2 = b * u[h + 2]
            f3 = b * u[h + 3]
            R0, R1, R2, R3 = R[h], R[h + 1], R[h + 2], R[h + 3]
            for k in range(r):
                new[k] -= f0 * R0[k] + f1 * R1[k] + f2 * R2[k] + f3 * R3[k]
            h += 4
        while h < r:
            f0 = b * u[h]
            R0 = R[h]
            for k in range(r):
                new[k] -= f0 * R0[k]
            h += 1
        turned[i] = new
