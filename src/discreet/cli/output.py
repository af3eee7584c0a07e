"""What a command says: tables and sentences for people, one JSON document for machines, progress on
the side.

Results go to stdout, everything else (progress, log lines, warnings, errors) to stderr, so that a
pipe carries results only. With ``--json`` stdout holds exactly one JSON document and nothing else.

A private command prints exact numbers of its data (users, ratings, repeated rows, seconds) on a
terminal only, and marks them (`say_exact`). In JSON, and where stdout is a file or a pipe, there
are none (`without_exact`): both may be kept as a log.
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
# tables are as narrow as they can be; this only keeps long titles from being cut in a pipe
PIPE_WIDTH = 160
# what JSON may hold as it is and a terminal must not get: control characters, and turns of the
# direction of writing; and halves of surrogate pairs, which JSON can escape and UTF-8 cannot hold
_STEERING = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass
class Output:
    """The options that every command has, and the ways to use them."""

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
        """A line for people; never wrapped, so that paths and commands can be copied."""
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
        """Print a line with exact numbers of private data, marked, on a terminal; elsewhere
        only its public part.
        """
        self.say(f"{text} [{EXACT_MARK}]" if sys.stdout.isatty() else public)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str | None = None,
        flush_left: Sequence[int] = (0,),
    ) -> None:
        """A table for people; cells are broken into lines where the terminal is too narrow, and
        never cut.
        """
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
            # Text: a title in [brackets] is no markup
            table.add_row(*(Text(printable(cell)) for cell in row))
        with self._console.capture() as drawn:
            self._console.print(table)
        print("\n".join(line.rstrip() for line in drawn.get().strip("\n").splitlines()))

    def result(self, value: Mapping[str, Any]) -> None:
        """The JSON document, where one was asked for."""
        if self.json:
            print(to_json(value))

    def note(self, text: str) -> None:
        """A line that is not part of the result: to stderr, also with ``--json``."""
        print("discreet:", printable(text), file=sys.stderr)

    def rows(self, text: str) -> None:
        """Lines for a program that reads them to the last bit; a terminal in its place must not
        be steered by them.
        """
        if not self.json:
            print(printable(text) if sys.stdout.isatty() else text, end="")

    def next_steps(self, commands: Sequence[str], head: str = "Next:") -> None:
        self.say(head, style="bold")
        for line in commands:
            self.say(f"  {line}")

    @contextmanager
    def progress(self, text: str) -> Iterator[Progress]:
        """A bar on stderr while the block runs, if that is a terminal; else the callback given
        does nothing.
        """
        with progress_bar(None if shows_progress(sys.stderr) else False, text) as step:
            yield step

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def without_exact(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the exact numbers of private data, which have no place in a document of a
    private command.
    """
    return {name: value for name, value in facts.items() if name not in EXACT}


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(for_shell(super().format(record)))


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at that moment: a progress bar stands in for it while it is
    shown.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _set_up_logging(verbose: bool) -> None:
    handler = _Stderr()
    handler.setFormatter(_Formatter("discreet: %(levelname)s: %(message)s"))
    logger = logging.getLogger("discreet")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
    # its font cache is no news
    logging.getLogger("matplotlib").setLevel(logging.DEBUG if verbose else logging.ERROR)

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: Any = None,
    ) -> None:
        if verbose or issubclass(category, UserWarning):  # the others are for programmers
            logger.warning("%s", " ".join(str(message).split()))

    warnings.showwarning = show


def to_json(value: Any) -> str:
    """JSON text; numpy values become plain ones, and what JSON has no number for (NaN,
    infinity) becomes null.
    """
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
