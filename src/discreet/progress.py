"""Progress bars for terminals and notebooks, and small tables for notebooks.

A bar is shown on a terminal and in a notebook only: pipes and log files carry results. There is one
bar at a time, and none for work that ends within `PATIENCE`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, TextIO

from discreet import _numba
from discreet.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import TaskID

Progress = Callable[[int, int, str], None]
ShowProgress = Progress | bool | None  # type of the parameter `progress`

PATIENCE = 0.4  # seconds before a bar appears: a bar that flashes up is a distraction
COMPILING = "compiling once for this processor"
_one_at_a_time = threading.Lock()


def no_progress(done: int, total: int, text: str) -> None:
    """Ignore the progress."""


def shows_progress(stream: TextIO) -> bool:
    """Check whether a stream can show a moving bar."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def in_notebook() -> bool:
    """Check for a Jupyter kernel, without importing IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def progress_bar(progress: ShowProgress, what: str, *, verbose: bool = False) -> Iterator[Progress]:
    """Yield the function to call as ``step(done, total, text)`` while the block runs.

    Parameters
    ----------
    progress : function, bool or None
        A function is used as it is. By default (None) a bar is shown on a terminal or in a
        notebook; True shows the steps everywhere, as lines where a bar cannot move; False shows
        nothing.
    what : str
        Name of the task, in one or two words.
    verbose : bool
        Print one line on stderr for every step.
    """
    if callable(progress):
        yield progress
        return
    if progress not in (None, True, False):
        raise ConfigError(
            f"progress is {progress!r}, but must be True, False or a function of (done, total,"
            " text)"
        )
    seen = in_notebook() or shows_progress(sys.stderr)
    if verbose or (progress and not seen):
        yield _lines(what)
        return
    if progress is False or not seen or not _one_at_a_time.acquire(blocking=False):
        yield no_progress
        return
    bar = _NotebookBar(what) if in_notebook() else _TerminalBar(what)
    try:
        with _numba.on_compile(bar.on_compile):
            yield bar.step
    finally:
        bar.close()
        _one_at_a_time.release()


def _lines(what: str) -> Progress:
    last = [""]

    def step(done: int, total: int, text: str) -> None:
        line = f"{what}: {text}, {done} of {total}" if total else f"{what}: {text}"
        if line != last[0]:
            print(line, file=sys.stderr, flush=True)
            last[0] = line

    return step


class _TerminalBar:
    """A rich progress bar on stderr, removed when the work is done."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = time.monotonic()
        self._bar: Any = None
        self._task: TaskID | None = None

    def step(self, done: int, total: int, text: str) -> None:
        if self._bar is not None or time.monotonic() - self._since >= PATIENCE:
            self._show(text, completed=done, total=total or None)

    def on_compile(self, compiled: int, name: str) -> None:
        """Show an indeterminate bar, as the number of functions is unknown, until the next step."""
        self._show(f"{COMPILING} ({compiled} functions so far, now {name})", refresh=True)

    def _show(self, text: str, **state: Any) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            label = TextColumn("{task.description}", markup=False)
            columns = (label, BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
            self._task = self._bar.add_task(self._what, total=None)
            self._bar.start()
        self._bar.update(self._task, description=f"{self._what}: {text}", **state)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class _NotebookBar:
    """An HTML progress element in the output of a cell, removed when the work is done."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = time.monotonic()
        self._last = 0.0
        self._place: Any = None

    def step(self, done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if now - self._since < PATIENCE or (now - self._last < 0.1 and done < total):
            return
        self._last = now
        self._show(
            f"{escape(self._what)}: {escape(text)} <progress value='{done}'"
            f" max='{total or 1}'></progress>"
        )

    def on_compile(self, compiled: int, name: str) -> None:
        text = f"{COMPILING} ({compiled} functions so far)"
        self._show(f"{escape(self._what)}: {text} <progress></progress>")

    def close(self) -> None:
        if self._place is not None:
            self._show("")

    def _show(self, html: str) -> None:
        from IPython.display import HTML, display

        if self._place is None:
            self._place = display(HTML(html), display_id=True)
        else:
            self._place.update(HTML(html))


# ------------------------------------------------------------ tables in notebooks


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in HTML; all cells are escaped."""
    top = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def html_notes(notes: Iterable[str]) -> str:
    """Return a list of sentences in HTML, or nothing."""
    lines = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul style="margin:4px 0">{lines}</ul>' if lines else ""
