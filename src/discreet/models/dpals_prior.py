"""Public item features as a prior for the item factors of DPALS: v_j ~ N(Bᵀ f_j, T) instead of N(0, P).

Features are public and all else comes from released sums, so nothing here costs anything. With A_j, g̃_j, P = diag(τ²)
and the noise of `discreet.models.dpals_shrink`, D_j = σ_j² I + s² w̄ n̂_j C, and features scaled so that ‖f_j‖² is 1 on
average:

    v_j = Bᵀ f_j + e_j,   B_ka ~ N(0, ω_a),   e_ja ~ N(0, T_a),   T_a = max(P_a − ω_a, P_a / 2)                    (1)
    S_j = D_j + A_j T A_j,   W_j = A_j S_j⁻¹ A_j,   h_j = A_j S_j⁻¹ g̃_j                                             (2)
    B   = (Σ_j W_j ⊗ f_j f_jᵀ + diag(1 / ω) ⊗ I)⁻¹ Σ_j h_j ⊗ f_j                                                    (3)

(3) is the posterior mean of B. ω, the variance that features explain, is where the likelihood of the released sums is
largest, one number for the intercept and one for the factors: features that explain nothing get ω = 0, and then
only the start is not as without them. Items that were not heard have factors too, Bᵀ f_j.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXPLAINED = (0.0, *(0.0001 * 2.0 ** np.arange(14)).tolist())  # values of ω that are tried, over the square of Γ_M


@dataclass(frozen=True)
class Sums:
    """What is known of some items: A (n, r, r), g (n, r), D (n, r, r), and their features F (n, K).

    A and D may be (n, r), for diagonal matrices.
    """

    A: NDArray[np.float64]
    g: NDArray[np.float64]
    D: NDArray[np.float64]
    F: NDArray[np.float64]


class FeaturePrior:
    """A regression of item factors on features, learnt anew at every step.

    Parameters
    ----------
    X : (n, k) or None
        Public features of all items, NaN where they are not known.
    popularity : (n,) or None
        Another feature, of released numbers.
    some : positions of the items that take part
    leading : int
        How many first coordinates are the intercept: they have an ω of their own.

    Attributes
    ----------
    F : (len(some), K), the features of (1): a constant, which has half of the weight, and those given
    B : (K, r)
    explained : ω of the intercept and of the factors, over the square of Γ_M
    """

    def __init__(
        self,
        X: NDArray[np.float64] | None,
        popularity: NDArray[np.float64] | None,
        some: NDArray[np.int64],
        leading: int,
    ) -> None:
        parts = [
            standardised(part) for part in (X, None if popularity is None else popularity[:, None]) if part is not None
        ]
        constant = np.ones((len(parts[0]), 1))
        self._all = np.hstack([constant, *(part / np.sqrt(len(parts)) for part in parts)]) / np.sqrt(2.0)
        self._start = parts[0][some] if X is not None else None
        self._some, self._at = some, [10, 7]
        self.F, self.leading = self._all[some], leading
        self.B = np.zeros((self.F.shape[1], 0))

    @property
    def explained(self) -> tuple[float, float]:
        return EXPLAINED[self._at[0]], EXPLAINED[self._at[1]]

    def mean(self, which: Any) -> NDArray[np.float64]:
        """Bᵀ f of those items, as it was learnt."""
        return np.asarray(self.F[which] @ self.B)

    def complete(self, V: NDArray[Any]) -> NDArray[np.float32]:
        """Factors of all items: those of the items that took part, and Bᵀ f of the others."""
        whole = (self._all @ self.B).astype(np.float32)
        whole[self._some] = V
        return whole

    def start(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Factors to start from: half of their variance is the features' first principal components, so that users'
        first vectors are about these."""
        if self._start is None:
            return noise
        U = np.linalg.svd(self._start, full_matrices=False)[0][:, : noise.shape[1]] * np.sqrt(len(noise))
        mixed = noise.copy()
        mixed[:, : U.shape[1]] = np.sqrt(0.5) * (U + noise[:, : U.shape[1]])
        return mixed

    def learn(self, blocks: list[Sums], P: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
        """B by (3), and the variances T that features leave, (r,).

        ω climbs from where it was, one coordinate after the other, and is then compared with 0.

        Parameters
        ----------
        blocks : the heard items, in parts
        P : (r,), prior variances without features
        unit : Γ_M²
        """
        tried: dict[tuple[int, ...], tuple[float, NDArray[np.float64]]] = {}

        def score(at: list[int]) -> float:
            if tuple(at) not in tried:
                tried[tuple(at)] = likelihood(blocks, *self._variances(at, P, unit))
            return tried[tuple(at)][0]

        at, before = list(self._at), None
        while at != before:
            before = list(at)
            for which in (1, 0):  # the factors first: they are what features explain most of
                near = [max(at[which] - 1, 0), at[which], min(at[which] + 1, len(EXPLAINED) - 1)]
                at = max(([*at[:which], one, *at[which + 1 :]] for one in near), key=score)
        self._at = max((at, [0, at[1]], [at[0], 0], [0, 0]), key=score)
        self.B = tried[tuple(self._at)][1]
        return self._variances(self._at, P, unit)[0]

    def _variances(
        self, at: list[int], P: NDArray[np.float64], unit: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """T and ω of (1)."""
        omega = unit * np.where(np.arange(len(P)) < self.leading, EXPLAINED[at[0]], EXPLAINED[at[1]])
        return np.maximum(P - omega, P / 2), omega


@np.errstate(over="ignore")
def standardised(X: NDArray[np.float64], most: int = 64) -> NDArray[np.float64]:
    """Features (n, k) with average 0 and squared norm 1 on average, every one of the same weight.

    What is not known is the average. More than `most` columns become their first principal components.
    """
    known = np.isfinite(X)
    Z = np.where(known, X, 0.0)
    Z = np.where(known, Z - Z.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 0.0)
    spread = np.sqrt((Z**2).mean(axis=0))
    varies = spread > 1e-9 * np.maximum(np.abs(np.where(known, X, 0.0)).max(axis=0, initial=0.0), 1e-300)
    Z = Z[:, varies] / spread[varies]
    if Z.shape[1] > most:
        U, s, _ = np.linalg.svd(Z, full_matrices=False)
        Z = U[:, :most] * s[:most]
    return Z / max(float(np.sqrt((Z**2).sum() / max(len(Z), 1))), 1e-12)


def likelihood(
    blocks: Iterable[Sums], T: NDArray[np.float64], omega: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Logarithm of the likelihood of the sums under (1), up to a constant, and B (K, r) of (3)."""
    blocks = list(blocks)
    if blocks[0].A.ndim == 2:
        return _likelihood_apart(blocks, T, omega)
    r, free = len(T), np.flatnonzero(omega > 0)
    score = 0.0
    M: Any = 0.0
    h: Any = 0.0
    for part in blocks:
        L = np.linalg.cholesky(part.D + (part.A * T) @ part.A)
        X = np.linalg.solve(L, np.concatenate([part.A, part.g[..., None]], axis=2))
        A, g = X[..., :r][..., free], X[..., r]
        score -= 2 * np.log(np.einsum("nii->ni", L)).sum() + (g**2).sum()
        W, K = A.transpose(0, 2, 1) @ A, part.F.shape[1]
        h = h + np.einsum("nra,nr,nk->ak", A, g, part.F, optimize=True)
        rows = np.empty((len(free), K, len(free), K))
        for a in range(len(free)):
            for b in range(a + 1):
                rows[a, :, b] = (part.F * W[:, a, b, None]).T @ part.F
                rows[b, :, a] = rows[a, :, b].T
        M = M + rows.reshape(len(free) * K, len(free) * K)
    B = np.zeros((part.F.shape[1], r))
    if len(free):
        each = np.repeat(omega[free], part.F.shape[1])
        L = np.linalg.cholesky(M + np.diag(1 / each))
        x = np.linalg.solve(L, np.ravel(h))
        score += (x**2).sum() - 2 * np.log(np.diag(L)).sum() - np.log(each).sum()
        B[:, free] = np.linalg.solve(L.T, x).reshape(len(free), -1).T
    return score / 2, B


def _likelihood_apart(
    blocks: list[Sums], T: NDArray[np.float64], omega: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """`likelihood` where all A_j and D_j are diagonal, so that every coordinate has a regression of its own."""
    A, g, D, F = (np.concatenate([getattr(part, name) for part in blocks]) for name in ("A", "g", "D", "F"))
    variance = D + T * A**2
    score, B = -(np.log(variance) + g**2 / variance).sum(), np.zeros((F.shape[1], len(T)))
    for a in np.flatnonzero(omega > 0):
        M = (F * (A[:, a] ** 2 / variance[:, a])[:, None]).T @ F + np.eye(F.shape[1]) / omega[a]
        L = np.linalg.cholesky(M)
        x = np.linalg.solve(L, F.T @ (A[:, a] * g[:, a] / variance[:, a]))
        score += (x**2).sum() - 2 * np.log(np.diag(L)).sum() - F.shape[1] * np.log(omega[a])
        B[:, a] = np.linalg.solve(L.T, x)
    return score / 2, B
