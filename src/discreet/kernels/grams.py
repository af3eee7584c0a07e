"""Sums over rows of a sparse matrix that need a small matrix or a triangle per row.

`inverse_diagonals` returns, for each row, the posterior variances of its ridge coefficients (up to
the noise variance). `add_pair_products` sums normalized products of pairs of entries, a row's
evidence on which columns are correlated:

    p_jk = √2 x_j x_k / q,   j < k,      q² = (Σ x²)² − Σ x⁴ = 2 Σ_{j<k} x_j² x_k².

Every row is computed on its own, in the order of its entries, so no bit depends on the number of
threads.
"""

from __future__ import annotations

import math

import numpy as np

from discreet._numba import njit
from discreet.kernels.threads import cost_cuts, even_cuts, run
from discreet.kernels.validation import floats, same_length, sparse_rows

_PIECES = 8  # a fixed number, so that results do not depend on the number of threads


def inverse_diagonals(
    indptr: np.ndarray, indices: np.ndarray, V: np.ndarray, ridge: float, constant: float
) -> np.ndarray:
    """Return the diagonal of (Σ_j f_j f_jᵀ + P)⁻¹ of each row, (n, r + 1).

    Here f_j = (v_j, 1) and P = diag(ridge, …, ridge, constant).

    Parameters
    ----------
    indptr, indices : CSR arrays of n rows
    V : (m, r) float32 or float64; r is small
    ridge, constant : above 0
    """
    V = floats("V", V, 2)
    indptr, indices = sparse_rows(indptr, indices, len(indptr) - 1, len(V))
    found = np.empty((len(indptr) - 1, V.shape[1] + 1))
    cuts = cost_cuts(np.diff(indptr) + 1.0)
    d = V.shape[1] + 1

    def compute(a: int, b: int) -> None:
        # By numpy: every allocation in compiled code is compiled as well.
        work = np.empty((2 * d, d))
        _inverse_diagonals(indptr, indices, V, float(ridge), float(constant), found, work, a, b)

    run(compute, cuts)
    return found


def add_pair_products(
    indptr: np.ndarray,
    indices: np.ndarray,
    x: np.ndarray,
    m: int,
    length: float = 1.0,
    unit: float | None = None,
) -> np.ndarray:
    """Sum p_jk over the rows, as a strict upper triangle in row order, (m(m − 1)/2,).

    Parameters
    ----------
    indptr, indices : CSR arrays of n rows over m columns, ascending in each row
    x : (nnz,) float64
    length : factor of each row's products
    unit : float, optional
        Terms are in this unit and rounded toward zero, so their sums (float64) are integers.
    """
    indptr, indices = sparse_rows(indptr, indices, len(indptr) - 1, m)
    same_length("x and indices", len(x), len(indices))
    x = np.ascontiguousarray(x, np.float64)
    factor = length if unit is None else length / unit
    # Quadratic, because a row with k entries has k(k − 1)/2 pairs.
    cuts = cost_cuts(np.diff(indptr) ** 2 + 1.0, pieces=_PIECES)
    # One triangle per piece: threads would otherwise write to the same cells.
    sums = {int(start): np.zeros(m * (m - 1) // 2) for start in cuts[:-1]}
    run(
        lambda a, b: _pair_products(indptr, indices, x, m, factor, unit is not None, sums[a], a, b),
        cuts,
    )
    total = sums.pop(0, np.zeros(m * (m - 1) // 2))
    # In the order of the rows. With integers any order would do, without rounding only this one.
    for start in sorted(sums):
        total += sums[start]
    return total


def symmetric_of(triangle: np.ndarray, m: int) -> np.ndarray:
    """Return the symmetric matrix (m, m) with this strict upper triangle and a zero diagonal."""
    A = np.zeros((m, m), triangle.dtype)
    A[np.triu_indices(m, 1)] = triangle
    run(lambda start, stop: _mirror(A, start, stop), even_cuts(m))
    return A


@njit(nogil=True, cache=True)
def _mirror(A: np.ndarray, start: int, stop: int) -> None:
    for i in range(start, stop):
        for j in range(i):
            A[i, j] = A[j, i]


@njit(nogil=True, cache=True, error_model="numpy")
def _inverse_diagonals(
    indptr: np.ndarray,
    indices: np.ndarray,
    V: np.ndarray,
    ridge: float,
    constant: float,
    found: np.ndarray,
    work: np.ndarray,
    start: int,
    stop: int,
) -> None:
    r = V.shape[1]
    d = r + 1
    A = work[:d]
    L = work[d:]  # inverse of the Cholesky factor
    for i in range(start, stop):
        for a in range(d):
            for b in range(a + 1):
                A[a, b] = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            v = V[indices[at]]
            for a in range(r):
                for b in range(a + 1):
                    # In float64 also for float32 factors: variances are differences of large
                    # numbers.
                    A[a, b] += np.float64(v[a]) * np.float64(v[b])
                A[r, a] += np.float64(v[a])
        for a in range(r):
            A[a, a] += ridge
        # The last feature is 1, so its square sums to the number of entries.
        A[r, r] = indptr[i + 1] - indptr[i] + constant
        for a in range(d):
            for b in range(a + 1):
                value = A[a, b]
                for k in range(b):
                    value -= A[a, k] * A[b, k]
                # Above 0 in exact arithmetic, as P is; the bound is for rounding only.
                A[a, b] = math.sqrt(max(value, 1e-300)) if a == b else value / A[b, b]
        for b in range(d):
            L[b, b] = 1.0 / A[b, b]
            for a in range(b + 1, d):
                value = 0.0
                for k in range(b, a):
                    # The inverse factor by columns: its squared column sums are the diagonal of
                    # the inverse.
                    value -= A[a, k] * L[k, b]
                L[a, b] = value / A[a, a]
        for b in range(d):
            value = 0.0
            for a in range(b, d):
                value += L[a, b] * L[a, b]
            found[i, b] = value


@njit(nogil=True, cache=True, error_model="numpy")
def _pair_products(
    indptr: np.ndarray,
    indices: np.ndarray,
    x: np.ndarray,
    m: int,
    factor: float,
    whole: bool,
    sums: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for i in range(start, stop):
        before = 0.0
        squares = 0.0  # Σ_{j<k} x_j² x_k², a sum without cancellation
        for at in range(indptr[i], indptr[i + 1]):
            square = x[at] * x[at]
            squares += square * before
            before += square
        # Fewer than two entries, or all zero: no pair. Written so that NaN is left out as well.
        if not squares > 0.0:
            continue
        # √2 of the definition cancels with √2 in q.
        scale = factor / math.sqrt(squares)
        for one in range(indptr[i], indptr[i + 1]):
            j = indices[one]
            row = j * (2 * m - j - 1) // 2 - j - 1  # the position of (j, 0), if it existed
            own = scale * x[one]
            for other in range(one + 1, indptr[i + 1]):
                product = own * x[other]
                # Toward zero, so that rounding never increases a user's norm.
                sums[row + indices[other]] += np.trunc(product) if whole else product
