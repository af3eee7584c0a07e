"""Scan a whole text file by comparing bytes, in a small part of the time that parsing takes.

Arrow reads ``007`` as the integer 7, ``-0`` as 0 and ``0x1F`` as 31, so that two users would become
one: columns with such ids are read as text. And an unclosed quote would swallow the lines after it,
which belong to other users: where there are more lines than rows, `check_quotes` checks every
quote.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.data.csv_format import CsvFormat, Replaced, check_line, looks_whole, split
from discreet.errors import DataError

_BLOCK = 1 << 18  # bytes: the arrays compared stay in the processor's cache
_BEFORE = b' "-\t'  # bytes that may stand between the beginning of a field and its number
# setting the bit of a space makes a letter lower case
_ZERO, _MINUS, _QUOTE, _X, _LOWER = np.frombuffer(b'0-"x ', np.uint8)
_FAR = 8  # steps back to the beginning of a field; with more, the field counts as suspicious


class Scan(NamedTuple):
    """Findings about a file.

    Attributes
    ----------
    as_text : set of str
        Roles that began with integers but have an id such as 007 further down.
    lines : int
        Number of lines that are not empty.
    quotes : bool
        Whether there is any quote.
    """

    as_text: set[str]
    lines: int
    quotes: bool


def scan(stream: Any, layout: CsvFormat, where: str) -> Scan:
    """Scan the text of a file, which messages call `where`."""
    roles = {at: role for role, at in layout.columns.items() if role in ("user", "item")}
    roles = {at: role for at, role in roles.items() if looks_whole(layout.sample, at)}
    separator = layout.separator.encode()
    if len(separator) > 1:
        stream, separator = Replaced(stream, separator, b"\x1f"), b"\x1f"
    found: set[str] = set()
    lines = 0
    quotes = False
    held = b""
    while True:
        fresh = stream.read(_BLOCK)
        block = held + fresh
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 if fresh else len(block)
        whole, held = block[:cut], block[cut:]
        check_line(len(held), where)
        text = np.frombuffer(b"\n" + whole + b"\n", np.uint8)
        ends = (text == ord("\n")) | (text == ord("\r"))
        lines += int(np.count_nonzero(ends[1:] & ~ends[:-1]))
        quotes = quotes or (layout.has_quotes and b'"' in whole)
        wanted = {at for at, role in roles.items() if role not in found}
        if wanted:
            found |= {
                roles[at]
                for at in _columns_with(text, ends, separator[0], layout.has_quotes, wanted)
            }
        if not fresh:
            return Scan(found, lines, quotes)


def check_quotes(stream: BinaryIO, layout: CsvFormat, where: str) -> None:
    """Refuse a file with a quoted field over several lines, unless every quote is closed properly.

    No line within such a field may itself be a row: two stray quotes of one user would otherwise
    hide the rows of other users between them.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
    held: list[str] = []  # the lines of the row that is being read
    reader = csv.reader(_record_lines(text, held), delimiter=layout.separator, strict=True)
    problem = ""
    try:
        for _ in reader:
            if any(_is_row(line, layout) for line in held[1:]):
                problem = "a quoted field runs through other rows"
                break
            held.clear()
    except csv.Error:
        problem = "a quote is not closed properly"
    if problem:
        raise DataError(
            f"{where}: {problem}, in a row that ends on line {reader.line_num:,}: "
            "double the quotes inside a field, and put the field in quotes"
        )


def _record_lines(lines: Iterable[str], held: list[str]) -> Iterator[str]:
    for line in lines:
        held.append(line)
        yield line


def _is_row(line: str, layout: CsvFormat) -> bool:
    """Check whether a line could be a row: the right number of fields, and a numeric rating."""
    plain = line.rstrip("\r\n")
    ways = (plain.split(layout.separator), *split([plain], layout.separator))
    return any(len(fields) == len(layout.names) and _has_rating(fields, layout) for fields in ways)


def _has_rating(fields: Sequence[str], layout: CsvFormat) -> bool:
    try:
        if "rating" in layout.columns:
            float(fields[layout.columns["rating"]].strip(' "').replace(",", "."))
    except ValueError:
        return False
    return True


def _columns_with(
    text: NDArray[np.uint8],
    ends: NDArray[np.bool_],
    separator: int,
    quoted: bool,
    wanted: Collection[int],
) -> set[int]:
    """Return the wanted columns in which a number may have a leading zero, or more of them."""
    at = np.flatnonzero(text == _ZERO)
    before, after = text[at - 1], text[at + 1]
    # a byte minus "0" is at most 9 only for digits: smaller bytes wrap around to large numbers
    at = at[
        (before - _ZERO > 9) & ((after - _ZERO <= 9) | (before == _MINUS) | (after | _LOWER == _X))
    ]
    if not len(at):
        return set()
    fields = text == separator
    start = at - 1  # where the field of each zero begins, if nothing but _BEFORE comes before it
    for _ in range(_FAR):
        back = np.isin(text[start], np.frombuffer(_BEFORE, np.uint8)) & ~fields[start] & (start > 0)
        start = start - back
    near = np.isin(text[start], np.frombuffer(_BEFORE, np.uint8)) | fields[start] | ends[start]
    at, start = at[near], start[near]
    if quoted and len(at) and (text == _QUOTE).any():
        # quotes shift columns and may be any user's, so they must not decide: take every column
        return set(wanted)
    return set(wanted) & set(_column(start, np.flatnonzero(ends), np.flatnonzero(fields)).tolist())


def _column(start: NDArray[Any], ends: NDArray[Any], fields: NDArray[Any]) -> NDArray[Any]:
    """Return the column of the field after each position, from line ends and separators."""
    line = ends[np.searchsorted(ends, start, side="right") - 1]
    return np.searchsorted(fields, start, side="right") - np.searchsorted(fields, line)
