"""Read a large Parquet file in pieces, each with all ratings of its users.

That needs rows in order of users, as most programs write them. The last user of a batch may go on
in the next one, so its rows are kept for that. Other files are read whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from discreet.data.columns import find_columns, find_date_order
from discreet.data.formats import TableFormat, find_format
from discreet.data.ids import is_text
from discreet.data.ratings import Ratings
from discreet.data.readers import check_file
from discreet.errors import DataError

ROWS = 1 << 20  # read at once: about a hundred megabytes, and large enough for all cores
_ROLES = ("user", "item", "rating", "timestamp")
_OF_TEXT_FILES = ("separator", "header", "encoding")


def read_by_users(path: str | os.PathLike[str], **options: Any) -> Iterator[Ratings]:
    """Yield the ratings of a file in pieces; each has all ratings of its users.

    Parameters
    ----------
    path : path of the file
    options
        As for `Ratings.read`. With `normalize_ids` the file is read whole.
    """
    file = check_file(path)
    kind = find_format(file)
    whole = options.get("normalize_ids") or any(
        options.get(name) is not None for name in _OF_TEXT_FILES
    )
    if whole or kind is None or not _is_long(file, kind):
        yield Ratings.read(path, **options)
        return
    names = kind.names(file)
    roles = find_columns(names, {role: options.get(role) for role in _ROLES}, str(file))
    columns = {role: names[at] for role, at in roles.items()}
    if len(set(names)) < len(names) or not _is_in_order(file, kind, columns["user"]):
        yield Ratings.read(path, **options)
        return
    chosen: dict[str, Any] = {role: columns.get(role, False) for role in _ROLES}
    # by all names of the file, as where it is read whole
    chosen["dates"] = options.get("dates") or find_date_order(names)
    rest = {name: value for name, value in options.items() if name not in _OF_TEXT_FILES}
    for table in _whole_users(file, kind, list(columns.values()), columns["user"]):
        problem = ""
        try:
            piece = Ratings.from_frame(table, **rest | chosen)
        except DataError as error:
            problem = str(error)
        if problem:
            raise DataError(f"{file}: {problem}")
        yield piece


def _is_long(file: Any, kind: TableFormat) -> bool:
    from pyarrow import parquet

    return kind.name == "parquet" and parquet.read_metadata(file).num_rows > ROWS


def _is_in_order(file: Any, kind: TableFormat, user: str) -> bool:
    """Check that users ascend from row to row, and that none is missing."""
    import pyarrow.compute as pc

    before = None
    for batch in kind.batches(file, [user], ROWS):
        column = _ids(batch, user)
        if not (pa.types.is_integer(column.type) or is_text(column.type)) or column.null_count:
            return False
        if before is not None and not pc.less_equal(before, column[0]).as_py():
            return False
        if not pc.all(pc.less_equal(column[:-1], column[1:]), min_count=0).as_py():
            return False
        before = column[-1]
    return True


def _ids(batch: pa.RecordBatch, user: str) -> pa.Array:
    column = batch.column(user)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _whole_users(file: Any, kind: TableFormat, columns: list[str], user: str) -> Iterator[pa.Table]:
    """Yield the rows of a file whose users are in order, without dividing those of a user."""
    import pyarrow.compute as pc

    held: list[pa.RecordBatch] = []
    for batch in kind.batches(file, columns, ROWS):
        ids = _ids(batch, user)
        # rows of the last user so far, which may have more in the next batch
        first = int(pc.index(ids, ids[-1]).as_py())
        if first:
            yield pa.Table.from_batches([*held, batch[:first]])
            held = []
        elif held and _ids(held[-1], user)[-1] != ids[0]:
            yield pa.Table.from_batches(held)
            held = []
        held.append(batch[first:])
    yield pa.Table.from_batches(held)
