"""Biases of the items by what is known of them, with a prior that is learned from all of them
together.

Everything here is a function of released sums and public features, so it costs nothing. What is
known of item j is z_j = S_j x_j + noise, the noise of variance D_j. Features are scaled so that
‖f_j‖² is 1 on average; a constant and the released popularity are among them:

    x_j = b · f_j + e_j,   b_k ~ N(0, ω),   e_j ~ N(0, T)                                        (1)
    W_j = S_j² / (D_j + T S_j²),   h_j = S_j z_j / (D_j + T S_j²)                                (2)
    b   = (Σ_j W_j f_j f_jᵀ + I / ω)⁻¹ Σ_j h_j f_j                                               (3)

(3) is the posterior mean. T and ω are posterior means over a grid: T is log-normal before anything
    is known, around
what biases usually vary by, and ω is 0 with probability ½, else anything. Where noise drowns the
sums, what is most likely would be 0 or far too much, as the noise has it; means are what is usual,
and then nothing is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# values of ω that are tried beside 0, over what T usually is
EXPLAINED = tuple((0.002 * 4.0 ** np.arange(5)).tolist())
SPREAD = math.log(3.0)  # of the logarithm of T
COARSE = np.geomspace(1e-4, 1.0, 9)  # values of T, in units of `unit`
FINER = np.geomspace(0.3, 3.0, 7), np.geomspace(0.8, 1.25, 7)  # then around what was found


@dataclass(frozen=True)
class Sums:
    """What is known of the items: z, S and D of (1) and (2), each (n,)."""

    z: NDArray[np.float64]
    S: NDArray[np.float64]
    D: NDArray[np.float64]


class FeaturePrior:
    """(1), learned anew whenever more is known.

    Parameters
    ----------
    n : int
        Number of items.
    X : (n, k) or None
        Public features of all items, NaN where they are not known.
    popularity : (n,) or None
        Another feature, of released numbers.

    Attributes
    ----------
    F : (n, K), the features of (1): a constant, which has half of the weight, and those given;
        none if none are given
    explained : ω over what T usually is
    variance : T
    """

    def __init__(
        self,
        n: int,
        X: NDArray[np.float64] | None = None,
        popularity: NDArray[np.float64] | None = None,
    ) -> None:
        given = [X, None if popularity is None else popularity[:, None]]
        parts = [standardize(part) for part in given if part is not None]
        columns = (
            [np.ones((n, 1)), *(part / np.sqrt(len(parts)) for part in parts)]
            if parts
            else [np.zeros((n, 0))]
        )
        self.F = np.hstack(columns) / np.sqrt(2.0)
        self.explained = EXPLAINED[3] if parts else 0.0
        self.variance = 0.0

    def settle(self, sums: Sums, usual: float, unit: float) -> NDArray[np.float64]:
        """Posterior means of x.

        Parameters
        ----------
        sums : of all items
        usual : T, as it usually is
        unit : T is at most this
        """
        T = self._vary(sums, COARSE * unit, usual)
        for finer in FINER:
            B = self.explain(sums, T, usual)
            T = self._vary(sums, np.minimum(finer * T, unit), usual)
        self.variance = T
        mean = self.F @ B
        return np.asarray(mean + sums.S * (sums.z - sums.S * mean) / (sums.S**2 + sums.D / T))

    def _vary(self, sums: Sums, grid: NDArray[np.float64], usual: float) -> float:
        """T, which is one of these or between them."""
        fits = [likelihood(sums, self.F, one, self.explained * usual)[0] for one in grid]
        before = -0.5 * (np.log(grid / usual) / SPREAD) ** 2
        return float(_weights(np.array(fits) + before) @ grid)

    def explain(self, sums: Sums, T: float, usual: float) -> NDArray[np.float64]:
        """b, and with it ω."""
        if not self.F.shape[1]:
            return np.zeros(0)
        grid = np.array([0.0, *EXPLAINED])
        found = [likelihood(sums, self.F, T, one * usual) for one in grid]
        before = np.append(0.0, np.full(len(EXPLAINED), -math.log(len(EXPLAINED))))
        weights = _weights(np.array([score for score, _ in found]) + before)
        self.explained = float(weights @ grid)
        return np.asarray(sum(weight * b for weight, (_, b) in zip(weights, found, strict=True)))


def _weights(score: NDArray[np.float64]) -> NDArray[np.float64]:
    likely = np.exp(score - score.max())
    return np.asarray(likely / likely.sum())


@np.errstate(over="ignore")
def standardize(X: NDArray[np.float64], most: int = 64) -> NDArray[np.float64]:
    """Features (n, k) with average 0 and squared norm 1 on average, every one of the same weight.

    What is not known is the average. More than `most` columns become their first principal
    components.
    """
    known = np.isfinite(X)
    Z = np.where(known, X, 0.0)
    Z = np.where(known, Z - Z.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 0.0)
    spread = np.sqrt((Z**2).mean(axis=0))
    varies = spread > 1e-9 * np.maximum(
        np.abs(np.where(known, X, 0.0)).max(axis=0, initial=0.0), 1e-300
    )
    Z = Z[:, varies] / spread[varies]
    if Z.shape[1] > most:
        U, s, _ = np.linalg.svd(Z, full_matrices=False)
        Z = U[:, :most] * s[:most]
    scaled: NDArray[np.float64] = Z / max(float(np.sqrt((Z**2).sum() / max(len(Z), 1))), 1e-12)
    return scaled


def likelihood(
    sums: Sums, F: NDArray[np.float64], T: float, omega: float
) -> tuple[float, NDArray[Any]]:
    """Logarithm of the likelihood of the sums under (1), up to a constant, and b (K,) of (3)."""
    variance = sums.D + T * sums.S**2
    score = -float((np.log(variance) + sums.z**2 / variance).sum())
    if omega <= 0 or not F.shape[1]:
        return score / 2, np.zeros(F.shape[1])
    M = (F * (sums.S**2 / variance)[:, None]).T @ F + np.eye(F.shape[1]) / omega
    L = np.linalg.cholesky(M)
    x = np.linalg.solve(L, F.T @ (sums.S * sums.z / variance))
    score += float((x**2).sum() - 2 * np.log(np.diag(L)).sum()) - F.shape[1] * math.log(omega)
    return score / 2, np.asarray(np.linalg.solve(L.T, x))
