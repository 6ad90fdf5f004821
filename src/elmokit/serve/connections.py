"""A connection that says nothing, or only half of a request's head, is not kept open for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["make_protocol"]


def make_protocol(head_seconds: float) -> type[H11Protocol]:
    """The protocol of a server in which the head of a request must arrive in this time; bodies are the guard's."""
    return type("Protocol", (_ImpatientProtocol,), {"head_seconds": head_seconds})


class _ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, until nothing comes for too long."""

    head_seconds = 10.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look_at_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_at_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _look_at_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self.conn.trailing_data[0]:  # the beginning of another one
            self._await_head()

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
