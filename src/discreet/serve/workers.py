"""Supervisor of several worker processes on one socket.

Each worker opens the models, and reloads replaced ones, by itself. A worker that dies is restarted.
If that happens too often, the supervisor stops all workers and fails, so that a service manager
sees the error.
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

# within `RESTART_WINDOW`: a worker that dies because of its model would die again forever
MOST_RESTARTS = 5
RESTART_WINDOW = 60.0  # seconds; an occasional crash, hours apart, is not counted
END_SECONDS = DRAIN_SECONDS + LINGER_SECONDS + 5.0  # for workers to exit; then they are killed
POLL_SECONDS = 0.05  # a dead worker is replaced before clients notice

Description = list[dict[str, Any]]


class Supervisor:
    """Start workers on one socket, and restart those that die.

    Parameters
    ----------
    listening : socket
        The socket that all workers accept on.
    folders : dict
        Folders of saved models by name.
    settings : Settings
    workers : int
        Number of processes.
    on_ready : callable
        Called once, with the models that are served, when all workers are ready.
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
        """Serve until SIGTERM or SIGINT; raise a `DiscreetError` if workers do not stay up."""
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
            # Ctrl-C reaches the supervisor only, which then stops each worker once
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
        with contextlib.suppress(BrokenPipeError):  # it has died; its exit code is reported later
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
        message = json.loads(line) if line else {}
        if "error" in message:
            raise DiscreetError(message["error"])
        if "serving" not in message and not self._ending:
            raise DiscreetError(f"a worker exited while starting, with code {worker.wait()}")
        return list(message.get("serving", ()))

    def _restart(self, number: int, counts: str) -> None:
        dead = self._workers[number]
        now = time.monotonic()
        self._restarts.append(now)
        if len(self._restarts) > MOST_RESTARTS and now - self._restarts[0] < RESTART_WINDOW:
            sentence = (
                f"workers exited {len(self._restarts)} times within {RESTART_WINDOW:g} seconds"
            )
            raise DiscreetError(f"{sentence}. The last exit code was {dead.returncode}.")
        logger.warning("worker %d exited with code %d; restarting it", number, dead.returncode)
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
        """Wait until all workers have answered open requests; kill those that do not exit."""
        if not self._ending:
            self._ending = True
            self._terminate()
        end = time.monotonic() + END_SECONDS
        for worker in self._workers:
            try:
                worker.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning("a worker did not exit and was killed")
                worker.kill()
                worker.wait()
            _close_pipes(worker)


def _close_pipes(worker: subprocess.Popen[str]) -> None:
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
