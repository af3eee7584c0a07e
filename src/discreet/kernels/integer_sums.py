"""Sums that are bitwise equal in any order, because every contribution is an integer.

Noise does not protect a floating-point sum: reordering its terms can change the sum by more than
one user contributes. So each contribution is first rounded *toward zero* to an integer number of
grid units, which never makes it larger. Integers are then added exactly: float64 represents them
without error below 2⁵³. For row i with entries (j, c):

    grams   G_i = Σ_j p pᵀ  with p = trunc(c_ij · y_j)
    sums    s_i = Σ_j trunc(c_ij · y_j)

The coefficients c include weights and the grid: √w / grid for Gram matrices, w · value / grid for
sums. `pack_grams` returns only the upper triangles in row order, and also Gram matrices without
rounding (`whole=False`).
"""

from __future__ import annotations

import numpy as np

from discreet._numba import njit
from discreet.kernels import simd
from discreet.kernels.cholesky import pad_rank
from discreet.kernels.gather import (
    PACK,
    add_gram,
    allocate_aligned_array,
    pad_columns,
    prefetch_rows,
    sums,
)
from discreet.kernels.simd import address, gather_scaled, gather_truncated
from discreet.kernels.threads import cost_cuts, run
from discreet.kernels.validation import floats, same_length, sparse_rows

LARGEST = 2.0**53  # up to here float64 represents every integer


def exact_grams(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray
) -> np.ndarray:
    """Return Gram matrices (n, r, r) of rounded contributions, integers in float64.

    Parameters
    ----------
    indptr, indices : CSR of n rows, int64 and int32; a block of rows may be passed as
        ``indptr[a : b + 1]``
    c : (nnz,) float64
    Y : (m, r) float64
    """
    # float32 is exact only up to 2²⁴ units, which a popular item exceeds.
    assert c.dtype == Y.dtype == np.float64
    a, b = np.triu_indices(Y.shape[1])
    G = np.empty((len(indptr) - 1, Y.shape[1], Y.shape[1]))
    # Both triangles get the same number: a symmetric matrix to the last bit.
    G[:, a, b] = G[:, b, a] = pack_grams(indptr, indices, c, Y, whole=True)
    return G


def pack_grams(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    whole: bool = False,
    columns: int | None = None,
) -> np.ndarray:
    """Return upper triangles (n, r(r+1)/2) of Σ_j p pᵀ, p = c_ij y_j, truncated if `whole`.

    Parameters as for `exact_grams`; without `whole` also float32. r is the number of columns of Y,
    or `columns` if Y is padded (`on_cache_lines`).
    """
    Y = floats("Y", Y, 2)
    c = floats("c", c, 1)
    assert c.dtype == Y.dtype
    indptr, indices = sparse_rows(indptr, indices, None, len(Y))
    same_length("c and indices", len(c), len(indices))
    n = len(indptr) - 1
    r = columns or Y.shape[1]
    G = np.empty((n, r * (r + 1) // 2), Y.dtype)
    # The second term is the fixed cost of a row, or pieces of many empty rows would be too long.
    cost = np.diff(indptr).astype(np.float64) * r + 8.0 * r
    if not simd.enabled():
        run(lambda a, b: _grams_plain(indptr, indices, c, Y, G, whole, a, b), cost_cuts(cost))
    else:
        # Padded columns are 0 and truncate to 0, so they add nothing.
        P = pad_columns(Y, pad_rank(r, Y.itemsize))
        R = P.shape[1]

        def sum_some(a: int, b: int) -> None:
            # By numpy: every allocation in compiled code is compiled as well. A is R × R, and
            # zeros to begin with; after it come the gathered rows.
            work = allocate_aligned_array(((2 * R + PACK) * R,), Y.dtype)
            work[: R * R] = 0
            _grams(indptr, indices, c, P, G, work, r, whole, a, b)

        run(sum_some, cost_cuts(cost))
    return G


def exact_sums(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    columns: int | None = None,
) -> np.ndarray:
    """Return sums (n, r) of rounded contributions, integers in float64; see `pack_grams`."""
    assert c.dtype == Y.dtype == np.float64
    return sums(indptr, indices, c, Y, whole=True, columns=columns)


@njit(nogil=True, cache=True)
def _grams(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    G: np.ndarray,
    work: np.ndarray,
    r: int,
    whole: bool,
    start: int,
    stop: int,
) -> None:
    R = Y.shape[1]
    s = Y.itemsize
    zero = address(work)
    A = zero + R * R * s
    P = A + R * R * s
    for i in range(start, stop):
        # The first pack starts from zeros, later ones from the sum so far: no clearing of A per
        # row.
        source = zero
        # Without entries no tile is written, and A still holds the matrix of another row.
        if indptr[i] == indptr[i + 1]:
            for k in range(G.shape[1]):
                G[i, k] = 0
            continue
        for first in range(indptr[i], indptr[i + 1], PACK):
            K = min(PACK, indptr[i + 1] - first)
            index = address(indices) + first * 4
            factor = address(c) + first * s
            # Truncation happens before the product, per factor: a product of integers is an
            # integer.
            if whole:
                gather_truncated(Y, address(Y), index, factor, K, P, R)
            else:
                gather_scaled(Y, address(Y), index, factor, K, P, R)
            # Rows of Y are read at random; asking for the next pack hides the latency of memory.
            prefetch_rows(Y, indices, first + K, indptr[stop])
            add_gram(Y, P, K, source, A, R)
            source = A
        # Only the r × r part of the padded matrix is kept.
        at = 0
        for k in range(r):
            for j in range(k, r):
                G[i, at] = work[(R + k) * R + j]
                at += 1


@njit(nogil=True, cache=True)
def _grams_plain(
    indptr: np.ndarray,
    indices: np.ndarray,
    c: np.ndarray,
    Y: np.ndarray,
    G: np.ndarray,
    whole: bool,
    start: int,
    stop: int,
) -> None:
    p = np.empty(Y.shape[1], Y.dtype)
    for i in range(start, stop):
        G[i] = 0
        for e in range(indptr[i], indptr[i + 1]):
            for k in range(len(p)):
                x = c[e] * Y[indices[e], k]
                # The same rounding as in registers, so that both paths give the same integers.
                p[k] = np.trunc(x) if whole else x
            at = 0
            for k in range(len(p)):
                for j in range(k, len(p)):
                    G[i, at] += p[k] * p[j]
                    at += 1
