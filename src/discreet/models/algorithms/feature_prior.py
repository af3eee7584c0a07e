"""Public item features as a prior for item factors: x_j ~ N(Bᵀ f_j, T) instead of N(0, P).

Features are public and all else comes from released sums, so nothing here costs anything. Every coordinate a of the
factors has a regression of its own. What is known of item j is z_ja = S_ja x_ja + noise, the noise of variance D_ja;
features are scaled so that ‖f_j‖² is 1 on average:

    x_ja = b_a · f_j + e_ja,   b_ka ~ N(0, ω_a),   e_ja ~ N(0, T_a),   T_a = max(P_a − ω_a, P_a / 2)               (1)
    W_ja = S_ja² / (D_ja + T_a S_ja²),   h_ja = S_ja z_ja / (D_ja + T_a S_ja²)                                     (2)
    b_a  = (Σ_j W_ja f_j f_jᵀ + I / ω_a)⁻¹ Σ_j h_ja f_j                                                            (3)

(3) is the posterior mean. ω, the variance that features explain, is where the likelihood of the released sums is
largest, one number for the biases and one for the factors: features that explain nothing get ω = 0, and then only the
start is not as without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXPLAINED = (0.0, *(0.0001 * 2.0 ** np.arange(14)).tolist())  # values of ω that are tried, in units of `unit`


@dataclass(frozen=True)
class Sums:
    """What is known of the items: z, S and D of (1) and (2), each (n, r)."""

    z: NDArray[np.float64]
    S: NDArray[np.float64]
    D: NDArray[np.float64]


class FeaturePrior:
    """A regression of item factors on features, learnt anew at every step.

    Parameters
    ----------
    X : (n, k) or None
        Public features of all items, NaN where they are not known.
    popularity : (n,) or None
        Another feature, of released numbers.
    leading : int
        How many first coordinates are the bias: they have an ω of their own.

    Attributes
    ----------
    F : (n, K), the features of (1): a constant, which has half of the weight, and those given
    B : (K, r)
    explained : ω of the bias and of the factors, in units of `unit`
    """

    def __init__(self, X: NDArray[np.float64] | None, popularity: NDArray[np.float64] | None, leading: int) -> None:
        given = [X, None if popularity is None else popularity[:, None]]
        parts = [standardised(part) for part in given if part is not None]
        constant = np.ones((len(parts[0]), 1))
        self.F = np.hstack([constant, *(part / np.sqrt(len(parts)) for part in parts)]) / np.sqrt(2.0)
        self.B = np.zeros((self.F.shape[1], 0))
        self.leading = leading
        self._start = parts[0] if X is not None else None
        self._at = [10, 7]

    @property
    def explained(self) -> tuple[float, float]:
        return EXPLAINED[self._at[0]], EXPLAINED[self._at[1]]

    def mean(self) -> NDArray[np.float64]:
        """Bᵀ f of all items, as it was learnt."""
        return np.asarray(self.F @ self.B)

    def start(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Factors to start from: half of their variance is the features' first principal components, so that users'
        first vectors are about these."""
        if self._start is None:
            return noise
        U = np.linalg.svd(self._start, full_matrices=False)[0][:, : noise.shape[1]] * np.sqrt(len(noise))
        mixed = noise.copy()
        mixed[:, : U.shape[1]] = np.sqrt(0.5) * (U + noise[:, : U.shape[1]])
        return mixed

    def learn(self, sums: Sums, P: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
        """B by (3), and the variances T that features leave, (r,).

        ω climbs from where it was, one coordinate after the other, and is then compared with 0.

        Parameters
        ----------
        sums : of all items
        P : (r,), prior variances without features
        unit : what ω is measured in
        """
        tried: dict[tuple[int, ...], tuple[float, NDArray[np.float64]]] = {}

        def score(at: list[int]) -> float:
            if tuple(at) not in tried:
                tried[tuple(at)] = likelihood(sums, self.F, *self._variances(at, P, unit))
            return tried[tuple(at)][0]

        at = list(self._at)
        before: list[int] = []
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
    scaled: NDArray[np.float64] = Z / max(float(np.sqrt((Z**2).sum() / max(len(Z), 1))), 1e-12)
    return scaled


def likelihood(
    sums: Sums, F: NDArray[np.float64], T: NDArray[np.float64], omega: NDArray[np.float64]
) -> tuple[float, NDArray[Any]]:
    """Logarithm of the likelihood of the sums under (1), up to a constant, and B (K, r) of (3)."""
    variance = sums.D + T * sums.S**2
    score = -(np.log(variance) + sums.z**2 / variance).sum()
    B = np.zeros((F.shape[1], len(T)))
    for a in np.flatnonzero(omega > 0):
        M = (F * (sums.S[:, a] ** 2 / variance[:, a])[:, None]).T @ F + np.eye(F.shape[1]) / omega[a]
        L = np.linalg.cholesky(M)
        x = np.linalg.solve(L, F.T @ (sums.S[:, a] * sums.z[:, a] / variance[:, a]))
        score += (x**2).sum() - 2 * np.log(np.diag(L)).sum() - F.shape[1] * np.log(omega[a])
        B[:, a] = np.linalg.solve(L.T, x)
    return score / 2, B
