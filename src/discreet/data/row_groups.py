"""A Parquet file a row group at a time, on all cores, each made small as soon as it is there.

A table as arrow reads it takes twice the memory of the ratings in it, and reading it whole takes half as much again.
So integers are kept in 32 bits where they fit, text as positions among the distinct values of its row group, and
ratings and times in the arrays where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.columns import Columns
from discreet.data.encode import Integers, is_text, numpy_chunks
from discreet.data.numbers import plain_ratings

_NARROW = np.iinfo(np.int32)


def read_row_groups(file: Path, names: Mapping[str, str]) -> Columns | None:
    """The columns `names` (by role), or None where something is out of the ordinary and is to be looked at whole.

    Out of the ordinary are missing values, ratings that are not finite, types that need a conversion, and a file of
    one row group.
    """
    from pyarrow import parquet

    about = parquet.read_metadata(file)
    schema = about.schema.to_arrow_schema()
    if about.num_row_groups < 2 or not all(_plain(schema.field(name).type, role) for role, name in names.items()):
        return None
    ends = np.cumsum([0, *[about.row_group(at).num_rows for at in range(about.num_row_groups)]])
    values = np.empty(ends[-1], np.float32) if "rating" in names else None
    times = np.empty(ends[-1], np.int64) if "timestamp" in names else None

    def read(at: int) -> tuple[Any, Any] | None:
        table = parquet.ParquetFile(file, metadata=about).read_row_group(at, list(names.values()), use_threads=False)
        here = slice(ends[at], ends[at + 1])
        if any(column.null_count for column in table.columns):
            return None
        if values is not None:
            ratings = plain_ratings(table.column(names["rating"]))
            if ratings is None:
                return None
            values[here] = ratings
        if times is not None:
            times[here] = np.concatenate(numpy_chunks(table.column(names["timestamp"])))
        return _small(table.column(names["user"])), _small(table.column(names["item"]))

    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        found = list(pool.map(read, range(about.num_row_groups)))
    ids = [pair for pair in found if pair is not None]
    if len(ids) < len(found) or not ids:
        return None
    users, items = ([pair[side] for pair in ids] for side in (0, 1))
    return Columns(_joined(users), _joined(items), values, times)


def _plain(kind: pa.DataType, role: str) -> bool:
    if role == "timestamp":
        return bool(pa.types.is_int64(kind))
    if role == "rating":
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
    return is_text(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind))


def _small(column: pa.ChunkedArray) -> Any:
    """Integers of 32 bits if they fit, or text as a dictionary."""
    if is_text(column.type):
        return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    numbers: NDArray[Any] = np.concatenate(numpy_chunks(column))
    if len(numbers) and not (numbers.min() >= _NARROW.min and numbers.max() <= _NARROW.max):
        return numbers
    return numbers.astype(np.int32, copy=False)


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return Integers(parts)
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks])
