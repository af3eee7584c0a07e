"""Binary format of a block of users in a file or between machines: six consecutive arrays.

    number of users, number of ratings      int64 each
    indptr                                  int64, one more than users
    hashes of the users  uint64: the first half of the keyed hash of the id (`user_hash`), ascending
    numbers of the users   uint64: seeds of their random choices, encrypted (`user_hash`)
    items                                   int32, ascending and distinct within a user
    ratings                                 float32

A block contains no id, and no hash that can be computed without the secret of the folder. With the
secret the number of a user can be decrypted, and for an integer id it is the id: so no block
contains the secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data.csr import compress
from discreet.engines.user_hash import Identity, Secret, rows_of_runs, siphash
from discreet.errors import DataError
from discreet.privacy.statistics.base import Block
from discreet.privacy.statistics.bounds import Bounds
from discreet.privacy.users.item_sampling import keys_of
from discreet.privacy.users.sealed_users import sealed_block

SEED = 0  # of users' random choices in a timeline, which makes none


@dataclass(frozen=True, repr=False)  # a generated repr would print ratings
class PackedBlock:
    """Some users with their ratings, as compressed sparse rows.

    Attributes
    ----------
    indptr : (n_users + 1,) int64
    hashes, numbers : (n_users,) uint64
        First half of the keyed hash, and the encrypted seed of random choices.
    items : (n_ratings,) int32
    ratings : (n_ratings,) float32
    """

    indptr: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]

    @classmethod
    def of_nobody(cls) -> PackedBlock:
        none = np.zeros(0, np.uint64)
        return cls(
            np.zeros(1, np.int64), none, none, np.zeros(0, np.int32), np.zeros(0, np.float32)
        )

    def sealed(self, bounds: Bounds, seed: int, secret: Secret) -> Block:
        """Return the sealed block on which users' steps run."""
        keys = keys_of(secret.decrypt(self.hashes, self.numbers), seed)
        return sealed_block(self.indptr, self.items, self.ratings, keys, bounds)

    def hash_users(
        self, secret: Secret, age_key: NDArray[np.uint64], least: int
    ) -> NDArray[np.uint64]:
        """Return hashes by the key of a timeline, of users with at least so many ratings."""
        some = np.diff(self.indptr) >= least
        numbers = secret.decrypt(self.hashes[some], self.numbers[some])
        return siphash(keys_of(numbers, SEED), *age_key)[:, 0]

    def chunks(self) -> list[NDArray[Any]]:
        """Return the arrays in the order in which they are written."""
        head = np.array([len(self.numbers), len(self.items)], np.int64)
        return [head, self.indptr, self.hashes, self.numbers, self.items, self.ratings]

    def to_bytes(self) -> bytes:
        return b"".join(np.ascontiguousarray(array).tobytes() for array in self.chunks())

    @classmethod
    def from_bytes(cls, data: Any) -> PackedBlock:
        """Share a buffer without copying; raise a ValueError if its length is wrong."""
        n, nnz = (int(x) for x in np.frombuffer(data, np.int64, 2))
        if n < 0 or nnz < 0 or len(data) != 16 + 8 * (n + 1) + 16 * n + 8 * nnz:
            raise ValueError("not a packed block")
        at = 16
        arrays: list[Any] = []
        kinds = (np.int64, np.uint64, np.uint64, np.int32, np.float32)
        for kind, length in zip(kinds, (n + 1, n, n, nnz, nnz), strict=True):
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
    counts: NDArray[np.int64] | None = None,
) -> PackedBlock:
    """Pack the users of these rows, which must be all the rows that they have.

    Parameters
    ----------
    who : (n, 3) uint64, or one row for each of `counts`
    items : (n,) int32
        −1 for an item that is not in the catalog; its user is kept, as in memory.
    ratings, times : (n,)
    n_items : int
    duplicates : {"last", "mean", "error"}
        As in `Ratings.read`; without times, the last row is the newest.
    counts : (runs,) int64, optional
        Numbers of adjacent rows of one user, so that runs are sorted instead of rows.
    """
    order, new = _group(who)
    user = (np.cumsum(new) - 1).astype(np.int32)
    first = order[new]
    hashes, numbers = np.ascontiguousarray(who[first, 0]), np.ascontiguousarray(who[first, 2])
    if counts is not None:
        user = np.repeat(user, counts[order])
        order = rows_of_runs((np.cumsum(counts) - counts)[order], counts[order])
    items, ratings = items[order], ratings[order]
    times = None if times is None else times[order]
    known = items >= 0
    if not known.all():
        user, items, ratings = user[known], items[known], ratings[known]
        times = None if times is None else times[known]
    try:
        rows = compress(user, items, len(first), n_items, ratings, times, duplicates)
    except DataError:
        repeated = True
    else:
        repeated = False
    if repeated:  # raised outside the handler, so that no row number is chained to it
        raise DataError(
            "a user rated an item twice: remove the repetitions, or merge them with"
            ' duplicates="last" or "mean"'
        )
    return PackedBlock(rows.indptr, hashes, numbers, rows.indices, rows.values)


def _group(who: Identity) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a stable order that groups the rows by user, and where in it each user begins."""
    order = np.argsort(who[:, 0], kind="stable")
    first, second = who[order, 0], who[order, 1]
    same = first[1:] == first[:-1]
    if (same & (second[1:] != second[:-1])).any():  # two users share the first half of the hash
        order = np.lexsort((who[:, 1], who[:, 0]))
        first, second = who[order, 0], who[order, 1]
        same = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    return order, np.append(np.ones(min(len(who), 1), bool), ~same)
