"""Eigenvectors of a symmetric tridiagonal matrix, of the sign that has fewer: steps 2 and 3 of `kernels.eigen`.

All eigenvalues of that sign are worked on at once, side by side in vector registers, so that no step waits for a
division of the step before.
"""

from __future__ import annotations

import numpy as np
from numba import njit

TINY = 1e-30
BISECTIONS = 21  # to float32's precision


@njit(nogil=True, cache=True, error_model="numpy")
def vectors(
    d: np.ndarray, e: np.ndarray, z: np.ndarray, pivots: np.ndarray, like: np.ndarray
) -> tuple[int, int, bool]:
    """Steps 2 and 3: how many vectors, scaled by √|λ|, are in the columns of z; of which sign; and whether to trust."""
    r, size = len(d), 0.0
    for i in range(r):
        size = max(size, abs(d[i]) + abs(e[i]) + (abs(e[i - 1]) if i else 0.0))
    if not size > 0:
        return 0, -1, True
    d /= size
    e /= size
    single = d.astype(like.dtype)
    squares = np.zeros(r, like.dtype)
    for i in range(1, r):
        squares[i] = e[i - 1] * e[i - 1]
    threshold = -32 * np.finfo(like.dtype).eps  # rounding alone makes eigenvalues negative by as much
    below, t = 0, 1.0
    for i in range(r):
        t = d[i] - threshold - (e[i - 1] * e[i - 1] / t if i else 0.0)
        t = -TINY if abs(t) < TINY else t
        below += t < 0
    if below == 0:
        return 0, -1, True
    sign = -1 if 2 * below <= r else 1
    K, first = (below, 0) if sign < 0 else (r - below, below)
    low, high = np.full(K, -1.01).astype(like.dtype), np.full(K, 1.01).astype(like.dtype)
    if sign < 0:
        high[:] = 0
    else:
        low[:] = threshold
    _bisect(single, squares, low, high, first)
    values, found = np.empty(K), z.ravel()[: r * K].reshape((r, K))
    for k in range(K):
        values[k] = (np.float64(low[k]) + np.float64(high[k])) / 2
    top, bottom = pivots[0].ravel()[: r * K].reshape((r, K)), pivots[1].ravel()[: r * K].reshape((r, K))
    good = False
    for rounds in range(4):
        _twisted(d, e, values, found, top, bottom)
        if rounds > 0:
            good = _orthogonal(found, 1e-4 if like.itemsize == 4 else 1e-9)
        if good:
            break
    for k in range(K):
        root = np.sqrt(max(-values[k] if sign < 0 else values[k], 0.0) * size)
        for i in range(r):
            found[i, k] *= root
    return K, sign, good


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz", "arcp"})
def _bisect(d: np.ndarray, e2: np.ndarray, low: np.ndarray, high: np.ndarray, first: int) -> None:
    """Step 2: narrow [low, high] around the eigenvalues number first, first + 1, … of the scaled T."""
    K, r = len(low), len(d)
    x, t, n = np.empty(K, d.dtype), np.empty(K, d.dtype), np.empty(K, np.int32)
    tiny = d.dtype.type(TINY)
    for _ in range(BISECTIONS):
        for k in range(K):
            x[k] = (low[k] + high[k]) / 2
            t[k] = 1
            n[k] = 0
        for i in range(r):
            a, b = d[i], e2[i]
            for k in range(K):
                y = a - x[k] - b / t[k]
                y = -tiny if abs(y) < tiny else y
                n[k] += y < 0
                t[k] = y
        for k in range(K):
            if n[k] > first + k:
                high[k] = x[k]
            else:
                low[k] = x[k]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def _twisted(
    d: np.ndarray, e: np.ndarray, values: np.ndarray, z: np.ndarray, top: np.ndarray, bottom: np.ndarray
) -> None:
    """Step 3: eigenvectors, of length 1, as columns of z; `values` are sharpened. `top`, `bottom` are workspace."""
    r, K = len(d), len(values)
    t, best, join, length = np.empty(K), np.empty(K), np.zeros(K), np.zeros(K)
    for i in range(r):  # pivots of T − λI from the top: their inverses in `top`, themselves (less d − λ) in z
        f = e[i - 1] * e[i - 1] if i else 0.0
        for k in range(K):
            less = f * top[i - 1, k] if i else 0.0
            y = d[i] - values[k] - less
            y = -TINY if abs(y) < TINY else y
            top[i, k] = 1 / y
            z[i, k] = less
    for k in range(K):
        best[k] = np.inf
    for i in range(r - 1, -1, -1):  # and from the bottom; the smallest γ says where to join them
        f = e[i] * e[i] if i < r - 1 else 0.0
        for k in range(K):
            less = f * bottom[i + 1, k] if i < r - 1 else 0.0
            y = d[i] - values[k] - less
            gamma = y - z[i, k]
            y = -TINY if abs(y) < TINY else y
            bottom[i, k] = 1 / y
            better = abs(gamma) < abs(best[k])
            best[k] = gamma if better else best[k]
            join[k] = float(i) if better else join[k]
    for i in range(r - 1, -1, -1):
        f = e[i] if i < r - 1 else 0.0
        for k in range(K):
            up = -f * z[i + 1, k] * top[i, k] if i < r - 1 else 0.0
            z[i, k] = 1.0 if join[k] == i else (up if join[k] > i else 0.0)
    for k in range(K):
        t[k] = z[0, k]
        length[k] = t[k] * t[k]
    for i in range(1, r):
        f = e[i - 1]
        for k in range(K):
            y = z[i, k]
            y = -f * t[k] * bottom[i, k] if join[k] < i else y
            z[i, k] = y
            t[k] = y
            length[k] += y * y
    for k in range(K):
        values[k] += best[k] / length[k]
        length[k] = 1 / np.sqrt(length[k])
    for i in range(r):
        for k in range(K):
            z[i, k] *= length[k]


@njit(nogil=True, cache=True)
def _orthogonal(z: np.ndarray, tolerance: float) -> bool:
    """Whether neighbours among the columns of z are orthogonal."""
    r, K = z.shape
    products = np.zeros(K)
    for i in range(r):
        for k in range(K - 1):
            products[k] += z[i, k] * z[i, k + 1]
    return bool((np.abs(products) <= tolerance).all())  # false for NaN
