"""Output of commands: tables and sentences, one JSON document, progress bars and log messages.

Results go to stdout; progress, log messages, warnings and errors go to stderr, so that a pipe
carries results only. With ``--json`` stdout holds exactly one JSON document and nothing else.

A private command prints exact numbers of its data (users, ratings, repeated rows, seconds) on a
terminal only, and marks them (`say_exact`). JSON, files and pipes get none (`without_exact`),
because they may be kept as a log.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from discreet.cli.messages import for_shell, printable
from discreet.progress import Progress, progress_bar, shows_progress

if TYPE_CHECKING:
    from rich.console import Console

EXACT = ("users", "ratings", "merged", "kept", "left_out", "seconds")
EXACT_MARK = "exact, not covered by ε: do not publish"
# wide enough that long titles are not wrapped in a pipe; tables take only the width they need
PIPE_WIDTH = 160
# escaped in JSON: control characters and changes of text direction, which could steer a terminal,
# and halves of surrogate pairs, which UTF-8 cannot encode
_STEERING = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass
class Output:
    """Options that every command has, and methods that print accordingly."""

    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print log messages to stderr.")
    ] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    def __post_init__(self) -> None:
        _set_up_logging(self.verbose)

    def say(self, text: str = "", style: str | None = None) -> None:
        """Print a line of text; never wrapped, so that paths and commands can be copied."""
        if not self.json:
            self._console.print(
                printable(text),
                style=style,
                soft_wrap=True,
                markup=False,
                highlight=False,
                emoji=False,
            )

    def say_exact(self, text: str, public: str) -> None:
        """Print exact numbers of private data, marked, on a terminal; elsewhere only `public`."""
        self.say(f"{text} [{EXACT_MARK}]" if sys.stdout.isatty() else public)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str | None = None,
        flush_left: Sequence[int] = (0,),
    ) -> None:
        """Print a table; cells are wrapped where the terminal is too narrow, never truncated."""
        if self.json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if title:
            self.say(title, style="bold")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for at, name in enumerate(columns):
            table.add_column(
                Text(printable(name)),
                justify="left" if at in flush_left else "right",
                overflow="fold",
            )
        for row in rows:
            # Text, because a title in [brackets] must not be read as markup
            table.add_row(*(Text(printable(cell)) for cell in row))
        with self._console.capture() as drawn:
            self._console.print(table)
        print("\n".join(line.rstrip() for line in drawn.get().strip("\n").splitlines()))

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the JSON document if --json was given."""
        if self.json:
            print(to_json(value))

    def note(self, text: str) -> None:
        """Print a line that is not part of the result to stderr, also with ``--json``."""
        print("discreet:", printable(text), file=sys.stderr)

    def rows(self, text: str) -> None:
        """Print lines unchanged for a program, but without control characters on a terminal."""
        if not self.json:
            print(printable(text) if sys.stdout.isatty() else text, end="")

    def show_notices(self) -> None:
        """Print what was found out about the columns of the data."""
        while _notices.messages:
            self.say(_notices.messages.pop(0))

    def next_steps(self, commands: Sequence[str], head: str = "Next:") -> None:
        self.say(head, style="bold")
        for line in commands:
            self.say(f"  {line}")

    @contextmanager
    def progress(self, text: str) -> Iterator[Progress]:
        """Show a progress bar while the block runs, if stderr is a terminal."""
        with progress_bar(None if shows_progress(sys.stderr) else False, text) as step:
            yield step

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def without_exact(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the exact numbers of private data from the facts of a private command."""
    return {name: value for name, value in facts.items() if name not in EXACT}


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(for_shell(super().format(record)))


class _Notices(logging.Handler):
    """Handler that holds notices back until the step that logs them has succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "notice", False) and record.getMessage() not in self.messages:
            self.messages.append(record.getMessage())


_notices = _Notices()


class _Stderr(logging.StreamHandler[TextIO]):
    """Handler that looks up ``sys.stderr`` at each message: a progress bar replaces the stream."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _set_up_logging(verbose: bool) -> None:
    handler = _Stderr()
    handler.setFormatter(_Formatter("discreet: %(levelname)s: %(message)s"))
    handler.addFilter(lambda record: verbose or record.levelno >= logging.WARNING)
    logger = logging.getLogger("discreet")
    _notices.messages.clear()
    logger.handlers = [handler, _notices]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    # at INFO, matplotlib reports that it builds its font cache
    logging.getLogger("matplotlib").setLevel(logging.DEBUG if verbose else logging.ERROR)

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: Any = None,
    ) -> None:
        if verbose or issubclass(category, UserWarning):  # other categories are for developers
            logger.warning("%s", " ".join(str(message).split()))

    warnings.showwarning = show


def to_json(value: Any) -> str:
    """Return JSON text; numpy values become plain ones, NaN and infinity become null."""
    text = json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
