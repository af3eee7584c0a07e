"""Some people's ratings as they lie in a file or travel between machines: five arrays, one after the other.

    number of users, number of ratings      int64 each
    indptr                                  int64, one more than users
    numbers of the users                    uint64: what their random choices are drawn from (`identity`)
    items                                   int32, ascending and distinct within a user
    ratings                                 float32

There are no ids in it: nobody who computes on a portion needs to know who it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.csr import compress
from discreet.engines.identity import Identity
from discreet.errors import DataError
from discreet.privacy.people.block import Block
from discreet.privacy.people.bounds import Bounds
from discreet.privacy.people.item_sampling import keys_of
from discreet.privacy.people.users import sealed_block


@dataclass(frozen=True, repr=False)  # whose repr would print ratings
class Portion:
    """Some users with their ratings, as compressed sparse rows."""

    indptr: NDArray[np.int64]
    numbers: NDArray[np.uint64]
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]

    @classmethod
    def of_nobody(cls) -> Portion:
        return cls(np.zeros(1, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, np.float32))

    def sealed(self, bounds: Bounds, seed: int) -> Block:
        """The block that users' steps begin with."""
        return sealed_block(self.indptr, self.items, self.ratings, keys_of(self.numbers, seed), bounds)

    def chunks(self) -> list[NDArray[Any]]:
        """What is written, one array after the other."""
        head = np.array([len(self.numbers), len(self.items)], np.int64)
        return [head, self.indptr, self.numbers, self.items, self.ratings]

    def to_bytes(self) -> bytes:
        return b"".join(np.ascontiguousarray(array).tobytes() for array in self.chunks())

    @classmethod
    def from_bytes(cls, data: Any) -> Portion:
        """From a buffer, which is shared and not copied; raises a ValueError where it is cut or grown."""
        n, nnz = (int(x) for x in np.frombuffer(data, np.int64, 2))
        if n < 0 or nnz < 0 or len(data) != 16 + 8 * (n + 1) + 8 * n + 8 * nnz:
            raise ValueError("not a portion")
        at = 16
        arrays: list[Any] = []
        for kind, length in ((np.int64, n + 1), (np.uint64, n), (np.int32, nnz), (np.float32, nnz)):
            arrays.append(np.frombuffer(data, kind, length, at))
            at += length * np.dtype(kind).itemsize
        return cls(*arrays)


def portion_of(
    who: Identity,
    items: NDArray[np.int32],
    ratings: NDArray[np.float32],
    times: NDArray[np.int64] | None,
    n_items: int,
    duplicates: str,
) -> Portion:
    """The people of these rows, which are all the rows that they have.

    Parameters
    ----------
    who : (n, 2) uint64
    items : (n,) int32
        −1 for an item that is not in the catalogue: its user is there all the same, as in memory.
    ratings, times : (n,)
    n_items : int
    duplicates : {"last", "mean", "error"}
        As in `Ratings.read`; without times, the last row is the newest.
    """
    # stable, so that the rows of a user stay in their order; a whole number has no second half
    plain = not who[:, 1].any()
    order = np.argsort(who[:, 0], kind="stable") if plain else np.lexsort((who[:, 1], who[:, 0]))
    who = who[order]
    new = np.ones(len(who), bool)
    new[1:] = (who[1:] != who[:-1]).any(axis=1)
    user = (np.cumsum(new) - 1).astype(np.int32)
    numbers = np.ascontiguousarray(who[new, 0])
    items, ratings = items[order], ratings[order]
    times = None if times is None else times[order]
    known = items >= 0
    if not known.all():
        user, items, ratings = user[known], items[known], ratings[known]
        times = None if times is None else times[known]
    try:
        rows = compress(user, items, len(numbers), n_items, ratings, times, duplicates)
    except DataError:
        repeated = True
    else:
        repeated = False
    if repeated:  # out here, so that no row number is chained to it
        raise DataError(
            'a user rated an item twice: remove the repetitions, or merge them with duplicates="last" or "mean"'
        )
    return Portion(rows.indptr, numbers, rows.indices, rows.values)


def joined(portions: list[Portion]) -> Portion:
    """Several portions of different people as one."""
    ends = np.cumsum([0, *(len(one.items) for one in portions)])
    indptr = [one.indptr[:-1] + end for one, end in zip(portions, ends[:-1], strict=True)]
    return Portion(
        np.concatenate([*indptr, ends[-1:]]).astype(np.int64),
        np.concatenate([one.numbers for one in portions] or [np.zeros(0, np.uint64)]),
        np.concatenate([one.items for one in portions] or [np.zeros(0, np.int32)]),
        np.concatenate([one.ratings for one in portions] or [np.zeros(0, np.float32)]),
    )
