"""Base of statistics: a sum over users that owns its sensitivity and how it is unpacked.

A `Block` holds the private arrays of some users; `Public` is what is known without accessing them.
A `Statistic` is a value made of public numbers. It checks them against `Public` before it reads any
rating, because a later error would reveal where they do not fit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet._numba import njit
from discreet.errors import ConfigError
from discreet.kernels import pack_grams
from discreet.kernels.eigen import mirror
from discreet.kernels.threads import cost_cuts, even_cuts, run
from discreet.privacy.statistics import integer_sums
from discreet.privacy.statistics.bounds import Bounds

#: State of users who count by age (`users/ages`): a weight from 0 to 1 for each of them.
AGE_WEIGHT = "age_weight"

_PIECE = 1 << 20  # entries that are processed together

#: A function of a slice of rows: the sum over the users of one block.
Rows = Callable[[slice], NDArray[Any]]


@dataclass(frozen=True)
class Public:
    """What is known of sealed users without accessing their data.

    Parameters
    ----------
    bounds : Bounds
    n_items : int
    rank : int
        Length of the users' vectors, 0 before there are any.
    has_vectors, contributes, weighted : bool
        Whether users have vectors, have chosen the items they contribute through, have weights for
        all their entries.
    cut : float
        G, the norm to which the latest residuals were cut; 0 before there are any.
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
            raise ConfigError("there are no contributions yet. Apply the step Choose first.")

    def need_vectors(self) -> None:
        if not self.has_vectors:
            raise ConfigError("there are no user vectors yet. Apply the step Solve first.")

    def need_residuals(self) -> None:
        if self.cut == 0.0:
            raise ConfigError("there are no residuals yet. Apply the step ComputeResiduals first.")

    def array(self, name: str, given: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Check a public array: finite numbers of that shape."""
        array = np.asarray(given, np.float64)
        if array.shape != shape or not np.isfinite(array).all():
            raise ConfigError(
                f"{name} has shape {array.shape}, but must have finite numbers of shape {shape}"
            )
        return array

    def per_item(self, name: str, given: Any) -> NDArray[np.float64]:
        """Return one public number per item; zeros for None."""
        return self.array(name, np.zeros(self.n_items) if given is None else given, (self.n_items,))

    def factors(self, V: Any, rank: int | None = None) -> NDArray[Any]:
        """Check public item factors (n_items, r), of that rank if given; cast them for kernels."""
        V = np.ascontiguousarray(V)
        self.array("V", V, (self.n_items, V.shape[-1] if V.ndim else 0))
        if rank is not None and V.shape[1] != rank:
            raise ConfigError(
                f"item factors of rank {V.shape[1]} do not fit user vectors of rank {rank}"
            )
        factors: NDArray[Any] = V if V.dtype in (np.float32, np.float64) else V.astype(np.float64)
        return factors


@dataclass(frozen=True, repr=False)  # a repr would print ratings in a log or a debugger
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
        Seed of each user's own random choices.
    state : dict of arrays
        By name, for each user or each entry, as the step that made it defines.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    mean: NDArray[np.float32]
    key: NDArray[np.uint64]
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of users: private."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of ratings of each user."""
        return np.diff(self.indptr)

    @property
    def row(self) -> NDArray[np.int64]:
        """Row (user) of each entry of the history."""
        return np.repeat(np.arange(self.n), self.counts)

    @property
    def ratings(self) -> NDArray[np.float64]:
        """Ratings before centering."""
        return self.values.astype(np.float64) + np.repeat(self.mean, self.counts)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.state[name]

    def arrays(self) -> list[NDArray[Any]]:
        """List all arrays of the block."""
        return [self.indptr, self.indices, self.values, self.mean, self.key, *self.state.values()]

    def with_state(self, **arrays: NDArray[Any]) -> Block:
        """Return the block with these arrays added to its state."""
        return replace(self, state={**self.state, **arrays})

    def without(self, *names: str) -> Block:
        """Return the block without these arrays of its state."""
        return replace(
            self, state={name: array for name, array in self.state.items() if name not in names}
        )


def weigh_by_age(block: Block, each: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one number per user times its weight by age, where users have one.

    Weights are at most 1, so that no contribution grows: every sensitivity holds as it is, and a
    contribution of norm 1 gets at most the norm of its weight, entry by entry rounded toward zero.
    """
    weight = block.state.get(AGE_WEIGHT)
    return each if weight is None else each * weight


def sums_of_rows(indptr: NDArray[np.int64], x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return Σ x over the entries of each row, (n,): ``np.bincount`` with less memory."""
    sums = np.empty(len(indptr) - 1)
    counts = np.diff(indptr)

    def add(start: int, stop: int) -> None:
        row = np.repeat(np.arange(stop - start), counts[start:stop])
        sums[start:stop] = np.bincount(row, x[indptr[start] : indptr[stop]], minlength=stop - start)

    run(add, cost_cuts(counts + 1.0, pieces=1 + len(x) // _PIECE))
    return sums


@dataclass(frozen=True)
class SensitivityBounds:
    """How far one user moves a statistic.

    Attributes
    ----------
    l2, l1 : float
        Removing a user, in either norm.
    entry : float
        The most that a user adds to one entry.
    replace_l2, replace_l1 : float
        Factors for replacing a user instead.
    """

    l2: float
    l1: float
    entry: float
    replace_l2: float
    replace_l1: float = 2.0


class Statistic(ABC):
    """A sum over users with a known sensitivity, as a frozen dataclass of public values."""

    what: str = "a statistic"
    #: Whether off-diagonal entries of packed triangles get 1/√2 of the noise (erratum 5).
    isometric: bool = True

    def check(self, public: Public) -> None:  # noqa: B027
        """Raise a `ConfigError` where it cannot be computed for such users."""

    def shape(self, public: Public) -> tuple[int, ...]:
        """Return the shape of the sum, by default one number per item."""
        return (public.n_items,)

    @abstractmethod
    def reach(self, public: Public) -> SensitivityBounds:
        """Return how far one user moves it; the subclass has the proof."""

    def symmetric(self, public: Public) -> int | None:
        """Return the rank of the symmetric matrices packed in the rows, or None."""
        return None

    @abstractmethod
    def partial(self, block: Block, public: Public, grid: float | None) -> Rows:
        """Return a function of a slice of rows: the sum over the users of this block.

        In real numbers without a grid; with one, in int64 units of it, each contribution rounded
        toward zero.
        """

    def transform(self, compute: Any, public: Public) -> Any:
        """Return the released sum as a function (grid, rows), given that of `partial`.

        Most statistics release the sum itself. A public map applied here runs once, after all
        engines have summed; the subclass proves that its sensitivity holds after the map.
        """
        return compute


#: Every statistic by name. Tests walk it, so that none is added without its worst case.
STATISTICS: dict[str, type[Statistic]] = {}
S = TypeVar("S", bound=Statistic)


def register(name: str) -> Callable[[type[S]], type[S]]:
    """Register a statistic under that name, which messages use as well."""

    def enter(kind: type[S]) -> type[S]:
        if name in STATISTICS:
            raise ConfigError(f"a statistic named {name!r} is already registered")
        STATISTICS[name] = kind
        kind.what = name
        return kind

    return enter


def total_of_users(each: NDArray[np.float64], grid: float | None) -> Rows:
    """Sum the contributions of users, entry by entry, rounded per user if there is a grid.

    Parameters
    ----------
    each : (n_users, …)
        One number per user makes a sum of shape (1,).
    """
    whole = each if grid is None else np.trunc(each / grid).astype(np.int64)
    return lambda rows: whole.sum(axis=0, keepdims=each.ndim == 1)[rows]


def per_item_total(
    item: NDArray[np.integer], x: NDArray[Any], m: int, grid: float | None
) -> NDArray[Any]:
    """Sum the entries of x for each of m items."""
    return (
        np.bincount(item, x, minlength=m)
        if grid is None
        else integer_sums.units_at(item, x, m, grid)
    )


def gram_of_users(U: NDArray[Any], grid: float | None) -> Rows:
    """Sum u_i u_iᵀ as one packed upper triangle, each vector rounded to units of √grid."""
    all_users = np.arange(len(U), dtype=np.int32)
    step = min(max(4096, len(U) // 256), integer_sums.CHUNK)  # so that all cores share the work
    cuts = np.append(np.arange(0, len(U), step), len(U))
    if grid is None:
        ones = np.ones(len(U), U.dtype)
        return lambda rows: pack_grams(cuts, all_users, ones, U).sum(axis=0, keepdims=True)[rows]
    c = np.full(len(U), grid**-0.5)

    def exact(rows: slice) -> NDArray[Any]:
        whole = pack_grams(cuts, all_users, c, U.astype(np.float64, copy=False), whole=True)
        return np.asarray(whole.astype(np.int64).sum(axis=0, keepdims=True)[rows])

    return exact


# ------------------------------------------------------------------ symmetric matrices as vectors


def triangle_size(r: int) -> int:
    """Return the number of entries of the upper triangle."""
    return r * (r + 1) // 2


def isometry(r: int) -> NDArray[np.float64]:
    """Return 1 on the diagonal and √2 off it, in the order of `pack`."""
    a, b = np.triu_indices(r)
    return np.where(a == b, 1.0, math.sqrt(2.0))


def pack(A: NDArray[Any]) -> NDArray[Any]:
    """Pack symmetric matrices (n, r, r) as upper triangles (n, r(r+1)/2), row by row."""
    packed = np.empty((len(A), triangle_size(A.shape[1])), A.dtype)
    run(lambda start, stop: _pack(A, packed, start, stop), even_cuts(len(A)))
    return packed


def unpack(
    packed: NDArray[Any], r: int, room: NDArray[Any] | None = None, both: bool = True
) -> NDArray[Any]:
    """Unpack matrices (n, r, r) with both triangles, or the upper ones alone (the rest undefined).

    They use a part of the buffer `room`, if it is given.
    """
    A = np.empty((len(packed), r, r), packed.dtype) if room is None else room[: len(packed)]
    assert A.shape == (len(packed), r, r)
    run(lambda start, stop: _unpack(packed, A, both, start, stop), even_cuts(len(A)))
    return A


@njit(nogil=True, cache=True)
def _pack(A: np.ndarray, packed: np.ndarray, start: int, stop: int) -> None:
    r = A.shape[1]
    for i in range(start, stop):
        at = 0
        for a in range(r):
            for b in range(a, r):
                packed[i, at] = A[i, a, b]
                at += 1


@njit(nogil=True, cache=True)
def _unpack(packed: np.ndarray, A: np.ndarray, both: bool, start: int, stop: int) -> None:
    r = A.shape[1]
    for i in range(start, stop):
        at = 0
        for a in range(r):
            for b in range(a, r):
                A[i, a, b] = packed[i, at]
                at += 1
        if both:
            mirror(A[i])
