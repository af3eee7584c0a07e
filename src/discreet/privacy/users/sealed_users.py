"""Ratings behind glass: what users compute for themselves, and the bounded sums that a Session may
release.

`seal` takes ratings and bounds and gives `Users`. Everything a user computes from its own ratings
and from public values (its mean, which of its items it contributes through, its vector) happens
inside and stays there; it costs nothing, because nobody else sees it. What leaves are statistics:
sums over users of contributions cut to the bounds, priced by them, released by `Session.release`.
So there are two verbs, and all else is made of them: `apply` lets every user take an `UserStep`,
`sum` gives the sum of a `Statistic` over all blocks of users, which is exact and therefore the same
however users are divided into blocks.

Three rules keep the proof simple. Nothing about one user depends on another user, to the last bit,
not even the random choice of its items, which is drawn from the user's own id. Every number is
finite from the start, and nothing warns: a warning would be a message about somebody's ratings. And
contributions are cut a hair below their bound (`SHAVE`), so that no rounding of floating-point
numbers can carry one over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.errors import ConfigError
from discreet.kernels import second_moment, solve_rows
from discreet.privacy.sealed import KEY, Sealed, guard
from discreet.privacy.statistics.base import Block, Public, Statistic, UserStep, sums_of_rows
from discreet.privacy.statistics.bounds import SHAVE, Bounds, check_rows, clip_rows, public_number
from discreet.privacy.statistics.contributions import (
    ContributedCovariance,
    GlobalGram,
    Gradient,
    ItemCounts,
    ItemGrams,
    ItemSums,
    RatingCount,
    RatingSum,
)
from discreet.privacy.statistics.sums import SensitivityBounds, Sum
from discreet.privacy.users.item_sampling import by_item, pick, sample, user_keys
from discreet.privacy.users.partitions import MemoryPartitions, Partitions

LARGEST_RATING = 2.0**40  # beyond, float32 would overflow in a user's own least squares
# the state that `Choose` and `Weigh` make, by item
CONTRIBUTIONS = ("user", "by_item", "value", "weight")


@guard("sealed ratings")
def seal(ratings: Any, bounds: Bounds, *, seed: int = 0) -> Users:
    """Users with their ratings behind glass.

    Parameters
    ----------
    ratings : Ratings, or anything with a method ``seal(bounds, seed=...)`` (another engine's data)
    bounds : Bounds
    seed : int
        Of the users' random choices among their items. Public.
    """
    if not isinstance(ratings, Ratings):
        sealed: Users = ratings.seal(bounds, seed=seed)
        return sealed
    check_rows(ratings)
    block = sealed_block(
        ratings.indptr, ratings.indices, ratings.values, user_keys(ratings.user_ids, seed), bounds
    )
    return Users((block,), Public(bounds, ratings.n_items))


@guard("what users measured")
def seal_values(measure: Callable[[], NDArray[Any]]) -> Users:
    """Users behind glass with one row of numbers each, and nothing else.

    Parameters
    ----------
    measure : function without arguments
        Gives (n_users, d) numbers. Row i depends on user i and on public values only, to the last
        bit; that is the caller's to prove, as for every step that users take by themselves. What is
        no finite number counts as 0.
    """
    values = np.nan_to_num(np.asarray(measure(), np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    assert values.ndim == 2
    n = len(values)
    nothing = np.zeros(0)
    block = Block(
        np.zeros(n + 1, np.int64),
        nothing.astype(np.int32),
        nothing.astype(np.float32),
        np.zeros(n, np.float32),
        np.zeros(n, np.uint64),
        {"measured": values},
    )
    return Users((block,), Public(Bounds(items=1), values.shape[1]))


def sealed_block(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    ratings: NDArray[np.float32],
    keys: NDArray[np.uint64],
    bounds: Bounds,
) -> Block:
    """Some users' ratings, made finite and centered as the bounds say."""
    n = len(indptr) - 1
    counts = np.diff(indptr)
    # a number that is none would spread through every sum that it enters, and so show that its user
    # is there
    values = np.nan_to_num(ratings, nan=0.0, posinf=0.0, neginf=0.0)
    np.clip(values, -LARGEST_RATING, LARGEST_RATING, out=values)
    if bounds.rating is None:
        values = np.ones_like(values)
    mean = np.zeros(n, np.float32)
    if bounds.rating is not None and bounds.center == "user":
        summed = sums_of_rows(indptr, values) + bounds.prior_mean * bounds.prior_count
        mean = (summed / np.maximum(counts + bounds.prior_count, 1e-9)).astype(np.float32)
        values -= np.repeat(mean, counts)
    elif bounds.rating is not None:
        mean += np.float32(bounds.center)
        values -= np.float32(bounds.center)
    return Block(indptr, indices, values, mean, keys)


class Users(Sealed[Partitions]):
    """Sealed people, in blocks. Public: the bounds, the number of items, the rank of vectors; all
    else is refused.

    Parameters
    ----------
    people : blocks in memory, or a `Place` of another engine
    public : Public
    """

    __slots__ = ("_public",)

    def __init__(self, people: Sequence[Block] | Partitions, public: Public) -> None:
        place = people if isinstance(people, Partitions) else MemoryPartitions(people)
        super().__init__(place, f"ratings of {public.n_items:,} items")
        self._public = public

    @property
    def public(self) -> Public:
        return self._public

    @property
    def bounds(self) -> Bounds:
        return self._public.bounds

    @property
    def n_items(self) -> int:
        return self._public.n_items

    @property
    def rank(self) -> int:
        """Length of the users' vectors, 0 before there are any."""
        return self._public.rank

    # ------------------------------------------------------------ the two verbs

    @guard("what users do")
    def apply(self, step: UserStep) -> None:
        """Every user takes the step; what comes of it stays where the user is."""
        after = step.check(self._public)
        place = self._after(step)
        self._content = lambda: place
        self._public = after

    @guard("what users do")
    def copy_after(self, step: UserStep) -> Self:
        """The same users after the step, beside these, who stay as they are."""
        return type(self)(self._after(step), step.check(self._public))

    @guard("a sum over users")
    def sum(self, statistic: Statistic) -> Sum:
        """The sum of the statistic over all users as they are now: exact integers, added block
        by block.
        """
        public = self._public
        statistic.check(public)
        adder = statistic.transform(self.open(KEY).adder(statistic, public), public)
        return Sum(
            statistic.shape(public), self._reach(statistic), adder, statistic.symmetric(public)
        )

    @guard("what users do")
    def close(self) -> None:
        """Drop what an engine keeps of these users in memory: the training has ended, or failed."""
        self.open(KEY).close()

    def _reach(self, statistic: Statistic) -> SensitivityBounds:
        found: SensitivityBounds = statistic.reach(self._public)
        return found

    def _after(self, step: UserStep) -> Partitions:
        step.check(self._public)
        place = self.open(KEY)
        public = self._public

        @guard(step.what)
        def run() -> Partitions:
            return place.after(step, public)

        return run()

    # ------------------------------------------------------------ what users do by themselves

    def restrict(self, items: NDArray[np.integer[Any]]) -> Users:
        """The same users with only these items (public positions), renumbered in the order
        given.
        """
        return self.copy_after(Restrict(np.asarray(items)))

    def recenter(self, center: float) -> None:
        """Subtract this public number from every rating instead of what was subtracted before;
        then choose again.
        """
        self.apply(Recenter(center))

    def choose(self, priority: NDArray[np.floating[Any]] | None = None, draw: int = 0) -> None:
        """Each user picks at most k items to contribute through: at random, or those of lowest
        public `priority`.

        `draw` numbers the random choices: another number is another sample.
        """
        self.apply(Choose(priority, draw))

    def weigh(self, importance: NDArray[np.floating[Any]]) -> None:
        """Each user contributes through all its items, with w_ij² = B q_j / Σ_j q_j for a
        public `importance` q ≥ 0.
        """
        self.apply(Weigh(importance))

    def solve(self, V: NDArray[Any], ridge: float, **options: Any) -> None:
        """Each user's vector by least squares on its own history, cut to the norm: see `Solve`."""
        self.apply(Solve(V, ridge, **options))

    # ------------------------------------------------------------ what may be released

    def item_counts(self) -> Sum:
        """Σ_i w_ij for each item j."""
        return self.sum(ItemCounts())

    def item_grams(self, isometric: bool = True) -> Sum:
        """Σ_i w_ij u_i u_iᵀ for each item j, as packed upper triangles; isometric: with less
        noise off the diagonal.
        """
        return self.sum(ItemGrams(isometric))

    def item_sums(self) -> Sum:
        """Σ_i w_ij y_ij u_i for each item j."""
        return self.sum(ItemSums())

    def gradient(self, V: NDArray[Any], largest: float, bias: NDArray[Any] | None = None) -> Sum:
        """Σ_i e_ij u_i for each item j, e_ij = u_i · v_j + b_j − y_ij being cut to ‖e_i‖ ≤
        `largest` (G).
        """
        return self.sum(Gradient(V, largest, bias))

    def global_gram(self) -> Sum:
        """Σ_i u_i u_iᵀ over all users, as one packed upper triangle."""
        return self.sum(GlobalGram())

    def covariance(self, largest: float) -> Sum:
        """Σ_i y_i y_iᵀ, (n_items, n_items), y_i being what user i contributes, cut to ‖y_i‖ ≤
        `largest` (L).
        """
        return self.sum(ContributedCovariance(largest))

    def rating_sum(self) -> Sum:
        """Σ w y over everything contributed, shape (1,)."""
        return self.sum(RatingSum())

    def rating_count(self) -> Sum:
        """Σ w over everything contributed, shape (1,)."""
        return self.sum(RatingCount())


# ------------------------------------------------------------------ steps


@dataclass(frozen=True)
class Restrict(UserStep):
    """Keep only these items (public positions), renumbered in the order given, and choose again."""

    items: NDArray[np.integer[Any]]

    what = "the ratings of some items"

    def check(self, public: Public) -> Public:
        items = self.items
        if items.ndim != 1 or items.dtype.kind not in "iu" or len(np.unique(items)) != len(items):
            raise ConfigError("restrict needs the positions of distinct items")
        if len(items) and not (items.min() >= 0 and items.max() < public.n_items):
            raise ConfigError(f"restrict needs positions from 0 to {public.n_items - 1:,}")
        return Public(public.bounds, len(items))

    def run(self, block: Block, public: Public) -> Block:
        position = np.full(public.n_items, -1, np.int32)
        position[self.items] = np.arange(len(self.items), dtype=np.int32)
        indices = position[block.indices]
        keep = np.flatnonzero(indices >= 0)
        indptr = np.searchsorted(keep, block.indptr)
        return Block(indptr, indices[keep], block.values[keep], block.mean, block.key)


@dataclass(frozen=True)
class Recenter(UserStep):
    """Subtract a public number from every rating instead of what was subtracted before."""

    center: float

    what = "centered ratings"

    def check(self, public: Public) -> Public:
        if public.bounds.rating is None:
            raise ConfigError("implicit feedback has no ratings to center: give Bounds(rating=...)")
        public_number("center", self.center)
        return replace(public, contributes=False)

    def run(self, block: Block, public: Public) -> Block:
        mean = np.full(block.n, self.center, np.float32)
        values = block.values + np.repeat(block.mean - mean, block.counts)
        return replace(block, values=values, mean=mean).without(*CONTRIBUTIONS)


@dataclass(frozen=True)
class Choose(UserStep):
    """Pick at most k items to contribute through: at random, or those of lowest public priority."""

    priority: NDArray[np.floating[Any]] | None = None
    draw: int = 0

    what = "the users' choice of items"

    def check(self, public: Public) -> Public:
        if public.bounds.items is None:
            raise ConfigError(
                "these bounds have no number of items: use weigh, or give Bounds(items=...)"
            )
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
        weight = np.sqrt(public.bounds.max_squared_weight(public.n_items) / max(k, 1))
        return set_contributions(block, public, chosen, np.full(1, weight))


@dataclass(frozen=True)
class Weigh(UserStep):
    """Contribute through all items, with w_ij² = B q_j / Σ_j q_j for a public importance q ≥ 0."""

    importance: NDArray[np.floating[Any]]

    what = "the users' weights"

    def check(self, public: Public) -> Public:
        if public.bounds.weight is None or public.bounds.items is not None:
            raise ConfigError(
                "weigh contributes through all items and needs Bounds(weight=...) without items"
            )
        if (public.array("importance", self.importance, (public.n_items,)) < 0).any():
            raise ConfigError("importance must not be negative")
        return replace(public, contributes=True)

    def run(self, block: Block, public: Public) -> Block:
        assert public.bounds.weight is not None
        q = public.array("importance", self.importance, (public.n_items,))
        q = (q / max(q.max(initial=0.0), 1e-300))[block.indices]
        row = block.row
        all_own = np.bincount(row, q, minlength=block.n)[row]
        share = np.divide(q, all_own, out=np.zeros_like(q), where=all_own > 0)
        return set_contributions(block, public, None, np.sqrt(public.bounds.weight * share))


@dataclass(frozen=True)
class Solve(UserStep):
    """Each user's vector by least squares on its own history, cut to the norm.

        u = (Σ v vᵀ + λ₀ VᵀV + λ · scale · c^exponent I)⁻¹ Σ (y − b) v, with c the user's own number
        of ratings.

    `scale` is 1 / Z of the papers' weights and must be public (erratum 4). With an `intercept`,
    that constant comes before each vector, whose other part is cut to what the norm leaves. With a
    `fraction` below 1, each user takes a random part of its history, by lots of its own; `draw`
    numbers them.
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

    what = "the users' vectors"

    def check(self, public: Public) -> Public:
        if not (0 < self.fraction <= 1 and 0 <= self.draw < 2**31):
            raise ConfigError(f"fraction is {self.fraction!r}, but must be above 0 and at most 1")
        V = public.factors(self.V)
        public.per_item("bias", self.bias)
        clip_rows(np.zeros((0, V.shape[1]), V.dtype), public.bounds, self.intercept)
        return replace(public, rank=V.shape[1] + bool(self.intercept), has_vectors=True)

    def run(self, block: Block, public: Public) -> Block:
        V = public.factors(self.V)
        bias = public.per_item("bias", self.bias)
        offset = bias if bias.any() else None
        counts = np.maximum(block.counts, 1).astype(np.float64)
        shared = self.unobserved * second_moment(V) if self.unobserved else None
        target = block.values.astype(V.dtype, copy=False)
        penalty = self.ridge * self.scale * counts**self.exponent
        indptr = block.indptr
        indices = block.indices
        if self.fraction < 1:
            taken = np.flatnonzero(sample(indptr, indices, block.key, self.fraction, self.draw))
            indptr = np.searchsorted(taken, indptr)
            indices = indices[taken]
            target = target[taken]
        U = solve_rows(indptr, indices, target, V, penalty, shared, offset=offset)
        return block.with_state(vectors=clip_rows(U, public.bounds, self.intercept))


def set_contributions(
    block: Block, public: Public, chosen: NDArray[np.bool_] | None, weights: NDArray[np.float64]
) -> Block:
    """With the chosen entries of the history, or all, turned by item, with a weight each, or
    one for all.
    """
    start, user, value, weight = by_item(
        block.indptr, block.indices, block.values, weights, public.n_items, chosen
    )
    np.clip(value, -public.bounds.value, public.bounds.value, out=value)
    weight *= SHAVE
    return block.with_state(user=user, by_item=start, value=value, weight=weight)
