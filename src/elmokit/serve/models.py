"""What a server holds of each model: its words, its vectors and, where it has an output layer, its predictions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from elmokit import io
from elmokit.devices import find_device
from elmokit.embed.embedder import Embedder
from elmokit.engines.precision import check_precision
from elmokit.language_model.model import LanguageModel
from elmokit.model import Elmo
from elmokit.serve.batching import Batcher
from elmokit.serve.errors import RequestError
from elmokit.serve.settings import Limits
from elmokit.text.segmenters import Word

if TYPE_CHECKING:
    from elmokit.engines.precision import PrecisionName
    from elmokit.tasks.base import TaskModel

__all__ = ["ServedModel", "ServedTask", "Shelf", "open_model", "open_task"]


T = TypeVar("T")
LARGE = 20_000  # characters: shorter texts are split in less time than it takes to hand them to a thread


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One model, by the name that clients call it.

    Arguments:
        name: what clients ask for.
        embedder: the model.
        language_model: the same weights with their output layer; `None` for a model that has none.
        batcher: the thread in which both compute.
        limits: what a request may bring.
    """

    name: str
    embedder: Embedder
    language_model: LanguageModel | None
    batcher: Batcher
    limits: Limits

    async def split_texts(self, texts: Sequence[str], *, truncate: bool = False) -> list[list[Word]]:
        """The words of each text, which is ONE sentence here; a text or a request with too many is refused, or cut."""
        return await _run_beside(lambda: self._split_texts(texts, truncate), texts)

    async def split_sentences(self, texts: Sequence[str]) -> list[list[list[Word]]]:
        """The words of each sentence of each text."""
        return await _run_beside(lambda: self._split_sentences(texts), texts)

    def _split_texts(self, texts: Sequence[str], truncate: bool) -> list[list[Word]]:
        found = [[word for sentence in self.embedder.segmenter(text) for word in sentence] for text in texts]
        if truncate:
            found = [words[: self.limits.text_words] for words in found]
        self._check_sizes([len(words) for words in found])
        return found

    def _split_sentences(self, texts: Sequence[str]) -> list[list[list[Word]]]:
        found = [[sentence for sentence in self.embedder.segmenter(text) if sentence] for text in texts]
        self._check_sizes([sum(map(len, sentences)) for sentences in found])
        return found

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        longest, total = max(sizes, default=0), sum(sizes)
        if longest > self.limits.text_words:
            raise RequestError(
                f"a text has {longest:,} words: expected at most {self.limits.text_words:,}; split it", status=413
            )
        if total > self.limits.request_words:
            raise RequestError(
                f"the request has {total:,} words: expected at most {self.limits.request_words:,}; send several",
                status=413,
            )


@dataclass(frozen=True, eq=False)
class ServedTask:
    """A trained task model, by the name that clients call it, and the thread in which it computes."""

    name: str
    task: str
    model: TaskModel
    batcher: Batcher


@dataclass(frozen=True)
class Shelf:
    """All models of a server, by the names that clients call; no other name is ever looked for.

    Arguments:
        models: at least one; the first is the one that clients get who name none.
        tasks: task models.
        limits: the server's.
    """

    models: dict[str, ServedModel]
    tasks: dict[str, ServedTask]
    limits: Limits

    def find_model(self, name: str | None) -> ServedModel:
        """The model of this name, the first one without a name."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise RequestError(f"expected one of this server's models: {', '.join(self.models)}")
        return self.models[name]

    def find_task(self, name: str | None) -> ServedTask:
        """The task model of this name, the first one without a name."""
        if not self.tasks:
            raise RequestError("this server has no task model: start it with elmo serve --task DIR")
        if name is not None and name not in self.tasks:
            raise RequestError(f"expected one of this server's task models: {', '.join(self.tasks)}")
        return next(iter(self.tasks.values())) if name is None else self.tasks[name]

    def check_texts(self, texts: str | Sequence[str]) -> list[str]:
        """The texts of a request, of which there must be some and not too many."""
        listed = [texts] if isinstance(texts, str) else list(texts)
        if not listed:
            raise RequestError("expected at least one text, found an empty list", "Empty")
        if len(listed) > self.limits.texts:
            raise RequestError(
                f"the request has {len(listed):,} texts: expected at most {self.limits.texts:,}; send several",
                status=413,
            )
        return listed

    def close(self) -> None:
        """Finish what is under way and end all threads."""
        for model in self.models.values():
            model.batcher.close()


def open_model(
    name: str,
    source: str,
    limits: Limits,
    *,
    device: str | None = None,
    precision: PrecisionName = "float32",
    observe: Callable[[int, int], None] = lambda sentences, words: None,
) -> ServedModel:
    """Load a model and start its thread."""
    place = find_device("cpu" if device is None and precision == "int8" else device)
    check_precision(precision, place)  # before a model is loaded in vain
    checkpoint = io.load(source, softmax=True)
    embedder = Embedder(Elmo.from_checkpoint(checkpoint), device=place, precision=precision)
    language_model = None  # vectors need no output layer
    if checkpoint.softmax is not None and checkpoint.output_words is not None:
        elmo = embedder.elmo if precision == "float32" else Elmo.from_checkpoint(checkpoint)
        language_model = LanguageModel.from_checkpoint(checkpoint, elmo=elmo, device=place)
    return ServedModel(name, embedder, language_model, Batcher(embedder, limits, observe), limits)


def open_task(name: str, folder: str, models: Mapping[str, ServedModel], *, device: str | None = None) -> ServedTask:
    """Load a task model; it computes in the thread of the first model, beside whom it would only fight for cores."""
    from elmokit.tasks.base import load_task

    model = load_task(folder, device=device)
    return ServedTask(name, type(model).__name__, model, next(iter(models.values())).batcher)


async def _run_beside(split: Callable[[], T], texts: Sequence[str]) -> T:
    """Split long texts in a thread, so that other requests are answered meanwhile."""
    return split() if sum(map(len, texts)) < LARGE else await asyncio.to_thread(split)
