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
    indptr = np.zeros(n_users + 1, np.int64)
    if strictly_ordered(users, items):
        np.cumsum(np.bincount(users, minlength=n_users), out=indptr[1:])
        return Compressed(indptr, items, values, timestamps, 0)
    order = counting_order(items, n_items)
    order = order[counting_order(users[order], n_users)]
    np.cumsum(np.bincount(users, minlength=n_users), out=indptr[1:])
    del users  # rows follow from indptr from here on
    items, values = items[order], values[order]
    timestamps = None if timestamps is None else timestamps[order]
    del order
    first = np.empty(len(items), dtype=bool)  # of each run of equal (user, item) pairs
    first[1:] = items[1:] != items[:-1]
    first[indptr[:-1][np.diff(indptr) > 0]] = True
    merged = len(items) - int(np.count_nonzero(first))
    if merged == 0:
        return Compressed(indptr, items, values, timestamps, 0)
    if duplicates == "error":
        raise DataError(
            f"{merged:,} rows repeat a (user, item) pair: remove the repetitions, "
            'or merge them with duplicates="last" or duplicates="mean"'
        )
    starts = np.flatnonzero(first)
    values, timestamps = _merge(starts, values, timestamps, duplicates)
    return Compressed(np.searchsorted(starts, indptr), items[starts], values, timestamps, merged)


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
        newest = np.repeat(np.maximum.reduceat(timestamps, starts), ends - starts)
        # the newest; of several equally new ones, the last
        chosen = np.maximum.reduceat(np.where(timestamps == newest, np.arange(len(values)), -1), starts)
    return values[chosen], None if timestamps is None else timestamps[chosen]


def matrix_entries(matrix: Any, duplicates: str) -> Compressed:
    """Stored entries of a scipy sparse matrix or array, without touching it.

    A CSR matrix of float32 with sorted, distinct columns is shared; anything else is sorted into new arrays. Stored
    zeros are entries, except in the formats (bsr, dia) that must store zeros as padding.
    """
    if not sparse.issparse(matrix):
        raise DataError(
            f"a scipy sparse matrix is needed, and {type(matrix).__name__} was given: "
            "wrap a dense array in scipy.sparse.csr_array, where zeros then mean that there is no rating"
        )
    if matrix.ndim != 2:
        raise DataError(f"a matrix with two dimensions is needed, and one of shape {matrix.shape} was given")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"the matrix must hold real numbers, and its type is {matrix.dtype}")
    if matrix.shape[1] > np.iinfo(np.int32).max or matrix.shape[0] > np.iinfo(np.int32).max:
        raise DataError(f"a matrix of shape {matrix.shape} is too large: at most 2³¹ − 1 users and items are allowed")
    n_users, n_items = matrix.shape
    if matrix.format == "csr":
        indptr, columns, data = matrix.indptr, matrix.indices, matrix.data[: matrix.indptr[-1]]
        columns = columns[: len(data)]
        if bool((np.diff(indptr) < 0).any()) or indptr[0] != 0 or len(columns) != indptr[-1]:
            raise DataError("the matrix is damaged: its indptr does not fit its indices")
        rows = row_of_entry(indptr)
    else:
        triples = matrix.tocoo(copy=False)
        rows, columns, data = triples.row, triples.col, triples.data
        if matrix.format in ("bsr", "dia"):
            rows, columns, data = rows[data != 0], columns[data != 0], data[data != 0]
    for name, index, bound in (("row", rows, n_users), ("column", columns, n_items)):
        if len(index) and not (index.min() >= 0 and index.max() < bound):
            raise DataError(f"the matrix is damaged: a {name} index lies outside 0 … {bound - 1:,}")
    with np.errstate(over="ignore", invalid="ignore"):
        values = data.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"{len(bad):,} ratings in the matrix are NaN or infinite, the first in row {rows[bad[0]]:,} and column "
            f"{columns[bad[0]]:,} (from 0): correct or remove them"
        )
    rows, columns = rows.astype(np.int32, copy=False), columns.astype(np.int32, copy=False)
    return compress(rows, columns, n_users, n_items, values, None, duplicates)


def core(
    rows: NDArray[np.int32], columns: NDArray[np.int32], users: NDArray[np.bool_], items: NDArray[np.bool_],
    min_user: int, min_item: int,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:  # fmt: skip
    """Largest sub-matrix in which every user has ``min_user`` entries and every item ``min_item``.

    Dropping an item can leave a user with too few entries and the other way round, so both are dropped in turn until
    nothing changes. ``users`` and ``items`` say who may stay to begin with; returned are those who do, and the entries.
    """
    while True:
        entries = users[rows] & items[columns]
        enough_users = users & (np.bincount(rows[entries], minlength=len(users)) >= min_user)
        enough_items = items & (np.bincount(columns[entries], minlength=len(items)) >= min_item)
        if np.array_equal(enough_users, users) and np.array_equal(enough_items, items):
            return entries, users, items
        users, items = enough_users, enough_items
