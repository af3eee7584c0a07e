"""Text files of ratings: detect the format, then read them with arrow.

Each id is read independently of the others: it is an integer if it is written as one
(`ids.parse_id`) and text if not. If the beginning of a file holds only integers, arrow reads
integers; if a later line disagrees, the column is read again as text with the same result per
entry. A line of names determines the separator and the header; without one, a file that can be
split in two ways is refused.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from discreet.data.column_words import AMBIGUOUS, normalize
from discreet.data.columns import (
    ASSUMED,
    USUAL,
    Column,
    Columns,
    by_order,
    conventions,
    describe_orders,
    find_columns,
    find_date_order,
)
from discreet.data.ids import MISSING, Coded, RowError, as_coded, parse_id, stands_for_nothing
from discreet.data.values import (
    as_ratings,
    as_timestamps,
    check_date_order,
    keep_complete,
    text_ratings,
    text_times,
)
from discreet.errors import DataError

SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_QUOTED = (",", "\t", ";")  # separators with which fields may be in quotes
_NO_TABLE = {
    b'{"': "JSON: convert it to csv or parquet",
    b"[{": "JSON: convert it to csv or parquet",
    b"<!doctype": "a web page: the download went wrong, so fetch the file itself",
    b"<html": "a web page: the download went wrong, so fetch the file itself",
}
#: For messages about text in another encoding, which in practice is the one of Excel on Windows.
NOT_UTF8 = (
    "not UTF-8 text: pass encoding='cp1252' if Excel on Windows wrote the file, or its encoding"
)
# bytes: long reviews fit; arrow's blocks are four times as long, and a row must fit into one
MOST_LINE = 1 << 20
_SAMPLE = 1 << 18  # bytes, thousands of lines: enough to detect the format
_BLOCK = 1 << 22  # bytes that arrow parses at a time
_INTEGER = re.compile(r"[ \t]*(0|-?[1-9][0-9]{0,17})[ \t]*")
#: Words that make a first line a header; more of them would be found among items ("film").
_HEADER = frozenset(word for words in USUAL.values() for word in words.split())


@dataclass(frozen=True)
class CsvFormat:
    """Format of a text file.

    Attributes
    ----------
    separator : str
    header : bool
    names : tuple of str
        Column names, or positions as text where there is no header.
    skip : int
        Number of lines before the first rating.
    columns : mapping
        From role to position.
    sample : tuple of tuples of str
        First rows, without the header.
    guessed : bool
        Whether the separator was detected, not given by the caller.
    user_doubt : str
        Why the user column may not identify users: its name, or a missing header.
    dates : str or None
        Order of dates with slashes: "day-first", "month-first" or unknown.
    """

    separator: str
    header: bool
    names: tuple[str, ...]
    skip: int
    columns: Mapping[str, int]
    sample: tuple[tuple[str, ...], ...]
    guessed: bool = False
    user_doubt: str = ""
    dates: str | None = None

    @property
    def has_quotes(self) -> bool:
        return self.separator in _QUOTED

    def doubtful(self, text: str) -> bool:
        """Check whether a field may be split at a space guessed from other users' lines."""
        return (
            self.guessed
            and self.separator == " "
            and any(other in text for other in SEPARATORS if other != " ")
        )


def read_sample(stream: BinaryIO, where: str) -> list[str]:
    """Read the first lines of a file, as text."""
    head = stream.read(_SAMPLE)
    if (
        head[:2] in (b"\xff\xfe", b"\xfe\xff")
        or max(head[::2].count(0), head[1::2].count(0)) * 2.2 > len(head) > 9
    ):
        raise DataError(
            f"{where} is encoded as UTF-16: pass encoding='utf-16-le', or save it as UTF-8"
        )
    if b"\0" in head:
        raise DataError(
            f"{where} is not a text file: csv, tsv, ::-separated, parquet and feather can be read"
        )
    for start, what in _NO_TABLE.items():
        if head.lstrip().lower().startswith(start):
            raise DataError(f"{where} is {what}")
    lines = as_lines(head.decode("utf-8-sig", errors="replace"))
    if len(head) == _SAMPLE and len(lines) == 1:
        raise DataError(
            f"{where} has a first line of more than {_SAMPLE:,} bytes: put every row on a line of"
            " its own"
        )
    if len(head) == _SAMPLE and len(lines) > 2:
        lines.pop()  # it may be cut in the middle
    if not any(line.strip() for line in lines):
        raise DataError(
            f"{where} is empty: it should hold one line per rating, with a user, an item and a"
            " rating"
        )
    return lines


def as_lines(text: str) -> list[str]:
    """Split at line feeds and carriage returns only; ``splitlines`` would also split titles."""
    return re.split(r"\r\n|\n|\r", text)


def check_line(length: int, where: str) -> None:
    """Refuse a file with a line longer than any row, before it takes too much time and memory."""
    if length > MOST_LINE:
        raise DataError(
            f"{where} has a line of more than {MOST_LINE:,} bytes: put every row on a line of"
            " its own"
        )


def split(lines: Sequence[str], separator: str) -> list[tuple[str, ...]]:
    """Split each line into fields."""
    if separator in _QUOTED:
        try:
            return [tuple(fields) for fields in csv.reader(lines, delimiter=separator)]
        except csv.Error:  # a quote that is never closed: treat it as text
            pass
    return [tuple(line.split(separator)) for line in lines]


def guess_separator(lines: Sequence[str]) -> str | None:
    """Return the separator that splits all lines into the most, equally many fields, or None."""
    best = None
    most = 1
    for separator in SEPARATORS:
        counts = {len(fields) for fields in split(lines[:50], separator)}
        if len(counts) == 1 and (n := counts.pop()) > most and not (separator == " " and best):
            best = separator
            most = n
    return best


def find_separator(lines: Sequence[str], chosen: Mapping[str, Column], where: str) -> str | None:
    """Return the separator of the line of names or, without one, the only possible separator.

    Without names the first lines are users' ratings, and none of them may decide how the others are
    split. So a second separator that fits all lines is an error, and a space separates only if
    no other separator occurs.
    """
    asked = {normalize(wish) for wish in chosen.values() if isinstance(wish, str)}
    names = [
        [normalize(name) for name in split(lines[:1], separator)[0]] for separator in SEPARATORS
    ]
    # blanks are between the words of any title, where words such as "game" are no names
    usual = frozenset(name for names in conventions().values() for name in names) - AMBIGUOUS
    tables = [_HEADER if separator == " " else usual for separator in SEPARATORS]
    known = [
        sum(name in table or name in asked for name in row) * (len(row) > 1)
        for row, table in zip(names, tables, strict=True)
    ]
    if any(known):
        fields = [
            len(row) if separator != " " else 0
            for row, separator in zip(names, SEPARATORS, strict=True)
        ]
        return max(zip(known, fields, SEPARATORS, strict=True), key=lambda entry: entry[:2])[2]
    others = [separator for separator in SEPARATORS if separator != " "]
    if not any(separator in line for line in lines for separator in others):
        return " " if guess_separator(lines) or guess_separator(lines[:1]) else None
    counts = {separator: set(map(len, split(lines, separator))) for separator in others}
    fitting = [
        separator for separator, found in counts.items() if len(found) == 1 and min(found) > 1
    ]
    if len(fitting) > 1:
        both = " and at ".join(map(repr, fitting))
        raise DataError(
            f"{where} has no line of names and can be split at {both}: pass the right one as"
            " separator="
        )
    if fitting:
        return fitting[0]
    # a broken line among the first ones must not hide the separator: use the first line alone
    alone = guess_separator(lines[:1])
    return None if alone == " " else alone


def has_header(first: Sequence[str], chosen: Mapping[str, Column], where: str) -> bool:
    """Check whether the first row holds names: one is known, or there are no numbers."""
    if any(isinstance(wish, str) for wish in chosen.values()):
        return True
    if any(normalize(field) in _HEADER for field in first):
        if any(_is_number(field) for field in first):
            raise DataError(
                f"{where}: the first line has both a known column name and a number: "
                "pass header=True if it holds names, or header=False if it holds a rating"
            )
        return True
    if any(_is_number(field) for field in first[:2]):
        return False  # a column name is not a number
    return not any(_is_number(field) or _is_date(field) for field in first[2:4])


def find_layout(
    lines: Sequence[str],
    chosen: Mapping[str, Column],
    separator: str | None,
    header: bool | None,
    where: str,
    dates: str | None = None,
) -> CsvFormat:
    """Detect the format of a ratings file from its first lines."""
    check_date_order(dates)
    blank = 0
    while not lines[blank].strip():
        blank += 1
    lines = [line for line in lines[blank:] if line.strip()]
    # spellings used on a command line
    separator = {"\\t": "\t", "tab": "\t", "": None}.get(separator or "", separator)
    guessed = separator is None
    separator = find_separator(lines, chosen, where) if separator is None else separator
    first = split(lines[:1], separator)[0] if separator else ()
    if separator is None or len(first) < 2:
        guess = guess_separator(lines)
        tried = (
            f"the separator {separator!r}"
            if separator
            else "any of tab, comma, semicolon, | and ::"
        )
        hint = f"pass separator={guess!r}" if guess else "pass the right one as separator="
        raise DataError(
            f"{where} has only one column when split at {tried} (first line {lines[0][:60]!r}):"
            f" {hint}"
        )
    header = has_header(first, chosen, where) if header is None else header
    sample = split(lines[int(header) :], separator)

    def values(at: int) -> list[str]:
        return [row[at] for row in sample if at < len(row)]

    if header:
        names = tuple(name.strip() for name in first)
        if any("\ufffd" in name for name in names):
            raise DataError(f"{where}, line 1: the column names are {NOT_UTF8}")
        dates = dates or find_date_order(names)
        columns = find_columns(names, chosen, where, no_header_hint=True, sample=values)
        if len(lines) == 1:
            raise DataError(f"{where} has a header line but no ratings: add at least one row")
    else:
        names = tuple(str(at) for at in range(len(first)))
        columns = by_order(len(first), chosen, where)
    doubt = describe_orders(names[columns["user"]])
    if not header and chosen.get("user") is None:
        doubt = ASSUMED
    skip = blank + int(header)
    rows = tuple(sample)
    return CsvFormat(separator, header, names, skip, columns, rows, guessed, doubt, dates)


def read_text(
    stream: Any,
    layout: CsvFormat,
    as_text: Collection[str] = (),
    narrow: Collection[str] = (),
    missing: str = "error",
) -> Columns:
    """Read the columns with a role; invalid content raises ``pyarrow.ArrowInvalid`` or `RowError`.

    Ids and times are read as integers and ratings as numbers, or as text for the roles in
    ``as_text``, with the same result. If ``as_text`` contains "line", quoted fields may run over
    several lines. Integers of the roles in ``narrow`` are read into 32 bits, which takes half the
    memory and fails where one does not fit.
    """
    types: dict[str, pa.DataType] = {}
    for role, position in layout.columns.items():
        whole = pa.int32() if role in narrow else pa.int64()
        whole = pa.float32() if role == "rating" else whole
        text = pa.string() if role == "timestamp" else pa.dictionary(pa.int32(), pa.string())
        types[str(position)] = text if role in as_text else whole
    delimiter = layout.separator
    if len(delimiter.encode()) > 1:
        # in arrow's memory: a Python stream in an arrow thread may outlive the interpreter, which
        # then aborts
        replaced = Replaced(stream, delimiter.encode(), b"\x1f")
        sink = pa.BufferOutputStream()
        while block := replaced.read(_BLOCK):
            sink.write(block)
        delimiter = "\x1f"
        stream = pa.BufferReader(sink.getvalue())
    table = arrow_csv.read_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            column_names=[str(at) for at in range(len(layout.names))],
            skip_rows=layout.skip,
            block_size=_BLOCK,
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if layout.has_quotes else False,
            newlines_in_values="line" in as_text,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=[str(at) for at in layout.columns.values()],
            null_values=list(MISSING),
        ),
    )
    columns = {role: table.column(str(position)) for role, position in layout.columns.items()}
    rows = len(table)
    del table
    columns = keep_complete(columns, missing)
    times = None
    if "timestamp" in columns:
        convert = text_times if "timestamp" in as_text else as_timestamps
        times = convert(columns.pop("timestamp"), layout.dates)
    ratings = None
    if "rating" in columns:
        ratings = (text_ratings if "rating" in as_text else as_ratings)(columns.pop("rating"))
    pa.default_memory_pool().release_unused()  # otherwise arrow keeps the memory of freed columns
    users = _ids(columns.pop("user"), "user", layout)
    pa.default_memory_pool().release_unused()
    items = _ids(columns.pop("item"), "item", layout)
    pa.default_memory_pool().release_unused()
    return Columns(users, items, ratings, times, rows, layout.user_doubt)


def looks_whole(sample: Sequence[Sequence[str]], position: int) -> bool:
    """Check whether the first ids of a column are integers, so that all can be read as such."""
    present = [
        row[position]
        for row in sample
        if position < len(row) and row[position].strip() not in MISSING
    ]
    return all(_INTEGER.fullmatch(text) for text in present)


def looks_narrow(sample: Sequence[Sequence[str]], position: int) -> bool:
    """Check whether the first integers of a column fit into 32 bits."""
    present = [row[position] for row in sample if position < len(row)]
    return all(abs(int(text)) < 1 << 31 for text in present if _INTEGER.fullmatch(text))


def _ids(column: pa.ChunkedArray, role: str, layout: CsvFormat) -> pa.ChunkedArray | Coded:
    """Return the ids of a column, each parsed by itself."""
    if column.null_count:
        raise RowError(0, f"the {role} id is missing")
    if pa.types.is_integer(column.type):
        return column
    coded = as_coded(column)
    for text in coded.values:
        if stands_for_nothing(text):
            raise RowError(0, f"the {role} id is missing")
        if "\n" in text or "\r" in text:
            raise RowError(0, f"the {role} id runs over several lines")
        if layout.doubtful(text):
            raise RowError(0, f"the {role} id may be split at the wrong character")
    return Coded([parse_id(text) for text in coded.values], coded.codes)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        np.datetime64(text.strip().rstrip("Z"))
    except ValueError:
        return False
    return bool(text.strip())


class Replaced(io.RawIOBase):
    """Stream that replaces one byte string by another; arrow takes one-byte separators only."""

    def __init__(self, stream: Any, old: bytes, new: bytes) -> None:
        super().__init__()
        self._stream = stream
        self._old = old
        self._new = new
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK), b""))
        while True:
            fresh = self._stream.read(max(1, size - len(self._held)))
            block = (self._held + fresh).replace(self._old, self._new)
            # the end of the block may cut a separator in two: hold its beginning back
            cut = 0
            if fresh:
                cut = next(
                    (n for n in range(len(self._old) - 1, 0, -1) if block.endswith(self._old[:n])),
                    0,
                )
            self._held = block[len(block) - cut :] if cut else b""
            block = block[: len(block) - cut]
            if block or not fresh:
                return block
