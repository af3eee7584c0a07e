"""Sums for linear regressions over users' rows: XᵀX, XᵀY and the moments of the targets.

User i has rows (x_t, y_t) with p features and m targets, t = 1, …, n_i. Features are cut to
‖x_t‖ ≤ B and targets to ‖y_t‖ ≤ C. A row weighs c_i = min(1, k/n_i), so that a user counts as at
most k rows, whatever their number. For B, C and k public:

    statistic                               remove, ℓ₂   replace, ℓ₂   remove, ℓ₁       one entry
    feature Gram matrix  Σ c x xᵀ           k B²         √2 k B²       k B² (p + 1)/2   k B²
    cross products       Σ c x yᵀ           k B C        2 k B C       k B C √(p m)     k B C
    row moments          Σ c (C², y ∘ y)    √2 k C²      2 k C²        2 k C²           k C²

Proof. The weights of a user add up to at most k, and norms are subadditive, so it is enough to
bound one row of weight 1: ‖x xᵀ‖ = ‖x‖² ≤ B², ‖x yᵀ‖ = ‖x‖ ‖y‖ ≤ B C, and ‖(C², y ∘ y)‖² ≤ C⁴ +
‖y‖⁴ ≤ 2 C⁴. In ℓ₁, the upper triangle of x xᵀ has (‖x‖₁² + ‖x‖₂²)/2 ≤ (p + 1) B²/2, products have
‖x‖₁ ‖y‖₁ ≤ √p B √m C, and moments C² + ‖y‖². Gram matrices and moments have inner products that
are never negative, which gives √2 for a replaced user, and signed products 2 (`sums`). All of the
ℓ₂ bounds are reached: by one long row, and by two users without a common direction, or with
opposite targets. On a grid, factors are rounded toward zero to multiples of its root, and moments
themselves, so that no norm grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    gram_of_users,
    register,
    sums_of_rows,
    total_of_users,
    triangle_size,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound

#: State of users who were sealed with rows of numbers (`seal_rows`).
ROWS = "rows"


@dataclass(frozen=True)
class RegressionSum(Statistic):
    """Base of the sums: how rows are cut and weighed.

    Parameters
    ----------
    n_features : int
        p; the other columns of the users' rows are targets.
    feature_norm, target_norm : float
        B and C.
    max_rows : int
        k.
    """

    n_features: int
    feature_norm: float
    target_norm: float
    max_rows: int = 1

    def check(self, public: Public) -> None:
        if not 0 < self.n_features < public.n_items:
            raise ConfigError(
                f"n_features is {self.n_features}, but users have rows of {public.n_items} numbers"
            )
        check_bound("feature_norm", self.feature_norm)
        check_bound("target_norm", self.target_norm)
        check_bound("max_rows", self.max_rows)

    def n_targets(self, public: Public) -> int:
        """Return m."""
        return public.n_items - self.n_features

    def features(self, block: Block) -> NDArray[np.float64]:
        """Return √c x of every row, cut to B."""
        return self._weigh(block, block[ROWS][:, : self.n_features], self.feature_norm)

    def targets(self, block: Block) -> NDArray[np.float64]:
        """Return √c y of every row, cut to C."""
        return self._weigh(block, block[ROWS][:, self.n_features :], self.target_norm)

    def _weigh(self, block: Block, rows: NDArray[np.float64], most: float) -> NDArray[np.float64]:
        counts = np.maximum(block.counts, 1)
        weight = np.repeat(np.minimum(1.0, self.max_rows / counts), block.counts)
        length = np.sqrt((rows**2).sum(axis=1))
        scale = SHAVE * np.minimum(1.0, most / np.maximum(length, 1e-300))
        found: NDArray[np.float64] = rows * (np.sqrt(weight) * scale)[:, None]
        return found


@register("feature Gram matrix")
@dataclass(frozen=True)
class FeatureGram(RegressionSum):
    """Σ c x xᵀ over all rows, as one packed upper triangle; the module has the proof."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1, triangle_size(self.n_features))

    def reach(self, public: Public) -> SensitivityBounds:
        l2 = self.max_rows * self.feature_norm**2
        return SensitivityBounds(l2, l2 * (self.n_features + 1) / 2, l2, 2**0.5)

    def symmetric(self, public: Public) -> int | None:
        return self.n_features

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return gram_of_users(self.features(block), grid)


@register("feature-target products")
@dataclass(frozen=True)
class CrossProducts(RegressionSum):
    """Σ c x yᵀ over all rows, (n_features, n_targets); the module has the proof."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (self.n_features, self.n_targets(public))

    def reach(self, public: Public) -> SensitivityBounds:
        l2 = self.max_rows * self.feature_norm * self.target_norm
        l1 = l2 * math.sqrt(self.n_features * self.n_targets(public))
        return SensitivityBounds(l2, l1, l2, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        X = self.features(block)
        Y = self.targets(block)
        if grid is None:
            return lambda rows: X[:, rows].T @ Y
        X = np.trunc(X / grid**0.5)
        Y = np.trunc(Y / grid**0.5)
        parts = list(integer_sums.chunks(len(X)))
        return lambda rows: sum((X[part, rows].T @ Y[part]).astype(np.int64) for part in parts)


@register("row moments")
@dataclass(frozen=True)
class RowMoments(RegressionSum):
    """C² times the number of rows, and Σ c y² of each target, (1 + n_targets,); see the module."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1 + self.n_targets(public),)

    def reach(self, public: Public) -> SensitivityBounds:
        entry = self.max_rows * self.target_norm**2
        return SensitivityBounds(2**0.5 * entry, 2 * entry, entry, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        counted = np.minimum(block.counts, self.max_rows) * (SHAVE * self.target_norm**2)
        squares = [sums_of_rows(block.indptr, column) for column in (self.targets(block) ** 2).T]
        return total_of_users(np.column_stack([counted, *squares]), grid)
