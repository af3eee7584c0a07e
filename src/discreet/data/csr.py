"""Rows (user, item, value) in any order to compressed sparse rows without repetitions.

A stable sort leaves the rows ordered by (user, item), with repeated pairs side by side in their original order; the
``duplicates`` rule then chooses one value for each pair.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from discreet.errors import ConfigError, DataError

DUPLICATES = ("last", "mean", "error")
_BLOCK = 1 << 20
_APART = 1 << 20  # rows from which on it pays to sort some users apart from others


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
    counts = np.bincount(users, minlength=n_users)
    if strictly_ordered(users, items):
        return Compressed(_ends(counts), items, values, timestamps, 0)
    pieces = 1 if duplicates == "error" else min(pa.cpu_count(), len(users) // _APART)
    if pieces < 2:
        return _sorted(users, items, None, counts, n_items, values, timestamps, duplicates)
    cuts = np.searchsorted(_ends(counts), np.linspace(0, len(users), pieces + 1)[1:-1])
    edges = [0, *cuts.tolist(), n_users]

    def part(first: int, last: int) -> Compressed:
        return _sorted(users, items, (first, last), counts[first:last], n_items, values, timestamps, duplicates)

    with ThreadPoolExecutor(pieces) as pool:  # users are sorted apart from each other, in ranges of about equal size
        return _joined(list(pool.map(part, edges[:-1], edges[1:])))


def _ends(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _joined(parts: list[Compressed]) -> Compressed:
    """The parts one after another; the list is emptied, so that what has been copied is freed."""
    fields = dict(zip(Compressed._fields, map(list, zip(*parts, strict=True)), strict=True))
    parts.clear()
    before = np.concatenate([[0], np.cumsum([indptr[-1] for indptr in fields["indptr"]])])
    indptr = [own[1:] + ended for own, ended in zip(fields.pop("indptr"), before[:-1], strict=True)]
    indices = np.concatenate(fields.pop("indices"))
    values = np.concatenate(fields.pop("values"))
    timed = [times for times in fields.pop("timestamps") if times is not None]
    timestamps = np.concatenate(timed) if timed else None
    return Compressed(np.concatenate([[0], *indptr]), indices, values, timestamps, sum(fields["merged"]))


def _sorted(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    part: tuple[int, int] | None,
    counts: NDArray[np.int64],
    n_items: int,
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None,
    duplicates: str,
) -> Compressed:
    """CSR of all rows, or of a `part`, the users from one to before another; `counts` are those of its users."""
    order, items = sort_pairs(users, items, len(counts), n_items, part)
    indptr = _ends(counts)
    values = values.take(order)
    timestamps = None if timestamps is None else timestamps.take(order)
    first = np.empty(len(items), dtype=bool)  # of each run of equal (user, item) pairs
    first[1:] = items[1:] != items[:-1]
    first[indptr[:-1][counts > 0]] = True
    merged = len(items) - int(np.count_nonzero(first))
    if merged == 0:
        return Compressed(indptr, items, values, timestamps, 0)
    if duplicates == "error":
        again = int(np.argmin(first))
        rows = f"rows {order[again - 1]:,} and {order[again]:,} (counting from 0)"
        raise DataError(
            f"{rows} have the same user and item{f' ({merged:,} repetitions in all)' if merged > 1 else ''}: "
            'remove the repetitions, or merge them with duplicates="last" or duplicates="mean"'
        )
    del order
    starts = np.flatnonzero(first)
    values, timestamps = _merge(starts, values, timestamps, duplicates)
    return Compressed(np.searchsorted(starts, indptr), items[starts], values, timestamps, merged)


def check_duplicates_rule(duplicates: str) -> None:
    if duplicates not in DUPLICATES:
        raise ConfigError(f'duplicates must be "last", "mean" or "error", and {duplicates!r} was given')


def strictly_ordered(users: NDArray[Any], items: NDArray[Any]) -> bool:
    """Whether rows come ordered by (user, item) without repetition."""
    for begin in range(0, len(users) - 1, _BLOCK):  # in blocks, because most data are found unordered in the first
        here = slice(begin, min(begin + _BLOCK, len(users) - 1))
        after = slice(begin + 1, begin + _BLOCK + 1)
        ordered = users[after] > users[here]
        ordered |= (users[after] == users[here]) & (items[after] > items[here])
        if not ordered.all():
            return False
    return True


def sort_pairs(
    users: NDArray[Any],
    items: NDArray[Any],
    n_users: int,
    n_items: int,
    part: tuple[int, int] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Stable order of rows by (user, item), and the items in that order; ``lexsort`` is the specification.

    User, item and row number usually fit into 63 bits together, and sorting plain integers is several times faster.
    Of a `part` (users from one to before another, n_users of them) only their rows are put in order.
    """
    row_bits, item_bits, user_bits = (max(n - 1, 0).bit_length() for n in (len(users), n_items, n_users))
    begin, end = part or (0, n_users)
    narrow: Any = np.int32 if len(users) < 2**31 else np.int64
    if part is None:
        rows = np.arange(len(users), dtype=narrow)
    else:
        rows = np.flatnonzero((users >= begin) & (users < end)).astype(narrow)
        users = users.take(rows)
        items = items.take(rows)
    if row_bits + item_bits + user_bits > 63:
        order = np.lexsort((items, users))
        return rows[order], items[order]
    key = users.astype(np.int64)
    key -= begin
    key <<= item_bits
    key |= items
    key <<= row_bits
    key |= rows
    del rows
    key.sort()
    shifted = key >> row_bits
    shifted &= (1 << item_bits) - 1
    key &= (1 << row_bits) - 1
    return key, shifted.astype(np.int32)


def row_of_entry(indptr: NDArray[np.int64]) -> NDArray[np.int32]:
    """Row index of every entry of a CSR matrix."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))


def _merge(
    starts: NDArray[np.int64], values: NDArray[np.float32], timestamps: NDArray[np.int64] | None, duplicates: str
) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """One value and timestamp for each group of rows; group g is ``starts[g]`` up to ``starts[g + 1]``."""
    values_out = np.empty(len(starts), np.float32)
    times_out = None if timestamps is None else np.empty(len(starts), np.int64)
    for begin in range(0, len(starts), _BLOCK):  # in blocks, to keep temporaries small
        end = min(begin + _BLOCK, len(starts))
        stop = len(values) if end == len(starts) else int(starts[end])
        rows = slice(int(starts[begin]), stop)
        groups = starts[begin:end] - rows.start
        sizes = np.diff(groups, append=stop - rows.start)
        value = values[rows]
        chosen = groups + sizes - 1
        if timestamps is not None and times_out is not None:
            time = timestamps[rows]
            newest = np.maximum.reduceat(time, groups)
            times_out[begin:end] = newest
            # of several equally new rows, the last
            candidates = np.where(time == np.repeat(newest, sizes), np.arange(len(time)), -1)
            chosen = np.maximum.reduceat(candidates, groups)
        if duplicates == "mean":
            values_out[begin:end] = np.add.reduceat(value.astype(np.float64), groups) / sizes
        else:
            values_out[begin:end] = value[chosen]
    return values_out, times_out


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
        fits = len(indptr) == n_users + 1 and indptr[0] == 0 and len(columns) == indptr[-1]
        if not fits or bool((np.diff(indptr) < 0).any()):
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
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    users: NDArray[np.bool_],
    items: NDArray[np.bool_],
    min_user: int,
    min_item: int,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
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
        users = enough_users
        items = enough_items
