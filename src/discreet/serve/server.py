"""Run the service: accept connections, bound slow clients, and shut down after open requests.

A connection is closed if it does not send a whole request in time or does not read its response, so
that slow clients cannot block the service. Memory per connection and in total is bounded. On
shutdown no new connections are accepted, open requests are answered, and the process exits.
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

# the slowest phone sends 1 MB, the largest body, in less; a slower client is taken for an attack
READ_SECONDS = 20.0
WRITE_SECONDS = 20.0  # for a client to read a response, by the same rule
IDLE_SECONDS = 30  # between two requests of one connection; proxies close theirs after 60
DRAIN_SECONDS = 10.0  # for open requests on shutdown: service managers kill after 30 or 90
LINGER_SECONDS = 0.5  # on shutdown, for requests that were sent before the socket was closed
BACKLOG = 4096  # pending connections; the kernel caps it at net.core.somaxconn
ACCEPTS_AT_ONCE = 16  # connections per round of the loop, so that workers share a burst
# bytes of a request before its body: four times what browsers and proxies send at most
LARGEST_HEADER = 1 << 15
MOST_HEADERS = 100  # browsers and proxies send below 50
MOST_HEADER_BYTES_IN_ALL = 1 << 25  # a thousand of the largest; then only small ones are accepted
SMALL_HEADER = 1 << 13  # bytes, which holds the header of any browser
MOST_CONNECTIONS = 8192  # about 20 kB each while they are idle
MOST_PIPELINED = 16  # requests of one connection that wait for an earlier response
# bytes of responses that the kernel buffers per connection; without it, up to 4 MB
SEND_BUFFER = 1 << 18
HEADER_REFUSED = (
    f"the header is larger than {LARGEST_HEADER:,} bytes, or has more than {MOST_HEADERS} fields"
)


class TooMuchHeader(Exception):
    """Raised if the header of a request exceeds a limit."""


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on reading and writing time, headers and pipelined requests.

    httptools has no limit on headers, so bytes are counted here: those of complete headers as they
    are parsed, and everything received since the last byte of a body. The latter also counts what
    never becomes a header: a header without an end, blank lines, chunk extensions, trailers.
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
        # with a high-water mark of 0, a response is produced only as fast as the client reads it
        transport.set_write_buffer_limits(high=0)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._wait()
        self._count(self._pending + len(data))
        super().data_received(data)
        overloaded = (
            PatientProtocol.header_bytes_in_all > MOST_HEADER_BYTES_IN_ALL
            and self._pending > SMALL_HEADER
        )
        if (self._pending > LARGEST_HEADER or overloaded) and not self.transport.is_closing():
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
        """Refuse a malformed request or too large a header, and close the connection."""
        if self.cycle is None or self.cycle.response_complete:
            status, code = (
                (431, "header too large")
                if msg == HEADER_REFUSED or self._exceeds()
                else (400, "not HTTP")
            )
            sentence = HEADER_REFUSED if status == 431 else "this is not an HTTP request"
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
    """Return a complete response for an error, in the format of all errors."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


class Acceptor:
    """Acceptor of connections on a socket, several per round of the loop.

    uvloop's own server accepts one connection per round. With many clients a round takes long, and
    a new connection would wait for one round per earlier connection. The number per round is
    bounded, so that workers share the connections of a burst.
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
            except OSError:  # out of file descriptors: accept again in a second
                self._loop.remove_reader(self._listening)
                self._loop.call_later(1.0, self._open)
                return
            made.setblocking(False)
            task = self._loop.create_task(self._connect(made))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, made: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has disconnected
            if made.family in (socket.AF_INET, socket.AF_INET6):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._make_protocol, made)


class Server(uvicorn.Server):
    """uvicorn's server with a graceful shutdown."""

    def __init__(self, config: uvicorn.Config, gate: Middleware) -> None:
        super().__init__(config)
        self._gate = gate

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on SIGTERM and SIGINT, with exit code 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, exit_at_once)  # every request has been answered

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()

        def make_protocol() -> asyncio.Protocol:
            return PatientProtocol(self.config, self.server_state, self.lifespan.state, loop)

        acceptors: Any = [Acceptor(listening, make_protocol) for listening in sockets or ()]
        self.servers = acceptors  # uvicorn calls their `close` and `wait_closed`

    def stop(self) -> None:
        """Shut down after open requests; when called again, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()  # other processes may accept on the same address from here on
        self._gate.draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + LINGER_SECONDS
        while self.server_state.connections and loop.time() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        dropping = loop.call_later(DRAIN_SECONDS - 1.0, self._drop_connections)
        await super().shutdown(sockets)
        dropping.cancel()

    def _drop_connections(self) -> None:
        """Close the connections of clients that do not read their responses."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens there; raise a `ConfigError` if that is not possible."""
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
    """Serve until SIGTERM or SIGINT."""
    _raise_file_limit()
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


def _raise_file_limit() -> None:
    """Allow as many open connections as the system permits; 1,024 is too few for slow clients."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
