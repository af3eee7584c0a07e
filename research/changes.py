"""Compare two folders of results (docs/results), or single pages of version 0.2, cell by cell.

A cell has changed if its mean is more than two standard deviations away, by the larger of both; one
without a deviation, if it is more than half a per cent away. Rows that only one of them
has are listed as well: they were renamed, or are new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from research import pages

DEVIATIONS = 2.0
ALONE = 0.005  # for cells without a deviation, relative
_NUMBER = re.compile(r"^(-?[\d,]*\.?\d+)(?: ± ([\d,]*\.?\d+))?(?: \(.*\))?$")

Key = tuple[str, ...]
Cell = tuple[float, float | None]


@dataclass(frozen=True)
class Change:
    """A cell before and now; None where a page does not have it."""

    entry: str
    row: Key
    column: str
    old: Cell | None
    new: Cell | None

    @property
    def moved(self) -> bool:
        """Whether it is in both, and no longer the same."""
        if self.old is None or self.new is None:
            return False
        spreads = [cell[1] for cell in (self.old, self.new) if cell[1] is not None]
        border = DEVIATIONS * max(spreads) if spreads else ALONE * abs(self.old[0])
        return abs(self.new[0] - self.old[0]) > max(border, 1e-9)


def compare(old: Path, new: Path) -> list[Change]:
    """Cells of entries that both pages have and whose text differs: those that moved, and those
    that one page lacks.
    """
    before, after = _cells(old), _cells(new)
    shared = {place[0] for place in before} & {place[0] for place in after}
    places = [place for place in dict.fromkeys([*before, *after]) if place[0] in shared]
    found = [Change(*place, before.get(place), after.get(place)) for place in places]
    return [change for change in found if change.moved or None in (change.old, change.new)]


def markdown(changes: list[Change]) -> str:
    """A table of what moved, then rows that are only in one of the pages."""
    lines = ["| entry | row | column | before | now |", "|---|---|---|---|---|"]
    lines += [
        f"| {c.entry} | {' · '.join(c.row)} | {c.column} | {_shown(c.old)} | {_shown(c.new)} |"
        for c in changes
        if c.moved
    ]
    for title, missing in (("New rows", "old"), ("Rows that are gone", "new")):
        rows: dict[str, dict[Key, None]] = {}
        for change in changes:
            if getattr(change, missing) is None:
                rows.setdefault(change.entry, {})[change.row] = None
        lines += ["", f"{title}:", ""] if rows else []
        lines += [
            f"- {entry}: {'; '.join(' · '.join(row) for row in of_it)}"
            for entry, of_it in rows.items()
        ]
    return "\n".join(lines) + "\n"


def _cells(page: Path) -> dict[tuple[str, Key, str], Cell]:
    found = {}
    for entry, text in pages.read(page).items():
        for table in _tables(text):
            for row, column, cell in _values(table):
                found[entry, row, column] = cell
    return found


def _tables(text: str) -> Iterator[list[list[str]]]:
    lines: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append([cell.strip() for cell in line.strip("|\n ").split("|")])
        elif lines:
            yield lines
            lines = []


def _values(table: list[list[str]]) -> Iterator[tuple[Key, str, Cell]]:
    """Numbers are in columns whose head has "=", or that show a spread, and in those right of
    the first of these.
    """
    head, _, *rows = table
    spread = [
        any(at < len(row) and re.search(r" ± | \(.*–", row[at]) for row in rows)
        for at in range(len(head))
    ]
    first = next((at for at, name in enumerate(head) if " = " in name or spread[at]), len(head))
    for row in rows:
        key = tuple(row[:first])
        if ": paper" in " ".join(key):
            continue
        for name, text in zip(head[first:], row[first:], strict=False):
            if name in ("paper", "paper_sd", "twin", "sketch", "elsewhere"):
                continue
            if match := _NUMBER.match(text):
                spread_of_it = match[2] and float(match[2].replace(",", ""))
                yield key, name, (float(match[1].replace(",", "")), spread_of_it or None)


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return f"{cell[0]:g}" + (f" ± {cell[1]:g}" if cell[1] is not None else "")
