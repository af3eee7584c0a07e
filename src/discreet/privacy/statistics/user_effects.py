"""Sums over users' own ridge regressions, with a prior that is estimated.

From public columns V (some of their own, then r learned ones) and biases b, every user has
coefficients û_i and an offset o_i by its own ridge regression
(`discreet.privacy.users.steps.Solve`), and residuals e_ij = o_i + û_i · v_j + b_j − y_ij, weighted
and cut. Only the direction of the learned coefficients is contributed to gradients: u_i = (ι, √(Γ²
− ι²) û_i/‖û_i‖).

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    prior moments   Σ (t_i/3, s_i)   d of each       √(2d)        5/3 √d        2d   7/3 d         1
    fit moments     Σ (e_i², free_i)                 √2           √2            2            2     1
    solution Gram   Σ ℓ_i ũ_i ũ_iᵀ   ‖ũ_i‖ = 1       1            2     (r+1)/2      twice         1
    residual pairs  Σ √2 x_ij x_ik/q_i  (j < k)      1            2     √(pairs)     twice         1
    left-out gains  Σ w_i d_i/√K, K ranks            1            2     √K           2 √K       1/√K

*Proofs.* Prior moments: −1 ≤ t_i ≤ 3 after the cut and 0 ≤ s_i ≤ 1, so an entry of a user is
between −⅓ and 1, or 0 and 1; exchanging a user moves the first kind by 4/3 at most and the second
by 1, d of each. Fit moments: two numbers between 0 and 1. Solution Gram: ℓ_i = min(‖û_i‖/L, 1),
so a user adds a matrix of norm at most 1; entries add up to ℓ (‖ũ‖₁² + ‖ũ‖₂²)/2 ≤ (r + 1)/2.
Replacing a user moves it by √2 at most; it is charged as 2, so that one release of a plan may be of
this or of a sum with signs at the same cost. Residual pairs: q_i² = 2 Σ_{j<k} x_ij² x_ik² makes the
norm of what a user adds exactly 1, for any residuals. They have a sign, so that a user and
its opposite are 2 apart (two users with one pair each, of opposite signs). An entry is at most 1,
and ‖p‖₁ ≤ √(pairs) ‖p‖₂. Left-out gains: every user predicts each of its ratings by all of its
others, with several numbers of columns (`discreet.kernels.leave_one_out`);
−1 ≤ d_ik ≤ 1 after the cut and 0 ≤ w_i ≤ 1, so an entry of a user is between −1/√K and 1/√K, K of
them have the norm 1, and a user and its opposite are 2 apart.

Rounding: q is a root of a sum of numbers that are not negative, in float64 off by a few n 2⁻⁵³.
Contributions are multiplied by `SHAVE` and rounded toward zero, one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.kernels.grams import add_pair_products, inverse_diagonals, symmetric_of
from discreet.kernels.leave_one_out import leave_one_out_errors
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import (
    Block,
    Public,
    Rows,
    SensitivityBounds,
    Statistic,
    gram_of_users,
    register,
    total_of_users,
    triangle_size,
)
from discreet.privacy.statistics.bounds import SHAVE, check_bound
from discreet.privacy.statistics.gradients import OfResiduals
from discreet.privacy.statistics.pairs import sort_by_item

MOST = 3.0  # cut of t, which bounds the sensitivity
# separates this sampling from other choices by the same key
MIX = np.uint64(0x9E3779B97F4A7C15)


@register("prior moments")
@dataclass(frozen=True)
class PriorMoments(Statistic):
    """Ratio of the users' coefficients to their prior, for each of d coefficients.

    With prior variance ω (the noise variance over the ridge), posterior variance C_i and estimate
    û_i, E[û² + C] = ω if the prior is right, and in general ω + s_i (ω* − ω), s_i = (1 − C_i/ω)²,
    for the true ω*. A user adds t_i = (û_i² + C_i)/ω − 1, cut to 3 at most, over 3, and s_i: t ≥
    −1, 0 ≤ s ≤ 1, so 2d numbers of norm √(2d).
    """

    V: NDArray[Any]
    ridge: float
    center: float
    prior_count: float
    variance: float

    def check(self, public: Public) -> None:
        public.need_vectors()
        public.factors(self.V)
        for name in ("ridge", "prior_count", "variance"):
            check_bound(name, getattr(self, name))

    def shape(self, public: Public) -> tuple[int, ...]:
        return (2, self.V.shape[1] + 1)

    def reach(self, public: Public) -> SensitivityBounds:
        d = self.V.shape[1] + 1
        return SensitivityBounds(math.sqrt(2 * d), 2.0 * d, 1.0, 5 / 3 / math.sqrt(2), 7 / 6)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        precision = np.append(np.full(self.V.shape[1], self.ridge), self.prior_count)
        with np.errstate(all="ignore"):
            own = np.column_stack([block["solution"], block["offset"] - self.center]).astype(
                np.float64
            )
            kept = (
                inverse_diagonals(block.indptr, block.indices, self.V, self.ridge, self.prior_count)
                * precision
            )
            t = own**2 * (precision / self.variance) + kept - 1
        t = np.clip(np.nan_to_num(t, nan=-1.0, posinf=MOST, neginf=-1.0), -1, MOST) / MOST
        s = np.clip(np.nan_to_num(1 - kept, nan=0.0), 0, 1) ** 2
        return total_of_users(np.stack([t, s], axis=1) * SHAVE, grid)


@register("fit moments")
@dataclass(frozen=True)
class FitMoments(OfResiduals):
    """How well the users' own solutions fit: two numbers between 0 and 1 of each user.

    The mean square of its weighted residuals over `most`, 1 at most, and the part of its ratings
    that its coefficients have not used up, 1 − (‖û‖²/ω + n/(n + κ))/n, where ‖û‖²/ω is on average
    what a calibrated prior uses up.
    """

    most: float
    variance: float
    prior_count: float

    def check(self, public: Public) -> None:
        super().check(public)
        for name in ("most", "variance", "prior_count"):
            check_bound(name, getattr(self, name))

    def shape(self, public: Public) -> tuple[int, ...]:
        return (2,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(math.sqrt(2), 2.0, 1.0, 1.0, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        n = block.counts
        length = block["length"]
        with np.errstate(all="ignore"):
            square = np.minimum(length**2 / self.most, 1.0)
            used = (block["solution"].astype(np.float64) ** 2).sum(axis=1) / self.variance
            used = used + n / (n + self.prior_count)
            free = np.clip(
                1 - np.nan_to_num(used, nan=np.inf, posinf=np.inf) / np.maximum(n, 1), 0, 1
            )
        each = np.column_stack([np.nan_to_num(square), np.where(n > 0, free, 0.0)])
        return total_of_users(each * SHAVE, grid)


@register("solution Gram matrix")
@dataclass(frozen=True)
class SolutionGram(Statistic):
    """Σ_i min(‖û_i‖/L, 1) ũ_i ũ_iᵀ, ũ_i = û_i/‖û_i‖, r coefficients from `first` on, packed."""

    first: int
    rank: int
    largest: float

    def check(self, public: Public) -> None:
        public.need_vectors()
        check_bound("largest", self.largest)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (1, triangle_size(self.rank))

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, (self.rank + 1) / 2, 1.0, 2.0)

    def symmetric(self, public: Public) -> int | None:
        return self.rank

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        U = block["solution"][:, self.first : self.first + self.rank].astype(np.float64)
        U = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0.0)
        length = np.sqrt((U**2).sum(axis=1, keepdims=True))
        known = length > 1e-30
        root = np.sqrt(SHAVE * np.minimum(length / self.largest, 1.0))
        U = np.ascontiguousarray(np.where(known, U / np.where(known, length, 1.0) * root, 0.0))
        return gram_of_users(U, grid)


@register("residual pairs")
@dataclass(frozen=True)
class ResidualPairs(OfResiduals):
    """Σ_i √2 x_ij x_ik/q_i over pairs j < k of these items, a strict upper triangle of norm 1."""

    items: NDArray[np.int64]

    def check(self, public: Public) -> None:
        super().check(public)
        items = np.asarray(self.items)
        inside = items.size == 0 or (items.min() >= 0 and items.max() < public.n_items)
        if items.ndim != 1 or not inside or (np.diff(items) <= 0).any():
            raise ConfigError("items of pairs must be positions in ascending order")

    def shape(self, public: Public) -> tuple[int, ...]:
        return (len(self.items) * (len(self.items) - 1) // 2,)

    def reach(self, public: Public) -> SensitivityBounds:
        pairs = len(self.items) * (len(self.items) - 1) // 2
        return SensitivityBounds(1.0, max(math.sqrt(pairs), 1.0), 1.0, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        position = np.full(public.n_items, -1, np.int32)
        position[self.items] = np.arange(len(self.items), dtype=np.int32)
        at = position[block.indices]
        keep = np.flatnonzero(at >= 0)
        indptr = np.searchsorted(keep, block.indptr)
        item, x = sort_by_item(indptr, at[keep], block["residual"][keep].astype(np.float64))
        m = len(self.items)
        if grid is None:
            return lambda rows: add_pair_products(indptr, item, x, m, SHAVE)[rows]

        def exact(rows: slice) -> NDArray[Any]:
            total = np.zeros(self.shape(public), np.int64)
            for part in integer_sums.chunks(block.n):
                own = indptr[part.start : part.stop + 1]
                inside = slice(own[0], own[-1])
                total += add_pair_products(
                    own - own[0], item[inside], x[inside], m, SHAVE, grid
                ).astype(np.int64)
            return total[rows]

        return exact

    def entry_deviation(self, deviation: float) -> float:
        """Return the noise deviation of an entry of the matrix that `unpack` returns."""
        return deviation / math.sqrt(2.0)

    def unpack(self, released: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the symmetric matrix Σ_i x_ij x_ik/q_i, with 0 on the diagonal."""
        return symmetric_of(released, len(self.items)) / math.sqrt(2.0)


@register("left-out gains")
@dataclass(frozen=True)
class LeaveOneOutGains(Statistic):
    """Σ_i w_i clip((E_i0 − E_ik)/variance, −1, 1)/√K for each of K ranks k, w_i = min(n_i/many, 1).

    E_ik is user i's leave-one-out mean square error with `first` + k columns of V and its level; w
    gives more weight to users with more ratings. The prior is that of `SolveUserEffects`. Of very
    many users a `part` is enough: participation is drawn from a user's own id, and w is 0 for the
    others.
    """

    V: NDArray[Any]
    ridge: float
    center: float
    prior_count: float
    bias: NDArray[Any]
    first: int
    ranks: tuple[int, ...]
    variance: float
    many: float
    part: float = 1.0

    def check(self, public: Public) -> None:
        V = public.factors(self.V)
        public.per_item("bias", self.bias)
        for name in ("ridge", "prior_count", "variance", "many", "part"):
            check_bound(name, getattr(self, name))
        columns = V.shape[1] - self.first
        rising = all(a < b for a, b in zip((0, *self.ranks), self.ranks, strict=False))
        if not self.ranks or not rising or self.ranks[-1] > columns:
            raise ConfigError(
                f"ranks are {self.ranks!r}, but must rise from 1 to the {columns} learned columns"
                " at most"
            )

    def shape(self, public: Public) -> tuple[int, ...]:
        return (len(self.ranks),)

    def reach(self, public: Public) -> SensitivityBounds:
        root = math.sqrt(len(self.ranks))
        return SensitivityBounds(1.0, root, 1 / root, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        V = public.factors(self.V)
        F = np.column_stack([np.ones(len(V)), V]).astype(np.float64)
        prior = np.append(self.prior_count, np.full(V.shape[1], self.ridge))
        lengths = 1 + self.first + np.array([0, *self.ranks])
        indptr, indices, values = self._select_participants(block)
        with np.errstate(all="ignore"):
            y = values.astype(np.float64) - np.asarray(self.bias, np.float64)[indices] - self.center
            error = leave_one_out_errors(indptr, indices, y, F, prior, lengths)
            gain = (error[:, :1] - error[:, 1:]) / self.variance
        gain = np.clip(np.nan_to_num(gain, nan=0.0, posinf=1.0, neginf=-1.0), -1, 1)
        weight = np.minimum(np.diff(indptr) / self.many, 1.0) / math.sqrt(len(self.ranks))
        each = gain * weight[:, None] * SHAVE
        return total_of_users(each, grid)

    def _select_participants(self, block: Block) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return CSR arrays of the users who take part."""
        if self.part >= 1:
            return block.indptr, block.indices, block.values
        coin = (block.key * MIX >> np.uint64(11)).astype(np.float64) * 2.0**-53
        who = coin < self.part
        entries = np.repeat(who, block.counts)
        indptr = np.concatenate([[0], np.cumsum(block.counts[who])])
        return indptr, block.indices[entries], block.values[entries]
