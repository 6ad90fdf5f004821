"""What a reader of batches is, and how one runs in the background.

A `Reader` gives batches without end, shuffled anew each epoch, and can continue from any batch: `SentenceReader` whole
sentences, `StreamReader` windows of consecutive text. A `Prefetcher` prepares the batches of either in a thread.

Every batch follows from (seed, position) alone. With several ranks each reader plans the same *global* batches and
builds its own rows of them: rank r of n takes rows r, r + n, r + 2n, … So two ranks see what one would see, and a run
can be resumed with another number of ranks. A state is a small dictionary of numbers.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from elmokit.errors import ConfigError
from elmokit.pretrain.batches.batch import Batch, WordSpellings
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.text.characters import Scheme

__all__ = ["Prefetcher", "Reader"]

Made = TypeVar("Made")


class Reader(ABC):
    """An endless iterator over batches that knows where it is.

    Attributes:
        corpus: what is read.
        scheme: of the model that reads.
        tokens_per_epoch: predictions of one direction per epoch: words, and one sentence end each.
    """

    def __init__(
        self, corpus: EncodedCorpus, scheme: Scheme, *, widest_filter: int, seed: int, rank: int, world: int
    ) -> None:
        if not 0 <= rank < world:
            raise ConfigError(f"expected a rank from 0 to {world - 1}, but {rank} came")
        self.corpus, self.scheme = corpus, scheme
        self.tokens_per_epoch = corpus.num_tokens + corpus.num_sentences
        self._spellings = WordSpellings(corpus, scheme, widest_filter=widest_filter)
        self._seed, self._rank, self._world = seed, rank, world

    def __iter__(self) -> Iterator[Batch]:
        return self

    @abstractmethod
    def __next__(self) -> Batch:
        """The next batch: this rank's rows of it."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Where the next batch begins: numbers and lists of numbers, the same on every rank."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there; refused if the state is of another corpus or of other settings."""

    def _settings(self, **others: int) -> dict[str, Any]:
        return {"corpus": self.corpus.fingerprint, "seed": self._seed, **others}

    def _check(self, before: dict[str, Any], settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            was = before.get(name)
            if was != value:
                raise ConfigError(
                    f"a run continues with the data it began with, but {name} was {was!r:.20} and is {value!r:.20} "
                    "now; set it as it was, or start anew"
                )


class Prefetcher(Generic[Made]):
    """A reader whose next batches are prepared by a thread while the last one is used.

    Its state is that of the batches handed out, not of those prepared.

    Arguments:
        reader: owned by the prefetcher from now on.
        prepare: is handed every batch in the thread and gives what is handed out in its place.
        depth: batches prepared ahead.

    Example:
        with Prefetcher(reader, lambda batch: batch) as batches:
            for batch in batches: ...
    """

    def __init__(self, reader: Reader, prepare: Callable[[Batch], Made], *, depth: int = 4) -> None:
        self._reader, self._to_hand_out = reader, prepare
        self._state = reader.state_dict()
        self._ahead: queue.Queue[tuple[Made | BaseException, dict[str, Any]]] = queue.Queue(depth)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Prefetcher[Made]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Made]:
        return self

    def __next__(self) -> Made:
        """The next batch, waiting for it if need be; what went wrong in the thread is raised here."""
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._prepare, name="batches", daemon=True)
            self._thread.start()
        batch, state = self._ahead.get()
        if isinstance(batch, BaseException):
            self.close()
            raise batch
        self._state = state
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the batch after the last one handed out begins."""
        return self._state

    def close(self) -> None:
        """End the thread; the next batch would start it again where the last one handed out ended."""
        if self._thread is None:
            return
        self._ended.set()
        while self._thread.is_alive() or not self._ahead.empty():  # it may be waiting for room
            with suppress(queue.Empty):
                self._ahead.get(timeout=0.01)
        self._thread = None
        self._reader.load_state_dict(self._state)

    def _prepare(self) -> None:
        while not self._ended.is_set():
            try:
                batch: Made | BaseException = self._to_hand_out(next(self._reader))
            except BaseException as problem:  # noqa: BLE001 - raised again where the batch is asked for
                batch = problem
            self._ahead.put((batch, self._reader.state_dict()))
            if isinstance(batch, BaseException):
                return
