"""What SIGTERM and SIGINT do while a service starts: imported before anything that takes long."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """While a service starts, SIGTERM and SIGINT end the process at once, with code 0: there is
    nothing to finish.

    Once it runs, its loop has handlers of its own. An exception instead could be raised anywhere,
    in the compiler or in the loop, and become a traceback there.
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
    """End the process with code 0, as a signal handler."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the signal may have come while it was written to
            stream.flush()
    os._exit(0)
