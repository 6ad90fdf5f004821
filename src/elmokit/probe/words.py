"""Nearest words: by spelling over a vocabulary, and by each layer in context over a text.

The first says what the characters alone have taught: a word that training never saw – *doggy* – should lie near its
kin. It compares what the word encoder knows before its last linear map, each feature scaled to the same spread: that
map keeps what predicts the neighbours of a word, its ending above all, and *doggy* is *foggy* behind it (LOG.md).
The second says what a layer takes for the same use of a word, as in the paper's Table 4.

Shapes: V words, F features of a word, N words asked about, D width of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elmokit import io
from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import scale_to_unit_length
from elmokit.errors import InputError
from elmokit.probe.cosines import nearest
from elmokit.probe.frozen import freeze, span_every_word
from elmokit.probe.sources import ElmoSource
from elmokit.waits import show_progress

__all__ = ["Neighbour", "Use", "compare_spellings", "model_vocabulary", "nearest_uses", "nearest_words"]

AT_ONCE = 4096  # words that are encoded at once
SAMPLE, FEWEST = 8192, 100  # words from which the spread of the features is taken; fewer than these tell none
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
    embedder: Embedder,
    words: Sequence[str],
    vocabulary: Sequence[str],
    *,
    top: int = 10,
    usual: Sequence[str] = (),
) -> dict[str, list[Neighbour]]:
    """The words of a vocabulary that are nearest to each word by their spelling.

    Arguments:
        embedder: the model.
        words: to ask about; they need not be in the vocabulary.
        vocabulary: to search; the word itself, in any case, is passed over.
        top: how many.
        usual: words of the language, from which the spread of each feature is taken; the vocabulary if none are given.

    Example:
        >>> from elmokit import Elmo, ElmoConfig
        >>> embedder = Embedder(Elmo.random(ElmoConfig.tiny()))
        >>> [near.word for near in nearest_words(embedder, ["Dog"], ["dog", "dogs"])["Dog"]]
        ['dogs']
    """
    if not vocabulary:
        raise InputError("expected words to search, found none: give a list of words")
    cosines_NV = compare_spellings(embedder, words, vocabulary, usual=usual or vocabulary)
    found = {}
    for word, cosines_V in zip(words, cosines_NV, strict=True):
        others = [place for place, other in enumerate(vocabulary) if other.casefold() != word.casefold()]
        best = sorted(others, key=lambda place: -cosines_V[place])[:top]  # noqa: B023 - called at once
        found[word] = [Neighbour(vocabulary[place], float(cosines_V[place])) for place in best]
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


def compare_spellings(
    embedder: Embedder, words: Sequence[str], vocabulary: Sequence[str], *, usual: Sequence[str]
) -> np.ndarray:
    """The cosine (N, V) of each word with each word of a vocabulary, by features scaled to their spread over others."""
    sample_VF = _read_features(embedder, usual[:: -(-len(usual) // SAMPLE)])  # frequent and rare words
    mean_F, spread_F = (sample_VF.mean(0), sample_VF.std(0)) if len(sample_VF) >= FEWEST else (0.0, np.ones(1))

    def scale(features: np.ndarray) -> np.ndarray:
        return scale_to_unit_length((features - mean_F) / np.where(spread_F > 0, spread_F, 1))

    asked_NF, parts = scale(_read_features(embedder, words)), []
    with show_progress(desc="reading words", total=len(vocabulary), unit=" words", leave=False) as bar:
        for begin in range(0, len(vocabulary), AT_ONCE):
            listed_VF = scale(_read_features(embedder, vocabulary[begin : begin + AT_ONCE]))
            parts.append(asked_NF @ listed_VF.T)
            bar.update(len(listed_VF))
    return np.concatenate(parts, axis=1)


@torch.inference_mode()
def _read_features(embedder: Embedder, words: Sequence[str]) -> np.ndarray:
    elmo = embedder.elmo
    ids_NC = torch.from_numpy(elmo.scheme.word_ids(words))
    return elmo.encoder.features(ids_NC.to(elmo.device)).float().cpu().numpy()
