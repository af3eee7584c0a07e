"""Estimates of what released numbers were before the noise, whose deviation is known.

Counts are not negative, and most catalogs have few popular items and many rare ones. How many of
each there are is read off all noisy counts together, as a mixture over sizes (Kiefer and Wolfowitz,
1956; Robbins, 1956), and then each count is shrunk toward what is likely.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIZES = 60  # of the mixture
ROUNDS = 60
WIDTH = 0.12  # of a size, relative to it, so that exact counts stay as they are


class Noisy(NamedTuple):
    """A released array, and the deviation of the noise on its entries."""

    value: NDArray[np.float64]
    deviation: float

    def scale(self, factor: float) -> Noisy:
        """Return both times a public number."""
        return Noisy(factor * self.value, abs(factor) * self.deviation)

    def average(self, other: Noisy | None) -> Noisy:
        """Return the mean of two releases of the same array, each counted by its noise."""
        if other is None:
            return self
        a, b = self.deviation**-2, other.deviation**-2
        return Noisy((a * self.value + b * other.value) / (a + b), (a + b) ** -0.5)


def likely_counts(noisy: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return posterior means of counts c ≥ 0 from c + N(0, variance), each with its own variance.

    Parameters
    ----------
    noisy, variance : (n,)
    """
    size = np.append(0.0, np.geomspace(0.05, max(1.2 * float(noisy.max(initial=0.0)), 10.0), SIZES))
    own = (WIDTH * size) ** 2
    z = noisy[:, None]
    v = np.maximum(variance, 1e-12)[:, None]
    total = v + own
    fit = -0.5 * (z - size) ** 2 / total - 0.5 * np.log(total)
    fit = np.exp(fit - fit.max(axis=1, keepdims=True))
    share = np.full(len(size), 1 / len(size))
    for _ in range(ROUNDS):
        belongs = fit * share
        belongs /= belongs.sum(axis=1, keepdims=True)
        share = 0.98 * belongs.mean(axis=0) + 0.02 / len(size)
    belongs = fit * share
    belongs /= belongs.sum(axis=1, keepdims=True)
    mean: NDArray[np.float64] = (belongs * (z * own + size * v) / total).sum(axis=1)
    return np.maximum(mean, 0.0)


def shrunk_ratio(total: float, weight: float, deviation: float, spread: float = 0.5) -> float:
    """Estimate 1 + x from total = weight · x + N(0, deviation²) with x ~ N(0, spread²).

    It is near 1 where the noise is larger than the total, and between 1/16 and 4 everywhere.
    """
    weight = max(weight, 0.0)
    x = weight * total * spread**2 / max(weight**2 * spread**2 + deviation**2, 1e-300)
    return float(np.clip(1 + x, 1 / 16, 4.0))


def log_counts(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return logarithms of counts with mean 0 over ratings."""
    x = np.log(np.maximum(counts, 0.1))
    return np.asarray(x - np.average(x, weights=counts))
