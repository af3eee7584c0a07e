"""Solve systems whose matrices should be positive semi-definite, but may not be after noise.

    x_i = (Π(A_i) + S + ridge_i · I)⁻¹ b_i,   Π: set negative eigenvalues to 0.

A Cholesky factorization that succeeds proves that a matrix needs no projection, at a tenth of the
cost of an eigendecomposition. Only the matrices where it fails are decomposed, by
`discreet.kernels.eigen`. If it fails for nearly all of the first ones, as with much noise, it is
not tried on the others.
"""

from __future__ import annotations

import numpy as np

from discreet.kernels import reference, simd
from discreet.kernels.cholesky import solve_spd
from discreet.kernels.eigen import add_negative_parts, mirror_some
from discreet.kernels.threads import even_cuts, run

#: Matrices on which Cholesky is tried first: enough to tell rare failures from frequent ones.
PROBE = 64


def project_psd(A: np.ndarray) -> None:
    """Replace each matrix of `A`, (n, r, r) and symmetric, by its projection."""
    changed = _project_upper(A)
    run(lambda start, stop: mirror_some(A, changed, start, stop), even_cuts(len(changed)))


def _project_upper(A: np.ndarray) -> np.ndarray:
    """Project in place, upper triangles only; return the positions that may have changed."""
    wrong = _indefinite(A)
    left = add_negative_parts(A, wrong) if simd.enabled() and A.shape[1] >= 3 else wrong

    def work(start: int, stop: int) -> None:
        # Small groups, because the decompositions of a group are in memory at the same time.
        for first in range(start, stop, 64):
            some = left[first : min(first + 64, stop)]
            A[some] = reference.project_psd(_whole(A[some]))

    run(work, even_cuts(len(left)))
    return wrong


def _whole(A: np.ndarray) -> np.ndarray:
    """Build symmetric matrices from their upper triangles."""
    upper = np.triu(A)
    return upper + np.swapaxes(np.triu(A, 1), -1, -2)


def _indefinite(A: np.ndarray) -> np.ndarray:
    """List the matrices to decompose: those where Cholesky fails, or all if it mostly fails."""
    sample = A[:PROBE]
    definite = solve_spd(sample, np.zeros(sample.shape[:2], A.dtype))[1]
    if simd.enabled() and A.shape[1] >= 3 and definite.sum() < 0.1 * len(sample):
        # The decomposition leaves a matrix without negative eigenvalues unchanged.
        return np.arange(len(A))
    rest = A[PROBE:]
    more = solve_spd(rest, np.zeros(rest.shape[:2], A.dtype))[1]
    return np.flatnonzero(~np.append(definite, more))


def solve_psd(
    A: np.ndarray,
    b: np.ndarray,
    ridge: np.ndarray,
    shared: np.ndarray | None = None,
    project: bool = True,
) -> np.ndarray:
    """Solve the projected systems, (n, r); `A` is overwritten.

    Parameters
    ----------
    A : (n, r, r) float32 or float64, symmetric; only the upper triangles are read
    b : (n, r)
    ridge : (n,)
        Added to the diagonal *after* the projection, so that no eigenvalue is below it.
    shared : (r, r), optional
        S, positive semi-definite, the same for every system.
    project : bool
        False solves without the projection, also indefinite systems (for ablation studies).
    """
    n, r = b.shape
    assert A.shape == (n, r, r)
    assert ridge.shape == (n,)
    if project:
        _project_upper(A)
    x, definite = solve_spd(A, b, ridge, shared)
    wrong = np.flatnonzero(~definite)
    if len(wrong):  # only without projection, or where ridge and shared are both zero
        whole = (
            _whole(A[wrong])
            + ridge[wrong, None, None] * np.eye(r)
            + (0 if shared is None else shared)
        )
        x[wrong] = _pseudo_solve(whole.astype(A.dtype), b[wrong])
    return x


def _pseudo_solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solve by the pseudo-inverse, without directions of vanishing eigenvalues."""
    values, Q = np.linalg.eigh(A)
    keep = np.abs(values) > 1e-6 * np.abs(values).max(axis=-1, keepdims=True)
    inverse = np.divide(1, values, out=np.zeros_like(values), where=keep)
    c = np.einsum("nij,ni->nj", Q, b) * inverse
    return np.einsum("nij,nj->ni", Q, c)
