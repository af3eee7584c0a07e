"""Leave-one-out errors of ridge regressions, for nested models of the first k columns.

For a row with the features f_j of its entries, A = Σ_j f_j f_jᵀ + P = L Lᵀ and t = L⁻¹ Σ_j y_j f_j.
The leading block of L depends on the leading columns alone. So with w_j = L⁻¹ f_j, the model of the
first k columns has

    ŷ_j = Σ_{l ≤ k} w_jl t_l,   h_j = Σ_{l ≤ k} w_jl²,   leave-one-out error (y_j − ŷ_j)/(1 − h_j),

and one factorization serves all k. Every row is computed on its own, in the order of its entries.
"""

from __future__ import annotations

import math

import numpy as np

from discreet._numba import njit
from discreet.kernels.threads import cost_cuts, run
from discreet.kernels.validation import floats, same_length, sparse_rows


def leave_one_out_errors(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    F: np.ndarray,
    prior: np.ndarray,
    lengths: np.ndarray,
) -> np.ndarray:
    """Return the mean squared errors of each row, (n, len(lengths)); 0 for rows without entries.

    Parameters
    ----------
    indptr, indices : CSR arrays of n rows
    y : (nnz,) float64
    F : (m, d) float32 or float64
    prior : (d,), the diagonal of P, above 0
    lengths : (k,), numbers of leading columns, ascending, from 1 to d
    """
    F = floats("F", F, 2)
    indptr, indices = sparse_rows(indptr, indices, len(indptr) - 1, len(F))
    same_length("y and indices", len(y), len(indices))
    y = np.ascontiguousarray(y, np.float64)
    prior = np.ascontiguousarray(prior, np.float64)
    lengths = np.ascontiguousarray(lengths, np.int64)
    found = np.zeros((len(indptr) - 1, len(lengths)))
    cuts = cost_cuts(np.diff(indptr) + 1.0)

    def compute(a: int, b: int) -> None:
        # By numpy: every allocation in compiled code is compiled as well. A, f and t are its rows.
        work = np.empty((lengths[-1] + 2, lengths[-1]))
        _leave_one_out_errors(indptr, indices, y, F, prior, lengths, found, work, a, b)

    run(compute, cuts)
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _leave_one_out_errors(
    indptr: np.ndarray,
    indices: np.ndarray,
    y: np.ndarray,
    F: np.ndarray,
    prior: np.ndarray,
    lengths: np.ndarray,
    found: np.ndarray,
    work: np.ndarray,
    start: int,
    stop: int,
) -> None:
    d = lengths[-1]
    A = work[:d]
    f = work[d]
    t = work[d + 1]
    for i in range(start, stop):
        for a in range(d):
            t[a] = 0.0
            for b in range(a + 1):
                A[a, b] = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            for a in range(d):
                f[a] = F[indices[at], a]
            for a in range(d):
                t[a] += y[at] * f[a]
                for b in range(a + 1):
                    A[a, b] += f[a] * f[b]
        # Cholesky factor in place, and t by forward substitution in the same pass.
        for a in range(d):
            A[a, a] += prior[a]
            for b in range(a + 1):
                value = A[a, b]
                for k in range(b):
                    value -= A[a, k] * A[b, k]
                A[a, b] = math.sqrt(max(value, 1e-300)) if a == b else value / A[b, b]
            for k in range(a):
                t[a] -= A[a, k] * t[k]
            t[a] /= A[a, a]
        share = 1.0 / max(indptr[i + 1] - indptr[i], 1)
        for at in range(indptr[i], indptr[i + 1]):
            predicted = 0.0
            leverage = 0.0
            done = 0
            for a in range(d):
                value = np.float64(F[indices[at], a])
                for k in range(a):
                    value -= A[a, k] * f[k]
                f[a] = value / A[a, a]
                predicted += f[a] * t[a]
                leverage += f[a] * f[a]
                if a + 1 == lengths[done]:
                    # A prior above 0 keeps the leverage below 1, except for rounding.
                    error = (y[at] - predicted) / max(1.0 - leverage, 1e-9)
                    found[i, done] += share * error * error
                    done += 1
