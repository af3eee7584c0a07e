"""Convert rows (user, item, value) in any order to compressed sparse rows without repetitions.

A stable sort orders the rows by (user, item) and keeps repeated pairs in their original order; the
``duplicates`` rule then chooses one value for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.errors import ConfigError, DataError

DUPLICATES = ("last", "mean", "error")
_BLOCK = 1 << 20  # rows checked at a time: an unordered file is recognized in its first block
_CACHED = 1 << 16  # rows whose temporary arrays (512 KB each) stay in the processor's cache
_APART = 1 << 20  # rows per thread: below, starting a thread costs more than it saves


class Compressed(NamedTuple):
    """CSR arrays with sorted, distinct columns in each row.

    Attributes
    ----------
    indptr, indices, values : ndarray
        The three arrays of the CSR format.
    timestamps : ndarray or None
        One per value.
    merged : int
        Number of rows merged into others.
    """

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
    """Compress rows to CSR; ``duplicates`` as in :meth:`discreet.Ratings.read`.

    Parameters
    ----------
    users, items : (n,) int32 indices
    values : (n,) float32
    timestamps : (n,) int64 or None
    """
    return compress_rows(
        {"users": users, "items": items, "values": values, "timestamps": timestamps},
        n_users,
        n_items,
        duplicates,
    )


def compress_rows(
    rows: dict[str, Any], n_users: int, n_items: int, duplicates: str = "last"
) -> Compressed:
    """Compress like `compress`, but take each column out of `rows` and free it after its last use.

    Ranges of users with about equally many rows are sorted in parallel on all cores.
    """
    check_duplicates_rule(duplicates)
    n = len(rows["users"])
    counts = np.bincount(rows["users"], minlength=n_users)
    if strictly_ordered(rows["users"], rows["items"]):
        return Compressed(_ends(counts), rows["items"], rows["values"], rows["timestamps"], 0)
    pieces = 1 if duplicates == "error" else max(1, min(pa.cpu_count(), n // _APART))
    cuts = np.searchsorted(_ends(counts), np.linspace(0, n, pieces + 1)[1:-1])
    parts = list(pairwise([0, *cuts.tolist(), n_users]))
    with ThreadPoolExecutor(pieces) as pool:
        keys = _sort_keys(rows.pop("users"), rows.pop("items"), n_items, parts, counts, pool)
        orders, columns = map(list, zip(*pool.map(lambda key: key.sort(), keys), strict=True))
        keys.clear()
        values = list(pool.map(rows.pop("values").take, orders))
        timestamps = rows.pop("timestamps")
        times = [None] * pieces if timestamps is None else list(pool.map(timestamps.take, orders))
        del timestamps
        if duplicates == "error":
            _refuse_repetitions(orders[0], columns[0], _ends(counts))
        orders.clear()
        own = [counts[first:last] for first, last in parts]
        return _join_parts(
            list(
                pool.map(
                    _merge_rows,
                    own,
                    _take_arrays(columns),
                    _take_arrays(values),
                    _take_arrays(times),
                    [duplicates] * pieces,
                )
            )
        )


def _sort_keys(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    n_items: int,
    parts: list[tuple[int, int]],
    counts: NDArray[np.int64],
    pool: ThreadPoolExecutor,
) -> list[SortKey]:
    sizes = [int(counts[first:last].sum()) for first, last in parts]
    return list(
        pool.map(lambda part, size: sort_key(users, items, n_items, part, size), parts, sizes)
    )


def _take_arrays(arrays: list[Any]) -> Iterator[Any]:
    """Yield the arrays and remove them from the list, so that each can be freed after use."""
    while arrays:
        yield arrays.pop(0)


def _ends(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _join_parts(parts: list[Compressed]) -> Compressed:
    """Concatenate the parts; the list is emptied, so that copied arrays are freed."""
    fields = dict(zip(Compressed._fields, map(list, zip(*parts, strict=True)), strict=True))
    parts.clear()
    before = np.concatenate([[0], np.cumsum([indptr[-1] for indptr in fields["indptr"]])])
    indptr = [own[1:] + ended for own, ended in zip(fields.pop("indptr"), before[:-1], strict=True)]
    indices = np.concatenate(fields.pop("indices"))
    values = np.concatenate(fields.pop("values"))
    timed = [times for times in fields.pop("timestamps") if times is not None]
    timestamps = np.concatenate(timed) if timed else None
    return Compressed(
        np.concatenate([[0], *indptr]), indices, values, timestamps, sum(fields["merged"])
    )


def _merge_rows(
    counts: NDArray[np.int64],
    items: NDArray[np.int32],
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None,
    duplicates: str,
) -> Compressed:
    """Return the CSR of sorted rows, `counts` of them for each user, without repetitions."""
    indptr = _ends(counts)
    first = _first_of_pairs(items, indptr)
    merged = len(items) - int(np.count_nonzero(first))
    if merged == 0:
        return Compressed(indptr, items, values, timestamps, 0)
    kept = np.concatenate(
        [[0], np.cumsum(np.add.reduceat(first, indptr[:-1][counts > 0], dtype=np.int64))]
    )
    ends = kept[np.concatenate([[0], np.cumsum(counts > 0)])]
    values, timestamps = _merge(first, values, timestamps, duplicates)
    return Compressed(ends, items[first], values, timestamps, merged)


def _first_of_pairs(items: NDArray[np.int32], indptr: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the sorted rows that are the first of their (user, item) pair."""
    first = np.empty(len(items), dtype=bool)
    first[1:] = items[1:] != items[:-1]
    first[indptr[:-1][np.diff(indptr) > 0]] = True
    return first


def _refuse_repetitions(
    order: NDArray[np.int64], items: NDArray[np.int32], indptr: NDArray[np.int64]
) -> None:
    first = _first_of_pairs(items, indptr)
    if not first.all():
        again = int(np.argmin(first))
        rows = f"rows {order[again - 1]:,} and {order[again]:,} (counting from 0)"
        raise DataError(
            f"{rows} have the same user and item: "
            'remove the repetitions, or merge them with duplicates="last" or duplicates="mean"'
        )


def check_duplicates_rule(duplicates: str) -> None:
    if duplicates not in DUPLICATES:
        raise ConfigError(f'duplicates must be "last", "mean" or "error", not {duplicates!r}')


def strictly_ordered(users: NDArray[Any], items: NDArray[Any]) -> bool:
    """Check whether rows are ordered by (user, item) without repetition."""
    for begin in range(0, len(users) - 1, _BLOCK):
        here = slice(begin, min(begin + _BLOCK, len(users) - 1))
        after = slice(begin + 1, begin + _BLOCK + 1)
        ordered = users[after] > users[here]
        ordered |= (users[after] == users[here]) & (items[after] > items[here])
        if not ordered.all():
            return False
    return True


class SortKey(NamedTuple):
    """Sort keys that combine user, item and row number, or an order where 63 bits are too few.

    Attributes
    ----------
    keys : (n,) int64
        From the high bits down: user, item, row number.
    row_bits, item_bits : int
        Widths of the two lower fields.
    ordered : tuple or None
        The finished order and its items, if the fields do not fit into 63 bits.
    """

    keys: NDArray[np.int64]
    row_bits: int
    item_bits: int
    ordered: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    def sort(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return row numbers by (user, item), and the items; the keys are overwritten."""
        if self.ordered is not None:
            return self.ordered
        keys = self.keys
        keys.sort()
        items = np.empty(len(keys), np.int32)
        for begin in range(0, len(keys), _CACHED):
            here = slice(begin, begin + _CACHED)
            items[here] = (keys[here] >> self.row_bits) & ((1 << self.item_bits) - 1)
        keys &= (1 << self.row_bits) - 1
        return keys, items


def sort_key(
    users: NDArray[Any], items: NDArray[Any], n_items: int, part: tuple[int, int], size: int
) -> SortKey:
    """Return the keys that sort the `size` rows of users in the half-open range `part`.

    User, item and row number usually fit into 63 bits together, and sorting plain integers is
    several times faster than sorting by several columns.
    """
    begin, end = part
    row_bits, item_bits, user_bits = (
        max(n - 1, 0).bit_length() for n in (len(users), n_items, end - begin)
    )
    if row_bits + item_bits + user_bits > 63:
        rows = np.flatnonzero((users >= begin) & (users < end))
        order = rows[np.lexsort((items[rows], users[rows]))]
        return SortKey(
            order, row_bits, item_bits, (order, items[order].astype(np.int32, copy=False))
        )
    keys = np.empty(size, np.int64)
    filled = 0
    for start in range(0, len(users), _CACHED):
        here = slice(start, start + _CACHED)
        key = users[here].astype(np.int64)
        mine = None if size == len(users) else (key >= begin) & (key < end)
        key -= begin
        key <<= item_bits
        key |= items[here]
        key <<= row_bits
        key |= np.arange(start, start + len(key))
        key = key if mine is None else key[mine]
        keys[filled : filled + len(key)] = key
        filled += len(key)
    return SortKey(keys, row_bits, item_bits)


def row_of_entry(indptr: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the row index of every entry of a CSR matrix."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))


def _merge(
    first: NDArray[np.bool_],
    values: NDArray[np.float32],
    timestamps: NDArray[np.int64] | None,
    duplicates: str,
) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """Merge each group of rows, which begins where `first` is true, into one value and time."""
    values_out = values[first]
    times_out = None if timestamps is None else timestamps[first]
    again = np.flatnonzero(~first)
    heads = again[np.flatnonzero(first[again - 1])] - 1  # of groups of several rows
    starts = np.searchsorted(again, heads)
    # its position in the output: its own row minus the repetitions before it
    group = heads - starts
    sizes = np.diff(starts, append=len(again)) + 1
    rows = np.repeat(heads - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    bounds = np.cumsum(sizes) - sizes
    value = values[rows]
    chosen = bounds + sizes - 1
    if timestamps is not None and times_out is not None:
        time = timestamps[rows]
        newest = np.maximum.reduceat(time, bounds)
        times_out[group] = newest
        # of several equally new rows, the last one counts
        chosen = np.maximum.reduceat(
            np.where(time == np.repeat(newest, sizes), np.arange(len(time)), -1), bounds
        )
    if duplicates == "mean":
        values_out[group] = np.add.reduceat(value.astype(np.float64), bounds) / sizes
    else:
        values_out[group] = value[chosen]
    return values_out, times_out


def matrix_entries(matrix: Any, duplicates: str) -> Compressed:
    """Return the stored entries of a scipy sparse matrix or array, which is not changed.

    A CSR matrix of float32 with sorted, distinct columns is shared; anything else is sorted into
    new arrays. Stored zeros are entries, except in the formats (bsr, dia) that must store zeros as
    padding.
    """
    from scipy import sparse  # takes a moment to import

    if not sparse.issparse(matrix):
        raise DataError(
            f"a scipy sparse matrix is needed, not {type(matrix).__name__}: wrap a dense array in"
            " scipy.sparse.csr_array, where zeros then mean that there is no rating"
        )
    if matrix.ndim != 2:
        raise DataError(f"the matrix must have two dimensions, but its shape is {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"the matrix must hold real numbers, but its type is {matrix.dtype}")
    if matrix.shape[1] > np.iinfo(np.int32).max or matrix.shape[0] > np.iinfo(np.int32).max:
        raise DataError(
            f"a matrix of shape {matrix.shape} is too large: at most 2³¹ − 1 users and items are"
            " allowed"
        )
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
        if matrix.format in ("bsr", "dia"):  # these formats store zeros as padding
            rows, columns, data = rows[data != 0], columns[data != 0], data[data != 0]
    for name, index, bound in (("row", rows, n_users), ("column", columns, n_items)):
        if len(index) and not (index.min() >= 0 and index.max() < bound):
            raise DataError(f"the matrix is damaged: a {name} index lies outside 0 … {bound - 1:,}")
    with np.errstate(over="ignore", invalid="ignore"):
        values = data.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"{len(bad):,} ratings in the matrix are NaN or infinite, the first in row"
            f" {rows[bad[0]]:,} and column {columns[bad[0]]:,} (from 0): correct or remove them"
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
    """Find the largest sub-matrix with ``min_user`` entries per user and ``min_item`` per item.

    Dropping an item can leave a user with too few entries and the other way round, so both are
    dropped in turn until nothing changes. ``users`` and ``items`` mark the initial candidates. The
    remaining entries, users and items are returned as masks.
    """
    while True:
        entries = users[rows] & items[columns]
        enough_users = users & (np.bincount(rows[entries], minlength=len(users)) >= min_user)
        enough_items = items & (np.bincount(columns[entries], minlength=len(items)) >= min_item)
        if np.array_equal(enough_users, users) and np.array_equal(enough_items, items):
            return entries, users, items
        users = enough_users
        items = enough_items
