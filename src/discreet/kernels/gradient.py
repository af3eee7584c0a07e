"""Residuals by row, cut to a length, and each row's own gradient, in one pass over the entries.

For each row i of a sparse matrix with entries (j, y, w), row factors U, column factors V and biases b, o:

    e_ij = u_i · v_j + b_j + o_i − y_ij,      g_i = Σ_j e_ij v_j,      x_i = (w_ij e_ij)_j, cut to ‖x_i‖ ≤ largest.

`turn_rows` then moves every row factor: u_i − a g_i − b u_iᵀR. No bit of a row depends on any other row, whatever the
number of threads: each is added up by itself, in the order of its entries.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from discreet.kernels.threads import cost_cuts, even_cuts, run

#: Sums over coordinates may be taken in the order that vector registers like; what is not a number stays none.
_ORDER = {"reassoc", "contract", "nsz"}


def residual_rows_numpy(
    indptr: np.ndarray, indices: np.ndarray, y: np.ndarray, U: np.ndarray, V: np.ndarray, largest: float,
    bias: np.ndarray, offset: np.ndarray, weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """x and g as above: the specification of `residual_rows`."""
    n = len(indptr) - 1
    row = np.repeat(np.arange(n), np.diff(indptr))
    e = (U[row] * V[indices]).sum(axis=1) + bias[indices] + offset[row] - y
    e = np.where(np.isfinite(e), e, 0).astype(U.dtype)
    g = np.zeros_like(U)
    np.add.at(g, row, e[:, None] * V[indices])
    x = e if weights is None else e * weights
    length = np.sqrt(np.bincount(row, x.astype(np.float64) ** 2, minlength=n))
    return (x * (largest / np.maximum(length, largest))[row]).astype(U.dtype), g


def residual_rows(
    indptr: np.ndarray, indices: np.ndarray, y: np.ndarray, U: np.ndarray, V: np.ndarray, largest: float,
    bias: np.ndarray, offset: np.ndarray, weights: np.ndarray | None = None, own: bool = True,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Residuals, weighted and cut, (nnz,), and the rows' own gradients (n, r), from residuals that are neither.

    Parameters
    ----------
    indptr, indices, y : CSR arrays of n rows; int64, int32 and the type of `U`
    U, V : (n, r), (m, r) of one type, float32 or float64
    largest : the length that a row of residuals is cut to
    bias, offset : (m,), (n,)
    weights : (nnz,), optional; 1 where not given
    own : False leaves the gradients out, and they have no rows
    """
    kind = U.dtype
    w = np.empty(0, kind) if weights is None else weights.astype(kind, copy=False)
    y, w, bias, offset, U, V = (np.ascontiguousarray(a, kind) for a in (y, w, bias, offset, U, V))
    x, g = np.empty(len(indices), kind), np.zeros((len(U) if own else 0, U.shape[1]), kind)
    cuts = cost_cuts(np.diff(indptr) + 1.0)
    run(lambda a, b: _residuals(indptr, indices, y, w, bias, offset, U, V, float(largest), x, g, a, b), cuts)
    return x, g


def turn_rows(U: np.ndarray, g: np.ndarray, R: np.ndarray, a: float, b: float) -> np.ndarray:
    """``U − a g − b U R`` (n, r), row by row; the numpy twin is that expression."""
    R = np.ascontiguousarray(R, U.dtype)
    turned = np.empty_like(U)
    run(lambda start, stop: _turn(U, g, R, U.dtype.type(a), U.dtype.type(b), turned, start, stop), even_cuts(len(U)))
    return turned


@njit(nogil=True, cache=True, fastmath=_ORDER, error_model="numpy")
def _residuals(
    indptr: np.ndarray, indices: np.ndarray, y: np.ndarray, w: np.ndarray, bias: np.ndarray, offset: np.ndarray,
    U: np.ndarray, V: np.ndarray, largest: float, x: np.ndarray, g: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    r = U.shape[1]
    own, weighted, mine = len(g) > 0, len(w) > 0, np.zeros(U.shape[1], U.dtype)
    for i in range(start, stop):
        u, square = U[i], 0.0
        mine[:] = 0
        for at in range(indptr[i], indptr[i + 1]):
            j = indices[at]
            v = V[j]
            e = bias[j] + offset[i] - y[at]
            for k in range(r):
                e += u[k] * v[k]
            if not abs(e) <= 1e300:  # written so because isfinite does not survive this order of sums
                e = U.dtype.type(0)
            if own:
                for k in range(r):
                    mine[k] += e * v[k]
            if weighted:
                e *= w[at]
            x[at] = e
            square += float(e) * float(e)
        if own:
            g[i] = mine
        length = np.sqrt(square)
        if length > largest:
            for at in range(indptr[i], indptr[i + 1]):
                x[at] *= largest / length


@njit(nogil=True, cache=True, fastmath=_ORDER)
def _turn(
    U: np.ndarray, g: np.ndarray, R: np.ndarray, a: float, b: float, turned: np.ndarray, start: int, stop: int
) -> None:
    r, new = U.shape[1], np.empty(U.shape[1], U.dtype)
    for i in range(start, stop):
        u, own = U[i], g[i]
        for k in range(r):
            new[k] = u[k] - a * own[k]
        h = 0
        while h + 4 <= r:  # four rows of R at a time, so that the sum is written a quarter as often
            f0, f1, f2, f3 = b * u[h], b * u[h + 1], b * u[h + 2], b * u[h + 3]
            R0, R1, R2, R3 = R[h], R[h + 1], R[h + 2], R[h + 3]
            for k in range(r):
                new[k] -= f0 * R0[k] + f1 * R1[k] + f2 * R2[k] + f3 * R3[k]
            h += 4
        while h < r:
            f0, R0 = b * u[h], R[h]
            for k in range(r):
                new[k] -= f0 * R0[k]
            h += 1
        turned[i] = new
