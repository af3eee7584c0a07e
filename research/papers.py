"""The papers' tables as events that any accountant can price.

DPALS, Algorithm 1 with the pre-processing of Algorithm 2, for users with at most k ratings and Γ_u
= 1. In units of the L2 sensitivity, the noise that the paper adds is

1. T times the item Gram matrices, √k·Γ_u² apart:                     z = σ_G / √k
2. T times the item right-hand sides, √k·Γ_u·Γ_M apart:               z = σ_g / √k
3. twice the item counts, √k apart (Algorithm 2 makes two):           z = σ_p / √k
4. the sum and the number of ratings for centering, as priced there:   z = σ_p each

so that μ² = kT(1/σ_G² + 1/σ_g²) + (2k + 2)/σ_p². Under the papers' conversion this gives the labels
of Table 4; the printed Theorem 1 forgets one of the first two. A user
changes sum and number by k rather than √k (erratum 3): `events_with_centering` prices line 4 so. K̃,
the noisy Σuuᵀ of the last block, adds 0.3 to 0.5 % to ε and cannot be inferred from the labels.

Huber, Table 1: the ε at which noise of a given variance hides a sensitivity of 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.privacy.accounting.mechanisms import Huber, Laplace
from discreet.privacy.accounting.pricing import Event


@dataclass(frozen=True)
class DpalsColumn:
    """One column of Table 4 of the DPALS supplement; ``label`` is the ε printed above it."""

    data: str
    label: float
    factors: int
    iterations: int
    max_items: int
    sigma_gram: float
    sigma_rhs: float
    sigma_counts: float
    delta: float = 1e-5

    def events(self) -> list[Event]:
        """The releases that were made, each with its noise multiplier."""
        root = math.sqrt(self.max_items)
        return [
            Event("gaussian", self.sigma_gram / root, self.iterations),
            Event("gaussian", self.sigma_rhs / root, self.iterations),
            Event("gaussian", self.sigma_counts / root, 2),
            Event("gaussian", self.sigma_counts, 2),
        ]

    def events_with_centering(self) -> list[Event]:
        """The same with centering priced by k: z = σ_p / √k in line 4."""
        *others, centering = self.events()
        return [*others, centering.scale(1 / math.sqrt(self.max_items))]

    def events_as_printed(self) -> list[Event]:
        """The same as Theorem 1 prints it, with one Gaussian release per item and step."""
        gram, _, counts, centering = self.events()
        return [gram, counts, centering]


_BINARY_DELTA = 1 / 136_677

DPALS_TABLE_4 = (
    DpalsColumn("ml-10m-top400", 0.8, 50, 2, 40, 126.9, 63.4, 200.0),
    DpalsColumn("ml-10m-top400", 4.0, 50, 2, 50, 29.0, 14.5, 200.0),
    DpalsColumn("ml-10m-top400", 8.0, 50, 2, 50, 11.3, 11.3, 20.0),
    DpalsColumn("ml-10m-top400", 16.0, 50, 2, 50, 5.86, 5.86, 20.0),
    DpalsColumn("ml-10m", 1.0, 32, 2, 50, 125.9, 63.0, 100.0),
    DpalsColumn("ml-10m", 5.0, 128, 2, 50, 27.8, 13.9, 20.0),
    DpalsColumn("ml-10m", 10.0, 128, 2, 50, 15.5, 7.7, 10.0),
    DpalsColumn("ml-10m", 20.0, 128, 2, 50, 7.5, 3.8, 10.0),
    DpalsColumn("ml-20m", 1.0, 32, 1, 60, 64.0, 64.0, 100.0, _BINARY_DELTA),
    DpalsColumn("ml-20m", 5.0, 32, 3, 60, 20.2, 20.2, 100.0, _BINARY_DELTA),
    DpalsColumn("ml-20m", 10.0, 32, 3, 100, 14.0, 14.0, 100.0, _BINARY_DELTA),
    DpalsColumn("ml-20m", 20.0, 128, 1, 60, 3.5, 3.5, 100.0, _BINARY_DELTA),
)


def huber_table_1(
    variance: float, sensitivity: float = 5.0, delta: float = 1e-5
) -> dict[str, float]:
    """One row of Table 1 with the natural logarithm in the Gaussian column.

    That formula is a theorem for ε ≤ 1 only; the exact ε is that of `mechanisms.Gaussian`. Variance
    1 has no finite α; the paper takes α = 3, whose variance is 1.004.
    """
    huber = Huber.with_variance(variance) if variance > 1 else Huber(3.0)
    return {
        "gaussian": gaussian_classic(variance, sensitivity, math.log(1.25 / delta)),
        "laplace": Laplace(math.sqrt(variance / 2)).epsilon(sensitivity),
        "huber": huber.epsilon(sensitivity),
    }


def gaussian_classic(variance: float, sensitivity: float, logarithm: float) -> float:
    """The textbook bound ε = Δ₂ √(2 ln(1.25/δ)) / σ of that column, valid for ε ≤ 1 only."""
    return sensitivity * math.sqrt(2 * logarithm / variance)
