"""What is personal without a factor, and the prior of it: the state of a training between releases.

`Personal` holds the variances of model (1) of `residual_gradient` and makes the public columns that
users solve with; `Biases` holds what all sums say of the biases. Both see released numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.models._empirical_bayes import shrunk_ratio
from discreet.models.dpmf.feature_prior import FeaturePrior, Sums
from discreet.privacy.statistics.user_effects import (
    MOST,
    FitMoments,
    LeaveOneOutGains,
    PriorMoments,
)
from discreet.privacy.users.sealed_users import Users
from discreet.privacy.users.steps import ComputeResiduals, Solve

FIRST = {"prior_count": 3.0, "slope": 0.05, "taste": 0.01}  # before anything has been released
LIMITS = {"prior_count": (0.2, 50.0), "slope": (1e-4, 2.0), "taste": (1e-4, 0.5)}
CUT = 0.9  # G over σ
USUAL_BIASES = 0.2  # variance of biases over σ²
ENOUGH = 100_000  # users to compare ranks by
USUAL_CUT = 0.85  # what a cut of that size leaves


class PopulationStats(NamedTuple):
    """How many users there are, how many items they have rated on average, their mean, and its
    variance by noise.
    """

    users: float
    per_user: float
    center: float
    unsure: float


class UserEffects:
    """σ² and the variances of the coefficients that are users' own.

    Parameters
    ----------
    given : dict
        ``regularization``, ``prior_count``, ``slope`` and ``taste``: numbers, or words for what is
        to be estimated.
    variance : float
        σ² to begin with.
    largest : float
        G to begin with.
    crowd : Crowd
    popular : (n_items,)
        ℓ: mean 0 and mean square 1 over ratings.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        variance: float,
        largest: float,
        crowd: PopulationStats,
        popular: NDArray[np.float64],
    ) -> None:
        self.variance = variance
        self.largest = largest
        self.left = USUAL_CUT
        self._crowd = crowd
        self._popular = popular
        self._ridge = (
            None if isinstance(given["regularization"], str) else float(given["regularization"])
        )
        self._fixed = {name: not isinstance(given[name], str) for name in FIRST}
        first = FIRST | {"prior_count": variance / (variance / FIRST["prior_count"] + crowd.unsure)}
        self._now = {
            name: float(given[name]) if self._fixed[name] else first[name] for name in FIRST
        }

    @property
    def ridge(self) -> float:
        """λ."""
        return self.variance if self._ridge is None else self._ridge

    @property
    def prior_count(self) -> float:
        """κ."""
        return self._now["prior_count"]

    @property
    def values(self) -> dict[str, float]:
        """All that reading out needs, and what people may want to know."""
        return {"noise_variance": self.variance, "ridge": self.ridge, **self._now}

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [
            name for name in ("slope", "taste") if not (self._fixed[name] and self._now[name] == 0)
        ]

    def columns(self, bias: NDArray[np.float64]) -> NDArray[np.float64]:
        """b and ℓ, so large that a coefficient of variance σ²/λ is the prior of (1); (n_items,
        0 to 2).
        """
        scale = math.sqrt(self.ridge)
        made = {
            "slope": bias * math.sqrt(self._now["slope"] * self.ridge / self.variance),
            "taste": self._popular * scale * math.sqrt(self._now["taste"]),
        }
        return np.array([made[name] for name in self.names]).T.reshape(len(bias), len(self.names))

    def solve(
        self,
        users: Users,
        V: NDArray[np.float64],
        bias: NDArray[np.float64],
        intercept: float = 0.0,
    ) -> NDArray[np.float32]:
        """Every user solves and looks; returns the columns that it did so with, learned ones
        last.
        """
        A = np.ascontiguousarray(np.hstack([self.columns(bias), V]), np.float32)
        users.apply(
            Solve(
                A,
                self.ridge,
                bias=bias,
                intercept=intercept,
                center=self._crowd.center,
                prior_count=self.prior_count,
                first=A.shape[1] - V.shape[1],
                stretch=True,
            )
        )
        users.apply(ComputeResiduals(A, self.largest, bias, relative=True))
        return A

    # ------------------------------------------------------------ what users are asked about it

    def prior_moments(self, A: NDArray[np.float32]) -> PriorMoments:
        return PriorMoments(A, self.ridge, self._crowd.center, self.prior_count, self.variance)

    def fit_moments(self) -> FitMoments:
        return FitMoments(
            4 * self.variance, self.variance / self.ridge, self.prior_count, self.largest
        )

    def leave_one_out_gains(
        self, V: NDArray[np.float64], bias: NDArray[np.float64], ranks: tuple[int, ...], many: float
    ) -> LeaveOneOutGains:
        own = self.columns(bias)
        A = np.ascontiguousarray(np.hstack([own, V]), np.float32)
        center, kappa = self._crowd.center, self.prior_count
        part = min(1.0, ENOUGH / self._crowd.users)
        return LeaveOneOutGains(
            A, self.ridge, center, kappa, bias, own.shape[1], ranks, self.variance, many, part
        )

    def learn_prior(self, released: NDArray[np.float64], deviation: float) -> None:
        """Variances by what was released of `prior_moments`, as far as noise allows."""
        for name, t, s in zip([*self.names, "prior_count"], *released, strict=True):
            ratio = shrunk_ratio(MOST * float(t), float(s), MOST * deviation)
            if not self._fixed[name]:
                power = -1 if name == "prior_count" else 1
                self._now[name] = float(np.clip(self._now[name] * ratio**power, *LIMITS[name]))

    def learn_fit(self, released: NDArray[np.float64], deviation: float) -> None:
        """σ², G, and what the cut left, by what was released of `fit_moments`, as far as noise
        allows.
        """
        square, free, left = map(float, released)
        free = min(max(free, 0.0), self._crowd.users)
        self.variance *= shrunk_ratio(4 * square - free, free, math.sqrt(17) * deviation)
        trust = 1 / (1 + (10 * deviation / self._crowd.users) ** 2)
        found = USUAL_CUT + trust * (left / self._crowd.users - USUAL_CUT)
        self.left = float(np.clip(found, 0.2, 1.0))

    def cut_again(self) -> None:
        """G for what is looked at next."""
        self.largest = CUT * math.sqrt(self.variance)


class ItemBiases:
    """Item biases: what all sums say about them, averaged by the known noise.

    Parameters
    ----------
    c : (n_items,), counts in the weights of the sums
    popular : (n_items,), how many ratings there will be of each, relative to others
    heavy : what an average rating weighs
    largest : of the deviation of biases
    prior : what they are like, and how much they differ
    """

    def __init__(
        self,
        c: NDArray[np.float64],
        popular: NDArray[np.float64],
        heavy: float,
        largest: float,
        prior: FeaturePrior,
    ) -> None:
        self._c = c
        self._p = popular / popular.sum()
        self._heavy = heavy
        self._largest = largest
        self._prior = prior
        self._sums: list[tuple[NDArray[np.float64], float]] = []
        self.now: NDArray[np.float64] = np.zeros(len(c))

    def add(self, g: NDArray[Any], deviation: float, first: float, personal: UserEffects) -> None:
        """Noisy sums of residuals times `first`, which every user has; the cut is made up for."""
        gain = first * personal.left
        self._sums.append((self._c * self.now - g / gain, (deviation / gain) ** 2))

    def settle(self, personal: UserEffects, moving: bool = False) -> None:
        """The biases that all sums together say; where all else is `moving`, earlier sums count
        for less.
        """
        last, noise = self._sums[-1]
        weights = [
            1 / (v + self._c**2 * (drift(z - last, v + noise, self._c) if moving else 0.0))
            for z, v in self._sums
        ]
        precision = np.sum(weights, axis=0)
        z = sum(weight * z for weight, (z, _) in zip(weights, self._sums, strict=True)) / precision
        sums = Sums(z, self._c, 1 / precision + self._heavy * personal.variance * self._c)
        usual = min(USUAL_BIASES * personal.variance, self._largest**2)
        self.now = self._prior.settle(sums, usual, self._largest**2)

    def error(self, deviation: float, personal: UserEffects) -> float:
        """Mean square error of the biases at a rating, from counts alone, if their sums had
        that noise.
        """
        tau = self._prior.variance
        noise = (deviation / personal.left) ** 2 + self._heavy * personal.variance * self._c
        return float((self._p * tau / (1 + tau * self._c**2 / noise)).sum())


def drift(apart: NDArray[np.float64], noise: float, c: NDArray[np.float64]) -> float:
    """Variance of x from apart = c x + N(0, noise), as far as it stands out by more than its
    standard error.

    Sums that were taken before factors were there, or were others, are about biases that were
    others: who rates an item may be who likes it.
    """
    total = float((c**4).sum())
    found = float((c**2 * (apart**2 - noise)).sum()) / total
    return max(found - noise * math.sqrt(2 / total), 0.0)
