"""How much one user may contribute: the numbers that every sensitivity is made of.

A bound is not assumed of the data, it is imposed on them: `discreet.privacy.sealed` cuts down whatever exceeds it when
data are sealed or a user's vector is formed. All of them are public parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from discreet.errors import ConfigError


@dataclass(frozen=True)
class Bounds:
    """Bounds on one user.

    Parameters
    ----------
    items : int, optional
        k: a user contributes through at most this many items. None: through all, which needs `weight`.
    weight : float, optional
        B: the weights of a user's contributions have Σ_j w_ij² ≤ B. With weights of 1, B = k, and that is the default.
    rating : float, optional
        Γ_M: centred ratings are cut to [−Γ_M, Γ_M]. None: ratings are not used, every value counts as 1 (implicit).
    centre : float or "user"
        What is subtracted from ratings before they are cut: a public constant, or each user's own mean (which only that
        user computes, so it costs nothing).
    prior_mean, prior_count : float
        A user's own mean counts `prior_count` ratings of the public value `prior_mean` as well, so that one rating does
        not make a mean.
    norm : float
        Γ_u: a user's vector is cut to this ℓ₂ norm.
    norm_l1 : float, optional
        If given, it is also cut to this ℓ₁ norm (for Laplace and Huber noise).
    """

    items: int | None = None
    weight: float | None = None
    rating: float | None = None
    centre: float | Literal["user"] = 0.0
    prior_mean: float = 0.0
    prior_count: float = 0.0
    norm: float = 1.0
    norm_l1: float | None = None

    def __post_init__(self) -> None:
        if self.items is None and self.weight is None:
            raise ConfigError("bounds need items (how many a user contributes through) or weight (Σ w² of a user)")
        if self.items is not None and not (isinstance(self.items, int) and self.items >= 1):
            raise ConfigError(f"items is {self.items!r}, but must be a whole number of at least 1")
        for name in ("weight", "rating", "norm", "norm_l1"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value!r}, but must be positive and finite")
        if not self.prior_count >= 0 or not math.isfinite(self.prior_mean):
            raise ConfigError("prior_count must be at least 0 and prior_mean finite")
        if self.centre != "user" and not (isinstance(self.centre, (int, float)) and math.isfinite(self.centre)):
            raise ConfigError(f"centre is {self.centre!r}, but must be a finite number or 'user'")

    @property
    def squared_weight(self) -> float:
        """B."""
        return float(self.weight if self.weight is not None else self.items or 0)

    def weight_sum(self, n_items: int) -> float:
        """The most that Σ_j w_ij can be: √(k B) by Cauchy and Schwarz, which is k for weights of 1."""
        k = n_items if self.items is None else min(self.items, n_items)
        return math.sqrt(k * self.squared_weight)

    @property
    def value(self) -> float:
        """The largest absolute value of a contribution's rating."""
        return 1.0 if self.rating is None else self.rating

    def vector_l1(self, rank: int) -> float:
        """The most that the ℓ₁ norm of a vector can be."""
        most = math.sqrt(rank) * self.norm
        return most if self.norm_l1 is None else min(most, self.norm_l1)
