"""Read ratings of any size in parts: from files, frames, or an iterable of them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.data.catalog import Catalog
from discreet.data.columns import (
    Column,
    Columns,
    describe_orders,
    find_columns,
    find_date_order,
    only,
)
from discreet.data.csv_format import (
    CsvFormat,
    check_line,
    find_layout,
    looks_whole,
    read_sample,
    read_text,
)
from discreet.data.csv_scan import scan
from discreet.data.formats import TableFormat, find_format, open_text
from discreet.data.frames import frame_columns
from discreet.data.ids import Coded, IdIndex, RowError, canonical, encode, refuse_nulls
from discreet.data.ratings import Ratings
from discreet.data.readers import damage, files_of
from discreet.data.user_column import hold_dates, take_first
from discreet.data.values import as_ratings, as_timestamps, keep_complete
from discreet.engines.user_hash import Identity, Secret, identities
from discreet.errors import ConfigError, DataError

BYTES = 1 << 24  # of a text file at a time: large enough for arrow, small compared with memory
ROWS = 1 << 20  # of a table at a time, for the same reason


@dataclass(frozen=True)
class ReadOptions:
    """Parameters of `Ratings.read` that describe the columns of a file."""

    columns: Mapping[str, Column]
    separator: str | None = None
    header: bool | None = None
    missing: str = "error"


class BlockRows(NamedTuple):
    """Some rows of the source, column by column.

    Attributes
    ----------
    who : (n, 3) uint64
        Keyed hashes of the users (`user_hash.Identity`).
    items : (n,) int32
        Positions in the catalog, −1 for an item that is not in it.
    ratings, times : (n,)
        Values, and times or None.
    rated, dates : bool
        Whether there is a rating column, and whether user ids are dates.
    user_doubt : str
        Why the user column may not identify users, as far as names tell.
    """

    who: Identity
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]
    times: NDArray[np.int64] | None
    rated: bool = True
    dates: bool = False
    user_doubt: str = ""


class ItemColumn:
    """Positions of items: in a public catalog, or in the order in which they are found."""

    def __init__(self, given: Catalog | None, unknown: str) -> None:
        if unknown not in ("error", "drop"):
            raise ConfigError(f'unknown_items must be "error" or "drop", not {unknown!r}')
        self.given = given
        self._unknown = unknown
        self._index = None if given is None else IdIndex(given.ids)
        self._found: dict[Any, int] = {}
        self._values: list[Any] = []

    def positions(self, column: Any) -> NDArray[np.int32]:
        distinct, codes = encode(column, "item id")
        if self._index is None:
            return np.fromiter(map(self._place, distinct.tolist()), np.int32, len(distinct))[codes]
        at = self._index.positions(distinct, "item id").astype(np.int32)
        if self._unknown == "error" and (at < 0).any():
            raise DataError(
                f"a rated item is not in the catalog of {len(self._index.ids):,}: add it, or drop"
                ' its ratings with unknown_items="drop"'
            )
        return at[codes]

    def final(self) -> tuple[NDArray[Any], NDArray[np.int32] | None]:
        """Return the item ids in order and, if they were found in the data, their new places."""
        if self.given is not None:
            return self.given.ids, None
        ids, place = encode(self._values, "item id")
        return ids, place

    def _place(self, value: Any) -> int:
        form = canonical(value)
        if form not in self._found:
            self._found[form] = len(self._values)
            self._values.append(value)
        return self._found[form]


def pieces(
    source: Any, reading: ReadOptions, items: ItemColumn, secret: Secret
) -> Iterator[BlockRows]:
    """Yield the ratings of a source in parts, in order; users by their hash under the secret."""
    if isinstance(source, Ratings):
        yield from _ratings(source, items, secret)
        return
    for columns, where in _columns(source, reading):
        problem = ""
        users = columns.take("users")
        try:
            who = identities(users, secret)
            at = items.positions(columns.take("items"))
        except RowError as error:
            problem = error.problem
        if problem:
            raise DataError(f"{where}: {problem}")
        ratings = columns.take("ratings")
        values = np.ones(len(who), np.float32) if ratings is None else ratings
        dates = hold_dates(take_first(users))
        facts = (ratings is not None, dates, columns.user_doubt)
        yield BlockRows(who, at, values, columns.take("timestamps"), *facts)


def _columns(source: Any, reading: ReadOptions) -> Iterator[tuple[Columns, str]]:
    if isinstance(source, (str, os.PathLike)):
        for file in files_of(Path(os.fspath(source)).expanduser()):
            for columns in _file(file, reading):
                yield columns, str(file)
    elif _is_frame(source):
        for columns in _slice_columns(frame_columns(source, reading.columns, reading.missing)):
            yield columns, "the frame"
    elif isinstance(source, Iterable):
        for one in source:
            yield from _columns(one, reading)
    else:
        raise DataError(
            "blocks are written from files, frames or Ratings, or from several of them, not from a"
            f" {type(source).__name__}"
        )


def _is_frame(source: Any) -> bool:
    return hasattr(type(source), "columns") or isinstance(source, (pa.Table, pa.RecordBatch))


def _file(file: Path, reading: ReadOptions) -> Iterator[Columns]:
    kind = find_format(file)
    try:
        if kind is None:
            yield from _text(file, reading)
        else:
            yield from _table(file, kind, reading)
    except pa.ArrowInvalid:
        broken = f"{file} cannot be read as a table of ratings: write the file again"
    except OSError as error:
        broken = damage(file, error)
    else:
        return
    raise DataError(broken)


def _text(file: Path, reading: ReadOptions) -> Iterator[Columns]:
    with open_text(file) as stream:
        sample = read_sample(stream, str(file))
    layout = find_layout(sample, reading.columns, reading.separator, reading.header, str(file))
    with open_text(file) as stream:
        for block in _whole_lines(stream, str(file)):
            yield _text_block(block, layout, str(file), reading.missing)
            layout = replace(layout, skip=0, header=False)


def _whole_lines(stream: Any, where: str) -> Iterator[bytes]:
    held = b""
    while fresh := stream.read(BYTES):
        block = held + fresh
        cut = block.rfind(b"\n") + 1 or block.rfind(b"\r") + 1
        held = block[cut:]
        check_line(len(held), where)
        if cut:
            yield block[:cut]
    if held.strip():
        yield held


def _text_block(block: bytes, layout: CsvFormat, where: str, missing: str) -> Columns:
    """Read some lines; each entry is read by itself, so the division into blocks is irrelevant."""
    as_text = {
        role
        for role, at in layout.columns.items()
        if role != "rating" and not looks_whole(layout.sample, at)
    }
    seen = scan(io.BytesIO(block), layout, where)
    as_text |= seen.as_text
    roles = set(layout.columns)
    while True:
        try:
            columns = read_text(pa.BufferReader(block), layout, as_text, missing=missing)
            break
        except (pa.ArrowInvalid, RowError):
            failed = as_text >= roles
            as_text |= roles
        if failed:
            raise DataError(
                f"{where} has a line without a user, an item or a finite rating: Ratings.read names"
                " the line"
            )
    if columns.rows < seen.lines - layout.skip:
        raise DataError(
            f"{where} has a quoted field that runs over several lines: write each rating on a line"
        )
    return columns


def _table(file: Path, kind: TableFormat, reading: ReadOptions) -> Iterator[Columns]:
    names = kind.names(file)
    positions = find_columns(names, reading.columns, str(file))
    for role, at in positions.items():
        only(
            [other for other, name in enumerate(names) if name == names[at]], names, role, str(file)
        )
    wanted = [names[at] for at in positions.values()]
    for batch in kind.batches(file, wanted, ROWS):
        columns = {
            role: pa.chunked_array([batch.column(names[at])]) for role, at in positions.items()
        }
        problem = ""
        try:
            columns = keep_complete(columns, reading.missing)
            for role in ("user", "item"):
                refuse_nulls(columns[role], f"{role} id")
            read = Columns(
                columns["user"],
                columns["item"],
                as_ratings(columns["rating"]) if "rating" in columns else None,
                as_timestamps(columns["timestamp"], find_date_order(names))
                if "timestamp" in columns
                else None,
                user_doubt=describe_orders(names[positions["user"]]),
            )
        except RowError as error:
            problem = error.problem
        if problem:
            raise DataError(f"{file}: {problem}")
        yield read


def _slice_columns(columns: Columns) -> Iterator[Columns]:
    n = len(columns.users)
    for begin in range(0, n, ROWS):
        part = slice(begin, begin + ROWS)
        yield Columns(
            _part(columns.users, part),
            _part(columns.items, part),
            None if columns.ratings is None else columns.ratings[part],
            None if columns.timestamps is None else columns.timestamps[part],
        )


def _part(column: Any, part: slice) -> Any:
    if isinstance(column, Coded):
        return Coded(column.values, column.codes[part])
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.slice(part.start, part.stop - part.start)
    return column[part]


def _ratings(source: Ratings, items: ItemColumn, secret: Secret) -> Iterator[BlockRows]:
    """Yield the rows of `Ratings`; users without ratings are kept, as one row with item −1."""
    who = identities(source.user_ids, secret)
    place = items.positions(source.item_ids)
    counts = np.maximum(np.diff(source.indptr), 1)
    ends = np.cumsum(counts)
    begin = 0
    while begin < source.n_users:
        stop = max(begin + 1, int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + ROWS)))
        yield _rows_of(source, who, place, begin, min(stop, source.n_users))
        begin = stop


def _rows_of(
    source: Ratings, who: Identity, place: NDArray[np.int32], begin: int, stop: int
) -> BlockRows:
    own = source.indptr[begin : stop + 1]
    entries = slice(int(own[0]), int(own[-1]))
    counts = np.diff(own)
    empty = np.flatnonzero(counts == 0) + begin
    times = None
    if source.timestamps is not None:
        times = np.concatenate([source.timestamps[entries], np.zeros(len(empty), np.int64)])
    return BlockRows(
        np.concatenate([np.repeat(who[begin:stop], counts, axis=0), who[empty]]),
        np.concatenate([place[source.indices[entries]], np.full(len(empty), -1, np.int32)]),
        np.concatenate([source.values[entries], np.zeros(len(empty), np.float32)]),
        times,
    )
