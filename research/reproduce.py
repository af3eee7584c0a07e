"""Run the cells of an entry, and keep each as soon as it is finished.

A finished cell is a file ``cells/KEY.json``, written aside and then renamed, and is never run
again: a run that is stopped, by any means, loses the cells under way and no other. The folder of an
entry also holds ``results.json``, ``results.csv``, ``plot.png`` and ``README.md``, all made from
the cells.

Each cell knows the code that computed it (`code`). Cells of other code are kept and counted;
``fresh`` runs them again.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import logging
import math
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from discreet.data.atomic_files import atomic_write
from discreet.errors import BudgetExceeded, ConfigError
from discreet.version import __version__
from research.entry import Entry, Record, Settings, key, load
from research.layout import UNKNOWN
from research.sources import Sources

Progress = Callable[[int, int, str], None]
logger = logging.getLogger("discreet")
LIBRARIES = ("numpy", "scipy", "numba")
# packages that a number can depend on
MATTERS = ("data", "evaluation", "kernels", "models", "privacy")
REGRESSION = "regression"  # matters to the runners that import it


@dataclass(frozen=True)
class Finished:
    """An entry as far as it is finished.

    Attributes
    ----------
    records : what every cell gave, with its settings, in the order of the file
    conditions : under which each cell ran
    seconds : of all cells together, whenever they ran
    missing, ran : cells that are not there, and cells that this run added
    other : cells that are there and were computed by other code than this, or by unknown code
    """

    entry: Entry
    folder: Path
    quick: bool
    records: list[Record]
    conditions: list[dict[str, Any]]
    seconds: float
    missing: int
    ran: int
    other: int


def run(
    entry: Entry,
    out: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    sources: Sources | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Finished:
    """Run what is not there yet, and write the results.

    Parameters
    ----------
    entry : Entry
    out : Path
        Folder of all entries; this one's is below it, and for quick runs below ``quick``.
    quick : bool
        The small version.
    jobs : int
        Processes; the cores are divided among them.
    sources : Sources, optional
        Where data sets lie.
    fresh : bool
        Also run the cells again that were computed by other code. An old one stays until the new
        one is finished.
    progress : callable(done, total, text), optional
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, but must be at least 1")
    sources = sources or Sources()
    folder = place(out, entry.name, quick)
    wanted = {key(settings): settings for settings in entry.settings(sources, quick=quick)}
    by = code(entry)
    there = {name: _computed_by(folder, name) for name in wanted}
    missing = {
        name: wanted[name] for name, old in there.items() if old is None or (fresh and old != by)
    }
    sources.check(str(settings["data"]) for settings in missing.values() if "data" in settings)
    done = len(wanted) - len(missing)
    start = time.monotonic()
    if progress:
        progress(done, len(wanted), f"{entry.name}, {done} of {len(wanted)} cells there")
    for count, name in enumerate(_finish(entry.name, folder, missing, jobs, sources, by), 1):
        left = (time.monotonic() - start) / count * (len(missing) - count)
        text = f"{entry.name}, {done + count} of {len(wanted)} cells, about {duration(left)} left"
        logger.info("%s (%s)", text, name)
        if progress:
            progress(done + count, len(wanted), text)
    return collect(entry, out, quick=quick, sources=sources, ran=len(missing))


def collect(
    entry: Entry, out: Path, *, quick: bool = False, sources: Sources | None = None, ran: int = 0
) -> Finished:
    """Read the cells that are there, and write everything that is made from them."""
    folder = place(out, entry.name, quick)
    cells = []
    wanted = entry.settings(sources or Sources(), quick=quick)
    for settings in wanted:
        with contextlib.suppress(FileNotFoundError):
            cells.append(json.loads(_cell(folder, key(settings)).read_text(encoding="utf-8")))
    records = [cell["settings"] | record for cell in cells for record in cell["records"]]
    by = code(entry)
    other = sum(cell["conditions"].get("code") != by for cell in cells)
    finished = Finished(
        entry,
        folder,
        quick,
        records,
        [cell["conditions"] for cell in cells],
        sum(cell["seconds"] for cell in cells),
        len(wanted) - len(cells),
        ran,
        other,
    )
    if records:
        _write(finished)
    return finished


def place(out: Path, name: str, quick: bool) -> Path:
    return out / "quick" / name if quick else out / name


# --- Cells
# --------------------------------------------------------------------------------------------------


def code(entry: Entry) -> str:
    """A short hash of the source that the entry's numbers can depend on: the same text gives
    the same hash anywhere.
    """
    return _hash(entry.run.split(":")[0].rpartition(".")[2])


@lru_cache
def _hash(runner: str) -> str:
    """Of `MATTERS`, the module of the runner, and what that imports of `research`; as it was at
    the first call.
    """
    root = files("discreet")
    found = {
        name: file for package in MATTERS for name, file in _files_below(root / package, package)
    }
    wanted = [runner, "sources"]
    while wanted:
        name = f"research/{(module := wanted.pop())}.py"
        file = files("research") / f"{module}.py"
        if name not in found and module != "entry" and file.is_file():
            found[name] = file
            text = file.read_text(encoding="utf-8")
            wanted += re.findall(r"research\.(\w+)", text)
            if f"from discreet.{REGRESSION} " in text:
                found |= _files_below(root / REGRESSION, REGRESSION)
    whole = hashlib.sha256()
    for name, file in sorted(found.items()):
        if name.endswith(".py"):
            whole.update(f"{name}\n".encode() + file.read_bytes().replace(b"\r\n", b"\n"))
    return whole.hexdigest()[:10]


def _files_below(folder: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All files below a folder, with their names as seen from the package."""
    for file in folder.iterdir():
        if file.is_dir():
            yield from _files_below(file, f"{name}/{file.name}")
        else:
            yield f"{name}/{file.name}", file


def others(
    entry: Entry, out: Path, *, quick: bool = False, sources: Sources | None = None
) -> tuple[int, int]:
    """How many finished cells were computed by other code than this, and by unknown code."""
    folder = place(out, entry.name, quick)
    by = code(entry)
    keys = {key(settings) for settings in entry.settings(sources or Sources(), quick=quick)}
    found = [_computed_by(folder, name) for name in keys]
    return sum(one not in (None, UNKNOWN, by) for one in found), found.count(UNKNOWN)


def _computed_by(folder: Path, name: str) -> str | None:
    """The code of a finished cell; None if it is not finished."""
    try:
        cell = json.loads(_cell(folder, name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return str(cell["conditions"].get("code", UNKNOWN))


def run_cell(name: str, folder: Path, settings: Settings, sources: Sources, by: str) -> str:
    """One cell, from settings to file; `by` is the code that does it."""
    start = time.perf_counter()
    try:
        found = load(name).runner()(dict(settings), sources)
    except BudgetExceeded as refusal:  # a result as well: this budget leaves nothing to learn
        found = {"refused": str(refusal)}
    document = {
        "settings": settings,
        "records": found if isinstance(found, list) else [found],
        "seconds": time.perf_counter() - start,
        "conditions": conditions() | {"code": by},
    }
    with atomic_write(_cell(folder, key(settings))) as aside:
        aside.write_text(
            json.dumps(_plain(document), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return key(settings)


def conditions() -> dict[str, Any]:
    """What a number was measured with."""
    import importlib.metadata as metadata

    versions = {library: metadata.version(library) for library in LIBRARIES}
    return {
        "discreet": __version__,
        "python": platform.python_version(),
        **versions,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _finish(
    name: str, folder: Path, cells: dict[str, Settings], jobs: int, sources: Sources, by: str
) -> Iterator[str]:
    """Run the cells, and name each when it is there."""
    if jobs == 1 or len(cells) < 2:
        for settings in cells.values():
            yield run_cell(name, folder, settings, sources, by)
        return
    from discreet.kernels.threads import available_cores

    threads = max(1, available_cores() // jobs)
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), _begin_worker, (threads, sources.paths)
    ) as pool:
        futures = [pool.submit(_work, name, folder, settings, by) for settings in cells.values()]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_sources = Sources()


def _begin_worker(threads: int, paths: dict[str, str]) -> None:
    global _sources
    from discreet.kernels.threads import set_threads

    set_threads(threads)
    _sources = Sources(paths)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever; unfinished cells are no
    loss.
    """
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(name: str, folder: Path, settings: Settings, by: str) -> str:
    return run_cell(name, folder, settings, _sources, by)


def _plain(value: Any) -> Any:
    """For JSON: numpy's numbers as Python's, and null for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(folder: Path, name: str) -> Path:
    return folder / "cells" / f"{name}.json"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# --- What is made from them
# -------------------------------------------------------------------------------------------


def _write(finished: Finished) -> None:
    from research import figures, layout

    entry, folder = finished.entry, finished.folder
    document = {
        "entry": entry.name,
        "title": entry.title,
        "quick": finished.quick,
        "seconds": finished.seconds,
        "conditions": finished.conditions[-1],
        "code": layout.codes(finished.conditions),
        "published": entry.published,
        "records": finished.records,
    }
    with atomic_write(folder / "results.json") as aside:
        aside.write_text(
            json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    columns = list(dict.fromkeys(name for record in finished.records for name in record))
    with (
        atomic_write(folder / "results.csv") as aside,
        aside.open("w", encoding="utf-8", newline="") as stream,
    ):
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(finished.records)
    if entry.plots:
        figures.draw(entry, finished.records, folder / "plot.png")
    text = layout.page(
        entry, finished.records, finished.conditions, finished.seconds, finished.quick
    )
    with atomic_write(folder / "README.md") as aside:
        aside.write_text(text, encoding="utf-8")
