"""Rows (user, item, value) in any order to compressed sparse rows without repetitions.

Two stable counting sorts, by item and then by user, leave the rows ordered by (user, item) and repeated pairs side by
side in their original order; the ``duplicates`` rule then chooses one value for each pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from discreet.errors import ConfigError, DataError

DUPLICATES = ("last", "mean", "error")


class Compressed(NamedTuple):
    """CSR arrays with sorted, distinct columns in each row, and how many rows were merged away."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    timestamps: NDArray[np.int64] | None
    merged: int


def compress(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    n_users: int,
    n_items: int,
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None = None,
    duplicates: str = "last",
) -> Compressed:
    """CSR of the rows; ``duplicates`` as in :meth:`discreet.Ratings.read`.

    Parameters
    ----------
    users, items : (n,) int32 indices
    values : (n,) float32
    timestamps : (n,) int64 or None
    """
    check_duplicates_rule(duplicates)
    repeated: NDArray[np.bool_] | None = None
    if not strictly_ordered(users, items):
        order = counting_order(items, n_items)
        order = order[counting_order(users[order], n_users)]
        users, items, values = users[order], items[order], values[order]
        timestamps = None if timestamps is None else timestamps[order]
        del order
        same = (users[1:] == users[:-1]) & (items[1:] == items[:-1])
        repeated = same if bool(same.any()) else None
    merged = 0
    if repeated is not None:
        if duplicates == "error":
            raise DataError(
                f"{int(repeated.sum()):,} (user, item) pairs are repeated: remove the repetitions, "
                'or merge them with duplicates="last" or duplicates="mean"'
            )
        starts = np.flatnonzero(np.concatenate(([True], ~repeated)))
        merged = len(users) - len(starts)
        values, timestamps = _merge(starts, values, timestamps, duplicates)
        users, items = users[starts], items[starts]
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(np.bincount(users, minlength=n_users), out=indptr[1:])
    return Compressed(indptr, items, values, timestamps, merged)


def check_duplicates_rule(duplicates: str) -> None:
    if duplicates not in DUPLICATES:
        raise ConfigError(f'duplicates must be "last", "mean" or "error", and {duplicates!r} was given')


def strictly_ordered(users: NDArray[Any], items: NDArray[Any]) -> bool:
    """Whether rows come ordered by (user, item) without repetition."""
    above = users[1:] > users[:-1]
    above |= (users[1:] == users[:-1]) & (items[1:] > items[:-1])
    return bool(above.all())


def counting_order(keys: NDArray[Any], n_keys: int) -> NDArray[Any]:
    """Stable order of small integer keys, in linear time (``argsort(kind="stable")`` is its specification).

    A matrix with a single 1 per row, at the column of its key, holds the answer when read column by column; scipy's
    conversion from rows to columns is a compiled counting sort.
    """
    n = len(keys)
    rows = np.arange(n + 1, dtype=np.int32 if n < np.iinfo(np.int32).max else np.int64)
    return sparse.csr_array((np.ones(n, np.int8), keys, rows), shape=(n, n_keys)).tocsc().indices


def row_of_entry(indptr: NDArray[np.int64]) -> NDArray[np.int32]:
    """Row index of every entry of a CSR matrix."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))


def _merge(
    starts: NDArray[np.int64], values: NDArray[np.float32], timestamps: NDArray[np.int64] | None, duplicates: str
) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """One value and timestamp for each group of rows; group g is ``starts[g]`` up to ``starts[g + 1]``."""
    ends = np.append(starts[1:], len(values))
    if duplicates == "mean":
        newest = None if timestamps is None else np.maximum.reduceat(timestamps, starts)
        totals = np.add.reduceat(values, starts, dtype=np.float64)
        return (totals / (ends - starts)).astype(np.float32), newest
    chosen = ends - 1
    if timestamps is not None:
        for group in np.flatnonzero(ends - starts > 1):
            first, end = int(starts[group]), int(ends[group])
            # the newest; of several equally new ones, the last
            chosen[group] = end - 1 - int(np.argmax(timestamps[first:end][::-1]))
    return values[chosen], None if timestamps is None else timestamps[chosen]
