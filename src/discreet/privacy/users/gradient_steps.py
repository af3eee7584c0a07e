"""Users who follow gradients: what each does by itself, and the sums that a Session may release.

`Descent` goes on where `discreet.privacy.users.sealed_users` ends. A user has a vector u_i and an
offset o_i; from public item factors V and biases b it computes its residuals, weighted and cut to a
length:

    e_ij = u_i · v_j + b_j + o_i − y_ij,      x_i = (w_ij e_ij)_j  with ‖x_i‖ ≤ G,

and moves its vector by itself. What leaves are sums over users, with the bounds ‖u_i‖ ≤ Γ, Σ_j
w_ij² ≤ 1, m items:

    statistic                        remove, ℓ₂   replace, ℓ₂   remove, ℓ₁   replace, ℓ₁   one entry
    gradient       Σ x_ij u_i  (per item)    G Γ        2 G Γ         √m G Γ₁      twice         G Γ
    bias_gradient  Σ x_ij      (per item)    G            2 G           √m G         twice         G
    gram           Σ u_i u_iᵀ               Γ²           √2 Γ²         (Γ₁²+Γ²)/2   twice         Γ²
    counts         Σ w_ij      (per item)    1            √2            √m           twice         1
    size           Σ (|Ω_i|/m, 1, ȳ_i/h)     √3           √5            3            3             1

For the last: the first entry of a user is between 0 and 1, the second is 1, the third between −1
and 1 (ȳ_i is the user's own mean, cut to h), so exchanging a user moves them by at most 1, 0 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.kernels import second_moment, solve_rows, solve_rows_constant, sum_rows
from discreet.kernels.gradient import residual_rows, share_rows, turn_rows
from discreet.privacy.sealed import Sealed
from discreet.privacy.statistics.base import Block, Public, Statistic, UserStep
from discreet.privacy.statistics.bounds import SHAVE, check_bound, clip_rows
from discreet.privacy.statistics.contributions import Rows, entries_reach, row_sums
from discreet.privacy.statistics.sums import SensitivityBounds, Sum, per_item_total, register
from discreet.privacy.users.sealed_users import Users


class Descent(Sealed[Users]):
    """The words of users on their way down; all state is the users' own.

    Parameters
    ----------
    users : Users
        Their bounds say how long a vector may be (``norm``).
    """

    __slots__ = ("_users",)

    def __init__(self, users: Users) -> None:
        super().__init__(users, f"descent over {users.n_items:,} items")
        self._users = users
        users.apply(BeginDescent())

    @property
    def n_items(self) -> int:
        return self._users.n_items

    # ------------------------------------------------------------ what users do by themselves

    def weigh(self, importance: NDArray[np.floating[Any]]) -> None:
        """Each user gives its entries the weights w_ij² = q_j / Σ_j q_j, for a public
        `importance` q > 0 of items.
        """
        self._users.apply(WeighEntries(importance))

    def solve(self, V: NDArray[Any], ridge: float, **options: Any) -> None:
        """Each user's offset and vector by least squares on its own history: see
        `SolveWithOffset`.
        """
        self._users.apply(SolveWithOffset(V, ridge, **options))

    def start(self, W: NDArray[Any]) -> None:
        """Each user's vector as Σ_j y_j w_j, cut to the norm Γ."""
        self._users.apply(StartFrom(W))

    def look(
        self, V: NDArray[Any], largest: float, *, bias: NDArray[Any] | None = None, own: bool = True
    ) -> None:
        """Each user compares its ratings with V and b: its residuals, cut to `largest` (G), and
        its own gradient.
        """
        self._users.apply(ComputeResiduals(V, largest, bias, own))

    def step(self, rate: float, R: NDArray[Any], balance: float) -> None:
        """Each user moves: u − rate · Σ_j e_j v_j − balance · uᵀR, with what it saw last, and
        cut to the norm Γ.
        """
        self._users.apply(GradientStep(rate, np.asarray(R, np.float64), balance))

    # ------------------------------------------------------------ what may be released

    def gradient(self) -> Sum:
        """Σ_i x_ij u_i for each item j."""
        return self._users.sum(WeightedResidualGradient())

    def bias_gradient(self) -> Sum:
        """Σ_i x_ij for each item j."""
        return self._users.sum(BiasGradient())

    def gram(self) -> Sum:
        """Σ_i u_i u_iᵀ, as one packed upper triangle."""
        return self._users.global_gram()

    def counts(self) -> Sum:
        """Σ_i w_ij for each item j."""
        return self._users.sum(WeightCounts())

    def size(self, half: float) -> Sum:
        """Σ_i (share of the items that i has rated, 1, its mean rating cut to ±half and divided
        by it).
        """
        return self._users.sum(Size(half))


# ------------------------------------------------------------------ steps


@dataclass(frozen=True)
class BeginDescent(UserStep):
    """No offset, no weights, nothing seen yet."""

    what = "the start of a descent"

    def check(self, public: Public) -> Public:
        return replace(public, weighted=False, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        return block.without("entry_weight", "residual", "own").with_state(
            offset=np.zeros(block.n, np.float32)
        )


@dataclass(frozen=True)
class WeighEntries(UserStep):
    """Weights w_ij² = q_j / Σ_j q_j of a user's entries, for a public importance q > 0 of items."""

    importance: NDArray[np.floating[Any]]

    what = "the users' weights"

    def check(self, public: Public) -> Public:
        q = np.asarray(self.importance, np.float64)
        if q.shape != (public.n_items,) or not (np.isfinite(q) & (q > 0)).all():
            raise ConfigError(f"importance needs {public.n_items:,} positive finite numbers")
        return replace(public, weighted=True, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        q = np.asarray(self.importance, np.float64)
        weights = share_rows(block.indptr, block.indices, q / q.max(), SHAVE)
        return block.without("residual").with_state(entry_weight=weights)


@dataclass(frozen=True)
class SolveWithOffset(UserStep):
    """Each user's offset and vector by least squares on its own history; then the vector is cut to
    the norm Γ.

        (o, u) = argmin Σ_j (o + u · v_j + b_j − y_j)² + λ ‖u‖² + κ (o − center)² + λ₀ Σ_all (u ·
        v_j)²

    Without a `center` there is no offset. `stretch` makes every vector (but 0) as long as Γ: short
    ones say as much about their direction, and the noise is the same. With an `intercept` ι, that
    constant comes before each vector, whose other part is cut, or stretched, to √(Γ² − ι²).
    """

    V: NDArray[Any]
    ridge: float
    bias: NDArray[Any] | None = None
    center: float | None = None
    prior_count: float = 3.0
    unobserved: float = 0.0
    stretch: bool = False
    intercept: float = 0.0

    what = "the users' vectors"

    def check(self, public: Public) -> Public:
        V = public.factors(self.V)
        public.per_item("bias", self.bias)
        clip_rows(np.zeros((0, V.shape[1]), V.dtype), public.bounds, self.intercept)
        return replace(public, rank=V.shape[1] + bool(self.intercept), has_vectors=True, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        V = public.factors(self.V)
        n = block.n
        lead = 0.0 if self.center is None else math.sqrt(self.ridge / self.prior_count)
        middle = 0.0 if self.center is None else self.center
        expected = public.per_item("bias", self.bias).astype(np.float32) + middle
        shared = self.unobserved * second_moment(V) if self.unobserved else None
        values = block.values.astype(V.dtype, copy=False)
        ridge = np.full(n, self.ridge)
        if V.shape[1]:
            X, own = solve_rows_constant(
                block.indptr, block.indices, values, V, ridge, lead, shared, offset=expected
            )
        else:
            one = np.full((public.n_items, 1), lead, V.dtype)
            own = solve_rows(block.indptr, block.indices, values, one, ridge, offset=expected)[:, 0]
            X = np.zeros((n, 0), V.dtype)
        offset = np.nan_to_num(lead * own + middle, nan=0.0, posinf=0.0, neginf=0.0)
        placed = scale_vectors(X, public, self.stretch, self.intercept)
        return block.without("residual", "own").with_state(
            vectors=placed, offset=offset.astype(np.float32)
        )


@dataclass(frozen=True)
class StartFrom(UserStep):
    """Each user's vector as Σ_j y_j w_j, cut to the norm Γ."""

    W: NDArray[Any]

    what = "the users' vectors"

    def check(self, public: Public) -> Public:
        W = public.factors(self.W)
        return replace(public, rank=W.shape[1], has_vectors=True, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        W = public.factors(self.W)
        U = sum_rows(block.indptr, block.indices, block.values.astype(W.dtype), W)
        return block.without("residual", "own").with_state(vectors=scale_vectors(U, public))


@dataclass(frozen=True)
class ComputeResiduals(UserStep):
    """Each user compares its ratings with V and b: its residuals, weighted and cut to G, and
    its own gradient.
    """

    V: NDArray[Any]
    largest: float
    bias: NDArray[Any] | None = None
    own: bool = True

    what = "the users' residuals"

    def check(self, public: Public) -> Public:
        public.need_vectors()
        public.factors(self.V, public.rank)
        public.per_item("bias", self.bias)
        return replace(public, cut=check_bound("largest", self.largest))

    def run(self, block: Block, public: Public) -> Block:
        U = block["vectors"]
        V = public.factors(self.V).astype(U.dtype)
        b = (
            np.zeros(public.n_items)
            if self.bias is None
            else public.per_item("bias", self.bias).astype(np.float32)
        )
        x, g = residual_rows(
            block.indptr,
            block.indices,
            block.values,
            U,
            V,
            self.largest * SHAVE,
            b,
            block["offset"],
            block.state.get("entry_weight"),
            self.own,
        )
        return block.with_state(residual=x, own=g)


@dataclass(frozen=True)
class GradientStep(UserStep):
    """Each user moves: u − rate · Σ_j e_j v_j − balance · uᵀR, with what it saw last, and cut
    to the norm Γ.
    """

    rate: float
    R: NDArray[np.float64]
    balance: float

    what = "the users' step"

    def check(self, public: Public) -> Public:
        public.need_residuals()
        public.array("R", self.R, (public.rank, public.rank))
        return replace(public, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        U = block["vectors"]
        own = block["own"]
        if own.shape != U.shape:
            raise ConfigError("users have not looked at the items yet: call look first")
        moved = turn_rows(U, own, self.R, self.rate, self.balance)
        return block.without("residual", "own").with_state(vectors=scale_vectors(moved, public))


def scale_vectors(
    U: NDArray[Any], public: Public, stretch: bool = False, intercept: float = 0.0
) -> NDArray[Any]:
    """Vectors as they may be contributed: stretched, if wanted, and cut to the norm."""
    bounds = public.bounds
    if stretch:
        exact = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0).astype(np.float64)
        length = np.sqrt((exact**2).sum(axis=1, keepdims=True))
        U = np.where(length > 1e-12, exact * (bounds.norm / np.maximum(length, 1e-12)), 0).astype(
            U.dtype
        )
    return np.ascontiguousarray(clip_rows(U, bounds, intercept))


# ------------------------------------------------------------------ statistics


class OfResiduals(Statistic):
    """Base of what is made of the residuals that users computed last."""

    def check(self, public: Public) -> None:
        public.need_residuals()


@register("residual gradient")
@dataclass(frozen=True)
class WeightedResidualGradient(OfResiduals):
    """Σ_i x_ij u_i for each item j: ‖x_i u_iᵀ‖ = ‖x_i‖ ‖u_i‖ ≤ G Γ."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items, public.rank)

    def reach(self, public: Public) -> SensitivityBounds:
        return entries_reach(public, public.cut)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return lambda rows: row_sums(block, block["residual"], public.n_items, grid)[rows]


@register("bias gradient")
@dataclass(frozen=True)
class BiasGradient(OfResiduals):
    """Σ_i x_ij for each item j, ‖x_i‖ ≤ G."""

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(public.cut, public.n_items**0.5 * public.cut, public.cut, 2.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return lambda rows: per_item_total(block.indices, block["residual"], public.n_items, grid)[
            rows
        ]


@register("weight counts")
@dataclass(frozen=True)
class WeightCounts(Statistic):
    """Σ_i w_ij for each item j, over all entries: Σ_j w_ij² ≤ 1, and no weight is below 0."""

    def check(self, public: Public) -> None:
        if not public.weighted:
            raise ConfigError("users have not weighted their items yet: call weigh first")

    def shape(self, public: Public) -> tuple[int, ...]:
        return (public.n_items,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(1.0, public.n_items**0.5, 1.0, 2**0.5)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        return lambda rows: per_item_total(
            block.indices, block["entry_weight"], public.n_items, grid
        )[rows]


@register("size")
@dataclass(frozen=True)
class Size(Statistic):
    """Σ_i (share of the items that i has rated, 1, its mean rating cut to ±half and divided by
    it).
    """

    half: float

    def check(self, public: Public) -> None:
        check_bound("half", self.half)

    def shape(self, public: Public) -> tuple[int, ...]:
        return (3,)

    def reach(self, public: Public) -> SensitivityBounds:
        return SensitivityBounds(3**0.5, 3.0, 1.0, (5 / 3) ** 0.5, 1.0)

    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        counts = block.counts
        mean = block.per_user(block.values) / np.maximum(counts, 1)
        share = counts / max(public.n_items, 1)
        each = np.column_stack([share, np.ones(block.n), np.clip(mean / self.half, -1, 1)]) * SHAVE
        whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
        return lambda rows: whole.sum(axis=0)[rows]
