"""Sentences of words become a text that the biLM reads: distinct words, their vectors, boundaries around sentences.

Arrives: sentences, each a string or a list of words. Leaves: a `BoundedText`, in which each distinct word stands once,
with its vector from the cache or newly encoded. `BiLM.read` does the rest.

Shapes: B sentences, U distinct words, C columns of ids, P width of a direction.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.devices import move_to_device
from elmokit.engines import torch_alone
from elmokit.errors import InputError, describe
from elmokit.model import Elmo
from elmokit.nn.packing import NUM_BOUNDARIES, BoundedText
from elmokit.reading.cache import CACHE_WORDS, Token, WordCache
from elmokit.text.scripts import ScriptWatch
from elmokit.text.segmenters import Segmenter

__all__ = ["BEGIN", "END", "Sentence", "StateMode", "TextEncoder", "split_sentence"]

Sentence = str | Sequence[Token]
StateMode = Literal["zero", "carry", "canonical"]  # what the model remembers at the start of a sentence

log = logging.getLogger(__name__)

BEGIN, END = range(NUM_BOUNDARIES)  # rows of the boundaries among the vectors of a text; words follow


class _Engines(NamedTuple):
    """Whether a result has the same bits whatever is computed beside it, which the C++ kernels promise."""

    words_are_invariant: bool
    layers_are_invariant: bool


class TextEncoder:
    """The word encoder of a model with a cache before it.

    Arguments:
        elmo: the model, in evaluation mode.
        cache_words: words whose context-free vectors are remembered; 0 for none.

    Example:
        >>> from elmokit import Elmo, ElmoConfig
        >>> text = TextEncoder(Elmo.random(ElmoConfig.tiny())).encode([["a", "b", "a"], ["b"]])
        >>> text.vectors_UP.shape, text.words_T.tolist(), text.lengths_B.tolist()
        (torch.Size([4, 64]), [0, 2, 3, 2, 1, 0, 3, 1], [5, 3])
    """

    def __init__(self, elmo: Elmo, *, cache_words: int = CACHE_WORDS) -> None:
        self.elmo = elmo
        self.cache = WordCache(cache_words)
        self._boundaries_2P: Tensor | None = None
        self._engines: tuple[object, _Engines | None] = None, None
        self._watch = ScriptWatch(elmo.scripts) if elmo.scripts else None

    def encode(self, sentences: Sequence[Sequence[Token]]) -> BoundedText:
        """The sentences one after the other, each as `<S> w1 … wn </S>`; a sentence may be without words."""
        distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
        numbers = dict(zip(distinct, range(NUM_BOUNDARIES, NUM_BOUNDARIES + len(distinct)), strict=True))
        text = []  # as `add_boundaries` would make it of arrays, which takes one sentence 0.05 ms longer
        for words in sentences:
            text += [BEGIN, *map(numbers.__getitem__, words), END]
        words_T = np.array(text, np.int64)
        lengths_B = np.array([len(words) + NUM_BOUNDARIES for words in sentences], np.int64)
        starts_B = lengths_B.cumsum() - lengths_B
        # Last: the kernels leave little of Python in the caches, and what follows them takes twice as long.
        return BoundedText(self.encode_distinct(distinct), words_T, starts_B, lengths_B)

    @torch.inference_mode()
    def encode_distinct(self, words: Sequence[Token]) -> Tensor:
        """The vectors of distinct words, those of the boundaries before them: word u has row `NUM_BOUNDARIES` + u."""
        if self._watch is not None:
            self._watch_scripts(self._watch, words)
        boundaries_2P = self._encode_boundaries()
        return torch.cat([boundaries_2P, self.cache.get_vectors(words, self._encode_words)]) if words else boundaries_2P

    def clear_cache(self) -> None:
        """Forget every word vector, those of the sentence boundaries included."""
        self.cache.clear()
        self._boundaries_2P = None

    def spare_threads(self) -> AbstractContextManager[None]:
        """Keep torch's own threads out of the way where nearly all is computed by C++ kernels with theirs, or by a GPU.

        Beside a GPU they would spin on the cores of the processes that split text: a job on an H200 makes 1.16 million
        words per second without them, and 0.6 with them (benchmarks/2026-11-18-embedding-on-an-h200.md).
        """
        if torch.get_num_threads() == 1:
            return nullcontext()
        is_spared = self.elmo.device.type != "cpu" or all(self._ask_engines())
        return torch_alone() if is_spared else nullcontext()

    def __getstate__(self) -> dict[str, object]:
        # What was computed here is computed again where the copy runs.
        return {**self.__dict__, "_boundaries_2P": None, "_engines": (None, None)}

    def _ask_engines(self) -> _Engines:
        """What the engines of this model promise; asked once per device, dtype and precision."""
        bilm, encoder = self.elmo.bilm, self.elmo.encoder
        situation = *bilm.place, bilm.precision
        known_for, engines = self._engines
        if engines is None or known_for != situation:
            with torch.no_grad():
                engines = _Engines(encoder.is_batch_invariant, bilm.engine.is_batch_invariant)
            self._engines = situation, engines
        return engines

    def _watch_scripts(self, watch: ScriptWatch, words: Sequence[Token]) -> None:
        foreign = watch.look([word for word in words if isinstance(word, str)])
        if watch.is_done:
            self._watch = None
        if foreign is not None:
            log.warning(
                "most of this text is written in the script %s, but the model was trained on %s: its vectors and "
                "predictions mean little here; `elmo info` lists the models that are there, `elmo train` makes one",
                foreign,
                " and ".join(watch.scripts),
            )

    def _encode_boundaries(self) -> Tensor:
        boundaries_2P = self._boundaries_2P
        if boundaries_2P is None:
            boundaries_2P = self._boundaries_2P = self.elmo.encode_words(torch.stack(self.elmo.boundary_ids))
        return boundaries_2P

    def _encode_words(self, words: Sequence[Token]) -> Tensor:
        elmo = self.elmo
        ids_UC = torch.from_numpy(elmo.scheme.word_ids(words))  # type: ignore[arg-type]
        if self._ask_engines().words_are_invariant:
            return elmo.encode_words(ids_UC)
        # Words of similar length go through the convolutions together, which then skip the columns no word reaches.
        order_U = np.argsort([len(str(word)) for word in words], kind="stable")
        sorted_UP = elmo.encode_words(ids_UC[torch.from_numpy(order_U)])
        return sorted_UP[move_to_device(order_U.argsort(), elmo.device)]


def split_sentence(sentence: Sentence, segmenter: Segmenter, *, name: str, takes_rows: bool = False) -> Sequence[Token]:
    """The words of one sentence: a string is split, a list or an array of one dimension is checked and taken as it is.

    Arguments:
        sentence: what the caller gave.
        segmenter: splits a string; all its sentences count as one.
        name: what an error calls the sentence.
        takes_rows: whether a word may be a row number, as in a word-input model.
    """
    if isinstance(sentence, str):
        return [word.text for part in segmenter(sentence) for word in part]
    if isinstance(sentence, np.ndarray) and sentence.ndim == 1:  # as tables give lists of words
        sentence = sentence.tolist()
    if not isinstance(sentence, (list, tuple)):
        is_missing = isinstance(sentence, float) and math.isnan(sentence)  # in a column of pandas
        found = "a missing value (NaN): drop it first" if is_missing else describe(sentence)
        raise InputError(f"{name}: expected a string or a list of words, found {found}")
    legal = (str, int, np.integer) if takes_rows else str
    for word in sentence:
        if not isinstance(word, legal):
            raise InputError(
                f"{name} has the word {word!r} of type {type(word).__name__}: "
                f"expected {'row numbers or strings' if takes_rows else 'strings'}"
            )
    return sentence
