"""Ratings from and to data frames of pandas, polars and pyarrow, each imported only if needed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.columns import (
    Column,
    Columns,
    describe_orders,
    find_columns,
    find_date_order,
)
from discreet.data.values import as_ratings, as_timestamps, check_date_order, find_present
from discreet.errors import ConfigError, DataError

BACKENDS = ("pandas", "polars", "pyarrow")
SAMPLE_ROWS = 1000  # enough to distinguish five star values from ids


def frame_columns(
    frame: Any, chosen: Mapping[str, Column], missing: str = "error", dates: str | None = None
) -> Columns:
    """Return the columns of any frame that narwhals or arrow's stream interface can read."""
    check_date_order(dates)
    import narwhals.stable.v1 as nw

    what = f"the {type(frame).__module__.split('.')[0]} {type(frame).__name__}"
    try:
        wrapped = _wrap_frame(frame, what)
        names = list(wrapped.collect_schema().names())
        positions = find_columns(
            names,
            chosen,
            what + _index_hint(frame),
            sample=lambda at: _first_values(wrapped, at, nw),
            naming="Ratings.from_frame(frame, user=...)",
        )
        if isinstance(wrapped, nw.LazyFrame):
            eager = wrapped.select([names[at] for at in positions.values()]).collect()
            series: dict[str, Any] = {role: eager[names[at]] for role, at in positions.items()}
        else:  # names may be numbers in pandas, so columns are taken by position
            series = {role: wrapped[:, at] for role, at in positions.items()}
    except nw.exceptions.DuplicateError:
        raise DataError(f"{what} has several columns of the same name: rename them") from None
    if missing == "drop":
        complete = [find_present(_numbers(column, nw)) for column in series.values()]
        present = np.logical_and.reduce(complete).tolist()
        series = {role: column.filter(present) for role, column in series.items()}
    dates = dates or find_date_order(names)
    try:
        return Columns(
            _ids(series["user"], nw),
            _ids(series["item"], nw),
            as_ratings(_numbers(series["rating"], nw)) if "rating" in series else None,
            as_timestamps(_numbers(series["timestamp"], nw), dates)
            if "timestamp" in series
            else None,
            user_doubt=describe_orders(names[positions["user"]]),
        )
    except UnicodeEncodeError:
        raise DataError(
            f"{what} holds half of a surrogate pair, which is not text: correct it"
        ) from None


def make_frame(columns: Mapping[str, NDArray[Any]], backend: str) -> Any:
    """Make a frame of the library `backend` with these columns."""
    if backend not in BACKENDS:
        raise ConfigError(f'backend must be "pandas", "polars" or "pyarrow", not {backend!r}')
    if backend == "pyarrow":
        return pa.table({name: _arrow(name, column) for name, column in columns.items()})
    try:
        library = __import__(backend)
    except ImportError:
        raise ConfigError(
            f'{backend} is not installed: pip install "discreet[frames]", or use backend="pyarrow"'
        ) from None
    if backend == "polars":
        return library.DataFrame(
            {name: _polars(library, name, column) for name, column in columns.items()}
        )
    return library.DataFrame(dict(columns))


def _wrap_frame(frame: Any, what: str) -> Any:
    """Wrap any frame as a narwhals frame."""
    import narwhals.stable.v1 as nw

    try:
        return nw.from_native(
            pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
        )
    except TypeError:
        if hasattr(frame, "__arrow_c_stream__"):
            with contextlib.suppress(pa.ArrowInvalid):  # a single column
                return nw.from_native(pa.table(frame))
        raise DataError(
            f"{what} is not a data frame: pass one of pandas, polars or pyarrow, "
            "or use Ratings.from_arrays or Ratings.from_csr"
        ) from None


def _first_values(wrapped: Any, at: int, nw: Any) -> list[Any]:
    """Return the values of a column in the first rows, for a description in a message."""
    head = wrapped.head(SAMPLE_ROWS)
    head = head.collect() if isinstance(head, nw.LazyFrame) else head
    values: list[Any] = head[:, at].to_list()
    return values


def _index_hint(frame: Any) -> str:
    """Return a hint that pandas keeps some columns as the index, which has no column names."""
    named = [
        name
        for name in getattr(getattr(frame, "index", None), "names", None) or []
        if name is not None
    ]
    return (
        f" (with index {', '.join(map(repr, named))}: reset_index() makes it a column)"
        if named
        else ""
    )


def _ids(series: Any, nw: Any) -> Any:
    kind = series.dtype
    if kind in (nw.Int128, nw.UInt128):  # arrow has no such types
        return series.to_list()
    if kind.is_integer() or kind in (nw.String, nw.Categorical, nw.Enum):
        return series.to_arrow()
    if kind.is_float():
        return series.to_numpy() if not series.null_count() else series.to_list()
    return series.to_list()


def _numbers(series: Any, nw: Any) -> Any:
    kind = series.dtype
    if kind in (nw.Int128, nw.UInt128):
        return series.to_list()
    if kind.is_numeric() or kind.is_temporal() or kind in (nw.String, nw.Boolean):
        return series.to_arrow()
    return np.fromiter(series.to_list(), dtype=object, count=len(series))


def _arrow(name: str, column: NDArray[Any]) -> pa.Array:
    if column.dtype == object and {type(value) for value in column} == {int, str}:
        # text, because reading it back gives the same ids again
        column = np.array([str(value) for value in column], object)
    try:
        return pa.array(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise DataError(
            f"arrow cannot hold the values of {name} (such as {column[0]!r}): use"
            ' to_frame("pandas")'
        ) from None


def _polars(library: Any, name: str, column: NDArray[Any]) -> Any:
    if column.dtype != object or all(type(value) is str for value in column):
        return library.Series(name, column if column.dtype != object else column.tolist())
    return library.Series(name, column.tolist(), dtype=library.Object)
