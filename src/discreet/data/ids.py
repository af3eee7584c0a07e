"""Ids to indices and back.

Ids may be any hashable values: integers, text, tuples, UUIDs, or a mixture. Two storage forms are
enough: ``int64`` when every id is an integer, and an object array of Python values otherwise. Ids
that compare equal in Python are one id, so ``1``, ``1.0`` and ``numpy.int64(1)`` are the same user.

Every id is read by itself, whatever else its column holds. In text files it is an integer if it is
written as one (`parse_id`), and text if not; a decimal number such as 7.0 is the integer 7. Ids are
found by their written form, so that 7 in one place and "7" in another are the same item. If the id
of one user could change how another's is read, it would change what the other contributes, and no
sensitivity would hold.

Order of the distinct ids found in data: numbers by size, also those that are text; then text by
code point; then other types, each by itself, sorted if the type has an order and by first
appearance if not.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from discreet.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = (
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "NaN",
    "nan",
    "-nan",
    "-NaN",
    "NULL",
    "null",
    "None",
    "<NA>",
    "NaT",
)
"""Texts that programs write for a missing value."""

_CHUNK = 1 << 20  # rows: temporary arrays stay small compared with the columns themselves
_WHOLE = re.compile(r"[ \t]*(0|-?[1-9][0-9]{0,99})(?:\.0)?[ \t]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXACT = 2.0**53  # below, a float represents every whole number exactly
_ORDERED = (bytes, date, time, timedelta, UUID, Decimal, Fraction, np.datetime64, np.timedelta64)
_MISSING_WORDS = frozenset(MISSING)


class RowError(DataError):
    """One row cannot be used; ``row`` counts from 0, so that a file reader can name the line."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row} (counting from 0): {problem}")
        self.row = row
        self.problem = problem


class InexactIds(DataError):
    """User ids are decimal numbers so large that users may have been merged before."""


@dataclass(frozen=True)
class Coded:
    """A column of ids: values (which may repeat), and for each row the position of its value."""

    values: Sequence[Any]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class Integers:
    """A column of 32-bit integers, which `encode` may overwrite."""

    numbers: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)


def parse_id(text: str) -> int | str:
    """Return the id that a text means: an integer if it is written as one, else the text itself.

    7.0 means 7: programs write it for a column that once had a gap. 007, +7, 7.5, 1e3 and 0x7 stay
    text, so that users with different ids are never merged.
    """
    whole = _WHOLE.fullmatch(text)
    return int(whole[1]) if whole else text


def canonical(value: Any) -> Any:
    """Return the form that all spellings of one id share."""
    return parse_id(value) if isinstance(value, str) else value


def normalize_id(value: Any) -> Any:
    """Return an id in lower case, stripped, composed (NFC), and parsed as in a text file."""
    if not isinstance(value, str):
        return value
    folded = unicodedata.normalize("NFC", value).casefold().strip()
    return parse_id(unicodedata.normalize("NFC", folded))


def normalize_column(ids: Any) -> Any:
    """Normalize a column of ids, each by itself; columns of numbers stay as they are."""
    if _is_arrow(ids):
        column = refuse_nulls(ids, "user id")
        if not is_text(column.type):
            return ids
        ids = as_coded(column)
    if isinstance(ids, Coded):
        return Coded([normalize_id(value) for value in ids.values], ids.codes)
    if isinstance(ids, Integers):
        return ids
    array = as_ids(ids, "user id")
    return array if array.dtype == np.int64 else [normalize_id(value) for value in array.tolist()]


def as_ids(ids: Any, what: str = "id") -> NDArray[Any]:
    """Return a one-dimensional array of ids: ``int64`` if all are integers, else objects.

    Parameters
    ----------
    ids : array-like
        numpy array, list, pandas or polars series, arrow array or any iterable of hashable values.
    what : str
        Kind of id, for messages ("user id").
    """
    if isinstance(ids, (str, bytes)):
        raise DataError(
            f"a list of {what}s is needed, not the single value {ids!r}: pass [{ids!r}]"
        )
    if _is_arrow(ids):
        return _arrow_ids(ids, what)
    if hasattr(ids, "to_numpy"):  # pandas and polars series
        ids = ids.to_numpy()
    if isinstance(ids, np.ndarray) and ids.dtype.kind != "O":
        return _array_ids(ids, what)
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise DataError(f"{what}s must be one-dimensional, but their shape is {ids.shape}")
    if not hasattr(ids, "__iter__"):
        raise DataError(
            f"a list of {what}s is needed, not the single value {ids!r}: pass [{ids!r}]"
        )
    return _object_ids(ids.tolist() if isinstance(ids, np.ndarray) else list(ids), what)


def encode(ids: Any, what: str = "id") -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the distinct ids (in the module's order) and the index of each row's id.

    Returns
    -------
    distinct : (m,) int64 or object
    indices : (n,) int32
    """
    if isinstance(ids, Coded):
        return _encode_coded(ids.values, ids.codes, what)
    if isinstance(ids, Integers):
        return _encode_integers(_blocks(ids.numbers), ids.numbers)
    if _is_arrow(ids):
        import pyarrow as pa

        column = refuse_nulls(ids, what)
        if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
            return _encode_integers(numpy_chunks(column))
        if is_text(column.type):
            coded = as_coded(column)
            return _encode_coded(coded.values, coded.codes, what)
    array = as_ids(ids, what)
    if array.dtype == np.int64:
        return _encode_integers(_blocks(array))
    return _encode_coded(array.tolist(), np.arange(len(array), dtype=np.int32), what)


def encode_users(ids: Any) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Encode user ids; spellings of one integer (7, "7", "7.0") are one user on every engine.

    A user with one spelling keeps it, and one with several has the integer as id.
    """
    distinct, indices = encode(ids, "user id")
    if distinct.dtype == np.int64:
        return distinct, indices
    values = distinct.tolist()
    forms = [canonical(value) for value in values]
    table: dict[Any, int] = {}
    position = [table.setdefault(form, len(table)) for form in forms]
    if len(table) == len(values):
        return distinct, indices
    many = Counter(position)
    # spellings are next to each other in the module's order, which stays as it is
    kept: dict[int, Any] = {}
    for at, value, form in zip(position, values, forms, strict=True):
        kept[at] = form if many[at] > 1 else value
    return _store_ids(list(kept.values())), np.array(position, np.int32)[indices]


def as_coded(column: pa.ChunkedArray) -> Coded:
    """Encode a column as distinct values and codes, by arrow's hashing."""
    import pyarrow as pa

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries()
    if encoded.num_chunks == 0:
        return Coded([], np.empty(0, np.int32))
    codes = np.concatenate(
        numpy_chunks(pa.chunked_array([chunk.indices for chunk in encoded.chunks]))
    )
    return Coded(encoded.chunk(0).dictionary.to_pylist(), codes)


class IdIndex:
    """Positions of ids within a fixed array of distinct ids; the index is built on first use."""

    __slots__ = ("_order", "_sorted", "_table", "ids")

    def __init__(self, ids: NDArray[Any]) -> None:
        self.ids = ids
        self._sorted: NDArray[Any] | None = None
        self._order: NDArray[np.int64] | None = None
        self._table: dict[Any, int] | None = None

    def positions(self, wanted: Any, what: str = "id") -> NDArray[np.int64]:
        """Return the position of every wanted id, −1 for unknown ones.

        An exact match is preferred to one by written form, for arrays with both 7 and "7".
        """
        wanted = as_ids(wanted, what)
        # Sorted search needs no Python objects, which is much faster for millions of ids.
        if self.ids.dtype == np.int64 and wanted.dtype == np.int64:
            return self._integer_positions(wanted)
        if self._table is None:
            ids = self.ids.tolist()
            # reversed, so that the first of several ids with one written form is found
            self._table = {
                canonical(value): position for position, value in reversed(list(enumerate(ids)))
            }
            # Exact values last, so that they replace written forms of others.
            self._table |= {value: position for position, value in enumerate(ids)}
        table = self._table
        try:
            found = (
                table[value] if value in table else table.get(canonical(value), -1)
                for value in wanted.tolist()
            )
            return np.fromiter(found, np.int64, len(wanted))
        except TypeError:
            raise unhashable(what) from None

    def _integer_positions(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._sorted is None:
            # Encoded ids are sorted already; then no copy is made.
            if len(self.ids) < 2 or bool((self.ids[1:] > self.ids[:-1]).all()):
                self._sorted = self.ids
            else:
                self._order = np.argsort(self.ids, kind="stable")
                self._sorted = self.ids[self._order]
        if len(self.ids) == 0:
            return np.full(len(wanted), -1, np.int64)
        # An id above all others would be one beyond the end.
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self.ids) - 1)
        found = self._sorted[at] == wanted
        return np.where(found, at if self._order is None else self._order[at], -1)


def choose(users: Any, index: IdIndex, by: str | None) -> NDArray[np.int64]:
    """Return the positions of users chosen by mask, position or id (`Ratings.select_users`)."""
    n = len(index.ids)
    kind = users.dtype.kind if isinstance(users, np.ndarray) else ""
    # A mask before integers: numpy would take True for row 1.
    if kind == "b":
        if users.shape != (n,):
            raise DataError(f"a mask of shape {users.shape} cannot choose among {n:,} users")
        return np.flatnonzero(users)
    # Arrays of integers are rows, as numpy users expect; lists are ids.
    if by == "index" or (by is None and kind in ("i", "u")):
        rows = np.asarray(users, np.int64).reshape(-1)
        if len(rows) and not (rows.min() >= 0 and rows.max() < n):
            raise DataError(
                f"user indices must be in 0 … {n - 1:,}; if these are ids, pass by='id'"
            )
    else:
        rows = index.positions(users, "user id")
        if bool((rows < 0).any()):
            raise DataError(
                f"{int((rows < 0).sum()):,} of {len(rows):,} user ids are not in the ratings"
            )
    # A user who is selected twice would count twice, which the sensitivity does not cover.
    if first_repeated(rows) is not None:
        raise DataError("a user is selected twice: select every user at most once")
    return rows


def first_repeated(ids: NDArray[Any]) -> Any | None:
    """Return an id that occurs twice, or None if all are distinct."""
    if ids.dtype == np.int64:
        # Sorting is faster than hashing for integers, and needs no table.
        ordered = np.sort(ids)
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        return int(ordered[again[0]]) if len(again) else None
    try:
        counts = Counter(ids.tolist())
    except TypeError:
        raise unhashable("id") from None
    return next((value for value, count in counts.items() if count > 1), None)


def unhashable(what: str) -> DataError:
    """Return the error for ids that cannot be hashed."""
    return DataError(f"{what}s must be hashable (numbers, text, tuples ...), not lists or dicts")


def _is_arrow(ids: Any) -> bool:
    """Check for an arrow array without importing arrow: its owner has already imported it."""
    # Importing arrow is slow, and a value that is no arrow array cannot need it.
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(ids, (arrow.Array, arrow.ChunkedArray))


def is_text(kind: pa.DataType) -> bool:
    """Check whether an arrow type holds text, plain or dictionary-encoded."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return str(kind) in ("string", "large_string", "string_view")


def object_array(values: Iterable[Any], count: int) -> NDArray[Any]:
    """Make an object array with one cell per value; ``numpy.array`` would unpack tuples."""
    return np.fromiter(values, dtype=object, count=count)


def numpy_chunks(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """Return views of the chunks of a numeric column; arrow's ``to_numpy`` may import pandas."""
    name = str(column.type)
    dtype = np.dtype(
        {"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name)
    )
    views = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return views or [np.empty(0, dtype)]


def refuse_nulls(
    column: pa.Array | pa.ChunkedArray, what: str, advice: str = ""
) -> pa.ChunkedArray:
    """Return the column in chunks; raise a :class:`RowError` if a value is missing."""
    import pyarrow as pa

    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    # Cheap for arrow: the count is kept with the column.
    if column.null_count:
        raise missing_value_error(column.is_null().to_pylist().index(True), what, advice)
    return column


def missing_value_error(row: int, what: str, advice: str = "") -> RowError:
    """Return the error for a missing value; the number of missing values stays private."""
    return RowError(row, f"the {what} is missing: {advice or 'fill it in or drop the row'}")


def is_missing(value: Any) -> bool:
    """Check whether a Python value means "missing": None, any NaN, and pandas' NA and NaT."""
    # By name, so that pandas need not be imported.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        # NaN of any type is the only value that differs from itself.
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def stands_for_nothing(value: Any) -> bool:
    """Check whether an id is missing or a placeholder, since "nan" would become a user."""
    return value.strip() in _MISSING_WORDS if isinstance(value, str) else is_missing(value)


def refuse_surrogates(values: Iterable[Any], what: str) -> None:
    """Raise a `DataError` if a text holds half of a surrogate pair, which no file can hold."""
    try:
        for value in values:
            # Almost all ids are ASCII, for which this test is a flag.
            if isinstance(value, str) and not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"the {what}s hold half of a surrogate pair, which is not text. Correct them."
        ) from None


def replace_surrogates(titles: NDArray[Any]) -> NDArray[Any]:
    """Replace halves of surrogate pairs by U+FFFD, so that titles can be written to files."""
    try:
        "".join(map(str, titles)).encode()
    except UnicodeEncodeError:
        return object_array((_SURROGATE.sub("\ufffd", str(title)) for title in titles), len(titles))
    return titles


def _arrow_ids(ids: pa.Array | pa.ChunkedArray, what: str) -> NDArray[Any]:
    import pyarrow as pa

    column = refuse_nulls(ids, what)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _array_ids(np.concatenate(numpy_chunks(column)), what)
    return _object_ids(column.to_pylist(), what)


def _array_ids(ids: NDArray[Any], what: str) -> NDArray[Any]:
    if ids.ndim != 1:
        raise DataError(f"{what}s must be one-dimensional, but their shape is {ids.shape}")
    if ids.dtype.kind in "iu":
        # Wrapping around would merge two users.
        if ids.dtype == np.uint64 and len(ids) and int(ids.max()) > np.iinfo(np.int64).max:
            return object_array(ids.tolist(), len(ids))
        return ids.astype(np.int64, copy=False)
    if ids.dtype.kind == "f":
        gaps = np.flatnonzero(np.isnan(ids))
        if len(gaps):
            raise missing_value_error(int(gaps[0]), what)
        _refuse_inexact(ids, what)
        # a column of integers that once had a gap arrives as floats: 7.0 means 7
        if bool((np.abs(ids) < _EXACT).all()) and bool((ids == np.floor(ids)).all()):
            return ids.astype(np.int64)
        return object_array(map(_whole, ids.tolist()), len(ids))
    # NaT is a number inside numpy and would become one user.
    if ids.dtype.kind in "Mm":
        gaps = np.flatnonzero(np.isnat(ids))
        if len(gaps):
            raise missing_value_error(int(gaps[0]), what)
    if ids.dtype.kind in "USb":
        if ids.dtype.kind == "U":
            refuse_surrogates(ids.tolist(), what)
        return object_array(ids.tolist(), len(ids))
    # list keeps numpy's own values, such as dates, which tolist would turn into integers.
    return object_array(list(ids), len(ids))


def _refuse_inexact(ids: NDArray[Any], what: str) -> None:
    """Refuse user ids that the type of the array cannot tell apart.

    An array has one type: a single decimal or missing id among whole numbers has rounded all others
    before they came here, so that one user decided which of them are one.
    """
    if what == "user id" and bool((np.abs(ids) >= 2.0 ** (np.finfo(ids.dtype).nmant + 1)).any()):
        raise InexactIds(
            "user ids are decimal numbers too large to be exact, so that users may have been"
            " merged. Pass ids as whole numbers or text."
        )


def _object_ids(values: Sequence[Any], what: str) -> NDArray[Any]:
    kinds = set(map(type, values))
    if any(issubclass(kind, np.generic) for kind in kinds):
        # np.int64(7) and 7 are one id: hash and order have to agree.
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
        kinds = set(map(type, values))
    if not values:
        return np.empty(0, np.int64)
    if kinds == {int}:
        return _store_ids(list(values))
    # As a column of floats, so that [7.0, 8.0] and an array of them give the same ids.
    if kinds == {float} and all(abs(value) < _EXACT for value in values):
        return _array_ids(np.array(values, dtype=np.float64), what)
    if str in kinds:
        refuse_surrogates(values, what)
    # Text has no missing values here; placeholders are refused when it is encoded.
    if kinds != {str}:
        for row, value in enumerate(values):
            if is_missing(value):
                raise missing_value_error(row, what)
    return object_array(map(_whole, values) if float in kinds else values, len(values))


def _whole(value: Any) -> Any:
    """Return 7 for 7.0, and any other value unchanged."""
    return (
        int(value)
        if type(value) is float and abs(value) < _EXACT and value == int(value)
        else value
    )


def _blocks(array: NDArray[Any]) -> list[NDArray[Any]]:
    return [array[start : start + _CHUNK] for start in range(0, len(array), _CHUNK)]


def _encode_integers(
    chunks: list[NDArray[Any]], out: NDArray[np.int32] | None = None
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Find distinct integers by a table over their range if it is dense enough, else by hashing.

    `out` may share memory with the chunks: each chunk is read before its indices are written.
    """
    n = sum(map(len, chunks))
    if not n:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    low = min(int(chunk.min()) for chunk in chunks if len(chunk))
    high = max(int(chunk.max()) for chunk in chunks if len(chunk))
    # A table over the range costs memory in proportion; hashing does not. Which of both is
    # used changes no result.
    if high - low >= max(1 << 16, 4 * n):
        return _encode_sparse(
            [chunk.astype(np.int64, copy=False) for chunk in chunks if len(chunk)]
        )
    # One byte per possible id: at most four bytes per row.
    present = np.zeros(high - low + 1, dtype=bool)
    for chunk in chunks:
        present[chunk.astype(np.int64, copy=False) - low] = True
    distinct = np.flatnonzero(present).astype(np.int64, copy=False) + low
    # The rank of an id among those present: ids come out sorted without sorting.
    index_of = np.cumsum(present, dtype=np.int32) - np.int32(1)
    indices = np.empty(n, np.int32) if out is None else out
    start = 0
    for chunk in chunks:
        end = start + len(chunk)
        # mode="clip" skips the check of bounds, which the range guarantees.
        np.take(
            index_of, chunk.astype(np.int64, copy=False) - low, out=indices[start:end], mode="clip"
        )
        start = end
    return distinct, indices


def _encode_sparse(chunks: Sequence[NDArray[np.int64]]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Find distinct integers by arrow's hashing, then sort them."""
    import pyarrow as pa

    # views of the integers; pa.array would import pandas, if installed, to check for its types
    buffers = [pa.py_buffer(np.ascontiguousarray(chunk)) for chunk in chunks]
    parts = [
        pa.Array.from_buffers(pa.int64(), len(c), [None, b])
        for c, b in zip(chunks, buffers, strict=True)
    ]
    # Unified, or each chunk would have codes of its own.
    encoded = pa.chunked_array(parts).dictionary_encode().unify_dictionaries()
    codes = np.concatenate(
        numpy_chunks(pa.chunked_array([chunk.indices for chunk in encoded.chunks]))
    )
    values = np.concatenate(numpy_chunks(pa.chunked_array([encoded.chunk(0).dictionary])))
    # Sorted, so that positions depend on the ids alone and not on the order of the rows.
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return values[order], rank[codes]


def _encode_coded(
    values: Sequence[Any], codes: NDArray[Any], what: str
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the distinct values that rows have, in order, and the index of each row's value."""
    used = np.zeros(len(values), dtype=bool)
    used[codes] = True  # a categorical column may list values that no row has
    table: dict[Any, int] = {}
    try:
        among = [
            # Two categories with equal values, such as 7 and 7.0, become one id.
            table.setdefault(value, len(table)) if here else -1
            for value, here in zip(values, used, strict=True)
        ]
    except TypeError:
        raise unhashable(what) from None
    distinct = list(table)
    # Checked on distinct values: few, where rows are many.
    gaps = [table[value] for value in distinct if stands_for_nothing(value)]
    if gaps:
        rows = np.flatnonzero(np.isin(np.array(among)[codes], gaps))
        raise missing_value_error(int(rows[0]), what)
    order = _natural_order(distinct)
    rank = np.empty(len(distinct), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return _store_ids([distinct[at] for at in order]), rank[np.array(among, np.int64)][codes]


def _store_ids(values: list[Any]) -> NDArray[Any]:
    # bool is a subclass of int but not int itself: True stays an object, not user 1.
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:  # beyond 64 bits: hashes, for example
            pass
    return object_array(values, len(values))


def _natural_order(values: list[Any]) -> list[int]:
    """Return positions in the module's order; the order of two values never depends on others."""
    if set(map(type, values)) == {int}:
        return sorted(range(len(values)), key=values.__getitem__)
    # Keys once per value: `canonical` is the expensive part.
    places = [_place(value) for value in values]
    return sorted(range(len(values)), key=places.__getitem__)


def _place(value: Any) -> tuple[Any, ...]:
    """Return a sort key; comparing any two of these keys raises no error."""
    form = canonical(value)
    if isinstance(form, (int, float)):
        # Numbers first. The last part separates 7 from "7", which have one written form.
        return 0, form, isinstance(value, str)
    if isinstance(form, str):
        return 1, form
    if isinstance(form, tuple):
        return 2, tuple(map(_place, form))
    if isinstance(form, _ORDERED) and form == form:
        # times with and without a zone cannot be compared
        zone = getattr(form, "tzinfo", None) is not None
        return 3, type(form).__name__, zone, form
    # Values without an order keep the order of appearance among their type.
    return 4, type(form).__name__
