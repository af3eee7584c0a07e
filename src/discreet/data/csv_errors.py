"""Find the faulty line of a text file: a slow second pass after the fast reader has failed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from discreet.data.columns import ASSUMED
from discreet.data.csv_format import NOT_UTF8, CsvFormat
from discreet.data.ids import MISSING, RowError
from discreet.data.values import parse_decimal, seconds

_DROP = "drop such lines with missing='drop'"


def first_problem(stream: BinaryIO, layout: CsvFormat) -> tuple[int, str] | None:
    """Return line number (from 1) and description of the first unusable line, or None."""
    expected = len(layout.names)
    for line, fields in _rows(stream, layout):
        if len(fields) != expected:
            return (
                line,
                (
                    f"{len(fields)} fields where the first line has {expected}: correct the line, "
                    "or pass separator= if the file is cut at the wrong character"
                ),
            )
        for role, position in layout.columns.items():
            problem = _problem(role, fields[position], layout)
            if problem and line == 1:
                problem += ", or pass header=True if the first line holds names"
            if problem:
                return line, problem
    return None


def _problem(role: str, text: str, layout: CsvFormat) -> str | None:
    plain = text.strip()
    if any("\udc80" <= letter <= "\udcff" for letter in text):
        return f"the {role} is {NOT_UTF8}"
    if role in ("user", "item"):
        if plain in MISSING:
            state = f"is {plain!r}, a placeholder for a missing value" if plain else "is missing"
            return f"the {role} id {state}: fill it in, or {_DROP}"
        if "\n" in text:
            return f"the {role} id runs over several lines: close its quotes, or drop the line"
        if layout.doubtful(text):
            return (
                f"the {role} id {plain[:40]!r} may be split at the wrong character: pass the right"
                " one as separator="
            )
        return None
    if plain in MISSING:
        state = f"is {plain!r}" if plain else "is missing"
        return f"the {role} {state}: fill it in, {_DROP}, or ignore the column with {role}=False"
    if role == "timestamp":
        try:
            seconds(plain, 0, layout.dates)
        except RowError as error:
            return error.problem
        return None
    try:
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.float32(float(parse_decimal(plain))))
    except RowError as error:
        return error.problem
    except ValueError:
        return f"the rating {plain[:40]!r} is not a number: {_no_rating_hint(layout)}"
    return (
        None
        if finite
        else f"the rating {plain[:40]!r} is not a finite number: correct it or drop the line"
    )


def _no_rating_hint(layout: CsvFormat) -> str:
    """Return what to do: a file without header may have no ratings, or have them elsewhere."""
    if layout.header:
        return "correct it or drop the line"
    users = "user=0 and " if layout.user_doubt == ASSUMED else ""  # which private models need
    return (
        f"pass {users}rating=False if the rows are purchases or clicks without ratings, the"
        " position of the rating column (from 0) as rating= if there is one, or correct the line"
    )


def _rows(stream: BinaryIO, layout: CsvFormat) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of the first line and the fields of each row."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline=None)
    for _ in range(layout.skip):
        next(text, None)
    if not layout.has_quotes:
        for line, row in enumerate(text, start=layout.skip + 1):
            if row.rstrip("\n"):
                yield line, row.rstrip("\n").split(layout.separator)
        return
    reader = csv.reader(text, delimiter=layout.separator)
    while True:
        first = layout.skip + reader.line_num + 1  # a quoted field may run over several lines
        try:
            fields = next(reader, None)
        except csv.Error:  # a quoted field that never ends
            yield first, [""]
            return
        if fields is None:
            return
        if fields:
            yield first, fields
