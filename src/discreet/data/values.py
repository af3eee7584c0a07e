"""Convert rating and timestamp columns of any type to float32 and int64."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.data.ids import (
    MISSING,
    RowError,
    as_coded,
    is_missing,
    missing_value_error,
    numpy_chunks,
    object_array,
    parse_id,
    refuse_nulls,
)
from discreet.errors import ConfigError, DataError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = "^(0|-?[1-9][0-9]{0,17})$"  # integers that fit into 64 bits, the most common form
_NUMBERS = (
    "float",
    "double",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
_COMMA = re.compile(r"[+-]?\d+,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_CLOCK = r"(?:[ T,]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?"
#: Day, month and year with points, as in most of Europe.
_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})" + _CLOCK)
#: The same with slashes or hyphens, where the month comes first in the United States.
_SLASHES = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4})" + _CLOCK)
_YEAR_FIRST = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})" + _CLOCK)
DATE_ORDERS = ("day-first", "month-first")
_ADVICE = "fill it in, drop the row, or ignore the column with {}=False"


def as_ratings(column: Any) -> NDArray[np.float32]:
    """Return finite float32 ratings; a :class:`RowError` names the first invalid one."""
    values = plain_ratings(column)
    if values is not None:
        return values
    array = _as_array(column, "rating")
    if array.dtype.kind not in "iufb":
        array = np.fromiter(
            (_number(value, row) for row, value in enumerate(array.tolist())),
            np.float64,
            len(array),
        )
    with np.errstate(over="ignore", invalid="ignore"):
        values = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        text = f"the rating is {array[bad[0]]} and must be a finite number"
        raise RowError(int(bad[0]), f"{text}: correct it or drop the row")
    return values


def keep_complete(columns: dict[str, Any], missing: str) -> dict[str, Any]:
    """Return arrow columns without the rows that lack a value, if `missing` is "drop"."""
    if missing not in ("error", "drop"):
        raise ConfigError(f'missing must be "error" or "drop", not {missing!r}')
    if missing == "error":
        return columns
    present = pa.array(np.logical_and.reduce([find_present(one) for one in columns.values()]))
    return {role: column.filter(present) for role, column in columns.items()}


def find_present(column: Any) -> NDArray[np.bool_]:
    """Check for each row of a column whether its value is present."""
    if isinstance(column, pa.ChunkedArray | pa.Array):
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        elif pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            texts = column.cast(pa.string())
            absent = pc.is_in(pc.utf8_trim_whitespace(texts), pa.array(MISSING))
            column = pc.if_else(absent, pa.scalar(None, pa.string()), texts)
        return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), bool)
    return np.array([not is_missing(value) for value in column], bool)


def parse_decimal(text: str) -> str:
    """Return a number with a point for its decimal comma, if it has one (``3,5``)."""
    plain = text.strip()
    if not _COMMA.fullmatch(plain):
        return plain
    if _THOUSANDS.fullmatch(plain):
        raise RowError(
            0,
            f"the rating {plain[:40]!r} may have a decimal comma or a comma of thousands: write it"
            " with a point, or without the comma",
        )
    return plain.replace(",", ".")


def text_ratings(column: pa.ChunkedArray) -> NDArray[np.float32]:
    """Convert ratings that are text, each by itself, some with a decimal comma."""
    # as plain text first, because a filtered dictionary keeps the texts of dropped rows
    texts = column.cast(pa.string())
    coded = as_coded(refuse_nulls(texts, "rating", _ADVICE.format("rating")))
    # arrow's conversion, because it reads the ratings of files without commas
    numbers = pa.array([parse_decimal(text) for text in coded.values], pa.string())
    return as_ratings(pa.chunked_array([numbers.cast(pa.float32())]))[coded.codes]


def plain_ratings(column: Any) -> NDArray[np.float32] | None:
    """Convert an arrow column of numbers chunk by chunk; None if it is not plain and finite."""
    if (
        not isinstance(column, pa.ChunkedArray)
        or column.null_count
        or str(column.type) not in _NUMBERS
    ):
        return None
    values = np.empty(len(column), np.float32)
    start = 0
    for chunk in numpy_chunks(column):
        here = values[start : start + len(chunk)]
        with np.errstate(over="ignore", invalid="ignore"):
            here[:] = chunk
        if not np.isfinite(here).all():
            return None
        start += len(chunk)
    return values


def check_date_order(dates: str | None) -> None:
    """Raise an error unless `dates` is None or one of `DATE_ORDERS`."""
    if dates is not None and dates not in DATE_ORDERS:
        raise ConfigError(f'dates must be "day-first" or "month-first", not {dates!r}')


def as_timestamps(column: Any, dates: str | None = None) -> NDArray[np.int64]:
    """Keep integers; convert dates and ISO text to seconds since 1970 (UTC if without zone).

    `dates` is the order of dates with slashes, "day-first" or "month-first".
    """
    array = _as_array(column, "timestamp")
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and array.max(initial=0) < 2**63):
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "M":
        gaps = np.flatnonzero(np.isnat(array))
        if len(gaps):
            raise _missing_value_error(int(gaps[0]), "timestamp")
        return array.astype("datetime64[s]").astype(np.int64)
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~(np.abs(array) < 2.0**63))
        if len(bad):
            raise _missing_value_error(int(bad[0]), "timestamp")
        return np.floor(array).astype(np.int64)
    return np.fromiter(
        (seconds(value, row, dates) for row, value in enumerate(array.tolist())),
        np.int64,
        len(array),
    )


def text_times(column: pa.ChunkedArray, dates: str | None = None) -> NDArray[np.int64]:
    """Apply `seconds` to every text, by arrow's casts where all texts have one form."""
    parts = [_chunk_times(chunk, dates) for chunk in refuse_nulls(column, "timestamp").chunks]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _chunk_times(texts: pa.Array, dates: str | None) -> NDArray[np.int64]:
    whole = pc.match_substring_regex(texts, _WHOLE)
    rest = np.ones(len(texts), bool)
    rest[np.concatenate(numpy_chunks(pa.chunked_array([pc.indices_nonzero(whole)])))] = False
    times = np.empty(len(texts), np.int64)
    times[~rest] = np.concatenate(
        numpy_chunks(pa.chunked_array([texts.filter(whole).cast(pa.int64())]))
    )
    times[rest] = _other_times(pa.chunked_array([texts.filter(pc.invert(whole))]), dates)
    return times


def _other_times(column: pa.ChunkedArray, dates: str | None) -> NDArray[np.int64]:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.float64()):
        with contextlib.suppress(pa.ArrowInvalid):
            array = _as_array(column.cast(kind), "timestamp")
            # beyond 2⁵³ floats skip integers
            if array.dtype.kind == "M" or bool((np.abs(array) < 2.0**53).all()):
                return as_timestamps(array)
    coded = as_coded(column)
    times = (seconds(text, 0, dates) for text in coded.values)
    found = np.fromiter(times, np.int64, len(coded.values))
    return found[coded.codes]


def seconds(value: Any, row: int = 0, dates: str | None = None) -> int:
    """Return the seconds since 1970 of one timestamp in any form."""
    if is_missing(value):
        raise _missing_value_error(row, "timestamp")
    if isinstance(value, str):
        return seconds(_from_text(value, row, dates), row)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(seconds=1)  # exact, unlike a float
    if isinstance(value, date):
        return seconds(datetime.combine(value, time()))
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[s]").astype(np.int64))
    try:
        whole = math.floor(value)
    except (TypeError, ValueError, OverflowError):
        raise RowError(row, f"the timestamp {value!r} is neither a number nor a date") from None
    if not -(2**63) <= whole < 2**63:
        raise RowError(
            row,
            "the timestamp is beyond 64 bits: correct it, or ignore the column with"
            " timestamp=False",
        )
    return whole


def _from_text(text: str, row: int, dates: str | None) -> int | float | datetime:
    plain = text.strip()
    form = parse_id(plain)  # first, because floats cannot represent large integers
    if isinstance(form, int):
        return form
    if dates is None and _SLASHES.fullmatch(plain):
        raise RowError(
            row,
            f"the timestamp {plain!r} may begin with the day or the month: pass"
            " dates='day-first' or dates='month-first', or ignore the column with timestamp=False",
        )
    try:
        if found := _YEAR_FIRST.fullmatch(plain):
            return _make_date(found[1], found[2], found[3], found.groups()[3:])
        if found := _POINTS.fullmatch(plain):
            return _make_date(found[3], found[2], found[1], found.groups()[3:])
        if found := _SLASHES.fullmatch(plain):
            day, month = (1, 3) if dates == "day-first" else (3, 1)
            return _make_date(found[4], found[month], found[day], found.groups()[4:])
        return float(plain) if _looks_numeric(plain) else datetime.fromisoformat(plain)
    except ValueError:
        raise RowError(
            row,
            f"the timestamp {text[:40]!r} is neither a number nor a date such as 2024-05-31 or"
            " 31.05.2024: correct it, or ignore the column with timestamp=False",
        ) from None


def _make_date(year: str, month: str, day: str, clock: Sequence[str | None]) -> datetime:
    """Return the date and time of texts; hour, minute and second may be None."""
    hour, minute, second = (int(part or 0) for part in clock)
    return datetime(int(year), int(month), int(day), hour, minute, second)


def _looks_numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(value: Any, row: int) -> float:
    if value is None or type(value).__name__ == "NAType":
        raise _missing_value_error(row, "rating")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise RowError(
            row, f"the rating {value!r} is not a number: correct it or drop the row"
        ) from None


def _missing_value_error(row: int, what: str) -> RowError:
    return missing_value_error(row, what, _ADVICE.format(what))


def _as_array(column: Any, what: str) -> NDArray[Any]:
    """Return a one-dimensional array: numbers and dates as such, else Python values."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        column = refuse_nulls(column, what, _ADVICE.format(what))
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            column = column.cast(
                pa.timestamp("us", getattr(column.type, "tz", None)), safe=False
            ).cast(pa.int64())
            return np.concatenate(numpy_chunks(column)).view("datetime64[us]")
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            return np.concatenate(numpy_chunks(column))
        return object_array(column.to_pylist(), len(column))
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    array = column if isinstance(column, np.ndarray) else _from_list(column, what)
    if array.ndim != 1:
        raise DataError(f"{what}s must be one-dimensional, but their shape is {array.shape}")
    return array


def _from_list(column: Any, what: str) -> NDArray[Any]:
    """Convert values of one type; in a mixed list numpy would turn large integers into floats."""
    if isinstance(column, (str, bytes)) or not hasattr(column, "__iter__"):
        raise DataError(
            f"a list of {what}s is needed, not the single value {column!r}: pass [{column!r}]"
        )
    values = list(column)
    kinds = set(map(type, values))
    alike = len(kinds) == 1 and not kinds & {str, int}
    if kinds == {int}:
        alike = min(values) >= -(2**63) and max(values) < 2**63
    return np.asarray(values) if alike else object_array(values, len(values))
