"""One quick look through all of a text file, in a small part of the time that reading it takes, by
comparing bytes.

Arrow reads ``007`` as the integer 7, ``-0`` as 0 and ``0x1F`` as 31, so that two people would
become one: columns that hold such ids are read as text. And a quote that is opened and not closed
would swallow the lines after it, which are other people's: where there are more lines than rows,
`check_quotes` looks at every quote.
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

_BLOCK = 1 << 18  # what is compared stays in the cache
_BEFORE = b' "-\t'  # what may stand between the beginning of a field and its number
# a letter with the bit of a space is lower case
_ZERO, _MINUS, _QUOTE, _X, _LOWER = np.frombuffer(b'0-"x ', np.uint8)
_FAR = 8  # steps back to the beginning of a field; what is further away is taken to be one


class Scan(NamedTuple):
    """What there is in a file."""

    # roles that looked like integers in the first lines, and have an id such as 007 further down
    as_text: set[str]
    lines: int  # that are not empty
    quotes: bool


def scan(stream: Any, layout: CsvFormat, where: str) -> Scan:
    """Look through the text of a file, called `where` in messages."""
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
    """Refuse a file in which a quoted field runs over several lines, unless every quote in it is
    closed properly.

    And none of the lines within it may be a row: two stray quotes, of one person, look like a field
    in quotes.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
    held: list[str] = []  # the lines of the row that is being read
    reader = csv.reader(_record_lines(text, held), delimiter=layout.separator, strict=True)
    problem = ""
    try:
        for _ in reader:
            if any(_is_row(line, layout) for line in held[1:]):
                problem = "a quoted field runs on through other rows"
                break
            held.clear()
    except csv.Error:
        problem = "a quote is opened and not closed properly"
    if problem:
        raise DataError(
            f"{where}: {problem}, in a row that ends on line {reader.line_num:,}: "
            "double the quotes inside of a field, and put the field in quotes"
        )


def _record_lines(lines: Iterable[str], held: list[str]) -> Iterator[str]:
    for line in lines:
        held.append(line)
        yield line


def _is_row(line: str, layout: CsvFormat) -> bool:
    """Whether a line could be a row: it has as many fields, with its quotes or without, and a
    number for a rating.
    """
    plain = line.rstrip("\r\n")
    ways = (plain.split(layout.separator), *split([plain], layout.separator))
    return any(len(fields) == len(layout.names) and _has_rating(fields, layout) for fields in ways)


def _has_rating(fields: Sequence[str], layout: CsvFormat) -> bool:
    try:
        float(fields[layout.columns["rating"]].strip(' "') if "rating" in layout.columns else 0)
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
    """Columns among those wanted in which a number of these whole lines has a leading zero;
    rather too many.
    """
    at = np.flatnonzero(text == _ZERO)
    before, after = text[at - 1], text[at + 1]
    # a byte minus "0" is at most 9 for digits alone, because smaller ones wrap round to large
    # numbers
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
        return set(wanted)  # which column it is depends on the quotes, and these may be anybody's
    return set(wanted) & set(_column(start, np.flatnonzero(ends), np.flatnonzero(fields)).tolist())


def _column(start: NDArray[Any], ends: NDArray[Any], fields: NDArray[Any]) -> NDArray[Any]:
    """Column of the field that begins after each position; `ends` are line ends and `fields`
    separators.
    """
    line = ends[np.searchsorted(ends, start, side="right") - 1]
    return np.searchsorted(fields, start, side="right") - np.searchsorted(fields, line)
