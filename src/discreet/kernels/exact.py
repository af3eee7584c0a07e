"""Sums that are the same to the last bit in any order: every contribution is a whole number.

Noise on a floating-point sum does not hide it: the sum itself depends on the order of its terms by more than one person
contributes. So each contribution is first rounded *towards zero* to a whole number of grid units (which never makes it
larger), and whole numbers are added exactly: float64 holds them without error below 2⁵³. For row i with entries (j, c):

    grams   G_i = Σ_j p pᵀ  with p = trunc(c_ij · y_j)
    sums    s_i = Σ_j trunc(c_ij · y_j)

The coefficients c carry weights and the grid: √w / grid for Gram matrices, w · value / grid for sums.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import njit

from discreet.kernels import simd
from discreet.kernels.cholesky import aligned, padded
from discreet.kernels.normal import PACK, add_gram, pad_columns
from discreet.kernels.simd import gather_truncated
from discreet.kernels.threads import cost_cuts, run

LARGEST = 2.0**53


def exact_grams_numpy(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """G as above: the specification of `exact_grams`."""
    P = np.trunc(c[:, None] * Y[indices])
    return np.array([P[a:b].T @ P[a:b] for a, b in pairwise(indptr)]).reshape(-1, Y.shape[1], Y.shape[1])


def exact_sums_numpy(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """s as above: the specification of `exact_sums`."""
    P = np.trunc(c[:, None] * Y[indices])
    return np.array([P[a:b].sum(axis=0) for a, b in pairwise(indptr)]).reshape(-1, Y.shape[1])


def exact_grams(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Gram matrices (n, r, r) of rounded contributions, whole numbers in float64.

    Parameters
    ----------
    indptr, indices : CSR of n rows, int64 and int32; a block of rows may be passed as ``indptr[a : b + 1]``
    c : (nnz,) float64
    Y : (m, r) float64
    """
    n, r = len(indptr) - 1, Y.shape[1]
    assert c.dtype == Y.dtype == np.float64
    cost = np.diff(indptr).astype(np.float64) * r + 8.0 * r
    if not simd.enabled():
        G = np.zeros((n, r, r))
        run(lambda a, b: _grams_plain(indptr, indices, c, Y, G, a, b), cost_cuts(cost))
        return G
    R = padded(r, 8)
    P, G = pad_columns(Y, R), np.empty((n, R, R))
    run(lambda a, b: _grams(indptr, indices, c, P, G, a, b), cost_cuts(cost))
    return G if r == R else np.ascontiguousarray(G[:, :r, :r])


def exact_sums(indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Sums (n, r) of rounded contributions, whole numbers in float64; parameters as for `exact_grams`."""
    n, r = len(indptr) - 1, Y.shape[1]
    assert c.dtype == Y.dtype == np.float64
    s = np.zeros((n, r))
    run(lambda a, b: _sums(indptr, indices, c, Y, s, a, b), cost_cuts(np.diff(indptr) + 1.0))
    return s


@njit(nogil=True, cache=True)
def _grams(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray, G: np.ndarray, start: int, stop: int
) -> None:
    R, s = Y.shape[1], Y.itemsize
    P, zero = aligned(Y, PACK * R), np.zeros(R * R, Y.dtype)
    for i in range(start, stop):
        target, source = G.ctypes.data + i * R * R * s, zero.ctypes.data
        if indptr[i] == indptr[i + 1]:
            G[i] = 0
        for first in range(indptr[i], indptr[i + 1], PACK):
            K = min(PACK, indptr[i + 1] - first)
            index, factor = indices.ctypes.data + first * 4, c.ctypes.data + first * s
            gather_truncated(P, Y.ctypes.data, index, factor, K, P.ctypes.data, R)
            add_gram(P, P.ctypes.data, K, source, target, R)
            source = target
        for k in range(R):
            for j in range(k):
                G[i, k, j] = G[i, j, k]


@njit(nogil=True, cache=True)
def _grams_plain(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray, G: np.ndarray, start: int, stop: int
) -> None:
    p = np.empty(Y.shape[1])
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            p[:] = np.trunc(c[e] * Y[indices[e]])
            for k in range(len(p)):
                for j in range(len(p)):
                    G[i, k, j] += p[k] * p[j]


@njit(nogil=True, cache=True)
def _sums(
    indptr: np.ndarray, indices: np.ndarray, c: np.ndarray, Y: np.ndarray, s: np.ndarray, start: int, stop: int
) -> None:
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            for k in range(Y.shape[1]):
                s[i, k] += np.trunc(c[e] * Y[indices[e], k])
