"""Read a Parquet file one row group at a time on all cores, and shrink each group immediately.

A table as arrow reads it takes twice the memory of the ratings in it, and reading it whole takes
half as much again. So ids are kept in 32 bits, text as positions among the distinct values of its
row group, and all numbers are written directly into the final arrays.
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
from discreet.data.ids import Integers, is_text, numpy_chunks

_NARROW = np.iinfo(np.int32)
_KINDS = {"user": np.int32, "item": np.int32, "rating": np.float32, "timestamp": np.int64}


def read_row_groups(file: Path, names: Mapping[str, str]) -> Columns | None:
    """Read the columns `names` (by role), or return None if the file needs the general reader.

    That is the case for missing values, integers beyond 32 bits, ratings that are not finite,
    types that need a conversion, and a file of one row group.
    """
    from pyarrow import parquet

    about = parquet.read_metadata(file)
    schema = about.schema.to_arrow_schema()
    if about.num_row_groups < 2 or not all(
        _plain(schema.field(name).type, role) for role, name in names.items()
    ):
        return None
    ends = np.cumsum([0, *[about.row_group(at).num_rows for at in range(about.num_row_groups)]])
    if not ends[-1]:
        return None
    arrays = {
        role: np.empty(ends[-1], _KINDS[role])
        for role, name in names.items()
        if not is_text(schema.field(name).type)
    }

    coded = [name for role, name in names.items() if role not in arrays]

    def read(at: int) -> dict[str, pa.ChunkedArray] | None:
        """Write numbers to their place and return text; None if the group is not plain."""
        source = parquet.ParquetFile(file, metadata=about, read_dictionary=coded)
        table = source.read_row_group(at, list(names.values()), use_threads=False)
        here = slice(ends[at], ends[at + 1])
        texts = {}
        for role, name in names.items():
            column = table.column(name)
            if column.null_count:
                return None
            if role not in arrays:
                texts[role] = (
                    column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
                )
            elif not _copy_column(column, role, arrays[role][here]):
                return None
        return texts

    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        found = list(pool.map(read, range(about.num_row_groups)))
    pa.default_memory_pool().release_unused()
    texts = [group for group in found if group is not None]
    if len(texts) < len(found):
        return None

    def ids(role: str) -> Any:
        if role in arrays:
            return Integers(arrays[role])
        return pa.chunked_array([chunk for group in texts for chunk in group[role].chunks])

    return Columns(ids("user"), ids("item"), arrays.get("rating"), arrays.get("timestamp"))


def _copy_column(column: pa.ChunkedArray, role: str, out: NDArray[Any]) -> bool:
    """Copy all numbers of a column, and return whether each could be represented."""
    start = 0
    for chunk in numpy_chunks(column):
        here = out[start : start + len(chunk)]
        if role in ("user", "item") and not (
            chunk.min(initial=0) >= _NARROW.min and chunk.max(initial=0) <= _NARROW.max
        ):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            here[:] = chunk
        if role == "rating" and not np.isfinite(here).all():
            return False
        start += len(chunk)
    return True


def _plain(kind: pa.DataType, role: str) -> bool:
    if role == "timestamp":
        return bool(pa.types.is_int64(kind))
    if role == "rating":
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
    return is_text(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind))
