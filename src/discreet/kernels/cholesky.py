"""Cholesky solves of many small systems at once.

W systems (the lanes of a vector register) are interleaved, so that every scalar step of an ordinary factorisation works
on W of them in one instruction. On processors without these vector kernels a plain loop solves them one by one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from discreet.kernels import simd
from discreet.kernels.simd import (
    PANEL_COLUMNS,
    backward_row,
    chol_diagonal,
    chol_panel,
    forward_row,
    lanes,
    transpose,
)
from discreet.kernels.threads import even_cuts, run


def solve_spd_numpy(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solutions of ``A[i] x = b[i]``: the specification of `solve_spd`."""
    return np.linalg.solve(A, b[..., None])[..., 0]


def solve_spd(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve symmetric systems, many at once.

    Parameters
    ----------
    A : (n, r, r) float32 or float64, C order
        Only the upper triangles are read.
    b : (n, r)

    Returns
    -------
    x : (n, r)
        Solutions; meaningless where `definite` is false.
    definite : (n,) bool
        Whether the factorisation went through, that is, whether ``A[i]`` is positive definite to working precision.
    """
    n, r = b.shape
    assert A.shape == (n, r, r)
    assert A.dtype == b.dtype
    x, definite = np.empty_like(b), np.empty(n, bool)
    if simd.enabled():
        W = simd.VECTOR_BYTES // A.itemsize
        R = padded(r, A.itemsize)
        work = lambda start, stop: _solve_many(A, b, x, definite, R, start, stop)
        run(work, even_cuts(n, W))
    else:
        run(lambda start, stop: _solve_many_plain(A, b, x, definite, start, stop), even_cuts(n))
    return x, definite


def padded(r: int, itemsize: int) -> int:
    """The next multiple of the vector width (at least of 4, the Cholesky tile)."""
    step = max(4, simd.VECTOR_BYTES // itemsize)
    return -(-r // step) * step


@njit(nogil=True, cache=True)
def aligned(like: np.ndarray, n: int) -> np.ndarray:
    """n elements that start on a cache line."""
    spare = 64 // like.itemsize
    buffer = np.empty(n + spare, like.dtype)
    skip = (64 - buffer.ctypes.data % 64) % 64 // like.itemsize
    return buffer[skip : skip + n]


@njit(nogil=True, cache=True)
def solve_interleaved(like: np.ndarray, A: int, b: int, T: int, B: int, R: int) -> None:
    """Solve the W systems at address A ([W][R][R]) with right-hand sides at b ([W][R], overwritten by the solutions).

    T ([R][R][W]) and B ([R][W]) are workspace; afterwards T holds the factors, with reciprocals on the diagonal.
    """
    W, s = lanes(like), like.itemsize
    line, row, matrix = R * s, R * W * s, R * R * s
    for i in range(R):
        for j in range(i // W * W, R, W):
            transpose(like, A + (i * R + j) * s, matrix, T + (i * R + j) * W * s, W * s)
    for j in range(0, R, W):
        transpose(like, b + j * s, line, B + j * W * s, W * s)
    for i in range(0, R, 4):
        chol_diagonal(like, T, row, i)
        for j in range(i + 4, R, PANEL_COLUMNS):
            chol_panel(like, T, row, i, j)
    for k in range(R):
        forward_row(like, T + k * row, B, k, R)
    for k in range(R - 1, -1, -1):
        backward_row(like, T + k * row, B, k, R)
    for j in range(0, R, W):
        transpose(like, B + j * W * s, W * s, b + j * s, line)


@njit(nogil=True, cache=True)
def _solve_many(
    A: np.ndarray, b: np.ndarray, x: np.ndarray, definite: np.ndarray, R: int, start: int, stop: int
) -> None:
    like, r, W = b, b.shape[1], lanes(b)
    Ap, Tp, bp, Bp = aligned(like, W * R * R), aligned(like, R * R * W), aligned(like, W * R), aligned(like, R * W)
    A_, T_, b_ = Ap.reshape((W, R, R)), Tp.reshape((R, R, W)), bp.reshape((W, R))
    for first in range(start, stop, W):
        A_[:] = 0
        b_[:] = 0
        for lane in range(W):
            i = first + lane
            for k in range(r if i >= stop else 0, R):  # what pads a matrix, or a whole empty lane, is the identity
                A_[lane, k, k] = 1
            if i < stop:
                for k in range(r):
                    for j in range(k, r):
                        A_[lane, k, j] = A[i, k, j]
                    b_[lane, k] = b[i, k]
        solve_interleaved(like, Ap.ctypes.data, bp.ctypes.data, Tp.ctypes.data, Bp.ctypes.data, R)
        for lane in range(min(W, stop - first)):
            good = True
            for k in range(r):
                good = good and T_[k, k, lane] > 0
                x[first + lane, k] = b_[lane, k]
            definite[first + lane] = good


@njit(nogil=True, cache=True, error_model="numpy")
def solve_one(A: np.ndarray, x: np.ndarray) -> bool:
    """Solve one system in place (A becomes its upper factor, x the solution); False where A is not positive definite."""
    r = len(x)
    good = True
    for k in range(r):
        pivot = A[k, k]
        good = good and pivot > 1e-30
        inverse = 1 / np.sqrt(pivot) if pivot > 1e-30 else pivot * 0
        A[k, k] = inverse
        for j in range(k + 1, r):
            A[k, j] *= inverse
        for i in range(k + 1, r):
            f = A[k, i]
            for j in range(i, r):
                A[i, j] -= f * A[k, j]
    for k in range(r):
        x[k] *= A[k, k]
        for j in range(k + 1, r):
            x[j] -= x[k] * A[k, j]
    for k in range(r - 1, -1, -1):
        total = x[k]
        for j in range(k + 1, r):
            total -= A[k, j] * x[j]
        x[k] = total * A[k, k]
    return good


@njit(nogil=True, cache=True)
def _solve_many_plain(
    A: np.ndarray, b: np.ndarray, x: np.ndarray, definite: np.ndarray, start: int, stop: int
) -> None:
    for i in range(start, stop):
        x[i] = b[i]
        definite[i] = solve_one(A[i].copy(), x[i])
