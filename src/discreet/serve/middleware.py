"""Middleware: checks of host, origin and token, limits on size and concurrency, metrics.

The host name of a request is checked against DNS rebinding: a web site can resolve its own name to
127.0.0.1, and its pages could then send requests to this service as same-origin. They cannot change
the ``Host`` header that the browser sends.

No path, query, header or body is ever logged. An unexpected error gets status 500 and
is logged by its class name alone, because its message might quote the request.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from discreet.serve.metrics import Metrics
from discreet.version import __version__

logger = logging.getLogger("discreet")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

FAILED = "internal server error"
BUSY = "too many concurrent requests: try again in a second"
OPEN = ("/health",)  # answered however many requests are under way
WITHOUT_TOKEN = ("/health", "/docs")
VERSION = (b"discreet-version", __version__.encode())
LARGE_ANSWERS = ("/v1/recommend/batch", "/")  # a client that does not read can keep these under way
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# Bodies of all requests that are received or answered, in bytes: 64 of the largest. A parsed body
# takes several times its size, so this keeps the whole below half a gigabyte.
MOST_HELD = 1 << 26
# bytes; up to this size a body is taken even where large ones hold all of `MOST_HELD`
SMALL_BODY = 1 << 14
# bytes handed to the connection at once: what a client that does not read can hold
WRITE_PART = 1 << 16


class TooLarge(Exception):
    """Raised if a body exceeds the limit."""


class Busy(Exception):
    """Raised if too many bytes or requests are open."""


class Middleware:
    """ASGI middleware around the application.

    Parameters
    ----------
    app : the application
    counters : Counters
    routes : set of str
        The paths that are counted under their own name, ``/v1/similar/{item}`` for all items;
        anything else is "other", so that nothing sent becomes a label.
    max_body : int
        Bytes.
    max_concurrent : int
        Open requests; more are answered with 503 at once, except for ``/health``. Half of them may
        be for large responses, so that clients that do not read leave the other half to short
        requests.
    token : str, optional
    origins : tuple of str
        Web sites whose pages may send requests; those of other sites are refused.
    hosts : tuple of str
        Names that requests may go to, in addition to those of this machine; "*" stands for any.
        Without them any name is accepted, except by a connection to a loopback address where there
        is no token.
    """

    def __init__(
        self,
        app: Any,
        counters: Metrics,
        routes: set[str],
        *,
        max_body: int,
        max_concurrent: int,
        token: str | None,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
    ) -> None:
        self.app = app
        self.counters = counters
        self.routes = routes
        self._beginnings = {route.partition("{")[0]: route for route in routes if "{" in route}
        self.max_body = max_body
        self.max_concurrent = max_concurrent
        self.token = token
        self.origins = frozenset(origins)
        self.hosts = frozenset(host_name(host) for host in hosts)
        self.draining = False
        self._large = 0  # requests under way for large answers
        self._held = 0  # bytes of bodies that are received or answered

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = time.perf_counter()
        seen = {"status": 500, "started": False}

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                seen["started"] = True
                closing = [(b"connection", b"close")] if self.draining else []
                message["headers"] = [*message.get("headers", []), VERSION, *closing]
            await _send_in_parts(send, message)

        try:
            await self._pass(scope, receive, send_counted)
        except TooLarge as error:
            if not seen["started"]:
                await refuse(send_counted, 413, "too large", str(error), close=True)
        except Busy:
            if not seen["started"]:
                await refuse(send_counted, 503, "busy", BUSY, retry=True, close=True)
        except Exception as error:
            logger.error("a request failed unexpectedly (%s)", type(error).__name__)
            if not seen["started"]:
                await refuse(send_counted, 500, "failed", FAILED)
        finally:
            self.counters.add(self._route(scope), int(seen["status"]), time.perf_counter() - begun)

    async def _pass(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if not self._accept_host(scope, headers):
            await refuse(
                send,
                421,
                "unknown host",
                "unknown host name: start the service with --allow-host NAME",
            )
            return
        if not self._accept_origin(headers):
            await refuse(
                send,
                403,
                "foreign origin",
                "requests from this origin are not allowed: start the service with --cors ORIGIN",
            )
            return
        if (
            self.token is not None
            and scope["path"] not in WITHOUT_TOKEN
            and scope["method"] != "OPTIONS"
        ):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                await refuse(
                    send, 401, "token needed", "send the header 'Authorization: Bearer TOKEN'"
                )
                return
        if _has_body(scope, headers) and not _is_json(headers):
            sentence = "send the body as JSON, with the header 'Content-Type: application/json'"
            await refuse(send, 415, "not JSON", sentence, close=True)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.max_body:
            raise self._too_large()
        parts: list[bytes] = []
        try:
            if not await self._receive_body(receive, parts):
                return
            large = scope["path"] in LARGE_ANSWERS
            if self._is_full(large) and scope["path"] not in OPEN:
                await refuse(send, 503, "busy", BUSY, retry=True)
                return
            self.counters.under_way += 1
            self._large += large
            try:
                await self.app(scope, _again(b"".join(parts), receive), send)
            finally:
                self.counters.under_way -= 1
                self._large -= large
        finally:
            self._held -= sum(map(len, parts))

    def _is_full(self, large: bool) -> bool:
        """Return whether the limit of open requests is reached; large responses get half of it."""
        if self.counters.under_way >= self.max_concurrent:
            return True
        return large and self._large >= max(1, self.max_concurrent // 2)

    def _accept_host(self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> bool:
        """Check that the request goes to a name of this service."""
        if not self.hosts and (self.token is not None or not _is_loopback(scope.get("server"))):
            return True
        if sum(name == b"host" for name, _ in scope["headers"]) != 1:
            return False
        name = host_name(headers[b"host"].decode("latin-1"))
        return name in LOCAL_NAMES or name in self.hosts or "*" in self.hosts

    def _accept_origin(self, headers: dict[bytes, bytes]) -> bool:
        """Check that a request from a web page comes from this service or an allowed site."""
        if b"origin" not in headers or "*" in self.origins:
            return True
        origin = headers[b"origin"].decode("latin-1")
        own = headers.get(b"host", b"").decode("latin-1").lower()
        scheme, _, site = origin.lower().partition("://")
        return origin in self.origins or (scheme in ("http", "https") and site == own)

    async def _receive_body(self, receive: Receive, parts: list[bytes]) -> bool:
        """Receive the whole body into `parts`; False if the client has gone.

        A request counts as open once its body has arrived: a slow sender takes no slot.
        """
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._held += len(parts[-1])
            if size > self.max_body:
                raise self._too_large()
            if size > SMALL_BODY and self._held > MOST_HELD:
                raise Busy
            if not message.get("more_body", False):
                return True

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than {self.max_body:,} bytes")

    def _route(self, scope: MutableMapping[str, Any]) -> str:
        path = scope["path"]
        if path in self.routes:
            return str(path)
        return next(
            (route for begins, route in self._beginnings.items() if path.startswith(begins)),
            "other",
        )


def host_name(host: str) -> str:
    """Return the name of a host in lower case, without its port; IPv6 keeps its brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        address, bracket, _ = name.partition("]")
        return address + bracket
    return name.partition(":")[0].removesuffix(".")


def _is_loopback(server: Any) -> bool:
    """Check whether a connection came in at an address that only this machine can reach."""
    try:
        address = ipaddress.ip_address(server[0])
    except (TypeError, ValueError):  # a Unix socket, which no web page can reach
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _has_body(scope: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"0")
    return scope["method"] == "POST" or length != b"0" or b"transfer-encoding" in headers


def _is_json(headers: dict[bytes, bytes]) -> bool:
    """Check the media type: without a preflight other sites can send forms, but not JSON."""
    media_type = headers.get(b"content-type", b"").partition(b";")[0]
    return media_type.strip().lower() == b"application/json"


async def _send_in_parts(send: Send, message: Message) -> None:
    """Send a message, with a large body in parts, each after the connection took the last one."""
    body = message.get("body", b"")
    if len(body) <= WRITE_PART:
        await send(message)
        return
    for begin in range(0, len(body), WRITE_PART):
        end = begin + WRITE_PART
        more = end < len(body) or message.get("more_body", False)
        await send({"type": message["type"], "body": body[begin:end], "more_body": more})


def _again(body: bytes, receive: Receive) -> Receive:
    """ASGI receiver that replays a body that was read, then passes on later messages."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def refuse(
    send: Send, status: int, code: str, message: str, *, retry: bool = False, close: bool = False
) -> None:
    """Respond with an error, in the format of all errors."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"retry-after", b"1")] if retry else []
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
