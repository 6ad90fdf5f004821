"""Connections that end badly: a client falls silent, goes on with what is no HTTP, or does not take its answer.

uvicorn speaks HTTP here. What it leaves open, for ever or with a traceback, ends in this file, and without a word: a
client's manners are not worth a line in the log.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from elmokit.serve.settings import Limits

__all__ = ["make_protocol"]


def make_protocol(limits: Limits) -> type[H11Protocol]:
    """The protocol of a server with these bounds.

    The head of a request must arrive in `body_seconds`; bodies are the guard's. A client that takes nothing of its
    answer for `answer_seconds` is hung up on: until then the server has to keep the rest.
    """
    return type("Protocol", (_ImpatientProtocol,), {"limits": limits})


class _ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, until nothing comes for too long, or nothing goes."""

    limits: Limits
    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look_at_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_at_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._stop_answer_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP, if the answer has not begun; nobody hears what the application says afterwards.

        A body in chunks can break HTTP's rules behind a head that kept them. Its request is under way by then, or even
        answered: uvicorn would answer it twice, which h11 refuses.
        """
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _look_at_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self.conn.trailing_data[0]:  # the beginning of another one
            self._await_head()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.body_seconds, self._give_up)

    def _give_up(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._answer_timer = self.loop.call_later(self.limits.answer_seconds, self._look_at_reader, left)

    def _look_at_reader(self, left_before: int) -> None:
        if self.transport.get_write_buffer_size() < left_before:
            self._await_reader()  # slow, but it reads
        else:
            self.transport.abort()  # closing would wait until all is sent

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
