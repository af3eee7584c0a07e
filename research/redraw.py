"""Write the text and the figure of result pages again, from the numbers that the pages hold.

``python -m research.redraw NAME ...`` takes title and description from the entry's file and the
numbers from the tables of the page in docs/results, so that no cell has to be run. Figures need a
spread over seeds, so each number becomes two records with its mean and its standard deviation.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.data.atomic_files import atomic_write
from discreet.errors import DataError
from research import entry as entries
from research.entry import Entry, Record
from research.figures import draw, split
from research.layout import introduction

DOCS = Path(__file__).resolve().parents[1] / "docs"


def redraw(name: str, docs: Path = DOCS) -> None:
    """Write the page of one entry with the present text, and its figure."""
    entry = entries.load(name)
    page = docs / "results" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    records = list(read_records(entry, text))
    for panel in entry.plots:
        if "value" in panel or not any(lines for _, lines in split(records, panel)):
            raise DataError(f"{name}: the page lacks numbers of a figure. Run the entry.")
    if entry.plots:
        draw(entry, records, docs / "plots" / f"{name}.png")
    text = re.sub(r"^# .*$", lambda _: f"# {entry.title}", text, count=1, flags=re.MULTILINE)
    text = re.sub(
        r"^`discreet reproduce .*$",
        lambda _: introduction(entry),
        text,
        count=1,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^!\[.*\](?=\(\.\./plots)", lambda _: f"![{entry.title}]", text, flags=re.M)
    with atomic_write(page) as aside:
        aside.write_text(text, encoding="utf-8")


def read_records(entry: Entry, text: str) -> Iterator[Record]:
    """Read the tables of a page into records, two for each number."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    if len(tables) < len(entry.tables):
        raise DataError(f"the page of {entry.name} has {len(tables)} tables: run the entry")
    common = entry.common.items()
    fixed = {name: value for name, value in common if isinstance(value, str | int | float)}
    # differences are taken seed by seed, of which a page has no deviations
    means = any("relative" in panel for panel in entry.plots)
    for table, found in zip(entry.tables, tables, strict=False):
        head, _, *lines = [_cells(line) for line in found.strip().splitlines()]
        for line in lines:
            yield from _read_row(table, head, line, fixed, means)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _read_row(
    table: Mapping[str, Any], head: Sequence[str], line: Sequence[str], fixed: Record, means: bool
) -> list[Record]:
    rows, values = table["rows"], table["values"]
    if any(": " in cell and cell.rpartition(": ")[2] in ("paper", "authors") for cell in line):
        return []  # a published value, which the entry's file holds
    keys = {
        key: _parse(cell)
        for key, cell in zip(rows, line, strict=False)
        if cell not in ("", "–", "None")
    }
    keys = {**fixed, **table.get("where", {}), **keys}
    numbers = line[len(rows) :]
    names = head[len(rows) :]
    # what has no setting of the columns, such as a model without ε, stands in all of them
    alone = "columns" in table and len(numbers) > 1 and len(set(numbers)) == 1
    found: list[Record] = []
    together: list[Record] = [dict(keys), dict(keys)]
    for name, cell in zip(names[:1] if alone else names, numbers, strict=False):
        number = re.match(r"\*{0,2}(-?[\d,.]+)(?: ± ([\d.]+))?", cell)
        if number is None:
            continue
        mean = float(number[1].replace(",", ""))
        half = 0.0 if means else float(number[2] or 0) / math.sqrt(2)
        if "columns" not in table:
            for sign, record in zip((-1, 1), together, strict=True):
                record[name] = mean + sign * half
            continue
        column, _, at = name.rpartition(" = ")
        value = values[0] if column == table["columns"] else column.partition(", ")[0]
        setting = {} if alone else {table["columns"]: _parse(at)}
        found += [{**keys, **setting, value: mean + sign * half} for sign in (-1, 1)]
    return found or together


def _parse(cell: str) -> Any:
    bare = cell.strip("*").replace(",", "")
    if not re.fullmatch(r"-?\d+(?:\.\d+)?", bare):
        return cell
    return float(bare) if "." in bare else int(bare)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        redraw(wanted)
        print(wanted, flush=True)
