"""Ids to indices and back.

Ids may be anything hashable: integers, text, tuples, UUIDs, or a mixture. Two storage forms are enough: ``int64`` when
every id is an integer, and an object array of Python values otherwise. Ids that compare equal in Python are one id, so
``1``, ``1.0`` and ``numpy.int64(1)`` are the same user.

Order of the distinct ids found in data: sorted where all ids are integers, or all are of one type that sorts itself
(text by code point, tuples, dates, UUIDs ...); by first appearance otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.errors import DataError

_CHUNK = 1 << 20  # temporaries of this many rows stay small beside the columns themselves


class RowError(DataError):
    """One row cannot be used; ``row`` counts from 0, so that a reader of files can say the line."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row} (counting from 0): {problem}")
        self.row = row
        self.problem = problem


def as_ids(ids: Any, what: str = "id") -> NDArray[Any]:
    """One-dimensional array of ids: ``int64`` if all are integers, else an object array of Python values.

    Parameters
    ----------
    ids : array-like
        numpy array, list, pandas or polars series, arrow array or any iterable of hashable values.
    what : str
        What an id stands for, used in messages ("user id").
    """
    if isinstance(ids, (str, bytes)):
        raise DataError(f"a list of {what}s is needed, and the single value {ids!r} was given: write [{ids!r}]")
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        return _arrow_ids(ids, what)
    if hasattr(ids, "to_numpy"):  # pandas and polars series
        ids = ids.to_numpy()
    if isinstance(ids, np.ndarray) and ids.dtype.kind != "O":
        return _array_ids(ids, what)
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise DataError(f"{what}s must be one-dimensional, and the shape given is {ids.shape}")
    return _object_ids(ids.tolist() if isinstance(ids, np.ndarray) else list(ids), what)


def encode(ids: Any, what: str = "id") -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Distinct ids (ordered as the module says) and, for every row, the index of its id.

    Returns
    -------
    distinct : (m,) int64 or object
    indices : (n,) int32
    """
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        column = refuse_nulls(ids, what)
        if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
            return _encode_integers(numpy_chunks(column))
        if is_text(column.type):
            return _encode_arrow(column)
    array = as_ids(ids, what)
    if array.dtype == np.int64:
        return _encode_integers([array[start : start + _CHUNK] for start in range(0, len(array), _CHUNK)])
    return _encode_objects(array, what)


class IdIndex:
    """Positions of ids within a fixed array of distinct ids; the look-up structure is built on first use."""

    __slots__ = ("_order", "_sorted", "_table", "ids")

    def __init__(self, ids: NDArray[Any]) -> None:
        self.ids = ids
        self._sorted: NDArray[Any] | None = None
        self._order: NDArray[np.int64] | None = None
        self._table: dict[Any, int] | None = None

    def positions(self, wanted: Any, what: str = "id") -> NDArray[np.int64]:
        """Position of every wanted id, −1 for the unknown ones."""
        wanted = as_ids(wanted, what)
        if self.ids.dtype == np.int64 and wanted.dtype == np.int64:
            return self._integer_positions(wanted)
        if self._table is None:
            self._table = {value: position for position, value in enumerate(self.ids.tolist())}
        table = self._table
        try:
            return np.fromiter((table.get(value, -1) for value in wanted.tolist()), np.int64, len(wanted))
        except TypeError:
            raise unhashable(what) from None

    def _integer_positions(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._sorted is None:
            if len(self.ids) < 2 or bool((self.ids[1:] > self.ids[:-1]).all()):
                self._sorted = self.ids
            else:
                self._order = np.argsort(self.ids, kind="stable")
                self._sorted = self.ids[self._order]
        if len(self.ids) == 0:
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self.ids) - 1)
        found = self._sorted[at] == wanted
        return np.where(found, at if self._order is None else self._order[at], -1)


def choose(users: Any, index: IdIndex, by: str | None) -> NDArray[np.int64]:
    """Positions of the users chosen by a mask, by positions or by ids; see :meth:`discreet.Ratings.select_users`."""
    n = len(index.ids)
    kind = users.dtype.kind if isinstance(users, np.ndarray) else ""
    if kind == "b":
        if users.shape != (n,):
            raise DataError(f"a mask of shape {users.shape} cannot choose among {n:,} users")
        return np.flatnonzero(users)
    if by == "index" or (by is None and kind in ("i", "u")):
        rows = np.asarray(users, np.int64).reshape(-1)
        if len(rows) and not (rows.min() >= 0 and rows.max() < n):
            raise DataError(f"user indices must lie in 0 … {n - 1:,}; if ids are meant, say by='id'")
    else:
        rows = index.positions(users, "user id")
        if bool((rows < 0).any()):
            raise DataError(f"{int((rows < 0).sum()):,} of {len(rows):,} user ids are not in the ratings")
    if first_repeated(rows) is not None:
        raise DataError("a user is selected twice: every user may be selected once")
    return rows


def first_repeated(ids: NDArray[Any]) -> Any | None:
    """An id that occurs twice, or None where all are distinct."""
    if ids.dtype == np.int64:
        ordered = np.sort(ids)
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        return int(ordered[again[0]]) if len(again) else None
    try:
        counts = Counter(ids.tolist())
    except TypeError:
        raise unhashable("id") from None
    return next((value for value, count in counts.items() if count > 1), None)


def unhashable(what: str) -> DataError:
    """The error for ids that cannot be looked up."""
    return DataError(f"{what}s must be hashable (numbers, text, tuples ...), not lists or dicts")


def is_text(kind: pa.DataType) -> bool:
    """Whether an arrow type holds text, plainly or dictionary-encoded."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return str(kind) in ("string", "large_string", "string_view")


def object_array(values: Iterable[Any], count: int) -> NDArray[Any]:
    """Object array with one cell per value; plain ``numpy.array`` would make tuples into a second dimension."""
    return np.fromiter(values, dtype=object, count=count)


def numpy_chunks(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """Views of the chunks of a numeric column without nulls; arrow's ``to_numpy`` would import pandas if it can."""
    name = str(column.type)
    dtype = np.dtype({"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name))
    views = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return views or [np.empty(0, dtype)]


def refuse_nulls(column: pa.Array | pa.ChunkedArray, what: str, advice: str = "") -> pa.ChunkedArray:
    """The column in chunks, if no value is missing; else a :class:`RowError` with the first row that has none."""
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if column.null_count:
        raise missing(column.is_null().to_pylist().index(True), what, column.null_count, advice)
    return column


def missing(row: int, what: str, count: int = 1, advice: str = "") -> RowError:
    """The error for a value that is not there."""
    many = f" ({count:,} are in all)" if count > 1 else ""
    return RowError(row, f"the {what} is missing{many}: {advice or 'fill it in or drop the row'}")


def is_missing(value: Any) -> bool:
    """Whether a Python value stands for no value: None, NaN of any kind, and what pandas has for it."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def _arrow_ids(ids: pa.Array | pa.ChunkedArray, what: str) -> NDArray[Any]:
    column = refuse_nulls(ids, what)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _array_ids(np.concatenate(numpy_chunks(column)), what)
    return _object_ids(column.to_pylist(), what)


def _array_ids(ids: NDArray[Any], what: str) -> NDArray[Any]:
    if ids.ndim != 1:
        raise DataError(f"{what}s must be one-dimensional, and the shape given is {ids.shape}")
    if ids.dtype.kind in "iu":
        if ids.dtype == np.uint64 and len(ids) and int(ids.max()) > np.iinfo(np.int64).max:
            return object_array(ids.tolist(), len(ids))
        return ids.astype(np.int64, copy=False)
    if ids.dtype.kind == "f":
        gaps = np.flatnonzero(np.isnan(ids))
        if len(gaps):
            raise missing(int(gaps[0]), what, len(gaps))
        # a column of integers that once held a gap comes as floats: 7.0 means 7
        if bool((np.abs(ids) < 2**53).all()) and bool((ids == np.floor(ids)).all()):
            return ids.astype(np.int64)
        return object_array(ids.tolist(), len(ids))
    if ids.dtype.kind in "USb":
        return object_array(ids.tolist(), len(ids))
    return object_array(list(ids), len(ids))


def _object_ids(values: Sequence[Any], what: str) -> NDArray[Any]:
    kinds = set(map(type, values))
    if any(issubclass(kind, np.generic) for kind in kinds):
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
        kinds = set(map(type, values))
    if not values:
        return np.empty(0, np.int64)
    if kinds == {int}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:  # beyond 64 bits: hashes, for example
            return object_array(values, len(values))
    if kinds == {float}:
        return _array_ids(np.array(values, dtype=np.float64), what)
    if kinds != {str}:
        for row, value in enumerate(values):
            if is_missing(value):
                raise missing(row, what)
    return object_array(values, len(values))


def _encode_integers(chunks: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Distinct integers by a table over their range where that is dense enough, by hashing otherwise."""
    chunks = [chunk for chunk in chunks if len(chunk)]
    if not chunks:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    n = sum(map(len, chunks))
    low, high = min(int(chunk.min()) for chunk in chunks), max(int(chunk.max()) for chunk in chunks)
    if high - low >= max(1 << 16, 4 * n):
        return _encode_arrow(pa.chunked_array([_as_arrow(chunk.astype(np.int64, copy=False)) for chunk in chunks]))
    present = np.zeros(high - low + 1, dtype=bool)
    for chunk in chunks:
        present[chunk.astype(np.int64, copy=False) - low] = True
    distinct = np.flatnonzero(present).astype(np.int64, copy=False) + low
    index_of = np.cumsum(present, dtype=np.int32) - np.int32(1)
    indices = np.empty(n, np.int32)
    start = 0
    for chunk in chunks:
        end = start + len(chunk)
        np.take(index_of, chunk.astype(np.int64, copy=False) - low, out=indices[start:end], mode="clip")
        start = end
    return distinct, indices


def _as_arrow(chunk: NDArray[np.int64]) -> pa.Array:
    """Arrow view of integers; ``pa.array`` would import pandas, where that is installed, to look for its types."""
    return pa.Array.from_buffers(pa.int64(), len(chunk), [None, pa.py_buffer(np.ascontiguousarray(chunk))])


def _encode_arrow(column: pa.ChunkedArray) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Distinct values by arrow's hashing, then sorted."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries()
    if encoded.num_chunks == 0:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    codes = np.concatenate(numpy_chunks(pa.chunked_array([chunk.indices for chunk in encoded.chunks])))
    values = _arrow_ids(encoded.chunk(0).dictionary, "id")
    used = np.zeros(len(values), dtype=bool)
    used[codes] = True  # a categorical column may list values that no row has
    order = np.argsort(values, kind="stable")
    order = order[used[order]]
    rank = np.empty(len(values), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return values[order], rank[codes]


def _encode_objects(ids: NDArray[Any], what: str) -> tuple[NDArray[Any], NDArray[np.int32]]:
    table: dict[Any, int] = {}
    try:
        codes = np.fromiter((table.setdefault(value, len(table)) for value in ids.tolist()), np.int32, len(ids))
    except TypeError:
        raise unhashable(what) from None
    values = list(table)
    order = _natural_order(values)
    if order is None:
        return object_array(values, len(values)), codes
    rank = np.empty(len(values), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return object_array((values[at] for at in order), len(order)), rank[codes]


def _natural_order(values: list[Any]) -> list[int] | None:
    """Positions in sorted order, or None where the values have no common order of their own."""
    kinds = set(map(type, values))
    # sets compare by inclusion, which sorts into an order that depends on the input
    if not (len(kinds) == 1 or kinds <= {int, float}) or kinds & {frozenset, complex}:
        return None
    try:
        return sorted(range(len(values)), key=values.__getitem__)
    except TypeError:
        return None
