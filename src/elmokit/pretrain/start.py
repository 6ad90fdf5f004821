"""Where a run begins: with nothing, with a model that exists, or with vectors of words.

A source and a corpus arrive; the sizes of the network and its first weights leave. Encoder and LSTMs of a model are
taken over as they are, whatever family of files it comes from. Its output layer predicted the words of its own
vocabulary: rows of words that the new corpus shares with it move to their new places, and the others begin like an
average word of their frequency. Without one (AllenNLP's files seldom have it), a new output layer is learned.

Shapes: V words of the new vocabulary, K of them known, P width of the output layer, E width of word vectors.
"""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit import io
from elmokit.config import ElmoConfig, WordConfig
from elmokit.errors import ConfigError
from elmokit.model import Elmo
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.corpus.counting import build_alphabet
from elmokit.pretrain.corpus.encoded import UNKNOWN, EncodedCorpus
from elmokit.pretrain.network import LanguageModelNetwork
from elmokit.pretrain.recipes import TrainConfig
from elmokit.text.characters import VOCABULARY_SPECIALS
from elmokit.text.files import identify_files
from elmokit.text.word_vectors import read_vectors, read_width

__all__ = ["Start", "choose_start", "match_rows", "name_source", "take_over_rows"]

# A new row differs from the average row by this fraction of what rows differ among themselves.
NEW_ROW_NOISE = 0.1
# How GloVe and word2vec name what our vocabularies call <S>, </S> and <UNK>.
OTHER_NAMES = {"<S>": "<s>", "</S>": "</s>", "<UNK>": "<unk>"}


class Start(ABC):
    """What a run begins with.

    Attributes:
        config: the run's configuration, with the sizes of the model that it continues from.
        facts: what the card of the new model says about it.
        origin: names and hashes of what it begins with, by which a run that continues knows that it is the same.
    """

    config: TrainConfig
    facts: dict[str, str]
    origin: dict[str, str | None]

    @abstractmethod
    def choose_model(self, corpus: EncodedCorpus) -> tuple[ElmoConfig, dict[str, Any]]:
        """The sizes of the network, and the lists that its scheme needs."""

    @abstractmethod
    def fill(self, network: LanguageModelNetwork, corpus: EncodedCorpus) -> str:
        """Put the first weights into a network of random ones; says what was taken over."""


def choose_start(
    config: TrainConfig,
    *,
    start_from: str | os.PathLike[str] | None = None,
    vectors: Any = None,  # noqa: ANN401
) -> Start:
    """The start of a run.

    Arguments:
        config: of the run.
        start_from: a source to continue from.
        vectors: a file of word vectors, or gensim's KeyedVectors, for the table of a model of words.
    """
    if start_from is not None and vectors is not None:
        raise ConfigError("a run continues from a model or begins with vectors: give one of the two, not both")
    if start_from is not None:
        return _Model(config, start_from)
    return _Nothing(config) if vectors is None else _Vectors(config, vectors)


class _Nothing(Start):
    """Random weights."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.facts, self.origin = config, {}, _origin()

    def choose_model(self, corpus: EncodedCorpus) -> tuple[ElmoConfig, dict[str, Any]]:
        """The sizes of the recipe; what depends on the text (words, alphabet) is counted there."""
        model = self.config.model
        if self.config.input == "words":
            words = WordConfig(corpus.vocabulary_size, model.lstm.projection_dim)
            return ElmoConfig(None, words, model.lstm, projects_words=False), {"vocabulary": corpus.vocabulary}
        characters = model.characters
        if characters is None or characters.scheme == "bytes":
            return model, {}
        counted = zip(corpus.vocabulary, corpus.counts_V.tolist(), strict=True)
        alphabet = build_alphabet(counted, characters.num_symbols)
        characters = dataclasses.replace(characters, num_symbols=len(alphabet))
        return dataclasses.replace(model, characters=characters), {"alphabet": alphabet}

    def fill(self, network: LanguageModelNetwork, corpus: EncodedCorpus) -> str:
        return "from random weights"


class _Vectors(Start):
    """A table of words that others have trained, under random LSTMs."""

    def __init__(self, config: TrainConfig, vectors: Any) -> None:  # noqa: ANN401
        self.vectors, self.width = vectors, read_width(vectors)
        self.config = dataclasses.replace(config, input="words")
        self.origin = _origin(vectors=name_source(vectors), vectors_hash=_hash_file(vectors))
        self.facts = {"vectors": name_source(vectors)}

    def choose_model(self, corpus: EncodedCorpus) -> tuple[ElmoConfig, dict[str, Any]]:
        lstm = self.config.model.lstm
        words = WordConfig(corpus.vocabulary_size, self.width)
        model = ElmoConfig(None, words, lstm, projects_words=self.width != lstm.projection_dim)
        return model, {"vocabulary": corpus.vocabulary}

    def fill(self, network: LanguageModelNetwork, corpus: EncodedCorpus) -> str:
        """Rows of the words that have a vector; the others are drawn with the same spread."""
        vocabulary = corpus.vocabulary
        vectors = read_vectors(self.vectors, only={*vocabulary, *OTHER_NAMES.values()})
        rows = {word: row for row, word in enumerate(vectors.words)}
        sources_V = np.array([rows.get(word, rows.get(OTHER_NAMES.get(word, word), -1)) for word in vocabulary])
        known_V = sources_V >= 0
        if not known_V[UNKNOWN + 1 :].any():
            raise ConfigError(
                f"{name_source(self.vectors)} holds none of the {len(vocabulary):,} words of the corpus: "
                "is it of another language?"
            )
        table_VE = np.random.default_rng(self.config.seed).standard_normal((len(vocabulary), self.width), np.float32)
        table_VE *= vectors.table_VE.std()
        table_VE[known_V] = vectors.table_VE[sources_V[known_V]]
        table = network.body.encoder.words
        assert table is not None
        with torch.no_grad():
            table.embedding.copy_(torch.from_numpy(table_VE))
        return f"from {name_source(self.vectors)}, which has vectors of {_describe_coverage(known_V, corpus)}"


class _Model(Start):
    """A model that exists: its words and its reading of sentences, and where it can, its output layer."""

    def __init__(self, config: TrainConfig, source: str | os.PathLike[str]) -> None:
        self.source, self.checkpoint = source, io.load(source, softmax=True)
        model = self.checkpoint.config
        self.config = dataclasses.replace(config, model=model, input="characters" if model.characters else "words")
        fingerprint = Elmo.from_checkpoint(self.checkpoint, num_mixes=0).fingerprint()
        self.origin = _origin(start_from=name_source(source), start_from_hash=fingerprint)
        known = {name: value for name, value in self.checkpoint.metadata.items() if name in ("language", "license")}
        self.facts = {**known, "continued_from": name_source(source)}

    def choose_model(self, corpus: EncodedCorpus) -> tuple[ElmoConfig, dict[str, Any]]:
        """The model's own sizes and lists: its characters or words keep their numbers, whatever the corpus is."""
        checkpoint = self.checkpoint
        vocabulary = checkpoint.vocabulary
        if vocabulary is None and checkpoint.config.words is not None:  # words are numbers: spelled, they are words
            vocabulary = [*VOCABULARY_SPECIALS[0], *map(str, range(3, checkpoint.config.words.num_words))]
        parts = {"alphabet": checkpoint.alphabet, "vocabulary": vocabulary, "swaps_markers": checkpoint.swaps_markers}
        return checkpoint.config, parts

    def fill(self, network: LanguageModelNetwork, corpus: EncodedCorpus) -> str:
        own = set(network.body.state_dict())  # a stored mix and a state would be those of other weights
        network.body.load_state_dict({name: value for name, value in self.checkpoint.tensors.items() if name in own})
        rows_V, state = self._rows(corpus), self._output_state()
        if not (rows_V >= 0).any():
            # Random rows over outputs that mean something would be firm opinions: begin with frequencies alone.
            torch.nn.init.zeros_(network.softmax.weight)
            return f"from {name_source(self.source)}, under a new output layer"
        counts_V = torch.from_numpy(np.array(corpus.counts_V))
        take_over_rows(network.softmax, state["weight"], state["bias"], rows_V, counts_V, self.config.seed)
        return f"from {name_source(self.source)}, whose output layer knows {_describe_coverage(rows_V >= 0, corpus)}"

    def _rows(self, corpus: EncodedCorpus) -> np.ndarray:
        """(V,) the row of each word in the old output layer, -1 where there is none."""
        words = self.checkpoint.output_words
        if words is not None and self.checkpoint.softmax:
            return match_rows(corpus.vocabulary, words)
        return np.full(corpus.vocabulary_size, -1)

    def _output_state(self) -> dict[str, Tensor]:
        return {name.removeprefix("softmax."): value for name, value in (self.checkpoint.softmax or {}).items()}


def match_rows(vocabulary: list[str], known: list[str]) -> np.ndarray:
    """(V,) where each word of the vocabulary stands among the known ones, -1 if nowhere.

    Example:
        >>> match_rows(["<S>", "river", "bank"], ["<S>", "bank", "money"]).tolist()
        [0, -1, 1]
    """
    rows = {word: row for row, word in enumerate(known)}
    return np.array([rows.get(word, -1) for word in vocabulary], dtype=np.int64)


@torch.no_grad()
def take_over_rows(
    output: OutputLayer, weight_KP: Tensor, bias_K: Tensor, rows_V: np.ndarray, counts_V: Tensor, seed: int = 1
) -> None:
    """Give an output layer the rows of another one, and its new words rows of an average word.

    Biases are the logarithms of frequencies, more or less, up to a number that all share and no loss can see: new words
    get theirs from the counts, plus that number as the known words show it.

    Arguments:
        output: the new output layer.
        weight_KP: rows of the old one.
        bias_K: its biases.
        rows_V: for each word its row in the old one, or -1.
        counts_V: how often each word occurs in the new corpus.
        seed: of the small differences between new rows.
    """
    device, rows_V1 = output.weight.device, torch.from_numpy(rows_V)
    known_V = rows_V1 >= 0
    taken_KP, taken_K = weight_KP[rows_V1[known_V]].float(), bias_K[rows_V1[known_V]].float()
    counts = counts_V.double().clamp_min(1)
    log_frequency_V = (counts / counts.sum()).log().float()
    fractions_K = (counts[known_V] / counts[known_V].sum()).float()
    shift = (fractions_K * (taken_K - log_frequency_V[known_V])).sum()
    noise_VP = torch.randn(output.weight.shape, generator=torch.Generator().manual_seed(seed))
    weight_VP = taken_KP.mean(dim=0) + NEW_ROW_NOISE * taken_KP.std(dim=0, correction=0) * noise_VP
    bias_V = log_frequency_V + shift
    weight_VP[known_V], bias_V[known_V] = taken_KP, taken_K
    output.weight.copy_(weight_VP.to(device))
    output.bias.copy_(bias_V.to(device))


def _describe_coverage(known_V: np.ndarray, corpus: EncodedCorpus) -> str:
    """How many words of the vocabulary are known, and how much of the corpus they make up."""
    real_V = known_V.copy()
    real_V[: UNKNOWN + 1] = False
    fraction = float(corpus.counts_V[real_V].sum()) / max(1, corpus.num_tokens)
    return f"{known_V.sum():,} of {len(known_V):,} words ({fraction:.1%} of the running ones)"


def name_source(source: Any) -> str:  # noqa: ANN401
    """The last part of a path or hub id.

    Example:
        >>> name_source("models/base/"), name_source("owner/base")
        ('base', 'base')
    """
    return Path(source).name or str(source) if isinstance(source, (str, os.PathLike)) else "vectors"


def _origin(**known: str | None) -> dict[str, str | None]:
    return {"start_from": None, "start_from_hash": None, "vectors": None, "vectors_hash": None, **known}


def _hash_file(vectors: Any) -> str | None:  # noqa: ANN401
    return identify_files([os.fspath(vectors)])[0].hash if isinstance(vectors, (str, os.PathLike)) else None
