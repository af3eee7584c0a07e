"""One of several worker processes on one socket, started as ``python -m discreet.serve.worker``.

The configuration is one line of JSON on standard input, so that a token is in no list of processes.
Standard input stays open: when it ends, the supervisor has died, and the worker exits as well. One
line of JSON on standard output reports what is served, or an error. Slow imports come after
`exit_on_signals`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> int:
    """Serve until a signal or the end of standard input, and return the exit code."""
    with exit_on_signals():
        job = json.loads(sys.stdin.readline() or "null")
        if job is None:  # the supervisor has exited
            return 0
        threading.Thread(target=_end_with_supervisor, daemon=True).start()
        return _serve(job)


def _serve(job: dict[str, Any]) -> int:
    from discreet.errors import DiscreetError
    from discreet.serve.app import Settings, create_app
    from discreet.serve.metrics import SharedCounters
    from discreet.serve.model_registry import ModelRegistry
    from discreet.serve.server import run

    logging.basicConfig(format="%(message)s")
    logging.getLogger("discreet").setLevel(job["log_level"])
    try:
        shelf = ModelRegistry({name: Path(folder) for name, folder in job["folders"].items()})
    except (DiscreetError, OSError) as error:
        _report({"error": str(error)})
        return 2
    counters = SharedCounters(Path(job["counts"]), job["number"], job["workers"])
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in job["settings"].items()
    }
    app = create_app(shelf, Settings(**settings), counters)
    _report({"serving": shelf.describe()})
    run(app, socket.socket(fileno=job["fd"]))
    return 0


def _report(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _end_with_supervisor() -> None:
    while os.read(0, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit at once on SIGTERM and SIGINT, with code 0, while a service starts.

    There is no request to finish yet. A running service has handlers in its loop. An exception
    instead could be raised anywhere, in the compiler or in the loop, and become a traceback there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, exit_at_once) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_at_once(number: int, frame: Any) -> None:
    """Exit with code 0, as a signal handler."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the signal may have interrupted a write to it
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
