"""Item biases from all released sums of residuals, each counted by its known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from discreet.models._empirical_bayes import Noisy
from discreet.models.dpmf.feature_prior import Sums, estimate
from discreet.models.dpmf.population import Counts
from discreet.models.dpmf.public_biases import PublicBiases

USUAL_VARIANCE = 0.2  # of biases, over σ²: a priori
KEPT = 0.85  # part of the residuals that a cut to 0.9 σ leaves; it hardly differs between data sets


@dataclass(frozen=True)
class ItemBiases:
    """What all sums say about item biases, and the biases that follow.

    Parameters
    ----------
    counts : Counts
    features : (n_items, K)
        f of `feature_prior`.
    largest : float
        Of the deviation of biases.
    now : (n_items,)
        The biases.
    variance : float
        Of biases, beyond what features say.
    sums : tuple
        For each release (z, v), z = c b + N(0, v).
    public : PublicBiases, optional
        What public users say.
    agrees : bool
        Whether that has something in common with what private users say.
    """

    counts: Counts
    features: NDArray[np.float64]
    largest: float
    now: NDArray[np.float64]
    variance: float = 0.0
    sums: tuple[tuple[NDArray[np.float64], float], ...] = ()
    public: PublicBiases | None = None
    agrees: bool = False

    def add(self, g: Noisy, gain: float = 1.0) -> ItemBiases:
        """Return the value with one more release: sums of residuals times `gain`."""
        g = g.scale(1 / (gain * KEPT))
        z = self.counts.weighted * self.now - g.value
        return replace(self, sums=(*self.sums, (z, g.deviation**2)))

    def estimate(self, noise_variance: float, moving: bool = False) -> ItemBiases:
        """Return the value with biases by all sums, for σ² as given.

        Where factors are `moving`, earlier sums count for less.
        """
        c = self.counts.weighted
        last, noise = self.sums[-1]
        weights = [
            1 / (v + c**2 * (drift(z - last, v + noise, c) if moving else 0.0))
            for z, v in self.sums
        ]
        precision = np.sum(weights, axis=0)
        z = sum(weight * z for weight, (z, _) in zip(weights, self.sums, strict=True)) / precision
        sums = Sums(z, c, 1 / precision + self.counts.weight * noise_variance * c)
        agrees = self.public is not None and self.public.agree(sums)
        if self.public is not None:
            sums = self.public.combine(sums)
        largest = self.largest**2
        usual = min(USUAL_VARIANCE * noise_variance, largest)
        now, variance = estimate(sums, self.features, usual, largest)
        return replace(self, now=now, variance=variance, agrees=agrees)

    def expected_error(self, deviation: float, noise_variance: float) -> float:
        """Return the mean square error of biases at a rating, if their sums had that noise."""
        c, p = self.counts.weighted, self.counts.even
        noise = (deviation / KEPT) ** 2 + self.counts.weight * noise_variance * c
        error = self.variance / (1 + self.variance * c**2 / noise)
        return float((p * error).sum() / p.sum())


def drift(apart: NDArray[np.float64], noise: float, c: NDArray[np.float64]) -> float:
    """Estimate the variance of x from apart = c x + N(0, noise), less its standard error.

    Sums from before there were factors are about other biases: users rate what they like.
    """
    total = float((c**4).sum())
    found = float((c**2 * (apart**2 - noise)).sum()) / total
    return max(found - noise * math.sqrt(2 / total), 0.0)
