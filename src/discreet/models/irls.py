"""IRLS: matrix factorization under the Huber loss, without privacy.

The loss of `ALS` with ρ_α in place of the square (the Huber paper's equation 6):

    f(U, V) = 2 Σ_{(i,j) ∈ Ω} ρ_α(M_ij − m_ij − u_i · v_j) + Σ_i λ w_i ‖u_i‖² + Σ_j λ w_j ‖v_j‖² (1)

with ρ_α(t) = t²/2 up to α and α(|t| − α/2) beyond: a rating far from its prediction pulls with
force α at most, however wrong it is. Each half-step is R-IRLS (Algorithm 3, without noise): from
the least-squares solution, K times

    ω_ij = min(1, α / |e_ij|), u_i = (Σ_j ω_ij v_j v_jᵀ + λ w_i I)⁻¹ Σ_j ω_ij (M_ij − m_ij) v_j (2)

None of these steps raises (1) for the side that it solves. With a huge α all weights are 1, and
this is `ALS`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import pair_products, solve_rows
from discreet.models.als import ALS
from discreet.models.fold_in import ALSFoldIn, FoldIn
from discreet.models.parameters import MOST_SWEEPS, check_int, check_number, check_that


class IRLS(ALS):
    """Robust matrix factorization: single wrong ratings do little harm. **Not private.**

    Parameters
    ----------
    factors : int
    transition : float
        α, in units of ratings: residuals beyond it count less.
    inner_iterations : int
        K, reweighted solves in each half-step.
    iterations, regularization, …, random_state
        As for `ALS`; ratings only, no implicit feedback.
    """

    transition: float = 1.0
    inner_iterations: int = 2
    goal: str = field(default="rating", init=False)
    unobserved_weight: float | None = field(default=None, init=False)

    def _half_step(
        self,
        rows: tuple[NDArray[Any], ...],
        Y: NDArray[Any],
        offset: NDArray[Any],
        ridge: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Solve for factors and intercepts of every row by R-IRLS, given the other side."""
        indptr, indices, values = rows
        target = values.astype(Y.dtype) - offset[indices]
        none = np.zeros(len(indptr) - 1, Y.dtype)
        if not self.intercept_scale_:
            return self._solve(indptr, indices, target, Y, ridge), none
        s = np.asarray(self.intercept_scale_, Y.dtype)
        X = self._solve(indptr, indices, target, np.column_stack([Y, np.full(len(Y), s)]), ridge)
        return np.ascontiguousarray(X[:, :-1]), s * X[:, -1]

    def fold_in_rule(self) -> FoldIn:
        plain = super().fold_in_rule()
        assert isinstance(plain, ALSFoldIn)
        return dataclasses.replace(
            plain, transition=self.transition, inner_iterations=self.inner_iterations
        )

    def _solve(
        self,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        target: NDArray[Any],
        Y: NDArray[Any],
        ridge: NDArray[Any],
    ) -> NDArray[Any]:
        start = solve_rows(indptr, indices, target, Y, ridge)
        return irls_rows(
            indptr, indices, target, Y, ridge, self.transition, self.inner_iterations, start
        )

    def _check(self) -> None:
        super()._check()
        check_int("inner_iterations", self.inner_iterations, 0, MOST_SWEEPS)
        check_number("transition", self.transition)
        check_that(self.transition > 0, f"transition is {self.transition!r}, but must be above 0")


def irls_rows(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    target: NDArray[Any],
    Y: NDArray[Any],
    ridge: NDArray[Any],
    transition: float,
    iterations: int,
    X: NDArray[Any],
) -> NDArray[Any]:
    """Iterate equation (2) from X, for every row at once.

    Parameters
    ----------
    indptr, indices, target : CSR arrays of n rows
    Y : (m, r)
    ridge : (n,)
    X : (n, r)
        Where to start.
    """
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    for _ in range(iterations):
        e = np.abs(target - pair_products(X, Y, row, indices))
        weights = (transition / np.maximum(e, transition)).astype(Y.dtype)
        X = solve_rows(indptr, indices, target, Y, ridge, None, weights)
    return X
