"""docs/results.md, written from finished entries: each has a block between two comments, replaced
as a whole.

What stands above the first block belongs to ``make results`` (benchmarks/reference.py), which in
turn leaves the blocks alone. Pictures go to ``plots/`` beside the page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from discreet.data.atomic_files import atomic_write
from discreet.errors import ConfigError
from research import entry as entries
from research.layout import section
from research.reproduce import collect
from research.sources import Sources

START = "<!-- reproduced -->"
HEAD = (
    "## The papers' tables and figures\n\nWritten by `discreet reproduce docs` from finished runs;"
    " do not edit.\n"
)


def write(
    page: Path, out: Path, names: Iterable[str], sources: Sources, partial: bool = False
) -> list[str]:
    """Put every entry that has finished in `out` into the page; returns their names.

    With `partial` also those that have begun, with a sentence on how many cells are missing.
    """
    if not page.is_file():
        raise ConfigError(f"{page} does not exist: name the page to write into with --to")
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    blocks = _blocks(rest)
    written = []
    for name in names:
        if (block := _render(name, out, sources, page.parent / "plots", partial)) is not None:
            blocks[name] = block
            written.append(name)
    order = [name for name in entries.names() if name in blocks]
    body = "\n".join(
        f"{_mark(name)}\n{_anchor(name)}{blocks[name]}<!-- /entry -->\n" for name in order
    )
    with atomic_write(page) as aside:
        aside.write_text(f"{before.rstrip()}\n\n{START}\n\n{HEAD}\n{body}", encoding="utf-8")
    return written


def kept(page: Path) -> str:
    """What of a page was reproduced, for whoever writes the rest anew."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return START + text.partition(START)[2] if START in text else ""


def _render(name: str, out: Path, sources: Sources, plots: Path, partial: bool) -> str | None:
    """The section of an entry, or None unless all its cells are there, or some and that is
    enough.
    """
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
        text += f"\n![{entry.title}](plots/{name}.png)\n"
    return text


def _mark(name: str) -> str:
    return f"<!-- entry {name} -->"


def _anchor(name: str) -> str:
    """So that other pages can link to the entry by its name, however its title is worded."""
    return f'<a id="{name}"></a>\n\n'


def _blocks(text: str) -> dict[str, str]:
    found = {}
    for part in text.split("<!-- entry ")[1:]:
        name, _, block = part.partition(" -->\n")
        found[name] = block.partition("<!-- /entry -->")[0].removeprefix(_anchor(name))
    return found
