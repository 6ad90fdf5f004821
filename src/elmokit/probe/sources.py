"""Where vectors come from: the layers of an ELMo, or word vectors without context.

Sentences in words arrive; one array (layers, words, dim) per sentence leaves, whatever the source. A source also names
its mixes: the weighted sums of its layers that a probe compares, one row of its table each.

Shapes: L layers, W words, D width, V words of a table.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.text.files import PACKED_SUFFIXES
from elmokit.text.word_vectors import read_vectors
from elmokit.version import find_version

__all__ = ["ElmoSource", "LayerMix", "StaticSource", "VectorSource", "single_layers"]


class LayerMix(NamedTuple):
    """A weighted sum of layers: its name in tables, and the factor of each layer."""

    name: str
    factors: tuple[float, ...]


class VectorSource(ABC):
    """Something that gives each word of a sentence one vector per layer.

    Arguments:
        mixes: what probes compare.
        dim: D, the width of a vector.
        key: different whenever the vectors could be; files of vectors are named after it.
    """

    def __init__(self, *, mixes: Sequence[LayerMix], dim: int, key: str) -> None:
        self.mixes = list(mixes)
        self.dim = dim
        self.key = key

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.mixes[0].factors)

    @abstractmethod
    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """One array (L, W, D) per sentence, in the same order."""


def single_layers(names: Sequence[str]) -> list[LayerMix]:
    """Each layer alone.

    Example:
        >>> single_layers(["layer 0", "layer 1"])[1]
        LayerMix(name='layer 1', factors=(0.0, 1.0))
    """
    return [LayerMix(name, tuple(float(one == other) for other in range(len(names)))) for one, name in enumerate(names)]


class ElmoSource(VectorSource):
    """The layers of an ELMo, their average, and the model's own mix where it has one.

    Example:
        >>> from elmokit import Elmo, ElmoConfig
        >>> source = ElmoSource(Embedder(Elmo.random(ElmoConfig.tiny())))
        >>> [mix.name for mix in source.mixes]
        ['layer 0 (characters)', 'layer 1', 'layer 2', 'average']
    """

    def __init__(self, embedder: Embedder) -> None:
        if embedder.state == "carry":
            raise InputError('probes need the same vectors for the same sentence: use state="zero" or "canonical"')
        self.embedder = embedder
        num_layers = embedder.num_layers
        first = "words" if embedder.elmo.config.characters is None else "characters"
        mixes = single_layers([f"layer 0 ({first})", *(f"layer {number}" for number in range(1, num_layers))])
        mixes.append(LayerMix("average", (1 / num_layers,) * num_layers))
        if (stored := embedder.elmo.stored_mix) is not None:
            mixes.append(LayerMix("mix", tuple(stored.gamma.item() * weight for weight in stored.layer_weights())))
        elmo = embedder.elmo
        key = f"{find_version()} {elmo.fingerprint()} {elmo.precision} {embedder.state} {embedder.device.type}"
        super().__init__(mixes=mixes, dim=embedder.dim, key=key)

    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """The layers of the Embedder."""
        return self.embedder.embed([list(words) for words in sentences], layers="all")


class StaticSource(VectorSource):
    """Word vectors that know no context: the floor. A word is sought as it is, then in lower case.

    Arguments:
        path: GloVe or word2vec text.
        words: all words that will be asked for; only their vectors are kept. An unknown word has zeros.
    """

    def __init__(self, path: str | PathLike[str], *, words: Collection[str]) -> None:
        wanted = set(words) | {word.lower() for word in words}
        vectors = read_vectors(path, only=wanted)
        self._row_of = {word: row for row, word in enumerate(vectors.words)}
        self._table_VD = np.concatenate([vectors.table_VE, np.zeros((1, vectors.width), np.float32)])
        digest = hashlib.sha256("\n".join(vectors.words).encode() + self._table_VD.tobytes()).hexdigest()
        super().__init__(mixes=single_layers([_short_name(Path(path))]), dim=vectors.width, key=digest)

    def knows(self, word: str) -> bool:
        """Whether the word has a vector of its own."""
        return self._row(word) != len(self._row_of)

    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Each word's vector, as the only layer."""
        return [self._table_VD[[self._row(word) for word in words]].reshape(1, -1, self.dim) for words in sentences]

    def _row(self, word: str) -> int:
        return self._row_of.get(word, self._row_of.get(word.lower(), len(self._row_of)))


def _short_name(path: Path) -> str:
    name = path.name
    for suffix in (*PACKED_SUFFIXES, ".txt", ".vec"):
        name = name.removesuffix(suffix)
    return name
