"""Running the service: sockets, slow clients, and an end that answers what was asked.

A connection that has not sent a whole request after a while is closed, so that slow clients cannot hold the service. At
the end no new connections are accepted, those that are there are answered, and then the process goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from discreet.errors import ConfigError
from discreet.serve.gate import Gate

logger = logging.getLogger("discreet")

READ_SECONDS = 20.0  # for a whole request to arrive
IDLE_SECONDS = 30  # between two requests of one connection
DRAIN_SECONDS = 10.0  # for requests under way at the end
LINGER_SECONDS = 0.5  # at the end, for requests that are in the wire already
BACKLOG = 4096


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with patience for requests that never become whole."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._wait()
        super().data_received(data)

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(READ_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's server, which ends in peace."""

    def __init__(self, config: uvicorn.Config, gate: Gate) -> None:
        super().__init__(config)
        self._gate = gate

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the service, and the process ends as after any command that worked."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """End soon; asked again, end now."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()  # from here on others may accept on the same address
        self._gate.draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + LINGER_SECONDS
        while self.server_state.connections and loop.time() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; a `ConfigError` where that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from None
    made.listen(BACKLOG)
    made.set_inheritable(True)
    return made


def run(gate: Gate, listening: socket.socket) -> None:
    """Serve until told to stop."""
    _more_files()
    config = uvicorn.Config(
        gate,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level=logging.ERROR,
        server_header=False,
        date_header=True,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(DRAIN_SECONDS),
        h11_max_incomplete_event_size=1 << 16,
    )
    Server(config, gate).run(sockets=[listening])


def _more_files() -> None:
    """As many open connections as the system allows: the usual limit of 1,024 is less than a crowd of slow clients."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
