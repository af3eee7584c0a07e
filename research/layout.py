"""Results as text: tables of means over seeds with the papers' values next to them, and the page of
an entry.

A table of an entry's file has

    title    optional
    rows     settings (or numbers) that tell its lines apart
    columns  a setting whose values become the columns; without it, the columns are `values`
    values   numbers to show; with `columns`, the first
    over     settings that means are taken over, in addition to the seed; the title says so
    where    optional: only records with these settings
    digits   4 by default
    statistic  "mean" ± standard deviation (n − 1) over the seeds by default; "median" with the
               lowest and the highest, where one run that diverges would hide the others
    references  which published values to show; all by default
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from research.entry import Entry, Record

SEED = "seed"
UNKNOWN = "unknown"  # the code of cells that were computed before cells knew theirs
QUICK = "Quick version, too small to compare with the paper."


@dataclass(frozen=True)
class Group:
    """Records that differ by their seed: `keys` are what they share."""

    keys: dict[str, Any]
    records: list[Record]

    def values(self, name: str) -> list[float]:
        found = [
            record[name] for record in self.records if isinstance(record.get(name), int | float)
        ]
        return [float(value) for value in found if math.isfinite(value)]

    def mean(self, name: str) -> float:
        return statistics.fmean(values) if (values := self.values(name)) else math.nan

    def spread(self, name: str) -> float:
        return statistics.stdev(values) if len(values := self.values(name)) > 1 else 0.0

    def median(self, name: str) -> float:
        return statistics.median(values) if (values := self.values(name)) else math.nan

    def quartiles(self, name: str) -> tuple[float, float]:
        """Half of the values lie between."""
        if len(values := self.values(name)) < 2:
            return self.median(name), self.median(name)
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return low, high

    def shown(self, name: str, digits: int, statistic: str = "mean") -> str:
        """Mean ± standard deviation over the seeds, or the median with the lowest and the
        highest.
        """
        if not (values := self.values(name)):
            texts = [record[name] for record in self.records if isinstance(record.get(name), str)]
            nothing = "refused" if any("refused" in record for record in self.records) else "–"
            return texts[0] if texts else nothing
        if statistic == "median" and len(set(values)) > 1:
            return (
                f"{self.median(name):.{digits}f}"
                f" ({_brief(min(values), digits)}–{_brief(max(values), digits)})"
            )
        spread = f" ± {self.spread(name):.{digits}f}" if len(set(values)) > 1 else ""
        lost = (
            f" ({len(self.records) - len(values)} refused)"
            if any("refused" in r for r in self.records)
            else ""
        )
        return f"{self.mean(name):.{digits}f}{spread}{lost}"


def matches(record: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether the record has all these settings; a list stands for any of its values."""
    return all(
        record.get(name) in value if isinstance(value, list) else record.get(name) == value
        for name, value in where.items()
    )


def group(
    records: Iterable[Record], by: Sequence[str], where: Mapping[str, Any] | None = None
) -> list[Group]:
    """Records by the values of some settings, in the order they come."""
    found: dict[tuple[Any, ...], Group] = {}
    for record in records:
        if matches(record, where or {}):
            keys = {name: record[name] for name in by if name in record}
            found.setdefault(tuple(keys.items()), Group(keys, [])).records.append(record)
    return list(found.values())


def reference(entry: Entry, of: Group, name: str) -> float | None:
    """The published value called `name` that belongs to these settings."""
    for line in entry.published:
        rest = {k: v for k, v in line.items() if k not in entry.references}
        if name in line and matches(of.records[0], rest):
            return float(line[name])
    return None


def table(entry: Entry, records: list[Record], form: Mapping[str, Any]) -> list[list[str]]:
    """Head and lines, as text."""
    if "columns" in form:
        return _crossed(entry, records, form)
    digits = form.get("digits", 4)
    values = form["values"]
    rows = form["rows"]
    groups = group(records, rows, form.get("where"))
    wanted = form.get("references", entry.references)
    names = [name for name in wanted if any(reference(entry, g, name) is not None for g in groups)]
    lines = [[*rows, *values, *names]]
    for one in groups:
        known = [reference(entry, one, name) for name in names]
        lines.append(
            [
                *(_text(one.keys.get(name, "–")) for name in rows),
                *(one.shown(name, digits, form.get("statistic", "mean")) for name in values),
                *("" if value is None else f"{value:.{digits}f}" for value in known),
            ]
        )
    return lines


def _crossed(entry: Entry, records: list[Record], form: Mapping[str, Any]) -> list[list[str]]:
    """One column for each value of a setting; what was published gets lines of its own."""
    column = form["columns"]
    value = form["values"][0]
    digits = form.get("digits", 4)
    groups = group(records, [*form["rows"], column], form.get("where"))
    columns = list(dict.fromkeys(g.keys[column] for g in groups if column in g.keys))
    if all(isinstance(c, (int, float)) for c in columns):
        columns.sort()
    lines = [[*form["rows"], *(f"{column} = {_text(c)}" for c in columns)]]
    for row in group(records, form["rows"], form.get("where")):
        cells = {g.keys.get(column): g for g in groups if matches(g.keys, row.keys)}
        # it does not depend on the column, so it stands in all of them
        if not any(c in cells for c in columns):
            cells = dict.fromkeys(columns, next(iter(cells.values())))
        head = [_text(row.keys.get(name, "–")) for name in form["rows"]]
        told = [
            cells[c].shown(value, digits, form.get("statistic", "mean")) if c in cells else ""
            for c in columns
        ]
        lines.append([*head, *told])
        for name in form.get("references", entry.references):
            known = [reference(entry, cells[c], name) if c in cells else None for c in columns]
            if any(k is not None for k in known):
                known_values = [f"{k:.{digits}f}" if k is not None else "" for k in known]
                lines.append([*head[:-1], f"{head[-1]}: {name}", *known_values])
    return lines


def markdown(lines: list[list[str]]) -> str:
    head, *rest = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|---" * len(lines[0]) + "|", *rest])


def section(
    entry: Entry,
    records: list[Record],
    conditions: list[dict[str, Any]],
    seconds: float,
    quick: bool,
) -> str:
    """The entry as a part of a page: what it is, the tables, and under which conditions they
    were measured.
    """
    parts = [f"### {entry.title}", introduction(entry)]
    for form in entry.tables:
        parts += [f"**{form['title']}**"] if "title" in form else []
        parts.append(markdown(table(entry, records, form)))
    parts.append(_conditions(entry, records, conditions, seconds, quick and entry.smaller))
    return "\n\n".join(part for part in parts if part) + "\n"


def page(
    entry: Entry,
    records: list[Record],
    conditions: list[dict[str, Any]],
    seconds: float,
    quick: bool,
) -> str:
    """The README of an entry's folder."""
    text = section(entry, records, conditions, seconds, quick).replace("### ", "# ", 1)
    return text + ("\n![plot](plot.png)\n" if entry.plots else "")


def introduction(entry: Entry) -> str:
    """Return the paragraph that begins the page of an entry."""
    source = f" ({entry.paper})" if entry.paper else ""
    return f"`discreet reproduce {entry.name}`{source}. {' '.join(entry.about.split())}".rstrip()


def data_used(records: list[Record]) -> str:
    """The data sets as a sentence; generated ones with the part of their users that was taken."""
    found: dict[str, set[float]] = {}
    for record in records:
        if "data" in record:
            found.setdefault(str(record["data"]), set()).add(float(record.get("scale", 1.0)))
    if not found:
        return "Data: no data set; what it needs it generates."
    parts = []
    for name, scales in sorted(found.items()):
        generated = name == "cinema" or name.startswith("twin-")
        part = (
            f" ({', '.join(f'{scale:.3g}' for scale in sorted(scales))} of its users)"
            if scales != {1.0}
            else ""
        )
        parts.append(name + (part if generated else ""))
    return f"Data: {', '.join(parts)}."


def codes(conditions: list[dict[str, Any]]) -> dict[str, int]:
    """How many cells were computed by which code, most first."""
    return dict(Counter(str(one.get("code", UNKNOWN)) for one in conditions).most_common())


def _conditions(
    entry: Entry,
    records: list[Record],
    conditions: list[dict[str, Any]],
    seconds: float,
    quick: bool,
) -> str:
    seeds = sorted({record[SEED] for record in records if SEED in record})
    last = conditions[-1]
    libraries = ", ".join(
        f"{name} {last[name]}" for name in ("numpy", "scipy", "numba") if name in last
    )
    found = codes(conditions)
    known = [
        f"`{code}`" + (f" ({n} cells)" if len(found) > 1 else "")
        for code, n in found.items()
        if code != UNKNOWN
    ]
    how_many = f" ({found[UNKNOWN]} cells)" if known and UNKNOWN in found else ""
    lost = f"not recorded{how_many}" if UNKNOWN in found else None
    drawn = "One seed." if seeds else "No seeds are varied."
    if len(seeds) > 1:
        named = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 5 else ", ".join(map(str, seeds))
        medians = any(form.get("statistic") == "median" for form in entry.tables)
        shown = "median (lowest–highest)" if medians else "mean ± standard deviation (n − 1)"
        drawn = f"Seeds {named}; {shown} over them."
    parts = [
        f"*{QUICK}*" if quick else "",
        data_used(records),
        drawn,
        (
            f"{len(conditions)} cells, {seconds:.0f} seconds in all, which on a shared machine only"
            " indicate size;"
        ),
        (
            f"discreet {last['discreet']}, Python {last['python']}, {libraries}, {last['system']}"
            f" {last['machine']} with"
        ),
        (
            f"{last['cores']} cores, {last['date']}. Code:"
            f" {', '.join([*known, *([lost] if lost else [])])}."
        ),
    ]
    return " ".join(part for part in parts if part)


def _brief(value: float, digits: int) -> str:
    """With so many digits, or as few as a large number needs."""
    return f"{value:.{digits}f}" if abs(value) < 10 else f"{value:,.0f}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if type(value) is int else str(value)
