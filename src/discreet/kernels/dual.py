"""Solve rows with few entries in the dual: a K × K system for K entries instead of an r × r one.

With B = S + ridge · I and Z = W^(1/2) Y B^(-1/2) for the K entries of a row, the normal equations
have the same solution as

    x = (B + Yᵀ W Y)⁻¹ Yᵀ W v  =  B^(-1/2) Zᵀ (I + Z Zᵀ)⁻¹ W^(1/2) v,

at a cost of K² r + K³/3 instead of K r² + r³/3, which is faster from rank 96 on. An eigenbasis of S
makes B diagonal for all rows: the factors are rotated into it beforehand, and the solutions are
rotated back. Rows are sorted by length, so that the systems of a vector group have similar sizes.
Smaller ones are padded with ones on the diagonal, which changes no bit of their solution. The
method for a row depends on its own length alone.
"""

from __future__ import annotations

import numpy as np

from discreet._numba import njit
from discreet.kernels.cholesky import allocate_aligned, matrix_gap, panels_size, solve_interleaved
from discreet.kernels.gather import add_gram, add_sum
from discreet.kernels.least_squares import Entries, read_targets
from discreet.kernels.simd import address, gather_scaled, lanes, transpose


def dual_size(counts: np.ndarray, W: int) -> np.ndarray:
    """Round numbers of entries up to whole vectors (at least 4, the Cholesky tile)."""
    step = max(4, W)
    # At least one vector, also for a row without entries: the solver has no empty case.
    return np.maximum(-(-counts // step), 1) * step


def prefers_dual(counts: np.ndarray, r: int, W: int) -> np.ndarray:
    """Mark the rows for which the dual costs clearly less than the normal equations."""
    # Multiply-adds of both methods; 15 % more for the transpositions of the dual.
    K = dual_size(counts, W).astype(np.float64)
    return (
        # The last term, the rotation back, is most of the cost of the shortest rows.
        1.15 * (K * K * r + K**3 / 3 + 6.0 * counts * r + 2.0 * r * r)
        < counts * float(r) ** 2 + r**3 / 3
    )


@njit(nogil=True, cache=True)
def solve_dual(
    entries: Entries,
    Y: np.ndarray,
    ridge: np.ndarray,
    D: np.ndarray,
    Qt: np.ndarray,
    constant: float,
    rows: np.ndarray,
    X: np.ndarray,
    x0: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Solve ``rows[start:stop]``, sorted by length; Y is rotated, Qt is Qᵀ, D the spectrum of S.

    A `constant` coordinate of every y adds constant² / ridge · √w √wᵀ to Z Zᵀ.
    """
    indptr, indices = entries.indptr, entries.indices
    R = Y.shape[1]
    W = lanes(Y)
    s = Y.itemsize
    step = max(4, W)
    # Rows are sorted by length, so the last one bounds every buffer.
    longest = indptr[rows[stop - 1] + 1] - indptr[rows[stop - 1]]
    most = max(1, -(-longest // step)) * step
    gap = matrix_gap(s, most)
    Z = allocate_aligned(Y, W * most * R)
    Zt = allocate_aligned(Y, R * most)
    Ap, bp = allocate_aligned(Y, W * gap), allocate_aligned(Y, W * most)
    Tp = allocate_aligned(Y, panels_size(W, s, most))
    Bp = allocate_aligned(Y, W * most)
    d, x = allocate_aligned(Y, R), allocate_aligned(Y, R)
    roots = np.ones((W, most), Y.dtype)
    eye = np.zeros(most * most, Y.dtype)
    for first in range(start, stop, W):
        last = min(first + W, stop) - 1
        # The longest row of the group decides its size; sorting keeps the padding small.
        K = max(1, -(-(indptr[rows[last] + 1] - indptr[rows[last]]) // step)) * step
        # The I of I + Z Zᵀ, with ones beyond a row's length: those unknowns are 0 and decoupled.
        eye[:] = 0
        for k in range(K):
            eye[k * K + k] = 1
        bp[: W * K] = 0
        gap = matrix_gap(s, K)
        for lane in range(W):
            i = rows[min(first + lane, last)]  # unused lanes repeat the last row
            count = indptr[i + 1] - indptr[i]
            z = lane * most * R
            root = roots[lane]
            read_targets(entries, indptr[i], count, bp[lane * K :], root)
            index = address(indices) + indptr[i] * 4
            gather_scaled(Y, address(Y), index, address(root), count, address(Z) + z * s, R)
            for c in range(R):
                # B^(-1/2) is diagonal in the rotated basis: one factor per column.
                d[c] = 1 / np.sqrt(D[c] + ridge[i])
            for k in range(count):
                for c in range(R):
                    Z[z + k * R + c] *= d[c]
            # A longer row of an earlier group may have left numbers here.
            Z[z + count * R : z + K * R] = 0
            for k in range(0, K, W):
                for c in range(0, R, W):
                    source = address(Z) + (z + k * R + c) * s
                    target = address(Zt) + (c * K + k) * s
                    transpose(Y, source, R * s, 4 * R * s, target, K * s, 4 * K * s)
            # Transposed, so that the Gram kernel, made for columns, computes Z Zᵀ.
            add_gram(Y, address(Zt), R, address(eye), address(Ap) + lane * gap * s, K)
            if constant:
                for k in range(count):
                    # The constant coordinate as a term of rank one: no column has to be appended.
                    f = constant * constant / ridge[i] * root[k]
                    for c in range(k, count):
                        Ap[lane * gap + k * K + c] += f * root[c]
        solve_interleaved(Y, address(Ap), address(bp), address(Tp), address(Bp), K)
        for lane in range(last - first + 1):
            i = rows[first + lane]
            x[:] = 0
            z = address(Z) + lane * most * R * s
            add_sum(Y, z, address(bp) + lane * K * s, indptr[i + 1] - indptr[i], address(x), R)
            for c in range(R):
                x[c] /= np.sqrt(D[c] + ridge[i])
                # `add_sum` adds: the place must be empty.
                X[i, c] = 0
            # Back from the eigenbasis of S to the original coordinates.
            add_sum(Y, address(Qt), address(x), R, address(X) + i * R * s, R)
            if constant:
                total = Y.dtype.type(0)
                for k in range(indptr[i + 1] - indptr[i]):
                    total += roots[lane, k] * bp[lane * K + k]
                x0[i] = constant / ridge[i] * total
