"""Eigenvectors of a symmetric tridiagonal matrix, for one sign: steps 2 and 3 of `kernels.eigen`.

Many eigenvalues are computed at once in vector registers, so that no step waits for the division of
the step before.
"""

from __future__ import annotations

import numpy as np

from discreet._numba import njit
from discreet.kernels.simd import address, lanes
from discreet.kernels.simd_tridiagonal import (
    SHIFT_VECTORS,
    STURM_VECTORS,
    chains,
    combine,
    joins,
    pivots,
    sturm,
)

TINY = 1e-30  # replaces a pivot of 0, without effect on float32 or float64 results
HALVINGS = 21  # of the interval of all eigenvalues, to nearly the precision of float32


@njit(nogil=True, cache=True, error_model="numpy")
def vectors(
    d: np.ndarray,
    e: np.ndarray,
    z: np.ndarray,
    scale: np.ndarray,
    work: np.ndarray,
    like: np.ndarray,
) -> tuple[int, int, int, bool]:
    """Do steps 2 and 3; write eigenvectors to the columns of z, to be multiplied by `scale`.

    Returns the number of vectors, the sign of their eigenvalues, the row length of z, and whether
    the vectors are orthogonal. `scale` is √|λ| over the length of a vector.

    Parameters
    ----------
    d, e : (r,) float64
        The diagonal and the off-diagonal: e_i is in rows i and i + 1.
    z, scale, work : float64, with space for r · (r/2 + 16), r/2 + 16 and 64 r elements
        `work` starts on a cache line.
    like : array whose precision is used for bisection
    """
    r = len(d)
    size = 0.0
    for i in range(r):
        size = max(size, abs(d[i]) + abs(e[i]) + (abs(e[i - 1]) if i else 0.0))
    if not size > 0:
        return 0, -1, 0, True
    d /= size
    off_diagonal, squares = np.zeros(r + 1), np.zeros(r + 1)
    for i in range(1, r):
        off_diagonal[i] = e[i - 1] / size
        squares[i] = off_diagonal[i] * off_diagonal[i]
    # Rounding alone can make eigenvalues this negative.
    threshold = -32 * np.finfo(like.dtype).eps
    # Sturm count: as many eigenvalues are below the threshold as pivots are negative.
    below = 0
    t = 1.0
    for i in range(r):
        t = d[i] - threshold - squares[i] / t
        t = -TINY if abs(t) < TINY else t
        below += t < 0
    if below == 0:
        return 0, -1, 0, True
    sign = -1 if 2 * below <= r else 1
    K, first = (below, 0) if sign < 0 else (r - below, below)
    low, high = (-1.01, 0.0) if sign < 0 else (threshold, 1.01)
    B = SHIFT_VECTORS * lanes(z)
    wide = -(-K // B) * B
    values = np.empty(wide)
    found = z[: r * wide].reshape((r, wide))
    _bisect(d.astype(like.dtype), squares.astype(like.dtype), low, high, first, values[:K])
    values[K:] = values[K - 1]
    good = False
    # Rounds before the last: each doubles the number of correct digits from bisection.
    enough = 1 if like.itemsize == 4 else 2
    for rounds in range(4):
        for k in range(0, wide, B):
            _twist(d, off_diagonal, squares, values[k : k + B], found, k, scale[k : k + B], work)
        if rounds >= enough:
            good = _orthogonal(found, scale, K, 1e-6 if like.itemsize == 4 else 1e-9)
        if good:
            break
    for k in range(K):
        scale[k] *= np.sqrt(max(-values[k] if sign < 0 else values[k], 0.0) * size)
    return K, sign, wide, good


@njit(nogil=True, cache=True, error_model="numpy")
def _bisect(
    d: np.ndarray, squares: np.ndarray, low: float, high: float, first: int, found: np.ndarray
) -> None:
    """Do step 2: find eigenvalues first, first + 1, … of the scaled T between `low` and `high`."""
    K = len(found)
    r = len(d)
    B = STURM_VECTORS * lanes(d)
    wide = -(-K // B) * B
    rows = np.empty((4, wide), d.dtype)
    x, n, lows, highs = rows[0], rows[1], rows[2], rows[3]
    for k in range(wide):
        x[k] = low + (high - low) * (k + 1) / (wide + 1)
    _count(d, squares, x, n, r, B)
    at = 0
    for k in range(wide):  # bracket each eigenvalue between two shifts
        while at < wide and n[at] <= first + min(k, K - 1):
            at += 1
        lows[k] = x[at - 1] if at > 0 else low
        highs[k] = x[at] if at < wide else high
    for _ in range(HALVINGS - int(np.log2(wide + 1))):  # the shifts made wide + 1 parts
        for k in range(wide):
            x[k] = (lows[k] + highs[k]) / 2
        _count(d, squares, x, n, r, B)
        for k in range(wide):
            above = n[k] > first + min(k, K - 1)
            lows[k] = lows[k] if above else x[k]
            highs[k] = x[k] if above else highs[k]
    for k in range(K):
        found[k] = (np.float64(lows[k]) + np.float64(highs[k])) / 2


@njit(nogil=True, cache=True)
def _count(
    d: np.ndarray, squares: np.ndarray, x: np.ndarray, n: np.ndarray, r: int, B: int
) -> None:
    s = d.itemsize
    for k in range(0, len(x), B):
        sturm(d, address(d), address(squares), address(x) + k * s, address(n) + k * s, r)


@njit(nogil=True, cache=True, error_model="numpy")
def _twist(
    d: np.ndarray,
    off_diagonal: np.ndarray,
    squares: np.ndarray,
    values: np.ndarray,
    z: np.ndarray,
    k: int,
    scale: np.ndarray,
    work: np.ndarray,
) -> None:
    """Do step 3: write eigenvectors to columns k, k + 1, … of z, and refine `values`.

    `scale` becomes one over their lengths.
    """
    r, B = len(d), len(values)
    size = (r + 2) * B
    top, bottom, gamma, join = (
        work[:size],
        work[size : 2 * size],
        work[2 * size : 2 * size + B],
        work[2 * size + B :],
    )
    top[:B] = 0
    bottom[size - B :] = 0
    at_d, at_e, at_s, at_v = (
        address(d),
        address(off_diagonal),
        address(squares),
        address(values),
    )
    at_t, at_b, at_j = address(top), address(bottom), address(join)
    pivots(d, at_d, at_s, at_v, at_t, at_b, r)
    joins(d, at_d, at_s, at_v, at_t, at_b, address(gamma), at_j, r)
    chains(d, at_e, at_j, at_t, at_b, r)
    combine(d, at_j, at_t, at_b, address(z) + k * 8, z.shape[1] * 8, address(scale), r)
    for j in range(B):
        values[j] += gamma[j] / scale[j]
        scale[j] = 1 / np.sqrt(scale[j])


@njit(nogil=True, cache=True, fastmath={"contract"})
def _orthogonal(z: np.ndarray, scale: np.ndarray, K: int, tolerance: float) -> bool:
    """Check that adjacent columns among the first K of z are orthogonal."""
    products = np.zeros(K)
    for i in range(len(z)):
        row = z[i]
        for k in range(K - 1):
            products[k] += row[k] * row[k + 1]
    good = True
    for k in range(K - 1):
        good &= abs(products[k] * scale[k] * scale[k + 1]) <= tolerance  # false for NaN
    return good
