"""A service in a thread of this process, which tests can look into while they ask it over
sockets.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from discreet.serve import server


class ServiceHere:
    """The address of a service, and its server."""

    def __init__(self, app) -> None:
        self.app = app
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listening.getsockname()[1]
        self.server = None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send(self, *parts: bytes) -> bytes:
        """Send parts over one connection, as far as it takes them, and read the response to its
        end.
        """
        with contextlib.closing(self.connect()) as made:
            with contextlib.suppress(OSError):
                for part in parts:
                    made.sendall(part)
            return read_all(made)

    def get(self, path: str = "/health") -> bytes:
        return self.send(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )


@contextlib.contextmanager
def serve_here(app, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceHere]:
    """Serve until the block ends."""
    here = ServiceHere(app)

    class ServerHere(server.Server):
        """The server without signals, which only the main thread may handle."""

        def __init__(self, *given) -> None:
            super().__init__(*given)
            here.server = self

        def capture_signals(self):
            return contextlib.nullcontext()

    monkeypatch.setattr(server, "Server", ServerHere)
    thread = threading.Thread(target=server.run, args=(app, here.listening))
    thread.start()
    try:
        wait_for(lambda: here.server is not None and here.server.started)
        yield here
    finally:
        here.server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def wait_for(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def read_all(made: socket.socket) -> bytes:
    """Everything until the connection ends, however it ends."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := made.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def post(path: str, value, close: bool = False) -> bytes:
    body = json.dumps(value).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += "Connection: close\r\n" if close else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
