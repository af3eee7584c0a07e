"""Per-user effects (level, slope on item bias, slope on popularity) and their prior variances.

Every user solves for its own effects by ridge regression on public columns: the released biases
and popularity, and the item factors. The prior of that solve is estimated from released moments
(`PriorMoments`, `FitMoments`) and is the same in training and when a history is folded in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from discreet.models._empirical_bayes import Noisy, shrunk_ratio
from discreet.models.dpmf.population import Population
from discreet.privacy.statistics.bounds import SMALLEST
from discreet.privacy.statistics.user_effects import (
    MOST,
    FitMoments,
    LeaveOneOutGains,
    PriorMoments,
)
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import ComputeResiduals, Solve

FIRST = {"slope": 0.05, "taste": 0.01, "level": 1 / 3}  # variances before any release
#: What noise may make of these at most, so that no effect vanishes or dominates.
LIMITS = {"slope": (1e-4, 2.0), "taste": (1e-4, 0.5), "level": (0.02, 5.0)}
SLOPES = ("slope", "taste")
CUT = 0.9  # G over σ: a smaller cut loses signal, a larger one adds noise
#: σ² over its first value, at least: where all ratings agree, every update divides it, and λ = σ²
#: would leave the range that a ridge may have.
LEAST_NOISE = 1e-6
CHECKED_USERS = 100_000  # enough to compare factors by; more would only take time


@dataclass(frozen=True)
class UserPrior:
    """The variances of (1) of `rating`, as the releases so far say.

    Parameters
    ----------
    population : Population
    popularity : (n_items,)
        ℓ, with mean 0 over ratings.
    variance : float
        σ², the noise variance of a rating.
    variances : dict
        Of the slopes on bias (``"slope"``) and, over σ², on popularity (``"taste"``), unless they
        are left out; last, over σ², of levels (``"level"``).
    fixed : frozenset of str
        Those that are given, not estimated.
    regularization : float, optional
        λ, if it is given; else it is σ².
    least_variance : float
        What σ² is not estimated below.
    """

    population: Population
    popularity: NDArray[np.float64]
    variance: float
    variances: dict[str, float]
    fixed: frozenset[str]
    regularization: float | None = None
    least_variance: float = SMALLEST

    @property
    def ridge(self) -> float:
        """λ."""
        return self.variance if self.regularization is None else self.regularization

    @property
    def prior_count(self) -> float:
        """κ: how many ratings at the center a user's level starts with."""
        return 1 / self.variances["level"]

    @property
    def n_slopes(self) -> int:
        """Return the columns of the user effects, which precede the factors."""
        return len(self.variances) - 1

    @property
    def cut(self) -> float:
        """G, the norm that a user's weighted residuals are clipped to."""
        return CUT * math.sqrt(self.variance)

    def columns(self, bias: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return b and ℓ, scaled so that coefficients of variance σ²/λ are the prior of (1)."""
        unit = math.sqrt(self.ridge)
        made = {"slope": bias * unit / math.sqrt(self.variance), "taste": self.popularity * unit}
        kept = [
            made[name] * math.sqrt(self.variances[name])
            for name in SLOPES
            if name in self.variances
        ]
        return np.array(kept).T.reshape(len(bias), len(kept))

    def solve(
        self,
        users: Users,
        V: NDArray[np.float64],
        bias: NDArray[np.float64],
        intercept: float = 0.0,
    ) -> NDArray[np.float32]:
        """Let every user solve and compute its residuals; return the columns, factors last."""
        A = self._stack(V, bias)
        users.apply(
            Solve(
                A,
                self.ridge,
                bias=bias,
                intercept=intercept,
                center=self.population.center,
                prior_count=self.prior_count,
                first=self.n_slopes,
                stretch=True,
            )
        )
        users.apply(ComputeResiduals(A, self.cut, bias, relative=True))
        return A

    def prior_moments(self, A: NDArray[np.float32]) -> PriorMoments:
        """Return the statistic that says how large users' own coefficients are."""
        center = self.population.center
        return PriorMoments(A, self.ridge, center, self.prior_count, self.variance)

    def residual_moments(self) -> FitMoments:
        """Return the statistic that says how large residuals are."""
        return FitMoments(4 * self.variance, self.variance / self.ridge, self.prior_count)

    def leave_one_out_gains(
        self,
        V: NDArray[np.float64],
        bias: NDArray[np.float64],
        ranks: tuple[int, ...],
        unit: float = 1.0,
    ) -> LeaveOneOutGains:
        """Return the statistic that compares ranks of V, with squares of ratings over `unit`."""
        return LeaveOneOutGains(
            self._stack(V, bias),
            self.ridge,
            self.population.center,
            self.prior_count,
            bias,
            self.n_slopes,
            ranks,
            unit,
            max(2 * self.population.per_user, 1.0),
            min(1.0, CHECKED_USERS / self.population.users),
        )

    def update_variances(self, released: Noisy) -> UserPrior:
        """Return the prior with variances by released `prior_moments`, as far as noise allows."""
        found = dict(self.variances)
        for name, t, s in zip(self.variances, *released.value, strict=True):
            if name not in self.fixed:
                ratio = shrunk_ratio(MOST * float(t), float(s), MOST * released.deviation)
                found[name] = float(np.clip(found[name] * ratio, *LIMITS[name]))
        return replace(self, variances=found)

    def update_noise(self, released: Noisy) -> UserPrior:
        """Return the prior with σ² by the released `residual_moments`, as far as noise allows."""
        square, free = map(float, released.value)
        free = min(max(free, 0.0), self.population.users)
        ratio = shrunk_ratio(4 * square - free, free, math.sqrt(17) * released.deviation)
        # equal ratings shrink σ² at each step, and statistics refuse bounds below SMALLEST
        return replace(self, variance=max(self.variance * ratio, self.least_variance))

    def _stack(self, V: NDArray[np.float64], bias: NDArray[np.float64]) -> NDArray[np.float32]:
        return np.ascontiguousarray(np.hstack([self.columns(bias), V]), np.float32)
