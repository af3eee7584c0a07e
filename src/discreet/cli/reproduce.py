"""``discreet reproduce``: the papers' tables and figures, each by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command
from discreet.cli.output import Output

if TYPE_CHECKING:
    from discreet.experiments.reproduce import Finished


@command(
    "discreet reproduce list",
    "discreet reproduce dpals-figure4 --quick",
    "discreet reproduce dpals-table5 --jobs 2 --data ml-10m=data/ml-10m.zip",
)
def reproduce(
    out: Output,
    name: Annotated[str, typer.Argument(help="An entry, or: list, all, docs.", metavar="NAME")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, for a look.")] = False,
    folder: Annotated[
        str, typer.Option("--out", "-o", help="Where results go; what is finished there is not run again.")
    ] = "out/reproduce",
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes to run cells in.")] = 1,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Official data, as NAME=PATH; may be repeated.")
    ] = None,
    to: Annotated[str, typer.Option(help="With docs: the page to write finished entries into.")] = "docs/results.md",
) -> None:
    """Run the experiments of the papers again, and lay the results beside the published ones.

    A run that was stopped goes on where it was. Official data are used where they are at hand, else their twins; the
    results say which. Each entry's folder gets results.json, results.csv, a plot and a README with the conditions.
    """
    from discreet.experiments import entry as entries
    from discreet.experiments import pages
    from discreet.experiments import reproduce as runs
    from discreet.experiments.sources import Sources

    sources = Sources.given(data or [])
    if name == "list":
        _list(out, [entries.load(known) for known in entries.names()], sources)
        return
    if name == "docs":
        written = pages.write(Path(to), Path(folder), entries.names(), sources)
        out.say(f"{len(written)} entries written to {to}: {', '.join(written) or 'none has finished'}")
        out.result({"command": "reproduce", "page": to, "entries": written})
        return
    chosen = [entries.load(known) for known in (entries.names() if name == "all" else [name])]
    results = []
    for one in chosen:
        with out.progress("Reproducing") as progress:
            finished = runs.run(one, Path(folder), quick=quick, jobs=jobs, sources=sources, progress=progress)
        _show(out, finished)
        results.append(_document(finished))
    out.result({"command": "reproduce", "entries": results})


def _list(out: Output, known: list[Any], sources: Any) -> None:
    rows = [(e.name, len(e.settings(sources)), len(e.settings(sources, quick=True)), e.title) for e in known]
    out.table(["name", "cells", "quick", "what"], [[n, str(c), str(q), t] for n, c, q, t in rows], flush_left=(0, 3))
    out.result({"command": "reproduce", "entries": [
        {"name": n, "cells": c, "quick_cells": q, "title": t} for n, c, q, t in rows]})  # fmt: skip


def _show(out: Output, finished: Finished) -> None:
    from discreet.experiments.layout import table

    out.say(finished.entry.title, style="bold")
    for form in finished.entry.tables:
        head, *lines = table(finished.entry, finished.records, form)
        out.table(head, lines, title=form.get("title"), flush_left=range(len(form["rows"])))
    out.say(f"written to {finished.folder}")


def _document(finished: Finished) -> dict[str, Any]:
    return {
        "name": finished.entry.name, "folder": str(finished.folder), "quick": finished.quick, "ran": finished.ran,
        "seconds": finished.seconds, "records": finished.records,
    }  # fmt: skip
