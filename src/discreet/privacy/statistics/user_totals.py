"""Sums of one row of numbers per user: their count, or values that users measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.errors import ConfigError
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    register,
    total_of_users,
    weigh_by_age,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound


@register("number of users")
@dataclass(frozen=True)
class UserCount(Statistic):
    """Number of users, or with `active` of users with at least one item, shape (1,).

    Replacing a user is charged as if it changed the number of all users, which it does not.
    """

    active: bool = False

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, 1.0, 1.0, 1.0, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        there = (block.counts > 0).astype(np.float64) if self.active else np.ones(block.n)
        return total_of_users(weigh_by_age(block, there), grid)


@register("user values")
@dataclass(frozen=True)
class UserValues(Statistic):
    """Σ_i x_i, x_i being what user i measured, cut to 0 ≤ x_ij ≤ m_j for public `most` m.

    One user adds a point of that box, at most ‖m‖₂ away from nothing in ℓ₂ and ‖m‖₁ in ℓ₁. No two
    points of the box are further apart than that, in either norm, so replacing a user moves the sum
    no further than removing one.
    """

    most: tuple[float, ...]

    def check(self, public: Public) -> None:
        if len(self.most) != public.n_items:
            raise ConfigError(
                f"users measured {public.n_items} numbers, but {len(self.most)} bounds were given"
            )
        for value in self.most:
            check_bound("most", value)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (len(self.most),)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(
            math.hypot(*self.most), math.fsum(self.most), max(self.most), 1.0, 1.0
        )

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        x = np.clip(block["measured"], 0.0, np.asarray(self.most)) * SHAVE
        return total_of_users(x, grid)
