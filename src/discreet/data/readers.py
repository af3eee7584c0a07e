"""Read files of ratings: text (plain, gz, zst, bz2), and tables of the formats in `formats`."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from discreet.data.columns import (
    Column,
    Columns,
    describe_orders,
    find_columns,
    find_date_order,
    only,
)
from discreet.data.csv_errors import first_problem
from discreet.data.csv_format import (
    CsvFormat,
    as_lines,
    check_line,
    find_layout,
    looks_narrow,
    looks_whole,
    read_sample,
    read_text,
)
from discreet.data.csv_scan import check_quotes, scan
from discreet.data.encodings import check_encoding, decode_list
from discreet.data.formats import TableFormat, find_format, open_text
from discreet.data.frames import SAMPLE_ROWS
from discreet.data.ids import RowError, refuse_nulls
from discreet.data.parquet import read_row_groups
from discreet.data.values import as_ratings, as_timestamps, check_date_order, keep_complete
from discreet.errors import ConfigError, DataError, EmptyFile

# bytes of an unpacked list of items with titles or features: enough for some millions of items
MOST_LIST = 1 << 28


def check_file(path: str | os.PathLike[str], more: str = "") -> Path:
    """Return the path of an existing, readable file that is not a folder.

    `more` is said of a folder after the names of files in it.
    """
    try:
        file = Path(os.fspath(path)).expanduser()
    except TypeError:
        raise DataError(f"a file path is needed, not {type(path).__name__}") from None
    name = str(file)
    if "://" in name or name.startswith(("http:/", "https:/")):
        raise DataError(f"{path} is a network address: download the file and pass its path")
    try:
        if file.exists() and not (file.is_dir() or file.is_file()):
            raise DataError(
                f"{file} is a pipe or a device, which can be read only once: write it to a file and"
                " pass that"
            )
        if file.is_dir():
            inside = sorted(entry.name for entry in file.iterdir() if entry.is_file())[:5]
            hint = (
                f"pass one of the files inside, such as {', '.join(inside)}{more}"
                if inside
                else "it holds no files"
            )
            raise DataError(f"{file} is a folder: {hint}")
        if file.is_symlink() and not file.exists():
            raise DataError(f"{file} is a broken link: check where it points")
        if not file.exists():
            raise DataError(f"{file} does not exist{_similar(file)}")
        with file.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"{file} cannot be opened: {error.strerror or error}") from error
    return file


def read_lines(file: Path) -> list[str]:
    """Read the lines of a list of items in UTF-8, or in Windows-1252 as by Excel on Windows."""
    with open_text(file) as stream:
        data = stream.read(MOST_LIST + 1)
    if len(data) > MOST_LIST:
        raise DataError(f"{file} holds more than {MOST_LIST:,} bytes of text: give a list of items")
    lines = as_lines(decode_list(data))
    check_line(max(map(len, lines)), str(file))
    return lines


def read_list(path: str | os.PathLike[str]) -> pa.Table | list[str]:
    """Read a list of items of any format: an Arrow table, or the lines of a text file."""
    file = check_file(path)
    try:
        kind = find_format(file)
    except EmptyFile:
        raise EmptyFile(f"{file} is empty: it should hold one line per item") from None
    try:
        return read_lines(file) if kind is None else kind.read(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(damage(file, error)) from error


def read_columns(
    path: str | os.PathLike[str],
    chosen: Mapping[str, Column],
    separator: str | None = None,
    header: bool | None = None,
    missing: str = "error",
    encoding: str | None = None,
    dates: str | None = None,
) -> Columns:
    """Read the columns of a ratings file.

    Parameters
    ----------
    path : path of the file
    chosen : mapping role -> name or position of the column
    separator, header
        For text files; detected if None.
    missing : {"error", "drop"}
        Rule for rows that lack a value.
    encoding : str, optional
        Of a text file; UTF-8 if None.
    dates : {"day-first", "month-first"}, optional
        Order of dates with slashes.
    """
    check_date_order(dates)
    check_encoding(encoding)
    file = check_file(path, "; for the ratings of all files, use BlockRatings.write")
    kind = find_format(file)
    try:
        if kind is None:
            opened = partial(open_text, file, encoding)
            return _read_text_file(file, opened, chosen, separator, header, missing, dates)
        texts = {"separator": separator, "header": header, "encoding": encoding}
        for name, value in texts.items():
            if value is not None:
                raise ConfigError(
                    f"{name}={value!r} is for text files, and {file} is a {kind.name} file"
                )
        return _read_table_file(file, kind, chosen, missing, dates)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{file} cannot be read: {_first_line(error)}; write the file again"
        ) from error
    except OSError as error:
        raise DataError(damage(file, error)) from error
    except MemoryError as error:
        raise DataError(f"{file} does not fit into memory: read a part of it") from error


def _read_text_file(
    file: Path,
    opened: Callable[[], Any],
    chosen: Mapping[str, Column],
    separator: str | None,
    header: bool | None,
    missing: str,
    dates: str | None,
) -> Columns:
    with opened() as stream:
        lines = read_sample(stream, str(file))
    layout = find_layout(lines, chosen, separator, header, str(file), dates)
    as_text = {
        role
        for role, at in layout.columns.items()
        if role != "rating" and not looks_whole(layout.sample, at)
    }
    with opened() as stream:
        seen = scan(stream, layout, str(file))
    as_text |= seen.as_text
    narrow = {
        role for role in ("user", "item") if looks_narrow(layout.sample, layout.columns[role])
    }
    while True:
        try:
            with opened() as stream:
                columns = read_text(stream, layout, as_text, narrow, missing)
            break
        except (pa.ArrowInvalid, RowError) as error:
            doubt = _doubt(str(error), layout)
            if doubt in narrow - as_text and re.search(
                r"to int32: invalid value '-?\d+'", str(error)
            ):
                narrow.discard(doubt)
                continue
            if doubt is None or doubt in as_text:
                raise _explain_error(error, file, opened, layout) from error
            as_text.add(doubt)
    if seen.quotes and columns.rows < seen.lines - int(layout.header):
        with opened() as stream:
            check_quotes(io.BufferedReader(stream), layout, str(file))
    return columns


def _doubt(message: str, layout: CsvFormat) -> str | None:
    """Return what to read differently in the next attempt: a role as text, or "line".

    Integers in the first lines may be text further down, and a row that seems too short may be a
    quoted text (a review, for example) with a line break.
    """
    if layout.has_quotes and message.startswith(
        ("CSV parse error: Expected", "CSV parser got out of sync")
    ):
        return "line"
    found = re.match(r"In CSV column #(\d+): CSV conversion error", message)
    return next(
        (role for role, at in layout.columns.items() if found and at == int(found[1])), None
    )


def _explain_error(
    error: Exception, file: Path, opened: Callable[[], Any], layout: CsvFormat
) -> DataError:
    """Return the error with the line number and what is wrong in the line."""
    with opened() as stream:
        buffered: BinaryIO = io.BufferedReader(stream)
        problem = first_problem(buffered, layout)
    if problem is None:
        return DataError(f"{file} cannot be read: {_first_line(error)}")
    return DataError(f"{file}, line {problem[0]:,}: {problem[1]}")


def _read_table_file(
    file: Path,
    kind: TableFormat,
    chosen: Mapping[str, Column],
    missing: str,
    dates: str | None,
) -> Columns:
    names = kind.names(file)
    positions = find_columns(
        names, chosen, str(file), sample=lambda at: _first_values(file, kind, names[at])
    )
    # arrow selects columns by name, so a name that occurs twice is ambiguous
    for role, at in positions.items():
        only(
            [other for other, name in enumerate(names) if name == names[at]], names, role, str(file)
        )
    if kind.name == "parquet" and missing == "error":
        found = read_row_groups(file, {role: names[at] for role, at in positions.items()})
        if found is not None:
            return replace(found, user_doubt=describe_orders(names[positions["user"]]))
    table = kind.read(file, [names[at] for at in positions.values()])
    columns = {role: table.column(names[at]) for role, at in positions.items()}
    del table
    columns = keep_complete(columns, missing)
    dates = dates or find_date_order(names)
    doubt = describe_orders(names[positions["user"]])
    if not len(columns["user"]):
        raise DataError(f"{file} holds no ratings: it has columns but no rows")
    try:
        for role in ("user", "item"):
            refuse_nulls(columns[role], f"{role} id")
        return Columns(
            columns.pop("user"),
            columns.pop("item"),
            as_ratings(columns.pop("rating")) if "rating" in columns else None,
            as_timestamps(columns.pop("timestamp"), dates) if "timestamp" in columns else None,
            user_doubt=doubt,
        )
    except RowError as error:
        raise DataError(f"{file}, {error}") from error


def _first_values(file: Path, kind: TableFormat, name: str) -> list[Any]:
    """Return the values of a column in the first rows, for a description in a message."""
    values: list[Any] = kind.read(file, [name]).column(0).slice(0, SAMPLE_ROWS).to_pylist()
    return values


def damage(file: Path, error: Exception) -> str:
    """Describe what is wrong with an unreadable file, and what to do."""
    text = _first_line(error)
    if "runcated" in text:
        return f"{file} is incomplete: it was cut off, so download or copy it again"
    if "inflate" in text or "ompress" in text or "zstd" in text.lower() or "ZSTD" in text:
        return f"{file} is damaged ({text}): download or copy it again"
    return f"{file} cannot be read: {getattr(error, 'strerror', None) or text}"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200].rstrip(".") if str(error) else type(error).__name__


def _similar(file: Path) -> str:
    import difflib

    try:
        siblings = [entry.name for entry in file.parent.iterdir()]
    except OSError:
        return f": the folder {file.parent} does not exist either"
    near = difflib.get_close_matches(file.name, siblings, n=1)
    return f": did you mean {file.parent / near[0]}?" if near else ": check the path"


def files_of(path: Path) -> list[Path]:
    """Return the file, or the files of a folder by name, without hidden ones and _SUCCESS."""
    if not path.is_dir():
        return [check_file(path)]
    inside = sorted(
        entry for entry in path.iterdir() if entry.is_file() and entry.name[0] not in "._"
    )
    if not inside:
        raise DataError(f"{path} is a folder without ratings files: pass another folder")
    return inside
