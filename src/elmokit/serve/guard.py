"""Around every request: bounds that are refused at once, the token, time-outs, headers, and what is counted.

A plain ASGI middleware. What it refuses never reaches a route; what a route raises never reaches a client as it is.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from elmokit.serve.errors import RequestError
from elmokit.serve.metrics import Metrics
from elmokit.serve.settings import Limits

__all__ = ["Guard"]

Scope = Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
log = logging.getLogger("elmokit.serve")


class Guard:
    """Let a request through, or refuse it.

    Arguments:
        app: who answers.
        limits: what is refused.
        metrics: where requests are counted.
        token: what a client must send as `Authorization: Bearer TOKEN`, if anything.
        open_paths: which need no token: the page, and what a supervisor asks.
        hosts: names by which the server may be called; any if empty. A page of another host that resolves its name
            to this machine is refused by them.
    """

    def __init__(
        self, app: App, limits: Limits, metrics: Metrics, *, token: str | None, open_paths: set[str], hosts: set[str]
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.token, self.open_paths, self.hosts = token, open_paths, hosts
        self.num_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        self.num_running += 1
        try:
            self._check(scope)
            await self.app(scope, self._bound_body(receive), send_with_headers)
        except RequestError as problem:
            if not status:
                await _refuse(problem, send_with_headers)
        except Exception as problem:  # noqa: BLE001 - a client learns nothing of the inside
            log.error("%s: %s", _name_route(scope), type(problem).__name__)
            log.debug("", exc_info=problem)
            if not status:
                await _refuse(RequestError("the server failed on this request", "Backend"), send_with_headers)
        finally:
            self.num_running -= 1
            self.metrics.count_request(_name_route(scope), status, time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self.hosts and _read_host(headers.get(b"host", b"")) not in self.hosts:
            raise RequestError("this server is not called by that name: use the address it printed", status=421)
        if scope["path"] in self.open_paths:
            return
        if self.num_running > self.limits.concurrent_requests:
            raise RequestError("too many requests at once: ask again in a moment", "Overloaded")
        given = headers.get(b"authorization", b"")
        if self.token is not None and not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            raise RequestError("expected the header Authorization: Bearer TOKEN with this server's token", status=401)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.limits.request_bytes:
            raise self._too_large()

    def _bound_body(self, receive: Receive) -> Receive:
        """The same messages, while they are neither too many nor too late."""
        deadline, num_bytes, is_whole = time.monotonic() + self.limits.body_seconds, 0, False

        async def receive_bounded() -> Message:
            nonlocal num_bytes, is_whole
            if is_whole:
                return await receive()  # waits for the client to go
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                raise RequestError(
                    f"the request did not arrive within {self.limits.body_seconds:g} seconds", status=408
                ) from None
            num_bytes += len(message.get("body", b""))
            if num_bytes > self.limits.request_bytes:
                raise self._too_large()
            is_whole = not message.get("more_body", False)
            return message

        return receive_bounded

    def _too_large(self) -> RequestError:
        return RequestError(
            f"the request is larger than {self.limits.request_bytes:,} bytes: send several smaller ones", status=413
        )


def _name_route(scope: Scope) -> str:
    """The route of a request as we wrote it, never a path that a client made up."""
    return getattr(scope.get("route"), "path", "other")


async def _refuse(problem: RequestError, send: Send) -> None:
    body = json.dumps({"error": str(problem), "error_type": problem.error_type}, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"retry-after", b"1")] * (problem.status == 429)
    headers += [(b"www-authenticate", b"Bearer")] * (problem.status == 401)
    headers += [(b"connection", b"close")] * (problem.status in (408, 413))  # the rest of the body is not wanted
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _read_host(header: bytes) -> str:
    """The host of a Host header, without its port.

    Example:
        >>> _read_host(b"localhost:8080"), _read_host(b"[::1]:8080")
        ('localhost', '::1')
    """
    name = header.decode("latin-1").strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
