"""A part of the people, and what people do by themselves: the two things that every engine is made
of.

A `Block` holds the private arrays of some users. An `UserStep` is a value made of public numbers:
each user computes something for itself from these and its own ratings. A step turns a block into
another one and never writes into it, so that whoever holds the steps can compute a block again, on
another machine or after a crash, to the same bits. `Public` is what everybody may know of people
before and after a step; a step checks its own numbers against it before it meets any rating,
because a later error would say where they do not fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ConfigError
from discreet.kernels.threads import cost_cuts, run
from discreet.privacy.statistics.bounds import Bounds

_PIECE = 1 << 20  # entries that are looked at together


@dataclass(frozen=True)
class Public:
    """What is known of sealed people without looking at them.

    Parameters
    ----------
    bounds : Bounds
    n_items : int
    rank : int
        Length of the users' vectors, 0 before there are any.
    has_vectors, contributes, weighted : bool
        Whether users have vectors, have chosen through which items they contribute, have weights
        for all their entries.
    cut : float
        G, to which the residuals were cut that users have computed last; 0 before there are any.
    """

    bounds: Bounds
    n_items: int
    rank: int = 0
    has_vectors: bool = False
    contributes: bool = False
    weighted: bool = False
    cut: float = 0.0

    def need_contributions(self) -> None:
        if not self.contributes:
            raise ConfigError("nothing is contributed yet: call choose or weigh first")

    def need_vectors(self) -> None:
        if not self.has_vectors:
            raise ConfigError("there are no user vectors yet: call solve first")

    def need_residuals(self) -> None:
        if self.cut == 0.0:
            raise ConfigError("users have not looked at the items yet: call look first")

    def array(self, name: str, given: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """A public array of that shape, checked."""
        array = np.asarray(given, np.float64)
        if array.shape != shape or not np.isfinite(array).all():
            raise ConfigError(
                f"{name} has shape {array.shape}, but must have finite numbers of shape {shape}"
            )
        return array

    def per_item(self, name: str, given: Any) -> NDArray[np.float64]:
        """One public number per item; zeros where None is given."""
        return self.array(name, np.zeros(self.n_items) if given is None else given, (self.n_items,))

    def factors(self, V: Any, rank: int | None = None) -> NDArray[Any]:
        """Public item factors (n_items, r) in a type that kernels know, and of that rank if it
        is given.
        """
        V = np.ascontiguousarray(V)
        self.array("V", V, (self.n_items, V.shape[-1] if V.ndim else 0))
        if rank is not None and V.shape[1] != rank:
            raise ConfigError(
                f"item factors of rank {V.shape[1]} do not fit user vectors of rank {rank}"
            )
        factors: NDArray[Any] = V if V.dtype in (np.float32, np.float64) else V.astype(np.float64)
        return factors


@dataclass(frozen=True, repr=False)  # whose repr would print ratings, in a log or a debugger
class Block:
    """Some users with their ratings, CSR by user, and what they have computed so far.

    Parameters
    ----------
    indptr, indices, values
        The full history; ratings are centered but not cut, because a user's own computations may
        use them.
    mean : (n,)
        What was subtracted from each user's ratings.
    key : (n,) uint64
        Of each user's own random choices.
    state : dict of arrays
        By name, for each user or each entry, in the words of the step that made it.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    mean: NDArray[np.float32]
    key: NDArray[np.uint64]
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many users: private."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many ratings each user has."""
        return np.diff(self.indptr)

    @property
    def row(self) -> NDArray[np.int64]:
        """Whose each entry of the history is."""
        return np.repeat(np.arange(self.n), self.counts)

    def per_user(self, x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Sums of an array of entries by user, each in the order of its entries, a part of the
        users at a time.
        """
        return sums_of_rows(self.indptr, x)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.state[name]

    def arrays(self) -> list[NDArray[Any]]:
        """All that it holds."""
        return [self.indptr, self.indices, self.values, self.mean, self.key, *self.state.values()]

    def with_state(self, **arrays: NDArray[Any]) -> Block:
        """With these arrays in the state beside the others."""
        return replace(self, state={**self.state, **arrays})

    def without(self, *names: str) -> Block:
        """Without what the state has under these names."""
        return replace(
            self, state={name: array for name, array in self.state.items() if name not in names}
        )


def sums_of_rows(indptr: NDArray[np.int64], x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Σ x over the entries of each row, (n,): ``np.bincount`` without arrays as long as all
    entries together.
    """
    sums = np.empty(len(indptr) - 1)
    counts = np.diff(indptr)

    def add(start: int, stop: int) -> None:
        row = np.repeat(np.arange(stop - start), counts[start:stop])
        sums[start:stop] = np.bincount(row, x[indptr[start] : indptr[stop]], minlength=stop - start)

    run(add, cost_cuts(counts + 1.0, pieces=1 + len(x) // _PIECE))
    return sums


class UserStep(ABC):
    """What each user does by itself. Subclasses are frozen dataclasses of public values."""

    #: What an error says could not be computed.
    what: str = "a step of the users"
    #: Whether it gives the same bits whenever it is taken; else only people in memory can take it.
    repeatable: bool = True

    @abstractmethod
    def check(self, public: Public) -> Public:
        """What is public after the step; raises a `ConfigError` for numbers that do not fit."""

    @abstractmethod
    def run(self, block: Block, public: Public) -> Block:
        """The users after the step; `public` is as before it."""


class Statistic(ABC):
    """A sum over users that knows how far one user can move it. Subclasses are frozen
    dataclasses of public values.
    """

    what: str = "a statistic"

    @abstractmethod
    def check(self, public: Public) -> None:
        """Raise a `ConfigError` where it cannot be computed for such people."""

    @abstractmethod
    def shape(self, public: Public) -> tuple[int, ...]: ...

    @abstractmethod
    def reach(self, public: Public) -> Any:
        """The `Reach` of one user (`discreet.privacy.statistics.sums`); the subclass has the
        proof.
        """

    def symmetric(self, public: Public) -> int | None:
        """Rank of the symmetric matrices whose packed upper triangles are the rows, if they are."""
        return None

    @abstractmethod
    def partial(self, block: Block, public: Public, grid: float | None) -> Any:
        """A function of a slice of rows: the sum over the users of this block.

        In real numbers without a grid; with one, in int64 units of it, each contribution rounded
        toward zero.
        """

    def transform(self, compute: Any, public: Public) -> Any:
        """The released sum as a function (grid, rows), given the one of `partial` over all blocks.

        Most statistics release the sum itself. A public map applied here runs once, after all
        engines have summed; the subclass proves that its sensitivity holds after the map.
        """
        return compute
