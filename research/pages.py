"""Write the pages of docs/results/ from finished entries: one page for each entry, and an index.

`index.md` lists every page that is there, by its title; ``make results`` (benchmarks/reference.py)
writes ``reference.md``. Figures go to ``plots/`` next to the folder.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from discreet.data.atomic_files import atomic_write
from discreet.errors import ConfigError
from research import entry as entries
from research.layout import section
from research.reproduce import collect
from research.sources import Sources

HEAD = """---
orphan: true
---

# Results

Every page here is written by a command and never edited by hand: `discreet reproduce docs` writes
the pages of finished entries, `make results` writes [the reference scores](reference.md).
[The papers](../papers.md) has the verdicts. "Simulated" data have the published shape of MovieLens
10M or 20M, which may not be passed on.
"""
GROUPS = {
    "dpals": "DPALS",
    "dplmc": "DPLMC",
    "huber": "The Huber mechanism",
    "theory": "Bounds and cost",
    "baselines": "Baselines",
    "real": "Real ratings",
    "beyond": "DPMF",
    "timeline": "Models over time",
}


def write(
    folder: Path, out: Path, names: Iterable[str], sources: Sources, partial: bool = False
) -> list[str]:
    """Write a page for every entry that has finished in `out`; return their names.

    With `partial` also those that have begun, with a sentence on how many cells are missing.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} does not exist: name the folder to write into with --to")
    written = []
    for name in names:
        text = _render(name, out, sources, folder.parent / "plots", partial)
        if text is not None:
            with atomic_write(folder / f"{name}.md") as aside:
                aside.write_text(text, encoding="utf-8")
            written.append(name)
    with atomic_write(folder / "index.md") as aside:
        aside.write_text(_index(folder), encoding="utf-8")
    return written


def read(folder: Path) -> dict[str, str]:
    """Return {entry: Markdown} of a folder of results, or of a single page of version 0.2."""
    if folder.is_file():
        found = re.findall(
            r"<!-- entry (\S+) -->\n(.*?)<!-- /entry -->", folder.read_text("utf-8"), re.S
        )
        return dict(found)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} does not exist: name a folder of results, such as an older docs/results"
        )
    pages = (page for page in sorted(folder.glob("*.md")) if page.stem != "index")
    return {page.stem: page.read_text(encoding="utf-8") for page in pages}


def _render(name: str, out: Path, sources: Sources, plots: Path, partial: bool) -> str | None:
    """The page of an entry, or None unless all its cells are there, or some and that is enough."""
    entry = entries.load(name)
    found = collect(entry, out, sources=sources)
    if found.missing and not (partial and found.records):
        return None
    text = section(entry, found.records, found.conditions, found.seconds, quick=False)
    if found.missing:
        every = found.missing + len(found.conditions)
        text += f"\n**Not finished:** {found.missing} of {every} cells have not been run yet.\n"
    if entry.plots:
        plots.mkdir(exist_ok=True)
        shutil.copyfile(found.folder / "plot.png", plots / f"{name}.png")
        text += f"\n![{entry.title}](../plots/{name}.png)\n"
    return "---\norphan: true\n---\n\n" + text.replace("### ", "# ", 1)


def _index(folder: Path) -> str:
    """List the pages in the order of the entries, by group."""
    there = {name for name in read(folder) if name != "reference"}
    order = [name for name in entries.names() if name in there]
    parts = [HEAD]
    for group, title in GROUPS.items():
        names = [name for name in order if name.split("-")[0] == group]
        lines = [f"- [{_title(folder / f'{name}.md')}]({name}.md)" for name in names]
        parts += [f"## {title}\n", "\n".join(lines) + "\n"] if lines else []
    return "\n".join(parts)


def _title(page: Path) -> str:
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.M)
    return found[1] if found else page.stem
