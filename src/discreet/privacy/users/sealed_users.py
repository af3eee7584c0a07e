"""Sealed ratings: what users compute by themselves, and the bounded sums a Session may release.

`seal` takes ratings and bounds and gives `Users`. Everything a user computes from its own ratings
and from public values (its mean, which of its items it contributes through, its vector) happens
inside and stays there; it costs nothing, because nothing leaves. What leaves are statistics: sums
over users of contributions cut to the bounds, charged by them, released by `Session.release`.
So there are two operations: `apply` lets every user take a `UserStep`,
`sum` gives the sum of a `Statistic` over all blocks of users, which is exact and therefore the same
however users are divided into blocks.

Three rules keep the proof simple. Nothing about one user depends on another user, to the last bit,
not even the random choice of its items, which is drawn from the user's own id. Every number is
finite from the start, and nothing warns: a warning would be a message about a user's ratings. And
contributions are cut slightly below their bound (`SHAVE`), so that no rounding of floating-point
numbers can carry one over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.data.ratings import Ratings
from discreet.privacy.sealed import KEY, Sealed, guard
from discreet.privacy.statistics.base import Block, Public, Statistic, sums_of_rows
from discreet.privacy.statistics.bounds import Bounds, check_rows
from discreet.privacy.statistics.regression import ROWS
from discreet.privacy.statistics.sums import Compute, Sum
from discreet.privacy.users.item_sampling import user_keys
from discreet.privacy.users.steps import UserStep

LARGEST_RATING = 2.0**40  # beyond, float32 would overflow in a user's own least squares


@guard("sealed ratings")
def seal(ratings: Any, bounds: Bounds, *, seed: int = 0) -> Users:
    """Seal users with their ratings.

    Parameters
    ----------
    ratings : Ratings, or anything with a method ``seal(bounds, seed=...)`` (another engine's data)
    bounds : Bounds
    seed : int
        Seed of the users' random choices among their items. Public.
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
    """Seal users with one row of numbers each, and nothing else.

    Parameters
    ----------
    measure : function without arguments
        Returns (n_users, d) numbers. Row i must depend on user i and on public values only, to the
        last bit; the caller has to prove it, as for every user step. Non-finite numbers count as 0.
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


@guard("the rows of users")
def seal_rows(collect: Callable[[], tuple[NDArray[np.int64], NDArray[Any]]]) -> Users:
    """Seal users with any number of rows of numbers each, and nothing else.

    Parameters
    ----------
    collect : function without arguments
        Returns (indptr, rows): user i has the rows indptr[i] to indptr[i + 1] of an array
        (n_rows, d). They must depend on user i and on public values only, to the last bit; the
        caller has to prove it. Non-finite numbers count as 0.
    """
    indptr, given = collect()
    rows = np.nan_to_num(np.asarray(given, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    np.clip(rows, -LARGEST_RATING, LARGEST_RATING, out=rows)
    n = len(indptr) - 1
    nothing = np.zeros(len(rows))
    block = Block(
        np.asarray(indptr, np.int64),
        nothing.astype(np.int32),
        nothing.astype(np.float32),
        np.zeros(n, np.float32),
        np.zeros(n, np.uint64),
        {ROWS: rows},
    )
    return Users((block,), Public(Bounds(items=1), rows.shape[1]))


def sealed_block(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    ratings: NDArray[np.float32],
    keys: NDArray[np.uint64],
    bounds: Bounds,
) -> Block:
    """Return a block of ratings, made finite and centered as the bounds say."""
    n = len(indptr) - 1
    counts = np.diff(indptr)
    # a NaN would spread through every sum that it enters, and so reveal that its user is there
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


class Partitions(ABC):
    """Users in blocks, held by some engine; immutable, a step returns other partitions."""

    __slots__ = ()

    @abstractmethod
    def after(self, step: UserStep, public: Public) -> Partitions:
        """Return the users after the step; `public` is what was known before it."""

    @abstractmethod
    def adder(self, statistic: Statistic, public: Public) -> Compute:
        """Return a function (grid, rows) that computes the sum over all users."""

    def close(self) -> None:
        """Drop what an engine keeps between sums; called when a training has ended, or failed."""
        return


class MemoryPartitions(tuple[Block, ...], Partitions):
    """Blocks of arrays in this process."""

    __slots__ = ()

    def after(self, step: UserStep, public: Public) -> MemoryPartitions:
        return MemoryPartitions(step.run(block, public) for block in self)

    def adder(self, statistic: Statistic, public: Public) -> Compute:
        @cache  # once for all blocks of rows
        def partials(grid: float | None) -> list[Any]:
            return [statistic.partial(block, public, grid) for block in self]

        def compute(grid: float | None, rows: slice) -> NDArray[Any]:
            first, *others = partials(grid)
            found: NDArray[Any] = first(rows)
            for one in others:
                found = found + one(rows)
            return found

        return compute


class Users(Sealed[Partitions]):
    """Sealed users, in blocks. Public: bounds, number of items, rank of vectors.

    Parameters
    ----------
    users : blocks in memory, or `Partitions` of another engine
    public : Public
    """

    __slots__ = ("_public",)

    def __init__(self, users: Sequence[Block] | Partitions, public: Public) -> None:
        held = users if isinstance(users, Partitions) else MemoryPartitions(users)
        super().__init__(held, f"ratings of {public.n_items:,} items")
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

    @guard("what users do")
    def apply(self, step: UserStep) -> None:
        """Let every user take the step; the result stays sealed."""
        held, self._public = self._after(step)
        self._content = lambda: held

    @guard("what users do")
    def copy_after(self, step: UserStep) -> Self:
        """Return the users after the step; these are unchanged."""
        return type(self)(*self._after(step))

    @guard("a sum over users")
    def sum(self, statistic: Statistic) -> Sum:
        """Return the sum of the statistic over all users: exact integers, added block by block."""
        statistic.check(self._public)
        adder = self.open(KEY).adder(statistic, self._public)
        return Sum(statistic, self._public, statistic.transform(adder, self._public))

    @guard("what users do")
    def close(self) -> None:
        """Drop what an engine keeps of these users in memory, after a training."""
        self.open(KEY).close()

    def _after(self, step: UserStep) -> tuple[Partitions, Public]:
        known = step.check(self._public)
        return guard(step.what)(self.open(KEY).after)(step, self._public), known


@runtime_checkable
class RatingsSource(Protocol):
    """Users with their ratings, held by any engine; `discreet.Ratings` is one.

    Everything here is public except what `seal` seals, and `rating_range`, which is used only where
    the caller gave none; the statement then reports that it was read from the data. An engine may
    also have ``engine``, a description for the ledger; ``public_range``, a public range of ratings;
    ``exact_only``, true where it adds whole numbers only; ``replays``, true where steps are
    replayed for every sum; ``ready()``, called before anything is charged; and ``user_problem``
    with ``rated``, doubts about the user column (`discreet.data.user_column`).
    """

    @property
    def n_items(self) -> int: ...

    @property
    def item_ids(self) -> NDArray[Any]: ...

    @property
    def titles(self) -> NDArray[Any] | None: ...

    @property
    def catalog(self) -> bool:
        """Whether the items are a public catalog, rather than found in the ratings."""

    @property
    def filtered(self) -> str:
        """Description of a data-dependent filter of ratings; empty if there was none."""

    def rating_range(self) -> tuple[float, float] | None:
        """Return the lowest and the highest rating, or None without ratings."""

    def seal(self, bounds: Bounds, *, seed: int = 0) -> Users:
        """Seal users with their ratings; `seed` is of their random choices among their items."""
