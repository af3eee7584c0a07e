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
        # By numpy: every allocation in compiled code is compiled as well. A, t and f are its rows.
        work = np.empty((lengths[-1] + 5, lengths[-1]))
        w = np.empty((lengths[-1], 4))
        errors = np.empty(8)
        _leave_one_out_errors(indptr, indices, y, F, prior, lengths, found, work, w, errors, a, b)

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
    w: np.ndarray,
    errors: np.ndarray,
    start: int,
    stop: int,
) -> None:
    d = lengths[-1]
    A = work[:d]
    t = work[d]
    f = work[d + 1 :]
    f0 = f[0]
    f1 = f[1]
    f2 = f[2]
    f3 = f[3]
    y4 = errors[:4]
    for i in range(start, stop):
        begin = indptr[i]
        end = indptr[i + 1]
        for a in range(d):
            t[a] = 0.0
            for b in range(a + 1):
                A[a, b] = 0.0
        # Four entries at a time, added in their order: A is then written a quarter as often.
        for first in range(begin, end, 4):
            for at in range(4):
                inside = first + at < end
                j = indices[first + at] if inside else indices[first]
                for a in range(d):
                    f[at, a] = F[j, a] if inside else 0.0
                y4[at] = y[first + at] if inside else 0.0
            for a in range(d):
                t[a] = (((t[a] + y4[0] * f0[a]) + y4[1] * f1[a]) + y4[2] * f2[a]) + y4[3] * f3[a]
                x0 = f0[a]
                x1 = f1[a]
                x2 = f2[a]
                x3 = f3[a]
                row = A[a]
                for b in range(a + 1):
                    row[b] = (((row[b] + x0 * f0[b]) + x1 * f1[b]) + x2 * f2[b]) + x3 * f3[b]
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
        share = 1.0 / max(end - begin, 1)
        # Four entries at a time: one alone would wait for each of its own subtractions.
        for first in range(begin, end, 4):
            many = min(4, end - first)
            j0 = indices[first]
            j1 = indices[min(first + 1, end - 1)]
            j2 = indices[min(first + 2, end - 1)]
            j3 = indices[min(first + 3, end - 1)]
            p0 = p1 = p2 = p3 = 0.0
            h0 = h1 = h2 = h3 = 0.0
            done = 0
            for a in range(d):
                w0 = np.float64(F[j0, a])
                w1 = np.float64(F[j1, a])
                w2 = np.float64(F[j2, a])
                w3 = np.float64(F[j3, a])
                for k in range(a):
                    w0 -= A[a, k] * w[k, 0]
                    w1 -= A[a, k] * w[k, 1]
                    w2 -= A[a, k] * w[k, 2]
                    w3 -= A[a, k] * w[k, 3]
                w0 /= A[a, a]
                w1 /= A[a, a]
                w2 /= A[a, a]
                w3 /= A[a, a]
                w[a, 0] = w0
                w[a, 1] = w1
                w[a, 2] = w2
                w[a, 3] = w3
                p0 += w0 * t[a]
                p1 += w1 * t[a]
                p2 += w2 * t[a]
                p3 += w3 * t[a]
                h0 += w0 * w0
                h1 += w1 * w1
                h2 += w2 * w2
                h3 += w3 * w3
                if a + 1 == lengths[done]:
                    errors[0] = p0
                    errors[1] = p1
                    errors[2] = p2
                    errors[3] = p3
                    errors[4] = h0
                    errors[5] = h1
                    errors[6] = h2
                    errors[7] = h3
                    for at in range(many):
                        # A prior above 0 keeps the leverage below 1, except for rounding.
                        error = (y[first + at] - errors[at]) / max(1.0 - errors[4 + at], 1e-9)
                        found[i, done] += share * error * error
                    done += 1
