"""The command line ``discreet``.

`main` is the only place where errors become messages and exit codes: 0 success, 1 an internal
error, 2 bad input or too little memory (one message on stderr that starts with ``discreet:``), 130
interrupted, 143 ended by SIGTERM (129 by SIGHUP). Commands raise; they never print errors.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

DEBUG = "DISCREET_DEBUG"
# exit codes; shells use 128 + the signal's number for a process that a signal ended
OK = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(BaseException):
    """Exception for SIGTERM and SIGHUP.

    Not a `KeyboardInterrupt`, which typer would turn into an exit code of its own.
    """

    def __init__(self, number: int):
        self.code = 128 + number


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if args is None else args)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            # a "?" is better than an encoding error
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if "--debug" in given:
        os.environ[DEBUG] = "1"
    sys.unraisablehook = _interrupt_again
    with _interrupt_on_sigterm():
        try:
            code = _run(given or ["--help"])
            sys.stdout.flush()
        except BrokenPipeError:
            _silence_stdout()
            code = FAILED
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Ended as ending:
            code = ending.code
    if code > 128:  # ended by a signal
        _complain("interrupted: no file was left half-written")
    sys.exit(code)


@contextlib.contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Raise `Ended` on SIGTERM and SIGHUP, so that commands clean up and save their ledgers.

    A signal that is ignored (``nohup``) stays ignored.
    """

    def end(number: int, frame: Any) -> None:
        raise Ended(number)

    ours = threading.current_thread() is threading.main_thread()
    changed = [number for number in ENDINGS if ours and signal.getsignal(number) == signal.SIG_DFL]
    for number in changed:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _open_streams() -> None:
    """Replace streams that the shell closed (``>&-``) by the null device."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _interrupt_again(problem: Any) -> None:
    """Repeat an interrupt that Python dropped because it arrived in a weak reference's callback."""
    if problem.exc_type in (KeyboardInterrupt, Ended):
        # raised immediately, it would be dropped here again
        threading.Timer(0.02, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(problem)


def _run(args: list[str]) -> int:
    try:
        from discreet.cli.app import run

        return run(args)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            import traceback

            traceback.print_exc()
        code, sentence = _explain(error)
        _complain(sentence)
        return code


def _explain(error: Exception) -> tuple[int, str]:
    """Return exit code and message of an error."""
    from discreet.cli.messages import for_shell
    from discreet.errors import DiscreetError, is_out_of_memory

    if isinstance(error, DiscreetError):
        return BAD_INPUT, for_shell(str(error))
    # usage errors; their class differs between versions of typer
    if hasattr(error, "format_message"):
        return BAD_INPUT, _usage(error)
    if is_out_of_memory(error):
        return (
            BAD_INPUT,
            "Not enough memory. Use fewer factors, or train with --engine blocks.",
        )
    if isinstance(error, OSError):
        name = error.filename2 or error.filename
        where = f"{os.fsdecode(name)}: " if isinstance(name, str | bytes | os.PathLike) else ""
        return BAD_INPUT, f"{where}{error.strerror or error}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        FAILED,
        f"unexpected {what}. Run again with --debug (or {DEBUG}=1) for the traceback, and please"
        " report it.",
    )


def _usage(error: Any) -> str:
    from discreet.cli.messages import usage_words

    message = usage_words(error.format_message())
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "discreet"
    return f"{message} (see '{path} --help')"


def _complain(sentence: str) -> None:
    from discreet.cli.messages import printable
    from discreet.errors import shorten

    with contextlib.suppress(OSError, ValueError):
        print(
            "discreet:", shorten(printable(" ".join(sentence.split()))), file=sys.stderr, flush=True
        )


def _silence_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter's flush at exit cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
