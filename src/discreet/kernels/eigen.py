"""Project many small symmetric matrices to positive semi-definite ones, by their negative parts.

For A = Q Λ Qᵀ the negative part is N = Σ_{λ<0} |λ| q qᵀ, and A + N is the nearest positive
semi-definite matrix. At most half of the eigenvectors are needed, those of the less frequent sign:

1. Householder reflections make W matrices tridiagonal at once, one per lane of a vector register.
   The update of a step and the product A v that the next step needs are one pass over the matrix.
2. The eigenvalues of that sign are found by simultaneous bisection, by the signs of the pivots of
   T − λI (Sturm).
3. Their eigenvectors come from twisted factorizations of T − λI (pivots from the top and from the
   bottom, joined where they nearly cancel). The Rayleigh quotient of each refines its λ, and a
   second round reaches full precision (a third in float64).
4. The vectors are transformed back by the reflections, and N is their Gram matrix.

Nearly equal eigenvalues can get the same vector in step 3. Adjacent vectors are then not
orthogonal; such a matrix is reported and left to the caller.
"""

from __future__ import annotations

import numpy as np

from discreet._numba import njit
from discreet.kernels import simd
from discreet.kernels.cholesky import allocate_aligned, pad_rank
from discreet.kernels.gather import add_gram
from discreet.kernels.simd import address, lanes, transpose
from discreet.kernels.simd_batched import (
    dot,
    mix,
    reflect_columns_1,
    reflect_columns_4,
    reflect_first,
    reflect_rows,
)
from discreet.kernels.threads import even_cuts, run
from discreet.kernels.tridiagonal import TINY, vectors


def add_negative_parts(A: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Project the upper triangles of ``A[which]`` in place; return the positions that failed.

    Parameters
    ----------
    A : (n, r, r) float32 or float64, symmetric, r ≥ 3
    which : (k,) int
    """
    r = A.shape[1]
    W = simd.VECTOR_BYTES // A.itemsize
    failed = np.zeros(len(which), bool)
    R = pad_rank(r, A.itemsize)
    # Cuts at multiples of W: groups of matrices do not depend on the number of threads.
    run(lambda start, stop: _project(A, which, failed, R, start, stop), even_cuts(len(which), W))
    return which[failed]


@njit(nogil=True, cache=True, error_model="numpy")
def _project(
    A: np.ndarray, which: np.ndarray, failed: np.ndarray, R: int, start: int, stop: int
) -> None:
    r = A.shape[1]
    W = lanes(A)
    s = A.itemsize
    T = allocate_aligned(A, r * r * W + W * W)
    # Diagonals in float64 also for float32: eigenvalues near 0 decide the projection.
    d = np.zeros((r, W))
    e = np.zeros((r, W))
    beta = allocate_aligned(A, r * W)
    work = allocate_aligned(A, (3 * r + 8) * W)
    rows = allocate_aligned(A, W * R)
    H = allocate_aligned(A, W * r * R)
    Z = allocate_aligned(A, r * R)
    P = allocate_aligned(A, R * R)
    N = allocate_aligned(A, R * R)
    zero = np.zeros(R * R, A.dtype)
    z = np.empty(r * (r // 2 + 16))
    scale = np.empty(r // 2 + 16)
    # Work of `vectors` in float64, on a cache line as its stores require.
    buffer = allocate_aligned(d, 64 * (r + 2))
    size = np.empty(W)
    rows[:] = 0
    for first in range(start, stop, W):
        for lane in range(W):
            # Unused lanes repeat the last matrix.
            size[lane] = _size(A[which[min(first + lane, stop - 1)]])
        for i in range(r):
            for lane in range(W):
                M = A[which[min(first + lane, stop - 1)]]
                # A power of two, so that scaling changes no digit.
                f = 1 / size[lane]
                # Lower triangles are neither read nor written.
                for j in range(i, r):
                    rows[lane * R + j] = M[i, j] * f
            for j in range(i // W * W, r, W):  # columns beyond r are overwritten by the next row
                transpose(
                    A,
                    address(rows) + j * s,
                    R * s,
                    4 * R * s,
                    address(T) + (i * r + j) * W * s,
                    W * s,
                    4 * W * s,
                )
        _tridiagonalize(T, d, e, beta, work, r)
        # Reflections back to one matrix after the other, as step 4 applies them.
        for i in range(r):
            for j in range(i // W * W, r, W):
                transpose(
                    A,
                    address(T) + (i * r + j) * W * s,
                    W * s,
                    4 * W * s,
                    address(H) + (i * R + j) * s,
                    r * R * s,
                    4 * r * R * s,
                )
        for lane in range(min(W, stop - first)):
            i = which[first + lane]
            K, sign, wide, fine = vectors(
                d[:, lane] * size[lane], e[:, lane] * size[lane], z, scale, buffer, A
            )
            # A matrix with NaN or infinity is left to the caller, which reports it.
            good = fine and bool(np.isfinite(size[lane]))
            failed[first + lane] = not good
            # Already positive semi-definite: not a bit is changed.
            if not good or (K == 0 and sign < 0):
                continue
            _back(
                H[lane * r * R : (lane + 1) * r * R],
                beta,
                lane,
                z[: r * wide].reshape((r, wide)),
                scale,
                Z,
                P,
                R,
                K,
            )
            add_gram(A, address(P), K, address(zero), address(N), R)
            M = A[i]
            for a in range(r):
                for b in range(a, r):
                    # With vectors of the negative sign N is added; with the positive ones N is
                    # the result.
                    M[a, b] = N[a * R + b] + (M[a, b] if sign < 0 else zero[0])


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _size(M: np.ndarray) -> float:
    """Return a power of two near the entries of M, or infinity if M is not finite.

    Divided by it, squares of entries neither overflow nor underflow.
    """
    total = M[0, 0] * 0
    r = len(M)
    for i in range(r):
        for j in range(i, r):
            total += abs(M[i, j])
    # Also false for NaN.
    if not total < np.inf:
        return np.inf
    return 2.0 ** np.floor(np.log2(np.float64(total) / r)) if total > 0 else 1.0


@njit(inner=True, nogil=True, cache=True)
def mirror(M: np.ndarray) -> None:
    """Copy the upper triangle to the lower one, in blocks that fit the cache."""
    r = len(M)
    for i in range(0, r, 16):
        for j in range(0, i + 1, 16):
            for a in range(i, min(i + 16, r)):
                for b in range(j, min(j + 16, a)):
                    M[a, b] = M[b, a]


@njit(nogil=True, cache=True)
def mirror_some(A: np.ndarray, which: np.ndarray, start: int, stop: int) -> None:
    for i in range(start, stop):
        mirror(A[which[i]])


@njit(nogil=True, cache=True, error_model="numpy")
def _tridiagonalize(
    T: np.ndarray, d: np.ndarray, e: np.ndarray, beta: np.ndarray, work: np.ndarray, r: int
) -> None:
    """Do step 1. T is [r][r][W], upper triangles.

    Afterwards row k holds v of the reflection H_k = I − β_k v vᵀ, from column k + 1 on.
    """
    W = lanes(T)
    E = lanes(T) * T.itemsize
    p, q, none, own = (
        work[: r * W],
        work[r * W : 2 * r * W],
        work[2 * r * W : 3 * r * W],
        work[3 * r * W :],
    )
    q[:] = 0
    none[:] = 0
    base, at_p, at_q, at_own = address(T), address(p), address(q), address(own)
    v = none  # the pending update of the last step is −(v qᵀ + q vᵀ)
    for k in range(r - 1):
        row = T[k * r * W : (k + 1) * r * W]
        at_v = address(v)
        at_n = address(row)
        next_ = (k + 1) * E
        for l in range(W):
            own[l], own[W + l] = v[k * W + l], q[k * W + l]
            # The update of the last step was delayed; the diagonal needs it now.
            row[k * W + l] -= 2 * own[l] * own[W + l]
            d[k, l] = row[k * W + l]
        reflect_first(T, at_n + next_, at_v + next_, at_q + next_, at_own, r - k - 1)
        if k == r - 2:
            break
        n = row
        for l in range(W):
            total = own[2 * W + l]
            x = n[(k + 1) * W + l]
            # The sign opposite to x avoids cancellation in x − alpha.
            alpha = -np.copysign(np.sqrt(total), x)
            vv = 2 * (total - x * alpha)
            # A column that is zero already needs no reflection; dividing by it would give NaN.
            if vv > TINY:
                n[(k + 1) * W + l] = x - alpha
                beta[k * W + l] = 2 / vv
            else:
                alpha = x
                beta[k * W + l] = 0
            e[k, l] = alpha
        p[(k + 1) * W :] = 0
        # Two rows per pass halve the traffic of p and q.
        for i in range(k + 1, r - 1, 2):
            a = (i * r + i) * E
            b = ((i + 1) * r + i + 1) * E
            j = i * E
            reflect_rows(T, base + a, base + b, at_v + j, at_q + j, at_n + j, at_p + j, r - i - 2)
        # An odd last row, which the pairs leave over.
        if (r - k - 1) % 2:
            i = r - 1
            a = (i * r + i) * W
            for l in range(W):
                T[a + l] -= 2 * v[i * W + l] * q[i * W + l]
                p[i * W + l] += T[a + l] * n[i * W + l]
        dot(T, at_p + next_, at_n + next_, at_own, r - k - 1)
        for l in range(W):
            f = beta[k * W + l]
            # q = β p − (β² pᵀv / 2) v makes the update of rank two symmetric.
            own[l], own[W + l] = f, f * f * own[l] / 2
            q[k * W + l] = 0
        mix(T, at_p + next_, at_n + next_, at_own, at_q + next_, r - k - 1)
        v = row
    for l in range(W):
        last = ((r - 1) * r + r - 1) * W + l
        e[r - 2, l] = T[((r - 2) * r + r - 1) * W + l]
        d[r - 1, l] = T[last] - 2 * v[(r - 1) * W + l] * q[(r - 1) * W + l]


@njit(nogil=True, cache=True, error_model="numpy")
def _back(
    H: np.ndarray,
    beta: np.ndarray,
    lane: int,
    z: np.ndarray,
    scale: np.ndarray,
    Z: np.ndarray,
    P: np.ndarray,
    R: int,
    K: int,
) -> None:
    """Do step 4: transform the vectors of T to those of A, the rows of P, [K][R].

    H has the reflections, [r][R].
    """
    r = len(z)
    W = lanes(H)
    s = H.itemsize
    wide = -(-K // W) * W
    x = Z[: r * wide].reshape((r, wide))
    # Two halves in turn: products of this reflection, and those for the next one.
    t = allocate_aligned(H, 2 * wide)
    t[:] = 0
    for i in range(r):
        for k in range(K):
            x[i, k] = z[i, k] * scale[k]
        x[i, K:] = 0
    # One pass applies reflection `step` (none at first) and computes the products for the next.
    for step in range(r - 2, -1, -1):
        old = step % 2 * wide
        new = (1 - step % 2) * wide
        this, other = address(t) + old * s, address(t) + new * s
        t[new : new + wide] = 0
        # The first pass applies nothing: its products belong to the next reflection.
        f = beta[step * W + lane] if step < r - 2 else 0 * beta[0]
        for k in range(wide):
            t[old + k] *= f
        n = r - step - 1
        source = address(Z) + (step + 1) * wide * s
        c = address(H) + (step * R + step + 1) * s
        c2 = address(H) + (max(step - 1, 0) * R + step + 1) * s
        k = 0
        while k < wide:
            # Four vectors of columns share the loads of a reflection; the rest goes one by one.
            if wide - k >= 4 * W:
                reflect_columns_4(
                    H, source + k * s, wide * s, n, c, this + k * s, c2, other + k * s
                )
                k += 4 * W
            else:
                reflect_columns_1(
                    H, source + k * s, wide * s, n, c, this + k * s, c2, other + k * s
                )
                k += W
        if step > 0:  # the next reflection includes one more row
            first = H[(step - 1) * R + step]
            for k in range(wide):
                t[new + k] += first * x[step, k]
    P[: K * R] = 0
    for k in range(K):
        for j in range(r):
            P[k * R + j] = x[j, k]
