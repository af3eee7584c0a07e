"""Text files of ratings: finding out how they are written, and reading them at the speed of arrow.

The separator, the header and the kind of the ids (integers or text) are judged by the first part of the file. Ids are
integers only where they are written as such without leading zeros; a file whose later lines disagree is read again with
ids as text, so that ids always come out as they went in.
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

from discreet.data.columns import CONVENTIONS, Column, Columns, by_order, find_columns, normalise
from discreet.data.encode import RowError
from discreet.data.numbers import as_ratings, as_timestamps
from discreet.errors import DataError

SEPARATORS = ("::", "\t", ",", ";", "|", " ")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None", "<NA>")
"""What stands for a missing number."""

_QUOTED = (",", "\t", ";")  # separators beside which fields may be put in quotes
_NO_TABLE = {
    b'{"': "JSON: convert it to csv or parquet",
    b"[{": "JSON: convert it to csv or parquet",
    b"<!doctype": "a web page: the download went wrong, so fetch the file itself",
    b"<html": "a web page: the download went wrong, so fetch the file itself",
}
_SAMPLE = 1 << 18
_BLOCK = 1 << 22
_INTEGER = re.compile(r"\s*(0|-?[1-9]\d{0,17})\s*")
_INTEGRAL = re.compile(r"\s*(0|-?[1-9]\d{0,14})\.0\s*")


@dataclass(frozen=True)
class Layout:
    """How a text file is written."""

    separator: str
    header: bool
    names: tuple[str, ...]
    skip: int  # lines before the first rating
    columns: Mapping[str, int]  # role -> position
    sample: tuple[tuple[str, ...], ...]  # first rows, header excluded

    @property
    def quoted(self) -> bool:
        return self.separator in _QUOTED


def read_sample(stream: BinaryIO, where: str) -> list[str]:
    """The first lines of a file, as text."""
    head = stream.read(_SAMPLE)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or max(head[::2].count(0), head[1::2].count(0)) * 2.2 > len(head) > 9:
        raise DataError(f"{where} is encoded as UTF-16: save it as UTF-8")
    if b"\0" in head:
        raise DataError(f"{where} is not a text file: csv, tsv, ::-separated, parquet and feather can be read")
    for start, what in _NO_TABLE.items():
        if head.lstrip().lower().startswith(start):
            raise DataError(f"{where} is {what}")
    lines = as_lines(head.decode("utf-8-sig", errors="replace"))
    if len(head) == _SAMPLE and len(lines) > 2:
        lines.pop()  # cut in the middle
    if not any(line.strip() for line in lines):
        raise DataError(f"{where} is empty: it should hold one line per rating, with a user, an item and a rating")
    return lines


def as_lines(text: str) -> list[str]:
    """Lines by line feeds and carriage returns only; ``splitlines`` also cuts at characters that a title may hold."""
    return re.split(r"\r\n|\n|\r", text)


def split(lines: Sequence[str], separator: str) -> list[tuple[str, ...]]:
    """Fields of each line."""
    if separator in _QUOTED:
        try:
            return [tuple(fields) for fields in csv.reader(lines, delimiter=separator)]
        except csv.Error:  # a quote that is never closed: take it as it stands
            pass
    return [tuple(line.split(separator)) for line in lines]


def guess_separator(lines: Sequence[str]) -> str | None:
    """The separator that cuts all lines into equally many fields, and into most; None where none does."""
    best, most = None, 1
    for separator in SEPARATORS:
        counts = {len(fields) for fields in split(lines[:50], separator)}
        if len(counts) == 1 and (n := counts.pop()) > most and not (separator == " " and best):
            best, most = separator, n
    return best


def has_header(first: Sequence[str], chosen: Mapping[str, Column]) -> bool:
    """Whether the first row holds names: one is known or asked for, or no number is where numbers should be."""
    known = {name for names in CONVENTIONS.values() for name in names}
    if any(normalise(field) in known for field in first):
        return True
    if any(isinstance(wish, str) for wish in chosen.values()):
        return True
    if any(_is_number(field) for field in first[:2]):
        return False  # nobody names a column 17
    return not any(_is_number(field) or _is_date(field) for field in first[2:4])


def find_layout(
    lines: Sequence[str], chosen: Mapping[str, Column], separator: str | None, header: bool | None, where: str
) -> Layout:
    """Layout of a ratings file from its first lines."""
    blank = 0
    while not lines[blank].strip():
        blank += 1
    lines = [line for line in lines[blank:] if line.strip()]
    guess = guess_separator(lines)
    separator = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)  # as typed on a command line
    # a broken line among the first ones must not hide the separator: the first line alone decides then
    separator = separator or guess or guess_separator(lines[:1])
    first = split(lines[:1], separator)[0] if separator else ()
    if separator is None or len(first) < 2:
        tried = f"the separator {separator!r}" if separator else "any of tab, comma, semicolon, | and ::"
        hint = f"pass separator={guess!r}" if guess else "pass the right one as separator="
        raise DataError(f"{where} has only one column when split at {tried} (first line {lines[0][:60]!r}): {hint}")
    header = has_header(first, chosen) if header is None else header
    if header:
        names = tuple(name.strip() for name in first)
        columns = find_columns(names, chosen, where, no_header_hint=True)
        if len(lines) == 1:
            raise DataError(f"{where} has a header line and no ratings below it: give a file with at least one")
    else:
        names = tuple(str(at) for at in range(len(first)))
        columns = by_order(len(first), chosen, where)
    sample = split(lines[int(header) :], separator)
    return Layout(separator, header, names, blank + int(header), columns, tuple(sample))


def read_text(stream: Any, layout: Layout, doubted: Collection[str] = ()) -> Columns:
    """Read the columns that matter; raises ``pyarrow.ArrowInvalid`` or :class:`RowError` for content that is wrong.

    Columns of ``doubted`` roles are not what they looked like in the first lines: ids are read as text then, and
    timestamps as whatever they are. If "line" is doubted, quoted fields may run over several lines.
    """
    types: dict[str, pa.DataType] = {}
    for role, position in layout.columns.items():
        if role == "rating":
            types[str(position)] = pa.float32()
        elif role == "timestamp":
            if role not in doubted and id_type(layout.sample, position) == pa.int64():
                types[str(position)] = pa.int64()
        else:
            types[str(position)] = _TEXT if role in doubted else id_type(layout.sample, position)
    delimiter = layout.separator
    if len(delimiter.encode()) > 1:
        # in arrow's own memory: a Python stream may outlive the interpreter in one of arrow's threads, which aborts
        replaced, sink = Replaced(stream, delimiter.encode(), b"\x1f"), pa.BufferOutputStream()
        while block := replaced.read(_BLOCK):
            sink.write(block)
        delimiter, stream = "\x1f", pa.BufferReader(sink.getvalue())
    table = arrow_csv.read_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            column_names=[str(at) for at in range(len(layout.names))], skip_rows=layout.skip, block_size=_BLOCK
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter, quote_char='"' if layout.quoted else False, newlines_in_values="line" in doubted
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types, include_columns=[str(at) for at in layout.columns.values()], null_values=list(MISSING)
        ),
    )
    columns = {role: table.column(str(position)) for role, position in layout.columns.items()}
    del table
    for role in ("user", "item"):
        if columns[role].null_count or (columns[role].type == _TEXT and _has_empty_text(columns[role])):
            raise RowError(0, f"the {role} is missing")
    return Columns(
        columns.pop("user"),
        columns.pop("item"),
        as_ratings(columns.pop("rating")) if "rating" in columns else None,
        as_timestamps(columns.pop("timestamp")) if "timestamp" in columns else None,
    )


_TEXT = pa.dictionary(pa.int32(), pa.string())


def id_type(sample: Sequence[Sequence[str]], position: int) -> pa.DataType:
    """Arrow type under which the ids of a column come out as they are written."""
    present = [row[position] for row in sample if position < len(row) and row[position].strip() not in MISSING]
    if all(_INTEGER.fullmatch(text) for text in present):
        return pa.int64()
    if all(_INTEGRAL.fullmatch(text) for text in present):  # written by a program that once had gaps in the column
        return pa.float64()
    return _TEXT


def _has_empty_text(column: pa.ChunkedArray) -> bool:
    return any("" in chunk.dictionary.to_pylist() for chunk in column.unify_dictionaries().chunks[:1])


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
    """A stream in which one byte string is replaced by another; arrow knows separators of a single byte only."""

    def __init__(self, stream: Any, old: bytes, new: bytes) -> None:
        super().__init__()
        self._stream, self._old, self._new = stream, old, new
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK), b""))
        while True:
            fresh = self._stream.read(max(1, size - len(self._held)))
            block = (self._held + fresh).replace(self._old, self._new)
            # a separator may be cut in two by the end of the block
            cut = 0
            if fresh:
                cut = next((n for n in range(len(self._old) - 1, 0, -1) if block.endswith(self._old[:n])), 0)
            self._held = block[len(block) - cut :] if cut else b""
            block = block[: len(block) - cut]
            if block or not fresh:
                return block
