"""What every request passes: a limit on its size, a token, a limit on how many are answered at once, and the counters.

No path, query, header or body is ever logged. An error that nobody foresaw is answered with 500 and logged by the name
of its class alone, because its text might quote what somebody sent.
"""

from __future__ import annotations

import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from discreet.serve.counters import Counters

logger = logging.getLogger("discreet")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

FAILED = "something went wrong here, and it is not your fault"
OPEN = ("/health",)  # without a token
MOST_HELD = 1 << 28  # bytes of bodies that are being received


class TooLarge(Exception):
    """A body goes beyond the limit."""


class Gate:
    """ASGI middleware around the application.

    Parameters
    ----------
    app : the application
    counters : Counters
    routes : set of str
        The paths that are counted under their own name, ``/v1/similar/{item}`` for all items; anything else is "other",
        so that nothing sent becomes a label.
    largest_body : int
        Bytes.
    most_at_once : int
        Requests under way; more are answered with 503 at once.
    token : str, optional
    """

    def __init__(
        self,
        app: Any,
        counters: Counters,
        routes: set[str],
        *,
        largest_body: int,
        most_at_once: int,
        token: str | None,
    ) -> None:
        self.app = app
        self.counters = counters
        self.routes = routes
        self._beginnings = {route.partition("{")[0]: route for route in routes if "{" in route}
        self.largest_body = largest_body
        self.most_at_once = most_at_once
        self.token = token
        self.draining = False
        self._held = 0  # bytes of bodies that are not whole yet

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = time.perf_counter()
        seen = {"status": 500, "started": False}

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                seen["started"] = True
                if self.draining:
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        try:
            await self._pass(scope, receive, counted)
        except TooLarge as error:
            if not seen["started"]:
                await refuse(counted, 413, "too large", str(error), close=True)
        except Exception as error:
            logger.error("a request failed unexpectedly (%s)", type(error).__name__)
            if not seen["started"]:
                await refuse(counted, 500, "failed", FAILED)
        finally:
            self.counters.add(self._route(scope), int(seen["status"]), time.perf_counter() - begun)

    async def _pass(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if self.token is not None and scope["path"] not in OPEN and scope["method"] != "OPTIONS":
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                await refuse(send, 401, "token needed", "send the header 'Authorization: Bearer TOKEN'")
                return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.largest_body:
            raise self._too_large()
        body = await self._body(receive)
        if body is None:  # the client has gone
            return
        if self.counters.under_way >= self.most_at_once or self._held > MOST_HELD:
            await refuse(send, 503, "busy", "too many requests are under way: try again in a second", retry=True)
            return
        self.counters.under_way += 1
        try:
            await self.app(scope, _again(body, receive), send)
        finally:
            self.counters.under_way -= 1

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, so that a request counts as under way when it is there and not while it trickles in."""
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                self._held += len(parts[-1])
                if size > self.largest_body:
                    raise self._too_large()
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._held -= size

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than {self.largest_body:,} bytes")

    def _route(self, scope: MutableMapping[str, Any]) -> str:
        path = scope["path"]
        if path in self.routes:
            return str(path)
        return next((route for begins, route in self._beginnings.items() if path.startswith(begins)), "other")


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands over a body that was read already, and after it whatever comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def refuse(send: Send, status: int, code: str, message: str, *, retry: bool = False, close: bool = False) -> None:
    """Answer with an error in the form that all errors have."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"retry-after", b"1")] if retry else []
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
