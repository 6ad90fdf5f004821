"""Nearest words: by the character layer over a vocabulary, and by each layer in context over a text.

The first says what the spelling alone has taught: a word that training never saw – *doggy* – should lie near its kin.
The second says what a layer takes for the same use of a word, as in the paper's Table 4.

Shapes: V words, N places in a text, P and D widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elmokit import io
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.probe.cosines import nearest
from elmokit.probe.frozen import freeze, span_every_word
from elmokit.probe.sources import ElmoSource
from elmokit.waits import show_progress

__all__ = ["Neighbour", "Use", "model_vocabulary", "nearest_uses", "nearest_words"]

AT_ONCE = 4096  # words that are encoded at once
# Words of a vocabulary that are no words: the boundaries and the unknown one.
MARKERS = frozenset(["<S>", "</S>", "<UNK>", "<unk>", "<s>", "</s>", "<pad>", "<bos>", "<eos>", "<oov>"])


class Neighbour(NamedTuple):
    """A word and its cosine with the word asked about."""

    word: str
    cosine: float


class Use(NamedTuple):
    """A word where it stands in a text, and the cosine of its vector with that of the word asked about."""

    words: list[str]
    place: int
    cosine: float


def model_vocabulary(source: str) -> list[str]:
    """The words that a model was trained to predict or to read, markers left out; empty where no list came with it."""
    checkpoint = io.load(source, softmax="shape")
    words = checkpoint.output_words or checkpoint.vocabulary or []
    return [word for word in words if word not in MARKERS]


def nearest_words(
    embedder: Embedder, words: Sequence[str], vocabulary: Sequence[str], *, top: int = 10
) -> dict[str, list[Neighbour]]:
    """The words of a vocabulary that are nearest to each word by the layer without context.

    Arguments:
        embedder: the model.
        words: to ask about; they need not be in the vocabulary.
        vocabulary: to search; the word itself, in any case, is passed over.
        top: how many.

    Example:
        >>> from elmokit import Elmo, ElmoConfig
        >>> embedder = Embedder(Elmo.random(ElmoConfig.tiny()))
        >>> [near.word for near in nearest_words(embedder, ["Dog"], ["dog", "dogs"])["Dog"]]
        ['dogs']
    """
    if not vocabulary:
        raise InputError("expected words to search, found none: give a list of words")
    listed_VP, asked_NP = (_encode(embedder, list(part)) for part in (vocabulary, words))
    found = {}
    for word, vector_P in zip(words, asked_NP, strict=True):
        same = {place for place, other in enumerate(vocabulary) if other.casefold() == word.casefold()}
        best = nearest(vector_P, listed_VP, top=top + len(same))
        found[word] = [Neighbour(vocabulary[place], cosine) for place, cosine in best if place not in same][:top]
    return found


def nearest_uses(
    embedder: Embedder,
    sentence: Sequence[str],
    place: int,
    text: Sequence[Sequence[str]],
    *,
    folder: Path,
    top: int = 5,
) -> dict[str, list[Use]]:
    """For each layer the places of a text whose vectors are nearest to that of a word in its sentence.

    Arguments:
        embedder: the model.
        sentence: the words of the sentence asked about.
        place: which of them.
        text: sentences to search; the sentence itself is passed over.
        folder: where vectors are kept.
        top: how many.
    """
    sentences = [list(words) for words in text if list(words) != list(sentence)]
    spans = span_every_word(sentences)
    if not spans:
        raise InputError("expected a text with other sentences to search, found none")
    source = ElmoSource(embedder)
    frozen = freeze(source, sentences, spans, folder=folder)
    asked_LD = source.layers([list(sentence)])[0][:, place]
    found = {}
    for mix in source.mixes:
        query_D = np.array(mix.factors, np.float32) @ asked_LD
        best = nearest(query_D, frozen.mix(mix), top=top)
        found[mix.name] = [Use(sentences[spans[at].sentence], spans[at].start, cosine) for at, cosine in best]
    return found


@torch.inference_mode()
def _encode(embedder: Embedder, words: list[str]) -> np.ndarray:
    elmo = embedder.elmo
    parts = []
    with show_progress(desc="reading words", total=len(words), unit=" words", leave=False) as bar:
        for begin in range(0, max(1, len(words)), AT_ONCE):
            ids_NC = torch.from_numpy(elmo.scheme.word_ids(words[begin : begin + AT_ONCE]))
            parts.append(elmo.encode_words(ids_NC.to(elmo.device)).float().cpu().numpy())
            bar.update(len(ids_NC))
    return np.concatenate(parts)
