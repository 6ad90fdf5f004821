"""Embedder: sentences in, numpy arrays out, in input order; what most people call.

Arrives: sentences, each a string (split into words here) or a list of words (taken as it is). Leaves: one float32 array
a sentence. On the way: sentences of like length share a batch, which `reading.py` runs. A vector does not depend on
its company (≤ 1e-5), except in `carry` mode, whose purpose that is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike
from typing import Literal, get_args

import numpy as np
import torch

from elmokit.devices import find_device
from elmokit.embed.batching import CARRY_BATCH_SIZE, batches_by_length, batches_in_order, token_budget, windows
from elmokit.embed.cache import Word
from elmokit.embed.layers import Layers, checked_layers
from elmokit.embed.pooling import Pooling, checked_pooling, pooled
from elmokit.embed.reading import BatchReader, joined_rows, rows_from
from elmokit.engines.precision import PrecisionName, checked_precision
from elmokit.errors import InputError
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState
from elmokit.text.segmenters import RuleSegmenter, Segmenter

__all__ = ["CACHE_WORDS", "Embedder", "Sentence", "StateMode"]

Sentence = str | Sequence[Word]
StateMode = Literal["zero", "carry", "canonical"]

# 205 MB for the original model, 26 MB for the tiny one, and only once so many different words have come.
CACHE_WORDS = 100_000


class Embedder:
    """A model that turns sentences into vectors.

    In `zero` and `canonical` mode several threads may call one Embedder. In `carry` mode one thread at a time may:
    batches of 64 sentences (unless told) are taken in input order, row r of a batch goes on where row r of the batch
    before stopped, and the state stays here until `reset_state()`.

    Arguments:
        elmo: the model; it is put into evaluation mode and belongs to the Embedder. After changing its weights, call
            `clear_cache()`.
        device: where to compute; where the model already is if not given.
        precision: `"float32"`, `"bfloat16"` (on CUDA) or `"int8"` (on a CPU: several times faster, vectors off by about
            a hundredth of their size); the model's own if not given.
        state: what the model remembers at the start of a sentence: `"zero"`, `"carry"` or `"canonical"`.
        segmenter: splits strings into words; the rule of `elmokit.text.segmenters` if not given.
        cache_words: words whose context-free vectors are remembered; 0 for none.

    Example:
        >>> from elmokit import Elmo, ElmoConfig
        >>> embedder = Embedder(Elmo.random(ElmoConfig.tiny()))
        >>> [vectors.shape for vectors in embedder.embed(["She sat by the bank .", ["Hello"]])]
        [(6, 128), (1, 128)]
    """

    def __init__(
        self,
        elmo: Elmo,
        *,
        device: str | torch.device | None = None,
        precision: PrecisionName | None = None,
        state: StateMode = "zero",
        segmenter: Segmenter | None = None,
        cache_words: int = CACHE_WORDS,
    ) -> None:
        place = elmo.device if device is None else torch.device(device)
        precision = None if precision is None else checked_precision(precision, place)
        if state not in get_args(StateMode):
            raise InputError(f"asked for state={state!r}: use one of {', '.join(map(repr, get_args(StateMode)))}")
        if cache_words < 0:
            raise InputError(f"cache_words is {cache_words}: expected 0 (no cache) or more")
        self.elmo = elmo.eval() if device is None else elmo.eval().to(device)
        if precision is not None:
            self.elmo.set_precision(precision)
        self.state: StateMode = state
        self.segmenter = RuleSegmenter() if segmenter is None else segmenter
        self.source = "unnamed"
        self._reader = BatchReader(self.elmo, cache_words=cache_words)
        self._carried: BilmState | None = None
        self._carry_lock = threading.Lock()
        # Made now: under inference mode the model would be left with tensors that training cannot use.
        self._canonical = elmo.canonical_state if state == "canonical" else None

    @classmethod
    def from_pretrained(
        cls,
        source: str | PathLike[str],
        *,
        device: str | torch.device | None = None,
        precision: PrecisionName = "float32",
        state: StateMode = "zero",
        segmenter: Segmenter | None = None,
        cache_words: int = CACHE_WORDS,
    ) -> Embedder:
        """The Embedder of a source: a bundled name, a folder, a `.zip` or a hub id; on the GPU if there is one."""
        device = find_device("cpu" if device is None and precision == "int8" else device)
        checked_precision(precision, device)
        embedder = cls(
            Elmo.from_pretrained(source),
            device=device,
            precision=precision,
            state=state,
            segmenter=segmenter,
            cache_words=cache_words,
        )
        embedder.source = str(source)
        return embedder

    @property
    def dim(self) -> int:
        """Width of a word vector."""
        return self.elmo.config.dim

    @property
    def num_layers(self) -> int:
        """Layers a word has, the context-free one included."""
        return self.elmo.config.num_layers

    @property
    def cache_words(self) -> int:
        """Words whose context-free vectors are remembered at most."""
        return self._reader.cache.capacity

    @property
    def precision(self) -> str:
        """How exactly the model computes."""
        return self.elmo.precision

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.elmo.device

    def embed(
        self, sentences: Iterable[Sentence], *, layers: Layers = "average", batch_size: int | None = None
    ) -> list[np.ndarray]:
        """Word vectors of sentences, in input order.

        Arguments:
            sentences: each a string (ONE sentence, split into words by the segmenter) or a list of words, taken as
                it is. A sentence without words is legal.
            layers: `"average"`, `"top"`, `"all"`, `"mix"` (the model's own, else the average) or a layer number.
            batch_size: sentences run together; unset, batches are filled up to a number of words.

        Returns:
            One float32 array a sentence: (words, dim), or (layers, words, dim) for `"all"`.
        """
        layers, batch_size = self._checked(sentences, layers, batch_size)
        words = [self._words_of(sentence, place) for place, sentence in enumerate(sentences)]
        with self._own_state():
            return self._in_order(words, layers, batch_size)

    def stream(
        self, sentences: Iterable[Sentence], *, layers: Layers = "average", batch_size: int | None = None
    ) -> Iterator[np.ndarray]:
        """Word vectors of any iterable of sentences, one array after the other, in input order.

        Memory stays constant however many sentences come: they are read ahead by a few batches only. Arguments and
        arrays are those of `embed`. In `carry` mode the state belongs to the stream until it ends or is closed.
        """
        layers, batch_size = self._checked(sentences, layers, batch_size)
        return self._stream(sentences, layers, batch_size)

    def encode(
        self,
        sentences: Iterable[Sentence],
        *,
        pooling: Pooling = "mean",
        layers: Layers = "average",
        batch_size: int | None = None,
    ) -> np.ndarray:
        """One vector a sentence, pooled over its own words and nothing else; zeros for a sentence without words.

        Arguments:
            sentences: as for `embed`.
            pooling: `"mean"`, `"max"`, or `"first_last"`: what each language model knows at the end of its reading,
                the forward half of the last word beside the backward half of the first.
            layers: as for `embed`.
            batch_size: as for `embed`.

        Returns:
            (sentences, dim), or (sentences, layers, dim) for `layers="all"`.
        """
        checked_pooling(pooling)
        vectors = [pooled(array, pooling) for array in self.stream(sentences, layers=layers, batch_size=batch_size)]
        return np.stack(vectors) if vectors else pooled(self._reader.empty(layers), pooling)[None][:0]

    def embed_batches(
        self, sentences: Sequence[Sequence[Word]], *, layers: Layers = "average", batch_size: int | None = None
    ) -> Iterator[tuple[list[int], list[np.ndarray]]]:
        """Positions and arrays of tokenised sentences batch by batch, in the order in which they are computed.

        For jobs that store each batch and show progress. A sentence without words may be left out. In `carry` mode
        the caller sees to it that no other thread uses this Embedder.
        """
        budget = token_budget(self.device.type)
        if self.state == "carry":
            batches = batches_in_order(len(sentences), batch_size=batch_size or CARRY_BATCH_SIZE)
        else:
            batches = batches_by_length([len(words) for words in sentences], budget=budget, batch_size=batch_size)
        for places in batches:
            rows = [sentences[place] for place in places]
            arrays, after = self._reader.read(rows, layers, self._state_before(len(rows)))
            if self.state == "carry":
                self._carried = joined_rows(after, rows_from(self._carried, len(rows)))
            yield places, arrays

    def reset_state(self) -> None:
        """Forget what `carry` mode has read: every row starts from zero again."""
        with self._own_state():
            self._carried = None

    def clear_cache(self) -> None:
        """Forget every word vector; needed after the model's weights have changed."""
        self._reader.clear_cache()

    @property
    def carried_state(self) -> BilmState | None:
        """What `carry` mode remembers of each row; `None` before the first batch."""
        return self._carried

    @carried_state.setter
    def carried_state(self, state: BilmState | None) -> None:
        self._carried = state

    def _checked(
        self, sentences: Iterable[Sentence], layers: Layers, batch_size: int | None
    ) -> tuple[Layers, int | None]:
        if isinstance(sentences, (str, bytes)):
            raise InputError("expected a list of sentences, found a single string: put it into a list, [sentence]")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: expected 1 or more sentences, or None")
        return checked_layers(layers, self.num_layers), batch_size

    def _words_of(self, sentence: Sentence, place: int) -> Sequence[Word]:
        if isinstance(sentence, str):
            return [word.text for part in self.segmenter(sentence) for word in part]
        if not isinstance(sentence, (list, tuple)):
            raise InputError(
                f"sentence {place} is a {type(sentence).__name__}: expected a string (one sentence) or a list of words"
            )
        legal = (str, int, np.integer) if self._reads_ids else str
        for word in sentence:
            if not isinstance(word, legal):
                raise InputError(
                    f"sentence {place} has the word {word!r} of type {type(word).__name__}: "
                    f"expected {'row numbers or strings' if self._reads_ids else 'strings'}"
                )
        return sentence

    @property
    def _reads_ids(self) -> bool:
        """Whether words may be row numbers; a word-input model with a vocabulary refuses them itself."""
        return self.elmo.config.characters is None

    def _stream(self, sentences: Iterable[Sentence], layers: Layers, batch_size: int | None) -> Iterator[np.ndarray]:
        words = (self._words_of(sentence, place) for place, sentence in enumerate(sentences))
        whole_batches = (batch_size or CARRY_BATCH_SIZE) if self.state == "carry" else None
        budget = token_budget(self.device.type)
        with self._own_state():
            for window in windows(words, budget=budget, batch_size=batch_size, whole_batches=whole_batches):
                yield from self._in_order(window, layers, batch_size)

    def _in_order(
        self, sentences: Sequence[Sequence[Word]], layers: Layers, batch_size: int | None
    ) -> list[np.ndarray]:
        results = [self._reader.empty(layers) if not words else None for words in sentences]
        for places, arrays in self.embed_batches(sentences, layers=layers, batch_size=batch_size):
            for place, array in zip(places, arrays, strict=True):
                results[place] = array
        return [array for array in results if array is not None]

    def _own_state(self) -> AbstractContextManager[None]:
        return self._sole_use() if self.state == "carry" else nullcontext()

    @contextmanager
    def _sole_use(self) -> Iterator[None]:
        if not self._carry_lock.acquire(blocking=False):
            raise InputError(
                'this Embedder carries state (state="carry") and another call or unfinished stream is using it: '
                "wait for that, or give each thread its own Embedder"
            )
        try:
            yield
        finally:
            self._carry_lock.release()

    def _state_before(self, num_rows: int) -> BilmState | None:
        if self._canonical is not None:
            return self._canonical.repeat(num_rows)
        return None if self._carried is None else self._carried.rows(num_rows)
