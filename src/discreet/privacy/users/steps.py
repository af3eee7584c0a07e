"""User steps: what each user computes by itself, as values made of public numbers.

From these and its own ratings, each user computes which items it contributes through, its vector,
its residuals. A step returns a new block of users and never modifies one, so that a block can be
computed again, on another machine or after a crash, to the same bits. Nothing leaves the users, so
steps have no privacy cost.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.kernels import second_moment, solve_rows, solve_rows_constant, sum_rows
from discreet.kernels.gradient import residual_rows, share_rows, turn_rows
from discreet.kernels.threads import even_cuts, run
from discreet.privacy.statistics.base import AGE_WEIGHT, Block, Public
from discreet.privacy.statistics.bounds import SHAVE, check_bound, clip_rows, public_number
from discreet.privacy.statistics.pairs import LEVELS, check_levels, grade_ratings
from discreet.privacy.users.item_sampling import by_item, pick, sample

# the state that `Choose` makes, by item
CONTRIBUTIONS = ("user", "by_item", "value", "weight")
# the state of users, not of ratings: it stays when ratings are dropped
PER_USER = (AGE_WEIGHT,)


class UserStep(ABC):
    """A computation of each user by itself. Subclasses are frozen dataclasses of public values."""

    #: Name of the result in errors.
    what: str = "a step of the users"
    #: Whether it always gives the same bits; otherwise only in-memory users can take it.
    repeatable: bool = True

    @abstractmethod
    def check(self, public: Public) -> Public:
        """Return what is public after the step; raise a `ConfigError` for invalid numbers."""

    @abstractmethod
    def run(self, block: Block, public: Public) -> Block:
        """Return the users after the step; `public` is as before it."""


# ------------------------------------------------------------------ items and ratings


@dataclass(frozen=True)
class Restrict(UserStep):
    """Keep only these items (public positions), renumbered in the order given, and choose again."""

    items: NDArray[np.integer[Any]]

    what = "the ratings of some items"

    def check(self, public: Public) -> Public:
        items = self.items
        if items.ndim != 1 or items.dtype.kind not in "iu" or len(np.unique(items)) != len(items):
            raise ConfigError("restrict needs positions of distinct items")
        if len(items) and not (items.min() >= 0 and items.max() < public.n_items):
            raise ConfigError(f"restrict needs positions from 0 to {public.n_items - 1:,}")
        return Public(public.bounds, len(items))

    def run(self, block: Block, public: Public) -> Block:
        position = np.full(public.n_items, -1, np.int32)
        position[self.items] = np.arange(len(self.items), dtype=np.int32)
        indices = position[block.indices]
        keep = np.flatnonzero(indices >= 0)
        indptr = np.searchsorted(keep, block.indptr)
        kept = {name: block.state[name] for name in PER_USER if name in block.state}
        return Block(indptr, indices[keep], block.values[keep], block.mean, block.key, kept)


@dataclass(frozen=True)
class Recenter(UserStep):
    """Subtract a public number from every rating instead of what was subtracted before."""

    center: float

    what = "centered ratings"

    def check(self, public: Public) -> Public:
        if public.bounds.rating is None:
            raise ConfigError("implicit feedback has no ratings to center: pass Bounds(rating=...)")
        public_number("center", self.center)
        return replace(public, contributes=False)

    def run(self, block: Block, public: Public) -> Block:
        mean = np.full(block.n, self.center, np.float32)
        values = block.values + np.repeat(block.mean - mean, block.counts)
        return replace(block, values=values, mean=mean).without(*CONTRIBUTIONS)


@dataclass(frozen=True)
class ThresholdRatings(UserStep):
    """Keep ratings of at least `least`, a public number; their values are dropped."""

    least: float

    what = "what the users like"

    def check(self, public: Public) -> Public:
        public_number("least", self.least)
        return Public(public.bounds, public.n_items)

    def run(self, block: Block, public: Public) -> Block:
        return _keep_liked(block, block.ratings >= self.least)


@dataclass(frozen=True)
class GradeRatings(UserStep):
    """Grade each item from 1 to `levels` by its rating's position in the public range.

    The lowest rating counts as no rating: such entries are dropped.
    """

    low: float
    high: float
    levels: int = LEVELS

    what = "how much the users like their items"

    def check(self, public: Public) -> Public:
        public_number("low", self.low)
        public_number("high", self.high)
        check_levels(self.levels)
        if not self.low < self.high:
            raise ConfigError(
                f"ratings from {self.low:g} to {self.high:g} cannot be graded: low must be below"
                " high"
            )
        return Public(public.bounds, public.n_items)

    def run(self, block: Block, public: Public) -> Block:
        return _keep_liked(block, grade_ratings(block.ratings, self.low, self.high, self.levels))


def _keep_liked(block: Block, level: NDArray[Any]) -> Block:
    """Keep the entries whose level is above 0, with the level as their value."""
    keep = np.flatnonzero(level > 0)
    return Block(
        np.searchsorted(keep, block.indptr),
        block.indices[keep],
        level[keep].astype(np.float32),
        np.zeros_like(block.mean),
        block.key,
        {name: block.state[name] for name in PER_USER if name in block.state},
    )


@dataclass(frozen=True)
class Choose(UserStep):
    """Pick at most k items to contribute through: at random, or those of lowest public priority."""

    priority: NDArray[np.floating[Any]] | None = None
    draw: int = 0

    what = "the users' choice of items"

    def check(self, public: Public) -> Public:
        if not 0 <= self.draw < 2**31:
            raise ConfigError(
                f"draw is {self.draw!r}, but must be a whole number from 0 to 2³¹ − 1"
            )
        public.per_item("priority", self.priority)
        return replace(public, contributes=True)

    def run(self, block: Block, public: Public) -> Block:
        k = public.bounds.through(public.n_items)
        priority = public.per_item("priority", self.priority)
        chosen = pick(block.indptr, block.indices, block.key, priority, k, self.draw)
        start, user, value, weight = by_item(
            block.indptr, block.indices, block.values, np.ones(1), public.n_items, chosen
        )
        np.clip(value, -public.bounds.value, public.bounds.value, out=value)
        weight *= SHAVE
        return block.with_state(user=user, by_item=start, value=value, weight=weight)


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


# ------------------------------------------------------------------ vectors and residuals


@dataclass(frozen=True)
class Solve(UserStep):
    """Each user's vector by least squares on its own history, cut to the norm.

        (o, û) = argmin Σ_j (o + û · v_j + b_j − y_j)² + λ s c^exponent ‖û‖² + κ (o − center)²
                 + λ₀ Σ_all (û · v_j)², with c the user's own number of ratings.

    Without a `center` there is no offset o. The vector is û, or its coefficients from `first` on,
    cut to the norm Γ. `stretch` scales every vector (but 0) to the length Γ: the direction of short
    ones is as informative, and the noise is the same. With an `intercept` ι, that constant comes
    before each vector, whose other part is cut, or stretched, to √(Γ² − ι²). `scale` (s) is 1 / Z
    of the papers' weights and must be public (erratum 4). With a `fraction` below 1, each user
    takes a random part of its history, by its own key; `draw` numbers the samples.
    """

    V: NDArray[Any]
    ridge: float
    exponent: float = 0.0
    scale: float = 1.0
    unobserved: float = 0.0
    bias: NDArray[Any] | None = None
    intercept: float = 0.0
    fraction: float = 1.0
    draw: int = 0
    center: float | None = None
    prior_count: float = 3.0
    first: int = 0
    stretch: bool = False

    what = "the users' vectors"

    def check(self, public: Public) -> Public:
        if not (0 < self.fraction <= 1 and 0 <= self.draw < 2**31):
            raise ConfigError(f"fraction is {self.fraction!r}, but must be above 0 and at most 1")
        V = public.factors(self.V)
        public.per_item("bias", self.bias)
        if self.center is not None:
            check_bound("ridge", self.ridge)
            check_bound("prior_count", self.prior_count)
        if not 0 <= self.first <= V.shape[1]:
            raise ConfigError(
                f"first is {self.first!r}, but must lie between 0 and the {V.shape[1]} columns"
            )
        rank = V.shape[1] - self.first
        clip_rows(np.zeros((0, rank), V.dtype), public.bounds, self.intercept)
        return replace(public, rank=rank + bool(self.intercept), has_vectors=True, cut=0.0)

    def run(self, block: Block, public: Public) -> Block:
        V = public.factors(self.V)
        counts = np.maximum(block.counts, 1).astype(np.float64)
        penalty = self.ridge * self.scale * counts**self.exponent
        shared = self.unobserved * second_moment(V) if self.unobserved else None
        indptr, indices, y = block.indptr, block.indices, block.values
        if self.fraction < 1:
            taken = np.flatnonzero(sample(indptr, indices, block.key, self.fraction, self.draw))
            indptr = np.searchsorted(taken, indptr)
            indices = indices[taken]
            y = y[taken]
        bias = public.per_item("bias", self.bias)
        block = block.without("residual", "own", "length")
        if self.center is None:
            offset = bias if bias.any() else None
            y = y.astype(V.dtype, copy=False)
            X = solve_rows(indptr, indices, y, V, penalty, shared, offset=offset)
        else:
            expected = (bias + self.center).astype(np.float32)
            lead = math.sqrt(self.ridge / self.prior_count)
            X, own = solve_with_offset(indptr, indices, y, V, penalty, lead, expected, shared)
            level = np.nan_to_num(own + self.center, nan=0.0, posinf=0.0, neginf=0.0)
            block = block.with_state(solution=X, offset=level.astype(np.float32))
        vectors = np.ascontiguousarray(X[:, self.first :])
        return block.with_state(
            vectors=scale_vectors(vectors, public, self.stretch, self.intercept)
        )


def solve_with_offset(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    V: NDArray[Any],
    penalty: NDArray[np.float64],
    lead: float,
    expected: NDArray[Any],
    shared: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Solve for û (n, r) and o − center (n,) of `Solve`.

    `lead` is √(λ/κ), and `expected` is b + center.
    """
    y = values.astype(V.dtype, copy=False)
    if V.shape[1]:
        X, own = solve_rows_constant(indptr, indices, y, V, penalty, lead, shared, offset=expected)
    else:
        one = np.full((len(V), 1), lead, V.dtype)
        own = solve_rows(indptr, indices, y, one, penalty, offset=expected)[:, 0]
        X = np.zeros((len(indptr) - 1, 0), V.dtype)
    return X, np.float32(lead) * own


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
    """Compute each user's residuals from V and b, weighted and cut to G.

    Users keep their own gradients as well, for a `GradientStep`. With `relative`, residuals are
    those of the users' whole solutions, divided by G, and users keep their length before the cut
    instead: it is then at most 1 for any G, even one that follows from earlier releases, and
    sensitivities do not depend on it.
    """

    V: NDArray[Any]
    largest: float
    bias: NDArray[Any] | None = None
    relative: bool = False

    what = "the users' residuals"

    def check(self, public: Public) -> Public:
        public.need_vectors()
        public.factors(self.V, None if self.relative else public.rank)
        public.per_item("bias", self.bias)
        largest = check_bound("largest", self.largest)
        return replace(public, cut=1.0 if self.relative else largest)

    def run(self, block: Block, public: Public) -> Block:
        U = block["solution" if self.relative else "vectors"]
        lengths = np.zeros(block.n) if self.relative else None
        offset = block.state.get("offset")
        x, g = residual_rows(
            block.indptr,
            block.indices,
            block.values,
            U,
            public.factors(self.V).astype(U.dtype),
            self.largest * SHAVE,
            public.per_item("bias", self.bias).astype(np.float32),
            np.zeros(block.n, np.float32) if offset is None else offset,
            block.state.get("entry_weight"),
            own=not self.relative,
            lengths=lengths,
        )
        if lengths is None:
            return block.with_state(residual=x, own=g)
        x /= x.dtype.type(self.largest)
        return block.with_state(residual=x, length=lengths)


@dataclass(frozen=True)
class GradientStep(UserStep):
    """Move each user to u − rate · Σ_j e_j v_j − balance · uᵀR by its last residuals, cut to Γ."""

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
            raise ConfigError("users have no gradients yet. Apply the step ComputeResiduals first.")
        moved = turn_rows(U, own, self.R, self.rate, self.balance)
        return block.without("residual", "own").with_state(vectors=scale_vectors(moved, public))


def scale_vectors(
    U: NDArray[Any], public: Public, stretch: bool = False, intercept: float = 0.0
) -> NDArray[Any]:
    """Scale vectors to be contributed: stretched, if requested, and cut to the norm."""
    bounds = public.bounds
    if stretch:
        exact = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0).astype(np.float64)
        length = np.sqrt((exact**2).sum(axis=1, keepdims=True))
        U = np.where(length > 1e-12, exact * (bounds.norm / np.maximum(length, 1e-12)), 0).astype(
            U.dtype
        )
    return np.ascontiguousarray(clip_rows(U, bounds, intercept))


# ------------------------------------------------------------------ rows of residuals


@dataclass(frozen=True)
class SubtractBaseline(UserStep):
    """Subtract public offsets, and optionally the user's own mean, from its ratings, and cut."""

    offsets: NDArray[Any] | None = None
    prior_count: float | None = None
    clamp: float | None = None

    what = "the users' residuals"

    def check(self, public: Public) -> Public:
        public.per_item("offsets", self.offsets)
        if self.prior_count is not None:
            public_number("prior_count", self.prior_count)
        if self.clamp is not None:
            check_bound("clamp", self.clamp)
        return public

    def run(self, block: Block, public: Public) -> Block:
        row = block.row
        y = (
            block.values.astype(np.float64)
            - public.per_item("offsets", self.offsets)[block.indices]
        )
        if self.prior_count is not None:
            total = np.bincount(row, y, minlength=block.n)
            y = y - (total / np.maximum(block.counts + self.prior_count, 1e-9))[row]
        if self.clamp is not None:
            y = np.clip(y, -self.clamp, self.clamp)
        y = np.nan_to_num(y, nan=0.0, posinf=0.0, neginf=0.0)
        return block.with_state(y=y, fitted=np.zeros_like(y))


@dataclass(frozen=True)
class FrankWolfeStep(UserStep):
    """One step along a public direction: see `frank_wolfe_step`."""

    direction: NDArray[np.float64]
    length: float
    size: float
    gamma: float
    largest: float

    what = "the users' step"

    def check(self, public: Public) -> Public:
        public.array("direction", self.direction, (public.n_items,))
        return public

    def run(self, block: Block, public: Public) -> Block:
        fitted, _, _ = frank_wolfe_step(
            block.row,
            block.n,
            self.direction[block.indices],
            block["y"],
            block["fitted"],
            self.length,
            self.size,
            self.gamma,
            self.largest,
        )
        return block.with_state(fitted=np.nan_to_num(fitted, posinf=0.0, neginf=0.0))


def frank_wolfe_step(
    row: NDArray[Any],
    n: int,
    v: NDArray[Any],
    y: NDArray[Any],
    fitted: NDArray[Any],
    length: float,
    size: float,
    gamma: float,
    largest: float,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Take the local step of n users, on their own entries.

        a = fitted − y,   û_i = a_i · v / length,   fitted ← Π_L((1 − γ) fitted − γ k û_i v)

    Parameters
    ----------
    row, v, y, fitted : per entry
        User, direction at the item, rating, and current prediction.
    length, size, gamma, largest : float
        λ̂', k, γ and L; Π_L scales a user's predictions on its own items to the norm L.

    Returns
    -------
    fitted : per entry
    coefficient, shrink : per user
        The prediction for any item is shrink · ((1 − γ) · the one before + coefficient · v).
    """
    u = np.bincount(row, (fitted - y) * v, minlength=n) / length
    coefficient = -gamma * size * u
    fitted = (1 - gamma) * fitted + coefficient[row] * v
    norm = np.sqrt(np.bincount(row, fitted**2, minlength=n))
    shrink = np.minimum(1.0, largest / np.maximum(norm, 1e-300))
    return fitted * shrink[row], coefficient, shrink


# ------------------------------------------------------------------ Huber weights


@dataclass(frozen=True)
class Reweigh(UserStep):
    """Multiply each user's contributions by their Huber weights under public factors.

    A rating counts the less, the further it is from what the factors predict (Holland & Welsch,
    1977): w_ij = ψ_α(e_ij) / e_ij = min(1, α / |e_ij|), e_ij = y_ij − u_i · v_j.

    Privacy: weights lie between 0 and 1 and multiply what the user contributes anyway, so that
    every bound on it still holds, and the sensitivities of `ItemCounts`, `ItemGrams` and `ItemSums`
    with it; the factor √2 for replacing in ℓ₂ needs only that weights are never negative.
    """

    V: NDArray[Any]
    alpha: float

    what = "the users' weights"

    def check(self, public: Public) -> Public:
        check_bound("alpha", self.alpha)
        public.need_contributions()
        public.need_vectors()
        public.factors(self.V, public.rank)
        return public

    def run(self, block: Block, public: Public) -> Block:
        item = np.repeat(np.arange(public.n_items), np.diff(block["by_item"]))
        V = public.factors(self.V)
        by_residual = huber_weights(
            item, block["user"], block["value"], block["vectors"], V, self.alpha
        )
        return block.with_state(weight=block["weight"] * by_residual)


def huber_weights(
    item: NDArray[Any],
    user: NDArray[Any],
    value: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    alpha: float,
) -> NDArray[np.float64]:
    """Compute min(1, α / |value − u · v|) of each (user, item, value); 0 where not finite.

    Each is added up by itself and in the order of the factors, so that no bit of it depends on
    other users.
    """
    weight = np.empty(len(item))
    run(lambda a, b: _weights(item, user, value, U, V, alpha, weight, a, b), even_cuts(len(item)))
    return weight


@njit(nogil=True, cache=True, error_model="numpy")
def _weights(
    item: np.ndarray,
    user: np.ndarray,
    value: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    alpha: float,
    weight: np.ndarray,
    start: int,
    stop: int,
) -> None:
    for at in range(start, stop):
        predicted = 0.0
        for k in range(U.shape[1]):
            predicted += float(U[user[at], k]) * float(V[item[at], k])
        size = abs(value[at] - predicted)
        if not math.isfinite(size):
            weight[at] = 0.0
        elif size > alpha:
            weight[at] = alpha / size
        else:
            weight[at] = 1.0
