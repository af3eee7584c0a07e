"""``discreet reproduce``: the papers' tables and figures, each by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.app import command
from discreet.cli.messages import for_shell, format_count
from discreet.cli.output import Output
from discreet.errors import ConfigError, DiscreetError

if TYPE_CHECKING:
    from research.entry import Entry
    from research.reproduce import Finished
    from research.sources import Sources


@command(
    "discreet reproduce list",
    "discreet reproduce show dpals-figure4",
    "discreet reproduce dpals-figure4 --quick",
    "discreet reproduce dpals-table5 --jobs 2 --data ml-10m=data/ml-10m.zip",
    "discreet reproduce changes old-results/",
)
def reproduce(
    out: Output,
    names: Annotated[
        list[str],
        typer.Argument(
            help="Entries to run, or: list, show ENTRY, all, docs, changes OLD_FOLDER.",
            metavar="NAME...",
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small version of each entry.")
    ] = False,
    folder: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the results; cells that finished there are not run again.",
            metavar="FOLDER",
        ),
    ] = "out/reproduce",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Number of processes.", metavar="N")
    ] = 1,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Rerun finished cells that were computed by different code."),
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", help="Where official data are; may be repeated.", metavar="NAME=PATH"
        ),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="With docs, also write entries that are not finished."),
    ] = False,
    to: Annotated[
        str,
        typer.Option(
            help="With docs, the folder to write finished entries to; with changes, the new one.",
            metavar="FOLDER",
        ),
    ] = "docs/results",
) -> None:
    """Rerun the experiments of the papers, and show the results next to the published ones.

    A run that was stopped resumes where it left off. Official data are used if they are available,
    otherwise simulated data of the same shape; the results say which. Each entry's folder gets
    results.json, results.csv, a plot and a README with the conditions. discreet reproduce show NAME
    says what an entry is, which data and seeds it uses and how long it takes.
    """
    from research import entry as entries
    from research import pages
    from research.sources import Sources

    first, *rest = names
    sources = Sources.given(data or [])
    if first in ("list", "docs") and rest:
        raise ConfigError(f"{first} takes no further argument, but {rest[0]!r} was given")
    if first == "show" and not rest:
        raise ConfigError(
            "show takes the name of an entry, such as dpals-figure4: see discreet reproduce list"
        )
    if first == "changes" and len(rest) != 1:
        raise ConfigError(
            "changes takes one folder to compare with, such as an older copy of docs/results"
        )
    if first == "list":
        _list(out, sources)
    elif first == "changes":
        _changes(out, Path(rest[0]), Path(to))
    elif first == "docs":
        written = pages.write(Path(to), Path(folder), entries.names(), sources, partial)
        out.say(
            f"{len(written)} entries written to {to}: {', '.join(written) or 'none has finished'}"
        )
        out.result({"command": "reproduce", "page": to, "entries": written})
    elif first == "show":
        chosen = [entries.load(known) for known in entries.meant(rest)]
        out.result(
            {
                "command": "reproduce",
                "entries": [_about(out, one, Path(folder), sources) for one in chosen],
            }
        )
    else:
        chosen = [entries.load(known) for known in entries.meant(names)]
        _run(out, chosen, Path(folder), sources, quick=quick, jobs=jobs, fresh=fresh)


def _run(
    out: Output,
    chosen: list[Entry],
    folder: Path,
    sources: Sources,
    *,
    quick: bool,
    jobs: int,
    fresh: bool,
) -> None:
    """Run entries one after the other; of several, report what cannot be run, and run the others
    all the same.
    """
    from research import reproduce as runs

    results = []
    failed = []
    for one in chosen:
        if not fresh and (
            words := _other_code(*runs.others(one, folder, quick=quick, sources=sources))
        ):
            out.note(f"{one.name}: {words}")
        try:
            with out.progress("Reproducing") as progress:
                finished = runs.run(
                    one,
                    folder,
                    quick=quick,
                    jobs=jobs,
                    sources=sources,
                    fresh=fresh,
                    progress=progress,
                )
        except DiscreetError as problem:
            if len(chosen) == 1:
                raise
            out.note(f"{one.name}: {for_shell(str(problem))}")
            failed.append(one.name)
            continue
        _show(out, finished)
        results.append(_document(finished))
    out.result(
        {"command": "reproduce", "entries": results, **({"failed": failed} if failed else {})}
    )
    if failed:
        raise ConfigError(
            f"{len(failed)} of {len(chosen)} entries could not be run: {', '.join(failed)}"
        )


def _other_code(other: int, unknown: int) -> str:
    """What to say of finished cells that this code did not compute; nothing if there are none."""
    n = other or unknown
    if not n:
        return ""
    rest = f" and {unknown:,} by unknown code" if other and unknown else ""
    whose = "other" if other else "unknown"
    return (
        f"{format_count(n, 'cell')} {'was' if n == 1 else 'were'} computed by {whose} code{rest}: "
        f"--fresh runs {'it' if other + unknown == 1 else 'them'} again"
    )


def _changes(out: Output, old: Path, new: Path) -> None:
    """Say which numbers of a page are no longer what they were."""
    from research import changes

    found = changes.compare(old, new)
    moved = [change for change in found if change.moved]
    out.say(changes.markdown(found))
    out.say(f"{format_count(len(moved), 'cell')} moved by more than two standard deviations")
    cells = [
        {"entry": c.entry, "row": c.row, "column": c.column, "old": c.old, "new": c.new}
        for c in moved
    ]
    out.result({"command": "reproduce", "changed": cells})


def _list(out: Output, sources: Sources) -> None:
    from research import entry as entries

    known = [entries.load(name) for name in entries.names()]
    cells = {
        e.name: (len(e.settings(sources)), len(e.settings(sources, quick=True))) for e in known
    }
    rows = [(e.name, *cells[e.name], e.title) for e in known]
    both = [sum(cells[part][at] for part in entries.PARTS[entries.PARTED]) for at in range(2)]
    shown = [[name, str(whole), str(quick), title] for name, whole, quick, title in rows]
    shown.insert(
        1 + entries.names().index("dpals-figure2"),
        [entries.PARTED, *map(str, both), entries.PARTED_TITLE],
    )
    out.table(["name", "cells", "quick", "what"], shown, flush_left=(0, 3))
    out.say("discreet reproduce show NAME tells more about one.")
    out.result(
        {
            "command": "reproduce",
            "entries": [
                {"name": n, "cells": c, "quick_cells": q, "title": t} for n, c, q, t in rows
            ],
            "parts": {name: list(of) for name, of in entries.PARTS.items()},
        }
    )


def _about(out: Output, one: Entry, folder: Path, sources: Sources) -> dict[str, Any]:
    """Tell about an entry without running it."""
    from research import entry as entries
    from research import reproduce as runs

    cells = one.settings(sources)
    small = one.settings(sources, quick=True)
    seeds = one.seeds(sources)
    minutes = entries.minutes(one.name)
    used = one.sets(sources)
    there = sum(
        (runs.place(folder, one.name, False) / "cells" / f"{entries.key(s)}.json").is_file()
        for s in cells
    )
    stands = {name: instead for name, instead in one.data.items() if instead in used}
    facts = [
        ("paper", one.paper or "none: this library's own"),
        ("data", ", ".join(used) or "no data set: it generates what it needs"),
        *[
            ("", f"{instead} stands for {name}, which is not at hand: --data {name}=PATH")
            for name, instead in stands.items()
            if sources.at_hand(name, instead) == instead
        ],
        ("seeds", ", ".join(map(str, seeds)) or "none: nothing is random"),
        ("cells", f"{len(cells):,}, and {len(small):,} with --quick"),
        (
            "time",
            (
                "not measured"
                if minutes is None
                else f"about {runs.duration(60 * minutes)} with two cores"
            ),
        ),
        ("finished", f"{there:,} of {len(cells):,} cells in {folder / one.name}"),
        ("published", _published(one)),
        ("run", f"discreet reproduce {one.name}"),
    ]
    out.say(one.title, style="bold")
    out.say(" ".join(one.about.split()))
    out.say()
    for name, value in facts:
        out.say(f"  {name:<10} {value}")
    out.say()
    return {
        "name": one.name,
        "title": one.title,
        "about": " ".join(one.about.split()),
        "paper": one.paper,
        "data": used,
        "seeds": seeds,
        "cells": len(cells),
        "quick_cells": len(small),
        "minutes": minutes,
        "finished": there,
        "published": list(one.published),
    }


def _published(one: Entry) -> str:
    n = sum(name in line for line in one.published for name in one.references)
    return f"{format_count(n, 'value')} to compare with" if n else "no values to compare with"


def _show(out: Output, finished: Finished) -> None:
    from research.layout import QUICK, data_used, table

    out.say(finished.entry.title, style="bold")
    if finished.quick and finished.entry.smaller:
        out.say(f"{QUICK} Without --quick it is the whole.", style="yellow")
    out.say(data_used(finished.records))
    for form in finished.entry.tables:
        head, *lines = table(finished.entry, finished.records, form)
        out.table(head, lines, title=form.get("title"), flush_left=range(len(form["rows"])))
    out.say(f"written to {finished.folder}")


def _document(finished: Finished) -> dict[str, Any]:
    return {
        "name": finished.entry.name,
        "folder": str(finished.folder),
        "quick": finished.quick,
        "ran": finished.ran,
        "other_code": finished.other,
        "seconds": finished.seconds,
        "records": finished.records,
    }
