"""Embedder: sentences in, numpy arrays out, in input order; what most people call.

Arrives: sentences, each a string (split into words here) or a list of words (taken as it is). Leaves: one float32 array
per sentence. On the way: sentences of similar length share a batch; the words of a batch get their vectors
(`reading/encoder.py`), both language models read them (`nn/bilm.py`), and the layers asked for are taken out
(`layers.py`). A vector does not depend on its company (≤ 1e-5), except in `carry` mode, whose purpose that is.

Shapes: K layers asked for, N words of a batch with boundaries, P width of a direction, D = 2P.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, nullcontext
from functools import partial
from os import PathLike
from typing import Literal, get_args, overload

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from elmokit.devices import find_device
from elmokit.embed.batches import ReadRows, Result, Row, embed_sentences, read_in_halves
from elmokit.embed.documents import Document, make_document, split_text
from elmokit.embed.inputs import Vectors, check_sentences, find_vectors
from elmokit.embed.layers import (
    Layers,
    Pooling,
    check_layers,
    check_pooling,
    compute_cosines,
    pool_words,
    scale_to_unit_length,
)
from elmokit.engines.precision import PrecisionName, check_precision
from elmokit.errors import InputError, describe
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState
from elmokit.nn.packing import NUM_BOUNDARIES
from elmokit.reading.batching import (
    CARRY_BATCH_SIZE,
    batch_by_length,
    choose_budget,
    split_into_windows,
)
from elmokit.reading.cache import CACHE_WORDS, Token
from elmokit.reading.encoder import Sentence, StateMode, TextEncoder, split_sentence
from elmokit.text.segmenters import RuleSegmenter, Segmenter

__all__ = ["Embedder"]


class Embedder:
    """A model that turns sentences into vectors.

    In `zero` and `canonical` mode several threads may call one Embedder. In `carry` mode one thread at a time may:
    batches of 64 sentences (unless told) are taken in input order, row r of a batch continues row r of the batch
    before, and the state stays here until `reset_state()`. An Embedder can be pickled and copied, with the state that
    it carries and without the words that it remembers.

    Arguments:
        elmo: the source of a model (a model's name, a folder, a `.zip` or a hub id), or an `Elmo`, which is put into
            evaluation mode and belongs to the Embedder. After changing its weights, call `clear_cache()`.
        device: where to compute; if not given, where the model already is, and a source on the GPU if there is one.
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
        elmo: Elmo | str | PathLike[str],
        *,
        device: str | torch.device | None = None,
        precision: PrecisionName | None = None,
        state: StateMode = "zero",
        segmenter: Segmenter | None = None,
        cache_words: int = CACHE_WORDS,
    ) -> None:
        if not isinstance(elmo, (Elmo, str, PathLike)):
            raise InputError(
                f"expected the name or path of a model, or an Elmo, found {describe(elmo)}: "
                'for example Embedder("en-small")'
            )
        if state not in get_args(StateMode):
            raise InputError(f"asked for state={state!r}: use one of {', '.join(map(repr, get_args(StateMode)))}")
        if cache_words < 0:
            raise InputError(f"cache_words is {cache_words}: expected 0 (no cache) or more")
        self.source = "unnamed"
        if isinstance(elmo, Elmo):
            place = elmo.device if device is None else torch.device(device)
        else:
            device = place = find_device("cpu" if device is None and precision == "int8" else device)
            self.source = str(elmo)
        if precision is not None:
            check_precision(precision, place)  # before a model is loaded in vain
        elmo = elmo if isinstance(elmo, Elmo) else Elmo.from_pretrained(elmo)
        self.elmo = elmo.eval() if device is None else elmo.eval().to(device)
        if precision is not None:
            self.elmo.set_precision(precision)
        self.state: StateMode = state
        self.segmenter = RuleSegmenter() if segmenter is None else segmenter
        self.encoder = TextEncoder(self.elmo, cache_words=cache_words)
        self.carried_state: BilmState | None = None  # of each row in `carry` mode, before the next batch
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
        """The Embedder of a source: a model's name, a folder, a `.zip` or a hub id; on the GPU if there is one."""
        return cls(
            source, device=device, precision=precision, state=state, segmenter=segmenter, cache_words=cache_words
        )

    def __repr__(self) -> str:
        return (
            f"Embedder({self.source!r}, dim={self.dim}, layers={self.num_layers}, device={str(self.device)!r}, "
            f"precision={self.precision!r}, state={self.state!r})"
        )

    @property
    def dim(self) -> int:
        """Width of a word vector."""
        return self.elmo.config.dim

    @property
    def num_layers(self) -> int:
        """Layers per word, the context-free one included."""
        return self.elmo.config.num_layers

    @property
    def cache_words(self) -> int:
        """Words whose context-free vectors are remembered at most."""
        return self.encoder.cache.capacity

    @property
    def precision(self) -> str:
        """How exactly the model computes."""
        return self.elmo.precision

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.elmo.device

    @overload
    def embed(
        self,
        sentences: str,
        *,
        layers: Layers = ...,
        batch_size: int | None = ...,
        progress: bool = ...,
        as_tensor: Literal[False] = ...,
    ) -> np.ndarray: ...

    @overload
    def embed(
        self,
        sentences: str,
        *,
        layers: Layers = ...,
        batch_size: int | None = ...,
        progress: bool = ...,
        as_tensor: Literal[True],
    ) -> Tensor: ...

    @overload
    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = ...,
        batch_size: int | None = ...,
        progress: bool = ...,
        as_tensor: Literal[False] = ...,
    ) -> list[np.ndarray]: ...

    @overload
    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: Layers = ...,
        batch_size: int | None = ...,
        progress: bool = ...,
        as_tensor: Literal[True],
    ) -> list[Tensor]: ...

    def embed(
        self,
        sentences: str | Iterable[Sentence],
        *,
        layers: Layers = "average",
        batch_size: int | None = None,
        progress: bool = False,
        as_tensor: bool = False,
    ) -> np.ndarray | Tensor | list[np.ndarray] | list[Tensor]:
        """Word vectors of sentences, in input order.

        Arguments:
            sentences: each a string (ONE sentence, split into words by the segmenter) or a list of words, taken as
                it is. A sentence without words is legal. A string in place of the list is one sentence.
            layers: `"average"`, `"top"`, `"all"`, `"mix"` (the model's own, else the average) or a layer number. In
                `en-small` the average is never far from the best layer, and `"top"` tells senses apart best.
            batch_size: sentences run together; unset, batches are filled up to a number of words.
            progress: show a progress bar on standard error.
            as_tensor: give torch tensors on the model's device in place of numpy arrays.

        Returns:
            One float32 array per sentence: (words, dim), or (layers, words, dim) for `"all"`. For a single string
            that array alone.
        """
        layers = self._check(sentences, layers, batch_size)
        listed = [sentences] if isinstance(sentences, str) else sentences
        words = [self._split(sentence, place) for place, sentence in enumerate(listed)]
        bar = tqdm(total=len(words), unit=" sentences") if progress else None
        with self._claim_state(), nullcontext() if bar is None else bar:
            arrays = self._embed_in_order(words, layers, batch_size, bar)
        vectors = [self._make_tensor(array) for array in arrays] if as_tensor else arrays
        return vectors[0] if isinstance(sentences, str) else vectors

    def stream(
        self, sentences: Iterable[Sentence], *, layers: Layers = "average", batch_size: int | None = None
    ) -> Iterator[np.ndarray]:
        """Word vectors of any iterable of sentences, one array after the other, in input order.

        Memory stays constant however many sentences come: they are read ahead by a few batches only. Arguments and
        arrays are those of `embed`. In `carry` mode the state belongs to the stream until it ends or is closed.
        """
        layers = self._check(sentences, layers, batch_size)
        if isinstance(sentences, str):
            raise InputError("expected a list of sentences, found a single string: put it into a list, [sentence]")
        return self._stream(sentences, layers, batch_size)

    @overload
    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        pooling: Pooling = ...,
        layers: Layers = ...,
        batch_size: int | None = ...,
        normalize: bool = ...,
        progress: bool = ...,
        as_tensor: Literal[False] = ...,
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        pooling: Pooling = ...,
        layers: Layers = ...,
        batch_size: int | None = ...,
        normalize: bool = ...,
        progress: bool = ...,
        as_tensor: Literal[True],
    ) -> Tensor: ...

    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        pooling: Pooling = "mean",
        layers: Layers = "average",
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        as_tensor: bool = False,
    ) -> np.ndarray | Tensor:
        """One vector per sentence, pooled over its own words and nothing else; zeros for a sentence without words.

        Arguments:
            sentences: as for `embed`.
            pooling: `"mean"`, `"max"`, or `"first_last"`: what each language model knows at the end of its reading,
                the forward half of the last word beside the backward half of the first. That serves a classifier; its
                cosines follow people's ratings much less than those of `"mean"`.
            layers: as for `embed`.
            batch_size: as for `embed`.
            normalize: scale each vector to length 1; zeros stay zeros.
            progress: as for `embed`.
            as_tensor: as for `embed`.

        Returns:
            (sentences, dim), or (sentences, layers, dim) for `layers="all"`. For a single string (dim,) or
            (layers, dim).
        """
        check_pooling(pooling)
        layers = self._check(sentences, layers, batch_size)
        listed = [sentences] if isinstance(sentences, str) else sentences
        total = len(listed) if isinstance(listed, Sized) else None
        arrays = self._stream(listed, layers, batch_size)
        with tqdm(arrays, total=total, unit=" sentences", disable=not progress) as arrays:
            pooled = [pool_words(words_WD, pooling) for words_WD in arrays]
        shape = (0, self.num_layers, self.dim) if layers == "all" else (0, self.dim)
        vectors = np.stack(pooled) if pooled else np.zeros(shape, np.float32)
        if isinstance(sentences, str):
            vectors = vectors[0]
        if normalize:
            vectors = scale_to_unit_length(vectors)
        return self._make_tensor(vectors) if as_tensor else vectors

    @overload
    def read(self, texts: str, *, layers: Layers = ..., progress: bool = ...) -> Document: ...

    @overload
    def read(self, texts: Iterable[Sentence], *, layers: Layers = ..., progress: bool = ...) -> list[Document]: ...

    def read(
        self, texts: str | Iterable[Sentence], *, layers: Layers = "average", progress: bool = False
    ) -> Document | list[Document]:
        """Words, their places and their vectors, for texts of any number of sentences.

        The segmenter splits each text into sentences, and each sentence is read alone: a `Document` has the vectors
        that `embed` gives its sentences.

        Arguments:
            texts: each a string, or a list of words, which is one sentence and has no places. A string in place of
                the list is one text.
            layers: as for `embed`.
            progress: as for `embed`.

        Returns:
            One `Document` per text; for a single string that alone.
        """
        layers = self._check(texts, layers, None)
        listed = [texts] if isinstance(texts, str) else list(texts)
        drafts = [
            split_text(text, self.segmenter, name=f"text {place}", takes_rows=self._takes_rows)
            for place, text in enumerate(listed)
        ]
        sentences = [words for split, _ in drafts for words in split]
        arrays = iter(self.embed(sentences, layers=layers, progress=progress))
        empty = np.zeros((self.num_layers, 0, self.dim) if layers == "all" else (0, self.dim), np.float32)
        documents = []
        for text, (split, spans) in zip(listed, drafts, strict=True):
            vectors = np.concatenate([empty, *(next(arrays) for _ in split)], axis=-2)
            documents.append(make_document(text, split, spans, vectors))
        return documents[0] if isinstance(texts, str) else documents

    def similarity(
        self,
        first: str | Iterable[Sentence] | Vectors,
        second: str | Iterable[Sentence] | Vectors,
        *,
        pooling: Pooling = "mean",
        layers: Layers = "average",
    ) -> np.ndarray:
        """The cosine of every one of the first with every one of the second; 0 where a vector is all zeros.

        Arguments:
            first: sentences as for `encode`, or vectors: an array or tensor (n, width) or (width,), or a list of
                arrays (width,).
            second: likewise.
            pooling: of sentences, as for `encode`; `"mean"` is the best for cosines, `"first_last"` by far the worst.
            layers: of sentences, as for `embed`, except `"all"`.

        Returns:
            (first, second); a single string or vector counts as one.
        """
        rows = []
        for given in (first, second):
            vectors = find_vectors(given)
            if vectors is None:
                vectors = self.encode(given, pooling=pooling, layers=layers)  # type: ignore[arg-type]
            rows.append(vectors)
        return compute_cosines(*rows)

    def embed_batches(
        self, sentences: Sequence[Sequence[Token]], *, layers: Layers = "average", batch_size: int | None = None
    ) -> Iterator[tuple[list[int], list[np.ndarray]]]:
        """Positions and arrays of tokenised sentences batch by batch, in the order in which they are computed.

        For jobs that store each batch and show progress. In `carry` mode the caller sees to it that no other thread
        uses this Embedder.
        """
        read = partial(embed_sentences, self.encoder, layers, keeps_state=self.state == "carry")
        for places in self.plan_batches([len(words) for words in sentences], batch_size):
            yield places, self.read_batch(read, [sentences[place] for place in places], count_words=len)

    def plan_batches(self, lengths: Sequence[int], batch_size: int | None) -> Iterator[list[int]]:
        """Which of the sentences of these lengths run together, batch by batch."""
        if self.state == "carry":
            size, everyone = batch_size or CARRY_BATCH_SIZE, list(range(len(lengths)))
            return (everyone[start : start + size] for start in range(0, len(everyone), size))
        budget = None if batch_size else choose_budget(self.device.type)
        lengths = [length + NUM_BOUNDARIES for length in lengths]
        return batch_by_length(lengths, budget=budget, batch_size=batch_size)

    def read_batch(self, read: ReadRows[Row, Result], rows: Sequence[Row], *, count_words: Callable) -> list[Result]:
        """What `read` makes of the rows of a batch and the state that they start from (`batches.read_in_halves`)."""
        results, after = read_in_halves(self.encoder, read, rows, self._start_state(len(rows)), count_words=count_words)
        if self.state == "carry":
            waiting = None if self.carried_state is None else self.carried_state.split(len(rows))[1]
            self.carried_state = after if waiting is None else after.join(waiting)
        return results

    def reset_state(self) -> None:
        """Forget what `carry` mode has read: every row starts from zero again."""
        with self._claim_state():
            self.carried_state = None

    def clear_cache(self) -> None:
        """Forget every word vector; needed after the model's weights have changed."""
        self.encoder.clear_cache()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_carry_lock"}

    def __setstate__(self, values: dict[str, object]) -> None:
        self.__dict__.update(values)
        self._carry_lock = threading.Lock()

    def _check(self, sentences: Iterable[Sentence], layers: Layers, batch_size: int | None) -> Layers:
        check_sentences(sentences)
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: expected 1 or more sentences, or None")
        return check_layers(layers, self.num_layers)

    @property
    def _takes_rows(self) -> bool:
        return self.elmo.config.characters is None  # a word-input model with a vocabulary refuses row numbers itself

    def _split(self, sentence: Sentence, place: int) -> Sequence[Token]:
        return split_sentence(sentence, self.segmenter, name=f"sentence {place}", takes_rows=self._takes_rows)

    def _stream(self, sentences: Iterable[Sentence], layers: Layers, batch_size: int | None) -> Iterator[np.ndarray]:
        words = (self._split(sentence, place) for place, sentence in enumerate(sentences))
        budget = choose_budget(self.device.type)
        if self.state == "carry":
            windows = split_into_windows(words, budget=budget, batch_size=batch_size or CARRY_BATCH_SIZE, num_batches=1)
        else:
            windows = split_into_windows(words, budget=budget, batch_size=batch_size)
        with self._claim_state():
            for window in windows:
                yield from self._embed_in_order(window, layers, batch_size)

    def _embed_in_order(
        self, sentences: Sequence[Sequence[Token]], layers: Layers, batch_size: int | None, bar: tqdm | None = None
    ) -> list[np.ndarray]:
        found: dict[int, np.ndarray] = {}
        for places, arrays in self.embed_batches(sentences, layers=layers, batch_size=batch_size):
            found.update(zip(places, arrays, strict=True))
            if bar is not None:
                bar.update(len(places))
        return [found[place] for place in range(len(sentences))]

    def _make_tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _start_state(self, num_rows: int) -> BilmState | None:
        if self._canonical is not None:
            return self._canonical.repeat(num_rows)
        return None if self.carried_state is None else self.carried_state.resize(num_rows)

    @contextmanager
    def _claim_state(self) -> Iterator[None]:
        """Keep other calls away from the state that is carried; without one, nobody is kept away."""
        if self.state != "carry":
            yield
            return
        if not self._carry_lock.acquire(blocking=False):
            raise InputError(
                'this Embedder carries state (state="carry") and another call or unfinished stream is using it: '
                "wait for that, or give each thread its own Embedder"
            )
        try:
            yield
        finally:
            self._carry_lock.release()
