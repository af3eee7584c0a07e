"""Solve many small systems at once by Cholesky factorization.

W systems (the lanes of a vector register) are interleaved, so that every scalar step of the
factorization handles W of them in one instruction. Without vector kernels, a plain loop solves them
one by one.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from discreet._numba import njit
from discreet.kernels import simd
from discreet.kernels.simd import address, lanes, transpose, transpose_to
from discreet.kernels.simd_batched import backward_panel, chol_diagonal, chol_panel, forward_panel
from discreet.kernels.threads import even_cuts, run
from discreet.kernels.validation import floats


def solve_spd(
    A: np.ndarray, b: np.ndarray, ridge: np.ndarray | None = None, shared: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Solve symmetric systems ``A[i] + S + ridge[i] · I``, many at once.

    Parameters
    ----------
    A : (n, r, r) float32 or float64, C order
        Only the upper triangles are read.
    b : (n, r)
    ridge : (n,), optional
    shared : (r, r), optional
        S, the same for every system.

    Returns
    -------
    x : (n, r)
        Solutions; undefined where `definite` is false.
    definite : (n,) bool
        Whether the factorization succeeded: the matrix is positive definite to working precision.
    """
    A, b = floats("A", A, 3), floats("b", b, 2)
    n, r = b.shape
    assert A.shape == (n, r, r)
    assert A.dtype == b.dtype
    x = np.empty_like(b)
    definite = np.empty(n, bool)
    c = np.zeros(n, A.dtype) if ridge is None else np.ascontiguousarray(ridge, A.dtype)
    S = np.zeros((r, r), A.dtype) if shared is None else np.ascontiguousarray(shared, A.dtype)
    assert c.shape == (n,)
    assert S.shape == (r, r)
    if simd.enabled():
        W = simd.VECTOR_BYTES // A.itemsize
        R = pad_rank(r, A.itemsize)
        run(
            lambda start, stop: _solve_many(A, b, c, S, x, definite, R, start, stop),
            even_cuts(n, W),
        )
    else:
        run(
            lambda start, stop: _solve_many_plain(A, b, c, S, x, definite, start, stop),
            even_cuts(n),
        )
    return x, definite


def pad_rank(r: int, itemsize: int) -> int:
    """Round up to a multiple of the vector width (at least of 4, the Cholesky tile)."""
    step = max(4, simd.VECTOR_BYTES // itemsize)
    return -(-r // step) * step


@njit(inner=True, nogil=True, cache=True)
def allocate_aligned(like: np.ndarray, n: int) -> np.ndarray:
    """Allocate n elements, aligned to a cache line."""
    spare = 64 // like.itemsize
    buffer = np.empty(n + spare, like.dtype)
    skip = (64 - address(buffer) % 64) % 64 // like.itemsize
    return buffer[skip : skip + n]


# Bytes between panels: at a distance of whole pages their rows would share cache sets.
PANEL_GAP = 192


@register_jitable
def panels_size(W: int, s: int, R: int) -> int:
    """Return the number of elements, of s bytes, of the workspace T of `solve_interleaved`."""
    return (R * 4 * W + PANEL_GAP // s) * (R // 4)


@register_jitable
def matrix_gap(s: int, R: int) -> int:
    """Return the distance between matrices of a group, in elements of s bytes.

    Two cache lines more than their size: otherwise all would share cache sets.
    """
    return R * R + 128 // s


@njit(inner=True, nogil=True, cache=True)
def solve_interleaved(like: np.ndarray, A: int, b: int, T: int, B: int, R: int) -> None:
    """Solve the W systems at address A ([W] of [R][R], `matrix_gap` apart) in place of b ([W][R]).

    T and B ([R][W]) are workspace. Afterwards T has the factors, for more calls of `substitute`.
    """
    factor_interleaved(like, A, T, R)
    substitute(like, b, T, B, R)


@njit(inner=True, nogil=True, cache=True)
def factor_interleaved(like: np.ndarray, A: int, T: int, R: int) -> None:
    """Write the Cholesky factors of the W systems at A to T, with reciprocals on the diagonal."""
    W = lanes(like)
    for i in range(R):
        _interleave(like, A, T, R, i, i // W * W)
    _factor(like, T, R)


@njit(inline="always", nogil=True, cache=True)
def factor_turned(like: np.ndarray, A: int, T: int, R: int) -> None:
    """Do `factor_interleaved` for rotated diagonal blocks (see `gather.rotate_blocks`)."""
    W = lanes(like)
    s = like.itemsize
    E = W * s
    panel = R * 4 * E + PANEL_GAP
    offsets = np.empty((W // 2 + 1, W), np.int64)
    for d in range(W // 2 + 1):
        for a in range(W):
            row = min(a, (a + d) % W)
            column = max(a, (a + d) % W)
            offsets[d, a] = column // 4 * panel + (row * 4 + column % 4) * E
    for i in range(R):
        _interleave(like, A, T, R, i, i // W * W + W)
    for i in range(0, R, W):
        for d in range(W // 2 + 1):
            source = A + ((i + d) * R + i) * s
            target = T + i // 4 * panel + (i * 4 + i % 4) * E
            transpose_to(like, source, matrix_gap(s, R) * s, target, address(offsets) + d * W * 8)
    _factor(like, T, R)


@njit(inner=True, nogil=True, cache=True)
def _interleave(like: np.ndarray, A: int, T: int, R: int, i: int, first: int) -> None:
    """Interleave row i of the W systems at A into T, from column `first` on.

    T has panels of four columns, [R / 4][R][4][W]: a panel of the factor is contiguous and fits the
    first-level cache.
    """
    W = lanes(like)
    s = like.itemsize
    E = W * s
    matrix = matrix_gap(s, R) * s
    panel = R * 4 * E + PANEL_GAP
    for j in range(first, R, W):
        target = T + j // 4 * panel + (i * 4 + j % 4) * E
        transpose(like, A + (i * R + j) * s, matrix, 4 * matrix, target, E, panel)


@njit(inner=True, nogil=True, cache=True)
def _factor(like: np.ndarray, T: int, R: int) -> None:
    panel = R * 4 * lanes(like) * like.itemsize + PANEL_GAP
    for i in range(0, R, 4):
        Ti = T + i // 4 * panel
        chol_diagonal(like, Ti, i)
        # Panels to the right of the diagonal, in order: each is read once per step.
        for j in range(i + 4, R, 4):
            chol_panel(like, Ti, T + j // 4 * panel, i)


@njit(inner=True, nogil=True, cache=True)
def substitute(like: np.ndarray, b: int, T: int, B: int, R: int) -> None:
    """Overwrite the right-hand sides at b ([W][R]) with the solutions, by the factors in T."""
    W = lanes(like)
    s = like.itemsize
    E, line = W * s, R * s
    panel = R * 4 * E + PANEL_GAP
    for j in range(0, R, W):
        # Right-hand sides are interleaved too, so that one instruction solves W systems.
        transpose(like, b + j * s, line, 4 * line, B + j * E, E, 4 * E)
    for i in range(0, R, 4):
        forward_panel(like, T + i // 4 * panel, B, i)
    # Backward substitution goes from the last panel to the first.
    for i in range(R - 4, -1, -4):
        backward_panel(like, T + i // 4 * panel, B, i)
    for j in range(0, R, W):
        transpose(like, B + j * E, E, 4 * E, b + j * s, line, 4 * line)


@njit(nogil=True, cache=True)
def _solve_many(
    A: np.ndarray,
    b: np.ndarray,
    ridge: np.ndarray,
    S: np.ndarray,
    x: np.ndarray,
    definite: np.ndarray,
    R: int,
    start: int,
    stop: int,
) -> None:
    like = b
    r = b.shape[1]
    W = lanes(b)
    gap = matrix_gap(b.itemsize, R)
    Ap = allocate_aligned(like, W * gap)
    Tp = allocate_aligned(like, panels_size(W, like.itemsize, R))
    bp, Bp = allocate_aligned(like, W * R), allocate_aligned(like, R * W)
    panel = R * 4 * W + PANEL_GAP // like.itemsize
    b_ = bp.reshape((W, R))
    # The padding must be zero; the r × r part is written below.
    Ap[:] = 0
    b_[:] = 0
    for lane in range(W):
        for k in range(r, R):  # pad with the identity
            Ap[lane * gap + k * R + k] = 1
    for first in range(start, stop, W):
        for lane in range(W):
            i = min(first + lane, stop - 1)  # unused lanes repeat the last system
            for k in range(r):
                # Only upper triangles are read, so that the caller need not mirror its matrices.
                for j in range(k, r):
                    Ap[lane * gap + k * R + j] = A[i, k, j] + S[k, j]
                Ap[lane * gap + k * R + k] += ridge[i]
                b_[lane, k] = b[i, k]
        solve_interleaved(like, address(Ap), address(bp), address(Tp), address(Bp), R)
        for lane in range(min(W, stop - first)):
            good = True
            for k in range(r):
                # A pivot that was not positive has the reciprocal 0 (see `simd_batched`).
                good = good and Tp[k // 4 * panel + (k * 4 + k % 4) * W + lane] > 0
                x[first + lane, k] = b_[lane, k]
            definite[first + lane] = good


@njit(nogil=True, cache=True, error_model="numpy")
def solve_one(A: np.ndarray, x: np.ndarray) -> bool:
    """Solve one system in place; return whether A is positive definite.

    A becomes its upper factor, and x the solution.
    """
    r = len(x)
    good = True
    for k in range(r):
        pivot = A[k, k]
        good = good and pivot > 1e-30
        # Reciprocals are stored: multiplying is faster than dividing in both substitutions.
        # `pivot * 0` has the type of the matrix, and keeps NaN visible.
        inverse = 1 / np.sqrt(pivot) if pivot > 1e-30 else pivot * 0
        # The diagonal is not needed again, so its place holds the reciprocal.
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
    A: np.ndarray,
    b: np.ndarray,
    ridge: np.ndarray,
    S: np.ndarray,
    x: np.ndarray,
    definite: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for i in range(start, stop):
        x[i] = b[i]
        # A copy: `solve_one` overwrites its matrix, and the caller may read A again.
        M = A[i] + S
        for k in range(len(S)):
            M[k, k] += ridge[i]
        definite[i] = solve_one(M, x[i])
