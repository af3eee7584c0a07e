"""Several worker processes that answer on one socket, and the supervisor that starts, restarts and
ends them.

Each worker opens the models itself and takes over replaced ones itself. A worker that dies is
started again; where that happens too often, the supervisor ends all of them with an error, so that
whatever started it hears of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from discreet.errors import DiscreetError
from discreet.kernels.threads import available_cores
from discreet.serve.app import Settings
from discreet.serve.server import DRAIN_SECONDS, LINGER_SECONDS

logger = logging.getLogger("discreet")

# within `RESTART_WINDOW`: a worker that dies of what it serves would die for ever
MOST_RESTARTS = 5
RESTART_WINDOW = 60.0  # seconds
END_SECONDS = DRAIN_SECONDS + LINGER_SECONDS + 5.0  # for workers to end; then they are killed
POLL_SECONDS = 0.05

Description = list[dict[str, Any]]


class Supervisor:
    """Starts workers on one socket and watches over them.

    Parameters
    ----------
    listening : socket
        The socket that all workers accept on.
    folders : dict
        Folders of saved models by name.
    settings : Settings
    workers : int
        How many.
    on_ready : callable
        Called once, with what the workers serve, when all of them answer.
    """

    def __init__(
        self,
        listening: socket.socket,
        folders: dict[str, Path],
        settings: Settings,
        workers: int,
        on_ready: Callable[[Description], None],
    ) -> None:
        self._listening = listening
        self._folders = folders
        self._settings = settings
        self._count = workers
        self._on_ready = on_ready
        self._workers: list[subprocess.Popen[str]] = []
        self._ending = False
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS + 1)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; a `DiscreetError` where workers cannot start or keep
        dying.
        """
        with (
            tempfile.TemporaryDirectory(prefix="discreet-serve-") as counts,
            self._handle_signals(),
        ):
            try:
                self._workers = [self._start(number, counts) for number in range(self._count)]
                described = [self._wait_until_ready(worker) for worker in self._workers]
                if not self._ending:
                    self._on_ready(described[0])
                while not self._ending:
                    time.sleep(POLL_SECONDS)
                    for number, worker in enumerate(self._workers):
                        if worker.poll() is not None and not self._ending:
                            self._restart(number, counts)
            finally:
                self._end()

    def _start(self, number: int, counts: str) -> subprocess.Popen[str]:
        fd = self._listening.fileno()
        made = subprocess.Popen(
            [sys.executable, "-m", "discreet.serve.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[fd],
            # Ctrl-C reaches the supervisor alone, which ends the workers once
            start_new_session=True,
            env=self._environment(),
        )
        job = {
            "fd": fd,
            "folders": {name: str(folder) for name, folder in self._folders.items()},
            "settings": dataclasses.asdict(self._settings),
            "number": number,
            "workers": self._count,
            "counts": counts,
            "log_level": logger.getEffectiveLevel(),
        }
        assert made.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, which its exit code will tell
            made.stdin.write(json.dumps(job) + "\n")
            made.stdin.flush()
        if self._ending:
            made.terminate()
        return made

    def _environment(self) -> dict[str, str]:
        """Share the cores among the workers, unless the number of threads was set."""
        threads = max(1, available_cores() // self._count)
        return {"DISCREET_THREADS": str(threads), **os.environ}

    def _wait_until_ready(self, worker: subprocess.Popen[str]) -> Description:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        said = json.loads(line) if line else {}
        if "error" in said:
            raise DiscreetError(said["error"])
        if "serving" not in said and not self._ending:
            raise DiscreetError(f"a worker ended while it started, with exit code {worker.wait()}")
        return list(said.get("serving", ()))

    def _restart(self, number: int, counts: str) -> None:
        dead = self._workers[number]
        now = time.monotonic()
        self._restarts.append(now)
        if len(self._restarts) > MOST_RESTARTS and now - self._restarts[0] < RESTART_WINDOW:
            sentence = (
                f"workers ended {len(self._restarts)} times within {RESTART_WINDOW:g} seconds"
            )
            raise DiscreetError(f"{sentence}. The last one had exit code {dead.returncode}")
        logger.warning(
            "worker %d ended with exit code %d, and is started again", number, dead.returncode
        )
        _close_pipes(dead)
        self._workers[number] = self._start(number, counts)

    @contextlib.contextmanager
    def _handle_signals(self) -> Iterator[None]:
        def handle(number: int, frame: Any) -> None:
            self._ending = True
            self._terminate()

        before = {
            number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _terminate(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.terminate()

    def _end(self) -> None:
        """Wait for all workers to answer what is under way; kill those that do not end."""
        if not self._ending:
            self._ending = True
            self._terminate()
        end = time.monotonic() + END_SECONDS
        for worker in self._workers:
            try:
                worker.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning("a worker did not end, and was killed")
                worker.kill()
                worker.wait()
            _close_pipes(worker)


def _close_pipes(worker: subprocess.Popen[str]) -> None:
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
