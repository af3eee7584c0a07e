"""Running the service: sockets, slow clients, and an end that answers what was asked.

A connection that has not sent a whole request after a while is closed, and so is one that does not
take its answer, so that slow clients cannot hold the service; what each connection and all of them
can have it hold is limited. At the end no new connections are accepted, those that are there are
answered, and then the process goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from discreet.errors import ConfigError
from discreet.serve.middleware import Middleware
from discreet.serve.worker import exit_at_once

logger = logging.getLogger("discreet")

READ_SECONDS = 20.0  # for a whole request to arrive
WRITE_SECONDS = 20.0  # for a client to take what was written
IDLE_SECONDS = 30  # between two requests of one connection
DRAIN_SECONDS = 10.0  # for requests under way at the end
LINGER_SECONDS = 0.5  # at the end, for requests that are in the wire already
BACKLOG = 4096
ACCEPTS_AT_ONCE = 16  # connections
# bytes of a request before its body: four times what browsers and proxies send at most
LARGEST_HEADER = 1 << 15
MOST_HEADERS = 100
MOST_HEADER_BYTES_IN_ALL = 1 << 25  # a thousand of the largest; then only small headers are taken
SMALL_HEADER = 1 << 13  # bytes
MOST_CONNECTIONS = 8192  # about 20 kB each while they are idle
MOST_PIPELINED = 16  # requests of one connection that wait for the answer to another
# bytes of answers that the system holds for a connection; without it, up to 4 MB
SEND_BUFFER = 1 << 18
HEADER_REFUSED = (
    f"the header is larger than {LARGEST_HEADER:,} bytes, or has more than {MOST_HEADERS} fields"
)


class TooMuchHeader(Exception):
    """The header of a request goes beyond a limit."""


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits: on time to read and to write, on headers, and on requests
    that wait.

    httptools has no limit on headers, so bytes are counted here: those of complete headers as they
    are parsed, and everything that was received since the last byte of a body. The latter also
    counts what ends in no header at all: a header without an end, blank lines, extensions of
    chunks, trailers.
    """

    # received and not yet part of a complete request, by all connections of this process
    header_bytes_in_all = 0
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _pending = 0  # bytes received since the last request or the last byte of a body
    _head = 0  # bytes of the address and the headers that are complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        # what is written waits for the client before more is made
        transport.set_write_buffer_limits(high=0)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._wait()
        self._count(self._pending + len(data))
        super().data_received(data)
        crowded = (
            PatientProtocol.header_bytes_in_all > MOST_HEADER_BYTES_IN_ALL
            and self._pending > SMALL_HEADER
        )
        if (self._pending > LARGEST_HEADER or crowded) and not self.transport.is_closing():
            self.send_400_response(HEADER_REFUSED)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_url(self, url: bytes) -> None:
        self._check_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check_header(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise TooMuchHeader
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._count(0)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_waiting()
        self._count(0)
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_write_timer()
        self._count(0)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has too much of a header, and close the connection."""
        if self.cycle is None or self.cycle.response_complete:
            status, code = (
                (431, "header too large")
                if msg == HEADER_REFUSED or self._exceeds()
                else (400, "not HTTP")
            )
            sentence = HEADER_REFUSED if status == 431 else "this is no HTTP request"
            self.transport.write(_refusal(status, code, sentence))
        self.transport.close()

    def _check_header(self, size: int) -> None:
        self._head += size
        if self._exceeds():
            raise TooMuchHeader

    def _exceeds(self) -> bool:
        return self._head > LARGEST_HEADER or len(self.headers or ()) >= MOST_HEADERS

    def _count(self, pending: int) -> None:
        PatientProtocol.header_bytes_in_all += pending - self._pending
        self._pending = pending

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(READ_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def _refusal(status: int, code: str, message: str) -> bytes:
    """Write an error as a whole response, in the form that all errors have."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


class Acceptor:
    """Accepts connections on a socket, several at a time.

    uvloop's own server accepts one connection in each round of the loop. With many clients a round
    takes long, and a new connection would wait for as many rounds as others came before it. No more
    than a few at a time are taken, so that those that come at once are shared among workers.
    """

    def __init__(
        self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._make_protocol = make_protocol
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        self._open()

    def close(self) -> None:
        """Accept no more connections."""
        self._closed = True
        self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        """Wait until connections that were accepted have a protocol."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _open(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                made, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file is left for another connection
                self._loop.remove_reader(self._listening)
                self._loop.call_later(1.0, self._open)
                return
            made.setblocking(False)
            task = self._loop.create_task(self._connect(made))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, made: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            if made.family in (socket.AF_INET, socket.AF_INET6):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._make_protocol, made)


class Server(uvicorn.Server):
    """uvicorn's server, which ends in peace."""

    def __init__(self, config: uvicorn.Config, gate: Middleware) -> None:
        super().__init__(config)
        self._gate = gate

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the service, and the process ends as after any command that
        worked.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, exit_at_once)  # all is answered

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()

        def make_protocol() -> asyncio.Protocol:
            return PatientProtocol(self.config, self.server_state, self.lifespan.state, loop)

        acceptors: Any = [Acceptor(listening, make_protocol) for listening in sockets or ()]
        self.servers = acceptors  # of which uvicorn wants `close` and `wait_closed`

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
        dropping = loop.call_later(DRAIN_SECONDS - 1.0, self._drop_connections)
        await super().shutdown(sockets)
        dropping.cancel()

    def _drop_connections(self) -> None:
        """Close the connections of clients that do not take their answers."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; a `ConfigError` where that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}"
        ) from None
    made.listen(BACKLOG)
    made.set_inheritable(True)
    return made


def run(gate: Middleware, listening: socket.socket) -> None:
    """Serve until told to stop."""
    _more_files()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
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
    )
    Server(config, gate).run(sockets=[listening])


def _more_files() -> None:
    """As many open connections as the system allows: the usual limit of 1,024 is less than a
    crowd of slow clients.
    """
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
