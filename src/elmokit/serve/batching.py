"""The sentences of all clients, gathered into batches for one model.

Requests arrive in any number at once; their vectors leave as each is done. One thread computes. While it does, others
wait in a queue, and the next batch takes sentences of all of them by turns: a short request is never behind the whole
of a long one, and under load a batch is full without anybody having waited for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers
from elmokit.serve.errors import RequestError
from elmokit.serve.settings import Limits

__all__ = ["Batcher"]

TURN_WORDS = 256  # of one request in a batch before it is another one's turn


@dataclass(eq=False)
class _Request:
    """Sentences of one client, or another call that the model's thread is asked for."""

    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    num_words: int
    sentences: Sequence[Sequence[str]] = ()
    layers: Layers = "all"
    call: Callable[[], Any] | None = None
    vectors: list[np.ndarray] = field(default_factory=list)

    def take_turn(self, most_words: int, begin: int) -> list[Sequence[str]]:
        """The next sentences from `begin` on, at least one, until so many words are reached."""
        taken, words = [], 0
        for sentence in self.sentences[begin:]:
            if taken and words + len(sentence) > most_words:
                break
            taken.append(sentence)
            words += len(sentence)
        return taken

    def answer(self, result: object = None, problem: BaseException | None = None) -> None:
        """Hand the result to the client's task, which may have gone."""

        def settle() -> None:
            if not self.future.done():
                self.future.set_exception(problem) if problem is not None else self.future.set_result(result)

        self.loop.call_soon_threadsafe(settle)


class Batcher:
    """One model and the thread in which it computes.

    Arguments:
        embedder: the model; nobody else may use it meanwhile.
        limits: how many words are read at once, and may wait.
        observe: told how many sentences and words each batch had.
    """

    def __init__(
        self, embedder: Embedder, limits: Limits, observe: Callable[[int, int], None] = lambda sentences, words: None
    ) -> None:
        self.embedder, self.limits, self._observe = embedder, limits, observe
        self.queued_words = 0
        self._queue: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="elmokit-batches", daemon=True)
        self._thread.start()

    async def embed(self, sentences: Sequence[Sequence[str]], layers: Layers) -> list[np.ndarray]:
        """The vectors of each sentence, as `Embedder.embed` gives them; refused at once where too many words wait."""
        if not sentences:
            return []
        num_words = sum(max(1, len(sentence)) for sentence in sentences)
        return await self._wait_for(num_words, sentences=sentences, layers=layers)

    async def run(self, call: Callable[[], Any], num_words: int = 1) -> Any:  # noqa: ANN401
        """What the call returns, made in the model's thread between two batches."""
        return await self._wait_for(num_words, call=call)

    def close(self) -> None:
        """Finish what is queued, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    async def _wait_for(self, num_words: int, **asked: Any) -> Any:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        request = _Request(loop.create_future(), loop, num_words, **asked)
        with self._changed:
            if self._is_closed:
                raise RequestError("the server is shutting down", "Unhealthy")
            if self._queue and self.queued_words + num_words > self.limits.queued_words:
                raise RequestError(
                    f"{self.queued_words:,} words wait for this model already: ask again in a moment", "Overloaded"
                )
            self.queued_words += num_words
            self._queue.append(request)
            self._changed.notify()
        try:
            return await asyncio.wait_for(request.future, self.limits.answer_seconds)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise RequestError(
                f"no answer within {self.limits.answer_seconds:g} seconds: send less text, or ask again later",
                "Overloaded",
            ) from None

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_closed:
                    self._changed.wait()
                if not self._queue:
                    return
                batch = self._gather()
            self._compute(batch)

    def _gather(self) -> list[tuple[_Request, list[Sequence[str]]]]:
        """Whose sentences are next: by turns, as many words as a batch takes, all for the same choice of layers."""
        batch: list[tuple[_Request, list[Sequence[str]]]] = []
        num_words, waiting = 0, len(self._queue)
        for _ in range(waiting):
            request = self._queue.popleft()
            if request.future.cancelled():
                self.queued_words -= request.num_words
                continue
            if request.call is not None:
                if not batch:
                    return [(request, [])]
                self._queue.append(request)
                continue
            is_other = batch and request.layers != batch[0][0].layers
            if is_other or num_words >= self.limits.batch_words:
                self._queue.append(request)
                continue
            room = self.limits.batch_words - num_words
            turn = request.take_turn(min(room, TURN_WORDS) if waiting > 1 else room, len(request.vectors))
            num_words += sum(map(len, turn))
            batch.append((request, turn))
        return batch

    def _compute(self, batch: list[tuple[_Request, list[Sequence[str]]]]) -> None:
        try:
            if batch and batch[0][0].call is not None:
                self._finish(batch[0][0], batch[0][0].call())
                return
            sentences = [sentence for _, turn in batch for sentence in turn]
            if not sentences:
                return
            vectors = iter(self.embedder.embed(sentences, layers=batch[0][0].layers))
            self._observe(len(sentences), sum(map(len, sentences)))
        except Exception as problem:  # noqa: BLE001 - the thread must live on; each client gets the problem
            for request, _ in batch:
                self._finish(request, problem=problem)
            return
        unfinished = []
        for request, turn in batch:
            request.vectors.extend(next(vectors) for _ in turn)
            if len(request.vectors) == len(request.sentences):
                self._finish(request, request.vectors)
            else:
                unfinished.append(request)
        with self._changed:
            self._queue.extend(unfinished)

    def _finish(self, request: _Request, result: object = None, problem: BaseException | None = None) -> None:
        with self._changed:
            self.queued_words -= request.num_words
        request.answer(result, problem)
