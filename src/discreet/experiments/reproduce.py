"""Run the cells of an entry, and keep each as soon as it is finished.

A finished cell is a file ``cells/KEY.json``, written aside and then renamed, and is never run again: whoever stops a
run, by any means, loses the cells under way and no other. The folder of an entry also holds ``results.json``,
``results.csv``, ``plot.png`` and ``README.md``, all made from the cells.
"""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from discreet.data.download import written_aside
from discreet.errors import BudgetExceeded, ConfigError
from discreet.experiments.entry import Entry, Record, Settings, key, load
from discreet.experiments.sources import Sources
from discreet.version import __version__

Progress = Callable[[int, int, str], None]
logger = logging.getLogger("discreet")
LIBRARIES = ("numpy", "scipy", "numba")


@dataclass(frozen=True)
class Finished:
    """An entry as far as it is finished.

    Attributes
    ----------
    records : what every cell gave, with its settings, in the order of the file
    conditions : under which each cell ran
    seconds : of all cells together, whenever they ran
    missing, ran : cells that are not there, and cells that this run added
    """

    entry: Entry
    folder: Path
    quick: bool
    records: list[Record]
    conditions: list[dict[str, Any]]
    seconds: float
    missing: int
    ran: int


def run(
    entry: Entry, out: Path, *, quick: bool = False, jobs: int = 1, sources: Sources | None = None,
    progress: Progress | None = None,
) -> Finished:  # fmt: skip
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
    progress : callable(done, total, text), optional
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}, but must be at least 1")
    sources = sources or Sources()
    folder = place(out, entry.name, quick)
    wanted = {key(settings): settings for settings in entry.settings(sources, quick=quick)}
    missing = {name: settings for name, settings in wanted.items() if not _cell(folder, name).is_file()}
    done, start = len(wanted) - len(missing), time.monotonic()
    if progress:
        progress(done, len(wanted), f"{entry.name}, {done} of {len(wanted)} cells there")
    for count, name in enumerate(_finish(entry.name, folder, missing, jobs, sources), 1):
        left = (time.monotonic() - start) / count * (len(missing) - count)
        text = f"{entry.name}, {done + count} of {len(wanted)} cells, about {_duration(left)} left"
        logger.info("%s (%s)", text, name)
        if progress:
            progress(done + count, len(wanted), text)
    return collect(entry, out, quick=quick, sources=sources, ran=len(missing))


def collect(
    entry: Entry, out: Path, *, quick: bool = False, sources: Sources | None = None, ran: int = 0
) -> Finished:
    """Read the cells that are there, and write everything that is made from them."""
    folder = place(out, entry.name, quick)
    cells, wanted = [], entry.settings(sources or Sources(), quick=quick)
    for settings in wanted:
        with contextlib.suppress(FileNotFoundError):
            cells.append(json.loads(_cell(folder, key(settings)).read_text(encoding="utf-8")))
    records = [cell["settings"] | record for cell in cells for record in cell["records"]]
    finished = Finished(entry, folder, quick, records, [cell["conditions"] for cell in cells],
                        sum(cell["seconds"] for cell in cells), len(wanted) - len(cells), ran)  # fmt: skip
    if records:
        _write(finished)
    return finished


def place(out: Path, name: str, quick: bool) -> Path:
    return out / "quick" / name if quick else out / name


# --- Cells ------------------------------------------------------------------------------------------------------------


def run_cell(name: str, folder: Path, settings: Settings, sources: Sources) -> str:
    """One cell, from settings to file."""
    start = time.perf_counter()
    try:
        found = load(name).runner()(dict(settings), sources)
    except BudgetExceeded as refusal:  # a result as well: this budget leaves nothing to learn
        found = {"refused": str(refusal)}
    document = {
        "settings": settings,
        "records": found if isinstance(found, list) else [found],
        "seconds": time.perf_counter() - start,
        "conditions": conditions(),
    }
    with written_aside(_cell(folder, key(settings))) as aside:
        aside.write_text(json.dumps(_plain(document), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return key(settings)


def conditions() -> dict[str, Any]:
    """What a number was measured with."""
    import importlib.metadata as metadata

    versions = {library: metadata.version(library) for library in LIBRARIES}
    return {
        "discreet": __version__, "python": platform.python_version(), **versions, "machine": platform.machine(),
        "system": platform.system(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def _finish(name: str, folder: Path, cells: dict[str, Settings], jobs: int, sources: Sources) -> Iterator[str]:
    """Run the cells, and name each when it is there."""
    if jobs == 1 or len(cells) < 2:
        for settings in cells.values():
            yield run_cell(name, folder, settings, sources)
        return
    from discreet.kernels.threads import available_cores

    threads = max(1, available_cores() // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker, (threads, sources.paths)) as pool:
        futures = [pool.submit(_work, name, folder, settings) for settings in cells.values()]
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


def _work(name: str, folder: Path, settings: Settings) -> str:
    return run_cell(name, folder, settings, _sources)


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


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# --- What is made from them -------------------------------------------------------------------------------------------


def _write(finished: Finished) -> None:
    from discreet.experiments import figures, layout

    entry, folder = finished.entry, finished.folder
    document = {
        "entry": entry.name, "title": entry.title, "quick": finished.quick, "seconds": finished.seconds,
        "conditions": finished.conditions[-1], "published": entry.published, "records": finished.records,
    }  # fmt: skip
    with written_aside(folder / "results.json") as aside:
        aside.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(name for record in finished.records for name in record))
    with written_aside(folder / "results.csv") as aside, aside.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(finished.records)
    if entry.plots:
        figures.draw(entry, finished.records, folder / "plot.png")
    text = layout.page(entry, finished.records, finished.conditions, finished.seconds, finished.quick)
    with written_aside(folder / "README.md") as aside:
        aside.write_text(text, encoding="utf-8")
