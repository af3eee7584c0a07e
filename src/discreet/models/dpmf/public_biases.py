"""Item biases of public users as a prior for released ones, its worth estimated from released sums.

Public users give the mean residual r_j of their n_j ratings, after their own levels, with variance
u_j = σ²/n_j. What is released of private users is x_j = b_j + N(0, e_j). With weights
w_j = 1/(e_j + u_j) and both centered by their weighted means,

    r_j = β b_j + N(0, u_j + τ²),  X = Σ w x r,  V = Σ w (x² − e),  β = X/V,
    τ² = Σ w ((r − β x)² − u − β² e)/Σ w                                                         (1)

V is at least X²/Σ w (r² − u), by Cauchy and Schwarz. So r_j/β is one more measurement of b_j, with
variance (u_j + τ²)/β². Where X does not stand out of its noise it is not used: a public set that
says nothing costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models.dpmf.feature_prior import Sums
from discreet.privacy.users.public_users import PublicUsers

Z_SHARED = 3.0  # standard errors of X from which on public biases are used
ROUNDS = 10  # of levels and biases in turn; later ones change nothing
LEVEL = 3.0  # ratings at the center that a public user's level starts with
SHRINK = 5.0  # ratings at 0 that a bias starts with, while levels are found


class _Found(NamedTuple):
    """Items that both have, with u, r, β, τ² and the mean of x of (1)."""

    known: NDArray[np.bool_]
    u: NDArray[np.float64]
    r: NDArray[np.float64]
    beta: float
    tau: float
    shift: float


@dataclass(frozen=True)
class PublicBiases:
    """Mean residuals of public users by item.

    Parameters
    ----------
    mean : (n_items,)
        r, 0 for items that they have not rated.
    many : (n_items,)
        Their number of ratings.
    variance : float
        σ², of one residual.
    """

    mean: NDArray[np.float64]
    many: NDArray[np.float64]
    variance: float

    @classmethod
    def from_users(cls, users: PublicUsers) -> PublicBiases:
        block = users.block
        y = block.values.astype(np.float64)
        row = block.row
        n = users.n_items
        y = y - (y.mean() if len(y) else 0.0)
        each = np.bincount(row, minlength=block.n)
        many = np.bincount(block.indices, minlength=n).astype(np.float64)
        bias = np.zeros(n)
        left = y
        for _ in range(ROUNDS):
            off = y - bias[block.indices]
            level = np.bincount(row, off, minlength=block.n) / (each + LEVEL)
            left = y - level[row]
            bias = np.bincount(block.indices, left, minlength=n) / (many + SHRINK)
        total = np.bincount(block.indices, left, minlength=n)
        spread = float(((left - bias[block.indices]) ** 2).mean()) if len(y) else 1.0
        return cls(total / np.maximum(many, 1.0), many, max(spread, 1e-12))

    def combine(self, sums: Sums) -> Sums:
        """Return the sums with these biases as one more measurement, by (1)."""
        found = self._compare(sums)
        if found is None:
            return sums
        known, u, r, beta, tau, shift = found
        S = sums.S[known]
        variance = np.full(len(sums.z), np.inf)
        variance[known] = S**2 * (u + max(tau, 0.0)) / beta**2
        value = np.zeros(len(sums.z))
        value[known] = S * (r / beta + shift)
        D = 1 / (1 / sums.D + 1 / variance)
        return Sums(D * (sums.z / sums.D + value / variance), sums.S, D)

    def agree(self, sums: Sums) -> bool:
        """Tell whether these biases have something in common with released ones."""
        return self._compare(sums) is not None

    def _compare(self, sums: Sums) -> _Found | None:
        known = (self.many > 0) & (sums.S > 0)
        if known.sum() < 3:
            return None
        S = sums.S[known]
        x = sums.z[known] / S
        e = sums.D[known] / S**2
        u = self.variance / self.many[known]
        w = 1 / (e + u)
        shift = float((w * x).sum() / w.sum())
        x = x - shift
        r = self.mean[known] - float((w * self.mean[known]).sum() / w.sum())
        shared = float((w * x * r).sum())
        error = math.sqrt(float((w**2 * e * r**2).sum()))
        signal = float((w * (r**2 - u)).sum())
        if shared < Z_SHARED * error or signal <= 0:
            return None
        power = max(float((w * (x**2 - e)).sum()), shared**2 / signal)
        beta = shared / power
        tau = float((w * ((r - beta * x) ** 2 - u - beta**2 * e)).sum() / w.sum())
        return _Found(known, u, r, beta, tau, shift)
