"""Item biases from noisy sums, with a prior that is learned from all of them together.

Everything here is a function of released sums and public features. What is known of item j is
z_j = S_j x_j + noise, the noise of variance D_j. Features are scaled so that ‖f_j‖² is 1 on
average; a constant and the released popularity are among them:

    x_j = b · f_j + e_j,   b_k ~ N(0, ω),   e_j ~ N(0, T)                                        (1)
    W_j = S_j² / (D_j + T S_j²),   h_j = S_j z_j / (D_j + T S_j²)                                (2)
    b   = (Σ_j W_j f_j f_jᵀ + I / ω)⁻¹ Σ_j h_j f_j                                               (3)

(3) is the posterior mean. Estimates are posterior means over a grid of T and ω as well: T is
log-normal a priori, around what biases usually vary by, and ω is 0 with probability ½, else any of
the grid; it is fixed where popularity is the only feature. The most likely T would be 0 or far too
large where the noise is larger than the signal; the mean stays near the prior there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

STRENGTHS = (0.0, *(0.002 * 4.0 ** np.arange(5)).tolist())  # the grid of ω, over the usual T
POPULARITY = STRENGTHS[4]  # ω of popularity alone: estimating it gained nothing on any data
SPREAD = math.log(3.0)  # prior deviation of log T
# The grids of T, over the largest: factors of 1.19 and, where ω is searched as well, of 1.7.
VARIANCES = np.geomspace(1e-4, 1.0, 55)
FEW_VARIANCES = VARIANCES[::3]
MOST_COLUMNS = 64  # of features; a user's catalog has more items than that, and noise fits more


class Sums(NamedTuple):
    """What is known of the items: z, S and D of (1) and (2), each (n,)."""

    z: NDArray[np.float64]
    S: NDArray[np.float64]
    D: NDArray[np.float64]


def prior_features(
    n: int, X: NDArray[np.float64] | None, popularity: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return f of (1) for n items: a constant, which has half of the weight, and what is given.

    There are no columns if nothing is given.
    """
    given = [X, None if popularity is None else popularity[:, None]]
    parts = [standardize(part) for part in given if part is not None]
    if not parts:
        return np.zeros((n, 0))
    scaled = [part / math.sqrt(len(parts)) for part in parts]
    return np.hstack([np.ones((n, 1)), *scaled]) / math.sqrt(2.0)


def estimate(
    sums: Sums, F: NDArray[np.float64], usual: float, largest: float
) -> tuple[NDArray[np.float64], float]:
    """Return the posterior means of x (n,) and of T.

    Parameters
    ----------
    sums : of all items
    F : (n, K), by `prior_features`
    usual : T a priori
    largest : T at most
    """
    strengths = STRENGTHS if F.shape[1] > 2 else (POPULARITY,)
    variances = VARIANCES if len(strengths) == 1 else FEW_VARIANCES
    grid = [(T, omega) for T in variances * largest for omega in strengths]
    found = [likelihood(sums, F, T, omega * usual) for T, omega in grid]
    score = np.array([score for score, _ in found])
    score -= [0.5 * (math.log(T / usual) / SPREAD) ** 2 for T, _ in grid]
    score -= [math.log(max(len(strengths) - 1, 1)) if omega else 0.0 for _, omega in grid]
    weights = np.exp(score - score.max())
    weights /= weights.sum()
    T = float(weights @ [T for T, _ in grid])
    b = np.sum([weight * b for weight, (_, b) in zip(weights, found, strict=True)], axis=0)
    mean = F @ b
    return mean + sums.S * (sums.z - sums.S * mean) / (sums.S**2 + sums.D / T), T


@np.errstate(over="ignore")
def standardize(X: NDArray[np.float64], most: int = MOST_COLUMNS) -> NDArray[np.float64]:
    """Return features (n, k) with average 0 and squared norm 1 on average, all of the same weight.

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
    """Return the log-likelihood of the sums under (1), up to a constant, and b (K,) of (3)."""
    variance = sums.D + T * sums.S**2
    score = -float((np.log(variance) + sums.z**2 / variance).sum())
    if omega <= 0 or not F.shape[1]:
        return score / 2, np.zeros(F.shape[1])
    M = (F * (sums.S**2 / variance)[:, None]).T @ F + np.eye(F.shape[1]) / omega
    L = np.linalg.cholesky(M)
    x = np.linalg.solve(L, F.T @ (sums.S * sums.z / variance))
    score += float((x**2).sum() - 2 * np.log(np.diag(L)).sum()) - F.shape[1] * math.log(omega)
    return score / 2, np.asarray(np.linalg.solve(L.T, x))
