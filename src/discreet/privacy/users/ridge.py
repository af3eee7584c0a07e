"""Users who solve for what is personal, with a prior that is estimated: what each does, and what
may be released.

From public columns V (some of their own, then r learned ones) and biases b, every user has
coefficients û_i and an offset o_i by its own ridge regression, and residuals e_ij = o_i + û_i · v_j
+ b_j − y_ij, weighted and cut as on any descent. Only the direction of the learned coefficients is
contributed to gradients: u_i = (ι, √(Γ² − ι²) û_i/‖û_i‖).

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    prior moments   Σ (t_i/3, s_i)   d of each       √(2d)        5/3 √d        2d   7/3 d         1
    fit moments     Σ (e_i², free_i)                 √2           √2            2            2     1
    solution Gram   Σ ℓ_i ũ_i ũ_iᵀ   ‖ũ_i‖ = 1       1            2     (r+1)/2      twice         1
    residual pairs  Σ √2 x_ij x_ik/q_i  (j < k)      1            2     √(pairs)     twice         1

*Proofs.* Prior moments: −1 ≤ t_i ≤ 3 after the cut and 0 ≤ s_i ≤ 1, so an entry of a user is
between −⅓ and 1, or 0 and 1; exchanging a user moves the first kind by 4/3 at most and the second
by 1, d of each. Fit moments: two numbers between 0 and 1. Solution Gram: ℓ_i = min(‖û_i‖/L, 1),
so a user adds a matrix of norm at most 1; entries add up to ℓ (‖ũ‖₁² + ‖ũ‖₂²)/2 ≤ (r + 1)/2.
Replacing a user moves it by √2 at most; it is priced by 2, so that a line of a plan may buy this or
a sum with signs at the same price. Residual pairs: q_i² = 2 Σ_{j<k} x_ij² x_ik² makes the norm of
what a user adds exactly 1, whatever its residuals are. They have a sign, so that a user and its
opposite are 2 apart (two users with one pair each, of opposite signs). An entry is at most 1, and
‖p‖₁ ≤ √(pairs) ‖p‖₂.

Rounding: q is a root of a sum of numbers that are not negative, in float64 off by a few n 2⁻⁵³, and
products are multiplied by `SHAVE` and rounded toward zero, one by one. So are all other
contributions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.kernels import pack_grams, solve_rows, solve_rows_constant
from discreet.kernels.gradient import residual_rows
from discreet.kernels.grams import add_pair_products, inverse_diagonals
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.base import Block, Public, Statistic, UserStep
from discreet.privacy.statistics.bounds import SHAVE, check_bound
from discreet.privacy.statistics.contributions import Rows
from discreet.privacy.statistics.pairs import sort_by_item
from discreet.privacy.statistics.sums import SensitivityBounds, register, triangle_size
from discreet.privacy.users.gradient_steps import OfResiduals, scale_vectors

MOST = 3.0  # that t may be


# ------------------------------------------------------------------ steps


@dataclass(frozen=True)
class SolveUserEffects(UserStep):
    """Each user's offset and coefficients by least squares on its own history.

        (o, û) = argmin Σ_j (o + û · v_j + b_j − y_j)² + λ ‖û‖² + κ (o − center)²

    Coefficients from `first` on, stretched to √(Γ² − ι²) behind the constant ι (`intercept`), are
    the user's vector.
    """

    V: NDArray[Any]
    ridge: float
    center: float
    prior_count: float
    bias: NDArray[Any]
    first: int
    intercept: float = 0.0

    what = "the users' own solve"

    def check(self, public: Public) -> Public:
        V = public.factors(self.V)
        public.per_item("bias", self.bias)
        check_bound("ridge", self.ridge)
        check_bound("prior_count", self.prior_count)
        if not 0 <= self.first <= V.shape[1]:
            raise ConfigError(
                f"first is {self.first!r}, but must lie between 0 and the {V.shape[1]} columns"
            )
        return replace(
            public, rank=V.shape[1] - self.first + bool(self.intercept), has_vectors=True, cut=0.0
        )

    def run(self, block: Block, public: Public) -> Block:
        V = public.factors(self.V)
        X, own = own_solve(
            block.indptr,
            block.indices,
            block.values,
            V,
            self.ridge,
            self.prior_count,
            self.item_baseline,
        )
        with np.errstate(all="ignore"):
            offset = np.nan_to_num(own + self.center, nan=0.0, posinf=0.0, neginf=0.0)
        vectors = scale_vectors(
            np.ascontiguousarray(X[:, self.first :]), public, True, self.intercept
        )
        state = block.without("residual", "own", "length")
        return state.with_state(solution=X, vectors=vectors, offset=offset.astype(np.float32))

    @property
    def item_baseline(self) -> NDArray[np.float32]:
        """Of each item, before anything personal."""
        return (np.asarray(self.bias, np.float64) + self.center).astype(np.float32)


def own_solve(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    V: NDArray[Any],
    ridge: float,
    prior_count: float,
    expected: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """û (n, r) and o − center (n,) of `SolveUserEffects`; a saved model's read-out solves the
    same.
    """
    n = len(indptr) - 1
    lead = math.sqrt(ridge / prior_count)
    each = np.full(n, ridge)
    y = values.astype(V.dtype, copy=False)
    if V.shape[1]:
        X, own = solve_rows_constant(indptr, indices, y, V, each, lead, offset=expected)
    else:
        one = np.full((len(V), 1), lead, V.dtype)
        own = solve_rows(indptr, indices, y, one, each, offset=expected)[:, 0]
        X = np.zeros((n, 0), V.dtype)
    return X, np.float32(lead) * own


@dataclass(frozen=True)
class ComputeOwnResiduals(UserStep):
    """Each user compares its ratings with its own solution: residuals, weighted, cut to G and
    divided by it.

    So their length is 1 at most, whatever G is, which may follow from numbers released before:
    sensitivities do not.
    """

    V: NDArray[Any]
    largest: float
    bias: NDArray[Any]

    what = "the users' residuals"

    def check(self, public: Public) -> Public:
        public.need_vectors()
        public.factors(self.V)
        public.per_item("bias", self.bias)
        check_bound("largest", self.largest)
        return replace(public, cut=1.0)

    def run(self, block: Block, public: Public) -> Block:
        U = block["solution"]
        length = np.zeros(block.n)
        x, _ = residual_rows(
            block.indptr,
            block.indices,
            block.values,
            U,
            public.factors(self.V).astype(U.dtype),
            self.largest * SHAVE,
            public.per_item("bias", self.bias).astype(np.float32),
            block["offset"],
            block.state.get("entry_weight"),
            own=False,
            lengths=length,
        )
        x /= x.dtype.type(self.largest)
        return block.with_state(residual=x, length=length)


# ------------------------------------------------------------------ statistics


@register("prior moments")
@dataclass(frozen=True)
class PriorMoments(Statistic):
    """How much larger than their prior says the users' own coefficients are, for each of d of them.

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
        return _totals(np.stack([t, s], axis=1), grid)


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
        return _totals(np.column_stack([np.nan_to_num(square), np.where(n > 0, free, 0.0)]), grid)


@register("solution Gram matrix")
@dataclass(frozen=True)
class SolutionGram(Statistic):
    """Σ_i min(‖û_i‖/L, 1) ũ_i ũ_iᵀ, ũ_i = û_i/‖û_i‖, over the r coefficients from `first` on,
    as a packed triangle.
    """

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
        everyone = np.arange(len(U), dtype=np.int32)
        step = min(max(4096, len(U) // 256), integer_sums.CHUNK)  # so that all cores share the work
        cuts = np.append(np.arange(0, len(U), step), len(U))
        if grid is None:
            return lambda rows: pack_grams(cuts, everyone, np.ones(len(U)), U).sum(
                axis=0, keepdims=True
            )[rows]
        c = np.full(len(U), grid**-0.5)

        def exact(rows: slice) -> NDArray[Any]:
            whole = pack_grams(cuts, everyone, c, U, whole=True)
            return np.asarray(whole.astype(np.int64).sum(axis=0, keepdims=True)[rows])

        return exact


@register("residual pairs")
@dataclass(frozen=True)
class ResidualPairs(OfResiduals):
    """Σ_i √2 x_ij x_ik/q_i over pairs j < k of these items, as a strict upper triangle: the
    norm of a user is 1.
    """

    items: NDArray[np.int64]

    def check(self, public: Public) -> None:
        super().check(public)
        items = np.asarray(self.items)
        inside = items.size == 0 or (items.min() >= 0 and items.max() < public.n_items)
        if items.ndim != 1 or not inside or (np.diff(items) <= 0).any():
            raise ConfigError("pairs need positions of items in ascending order")

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


def _totals(each: NDArray[np.float64], grid: float | None) -> Rows:
    """The sum over users of what each adds, entry by entry; all of it at most 1."""
    whole = each * SHAVE if grid is None else np.trunc(each * SHAVE / grid).astype(np.int64)
    return lambda rows: whole.sum(axis=0)[rows]
