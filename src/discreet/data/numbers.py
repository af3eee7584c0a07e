"""Rating and timestamp columns, of whatever type they come in, to float32 and int64."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.encode import RowError
from discreet.errors import DataError


def as_ratings(column: Any) -> NDArray[np.float32]:
    """Finite float32 ratings; a :class:`RowError` names the first that is missing, infinite or no number."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        if column.null_count:
            raise _missing(int(np.flatnonzero(column.is_null().to_numpy())[0]), "rating", column.null_count)
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        array = column.to_numpy() if numeric else np.array(column.to_pylist(), dtype=object)
    else:
        array = _one_dimensional(column, "ratings")
    if array.dtype.kind not in "iufb":
        array = np.fromiter((_number(value, row) for row, value in enumerate(array.tolist())), np.float64, len(array))
    with np.errstate(over="ignore", invalid="ignore"):
        values = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        text = f"the rating is {array[bad[0]]} and must be a finite number ({len(bad):,} in all)"
        raise RowError(int(bad[0]), f"{text}: correct it or drop the row")
    return values


def as_timestamps(column: Any) -> NDArray[np.int64]:
    """Integers as they are; dates, datetimes and ISO text as seconds since 1970 (UTC where no zone is given)."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        if column.null_count:
            raise _missing(int(np.flatnonzero(column.is_null().to_numpy())[0]), "timestamp", column.null_count)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
            return column.cast(pa.int64()).to_numpy() // 1_000_000
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        array = column.to_numpy() if numeric else np.array(column.to_pylist(), dtype=object)
    else:
        array = _one_dimensional(column, "timestamps")
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "M":
        missing = np.flatnonzero(np.isnat(array))
        if len(missing):
            raise _missing(int(missing[0]), "timestamp", len(missing))
        return array.astype("datetime64[s]").astype(np.int64)
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~(np.abs(array) < 2.0**63))
        if len(bad):
            raise _missing(int(bad[0]), "timestamp", len(bad))
        return np.floor(array).astype(np.int64)
    return np.fromiter((seconds(value, row) for row, value in enumerate(array.tolist())), np.int64, len(array))


def seconds(value: Any, row: int = 0) -> int:
    """Seconds since 1970 of one timestamp in any form."""
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        raise _missing(row, "timestamp", 1)
    if isinstance(value, str):
        try:
            return math.floor(float(value)) if _looks_numeric(value) else seconds(datetime.fromisoformat(value.strip()))
        except ValueError:
            raise RowError(
                row, f"the timestamp {value!r} is neither a number nor an ISO date such as 2024-05-31T12:00:00"
            ) from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return math.floor(aware.timestamp())
    if isinstance(value, date):
        return seconds(datetime.combine(value, time()))
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[s]").astype(np.int64))
    try:
        return math.floor(value)
    except (TypeError, ValueError, OverflowError):
        raise RowError(row, f"the timestamp {value!r} is neither a number nor a date") from None


def _looks_numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(value: Any, row: int) -> float:
    if value is None or type(value).__name__ == "NAType":
        raise _missing(row, "rating", 1)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise RowError(row, f"the rating {value!r} is not a number: correct it or drop the row") from None


def _missing(row: int, what: str, count: int) -> RowError:
    many = f" ({count:,} are in all)" if count > 1 else ""
    advice = f"fill it in, drop the row, or ignore the column with {what}=False"
    return RowError(row, f"the {what} is missing{many}: {advice}")


def _one_dimensional(column: Any, what: str) -> NDArray[Any]:
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    array = column if isinstance(column, np.ndarray) else np.asarray(list(column))
    if array.ndim != 1:
        raise DataError(f"{what} must be one-dimensional, and the shape given is {array.shape}")
    return array
