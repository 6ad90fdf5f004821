"""WordInputs: tokenised sentences become the features of their words, from whatever sources a task was given.

Arrives: sentences as lists of words. Leaves: a `WordBatch` with the features that enter the contextual layer (static
vectors, a small character CNN that learns with the task, a mix of ELMo's layers), a second mix of ELMo's layers for the
contextual layer's output, and the mask. A frozen biLM's layers come from a `LayerStore` where the trainer has filled
one, else they are computed on the spot; a biLM that learns is a part of this module.

Shapes: B batch (of sentences), W words, F features, E width of ELMo, L layers, V words of the static table, U distinct
words, P passages, T words of the longest passage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharConfig
from elmokit.devices import move_to_device
from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import check_float16
from elmokit.nn.scalar_mix import ScalarMix
from elmokit.nn.word_encoder import CharCnn, count_needed_columns
from elmokit.tasks.config import InputConfig
from elmokit.tasks.layer_store import LayerStore, TaskElmo, check_layers_fit
from elmokit.text.characters import ByteScheme
from elmokit.text.word_vectors import WordVectors, read_vectors, read_width

__all__ = ["WordBatch", "WordInputs"]

# Words from the beginning of a file of vectors that are kept beside those of the data, for text that comes later.
COMMON_WORDS = 50_000
CHARACTER_WIDTH, CHARACTER_DIM = 3, 16  # as in the paper's NER model


class WordBatch(NamedTuple):
    """What a task knows of the words of a batch.

    Arguments:
        features_BWF: what enters the contextual layer; zeros where no word is.
        output_BWE: ELMo's vectors for the contextual layer's output, `None` if there are none.
        mask_BW: true where a word is.
        lengths: words of each sentence.
    """

    features_BWF: Tensor
    output_BWE: Tensor | None
    mask_BW: Tensor
    lengths: list[int]

    def join_elmo(self, contextual_BWH: Tensor) -> Tensor:
        """The contextual layer's output with ELMo's vectors beside it, where ELMo is at the output."""
        if self.output_BWE is None:
            return contextual_BWH
        return torch.cat([contextual_BWH, self.output_BWE], dim=-1)

    def take_rows(self, rows: Sequence[int]) -> WordBatch:
        """The same sentences, some of them several times or not at all."""
        index = torch.tensor(rows, device=self.mask_BW.device)
        output = None if self.output_BWE is None else self.output_BWE[index]
        return WordBatch(self.features_BWF[index], output, self.mask_BW[index], [self.lengths[row] for row in rows])

    def join_sentences(self, counts: Sequence[int]) -> WordBatch:
        """The words of passages whose sentences follow each other: a biLM reads sentences, a task whole passages.

        Arguments:
            counts: how many sentences each passage has.

        Example:
            >>> mask = torch.tensor([[True, True], [True, False], [True, True]])
            >>> words = WordBatch(torch.arange(6.0).reshape(3, 2, 1), None, mask, [2, 1, 2])
            >>> words.join_sentences([2, 1]).features_BWF.squeeze(2).tolist()
            [[0.0, 1.0, 2.0], [4.0, 5.0, 0.0]]
        """
        # By numpy, and one gather then: nothing waits for a GPU.
        lengths_B = np.array(self.lengths, np.int64)
        is_word_BW = np.arange(self.mask_BW.shape[1]) < lengths_B[:, None]
        lengths = [int(lengths_B[first:last].sum()) for first, last in pairwise(np.cumsum([0, *counts]))]
        is_word_PT = np.arange(max([1, *lengths])) < np.array(lengths)[:, None]
        places_PT = np.zeros(is_word_PT.shape, np.int64)
        places_PT[is_word_PT] = np.flatnonzero(is_word_BW)
        places_PT, mask_PT = (move_to_device(part, self.mask_BW.device) for part in (places_PT, is_word_PT))

        def gather(features: Tensor) -> Tensor:
            rows = features.flatten(0, 1).index_select(0, places_PT.flatten())
            return rows.view(*places_PT.shape, -1) * mask_PT.unsqueeze(2)

        output = None if self.output_BWE is None else gather(self.output_BWE)
        return WordBatch(gather(self.features_BWF), output, mask_PT, lengths)


class WordInputs(nn.Module):
    """Features of words.

    Arguments:
        config: which features.
        words: V words that have static vectors.
        vectors_VE: (V, E) their vectors, `None` if the config asks for none.
        elmo: the ELMo model, `None` if the config asks for none.

    Example:
        >>> inputs = WordInputs(InputConfig(character_filters=8))
        >>> batch = inputs([["the", "bank"], ["hello"]])
        >>> batch.features_BWF.shape, batch.mask_BW.tolist()
        (torch.Size([2, 2, 8]), [[True, True], [True, False]])
    """

    def __init__(
        self,
        config: InputConfig,
        *,
        words: Sequence[str] = (),
        vectors_VE: np.ndarray | Tensor | None = None,
        elmo: TaskElmo | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.words = list(words)
        self._rows = _Rows(self.words)
        self.vectors = None if vectors_VE is None else _table(vectors_VE, learns=config.train_vectors)
        self.characters, self.scheme = None, ByteScheme()
        if config.character_filters:
            filters = ((CHARACTER_WIDTH, config.character_filters),)
            self.characters = CharCnn(CharConfig(dim=CHARACTER_DIM, filters=filters, num_highways=0))
        self._elmo = (elmo,)  # in a tuple: a frozen biLM is no part of the model's parameters
        self.tuned = elmo.elmo if elmo is not None and config.tune_elmo else None
        self.input_mix = _mix(config, elmo) if elmo is not None and config.elmo_in else None
        self.output_mix = _mix(config, elmo) if elmo is not None and config.elmo_out else None
        self.dropout = nn.Dropout(config.elmo_dropout)
        self.store: LayerStore | None = None
        self._embedder: Embedder | None = None
        self.register_buffer("_place", torch.empty(0), persistent=False)

    @classmethod
    def without_words(cls, config: InputConfig, *, elmo: TaskElmo | None = None, vectors: Any = None) -> WordInputs:  # noqa: ANN401
        """The features with a static table of the right width that knows no word yet."""
        source = config.vectors if vectors is None else vectors
        empty_VE = None if source is None else torch.zeros(0, read_width(source))
        return cls(config, vectors_VE=empty_VE, elmo=elmo)

    def read_vectors(self, sentences: Iterable[Sequence[str]], vectors: Any = None) -> None:  # noqa: ANN401
        """Fill the static table with the vectors of the words of these sentences, and of common ones."""
        if self.vectors is None:
            return
        needed = {form for words in sentences for word in words for form in (word, word.lower())}
        source = self.config.vectors if vectors is None else vectors
        found: WordVectors = read_vectors(source, only=needed, first=COMMON_WORDS)
        self.words = found.words
        self._rows = _Rows(self.words)
        self.vectors = _table(found.table_VE, learns=self.config.train_vectors).to(self.device)

    def measure_coverage(self, sentences: Iterable[Sequence[str]]) -> float:
        """The fraction of the words of these sentences that have a static vector."""
        has_vector = [self._rows[word] > 0 for words in sentences for word in words]
        return sum(has_vector) / max(1, len(has_vector))

    @property
    def dim(self) -> int:
        """Width of the features that enter the contextual layer."""
        width = self.vector_dim
        width += self.config.character_filters
        return width + (self.elmo.dim if self.elmo is not None and self.config.elmo_in else 0)

    @property
    def vector_dim(self) -> int:
        """Width of the static vectors, 0 if there are none."""
        return 0 if self.vectors is None else self.vectors.embedding_dim

    @property
    def output_dim(self) -> int:
        """Width of ELMo's vectors at the output, 0 if there are none."""
        return self.elmo.dim if self.elmo is not None and self.config.elmo_out else 0

    @property
    def elmo(self) -> TaskElmo | None:
        """The ELMo model and where it came from."""
        return self._elmo[0]

    @property
    def device(self) -> torch.device:
        """Where features are computed."""
        return self._place.device  # pyright: ignore[reportReturnType]

    def forward(self, sentences: Sequence[Sequence[str]]) -> WordBatch:
        """The features of a batch of tokenised sentences."""
        lengths = [len(words) for words in sentences]
        longest = max(1, max(lengths, default=1))
        is_word_BW = np.arange(longest) < np.array(lengths, np.int64)[:, None]
        words = [word for words in sentences for word in words]
        features = []
        if self.vectors is not None:
            features.append(self.vectors(self._place_numbers([self._rows[word] for word in words], is_word_BW)))
        if self.characters is not None:
            features.append(self._encode_characters(words, is_word_BW))
        output_BWE = None
        if self.input_mix is not None or self.output_mix is not None:
            layers_LBWE = self._layers(sentences)
            if self.input_mix is not None:
                features.append(self.dropout(self.input_mix(layers_LBWE)))
            if self.output_mix is not None:
                output_BWE = self.dropout(self.output_mix(layers_LBWE))
        return WordBatch(torch.cat(features, dim=-1), output_BWE, move_to_device(is_word_BW, self.device), lengths)

    def penalty(self) -> Tensor | float:
        """What the config's `elmo_l2` adds to the loss."""
        mixes = [mix for mix in (self.input_mix, self.output_mix) if mix is not None and mix.weights.requires_grad]
        return sum((mix.penalty(self.config.elmo_l2) for mix in mixes), 0.0)

    def learned_mixes(self) -> dict[str, dict[str, Any]]:
        """The layer weights s_j and the scale γ of each mix, by its place."""
        mixes = {"input": self.input_mix, "output": self.output_mix}
        return {
            place: {"weights": mix.layer_weights(), "gamma": mix.gamma.item()}
            for place, mix in mixes.items()
            if mix is not None
        }

    def _place_numbers(self, numbers: Sequence[int], is_word_BW: np.ndarray) -> Tensor:
        """Numbers of words, one sentence after the other, in one row per sentence; 0 where no word is."""
        numbers_BW = np.zeros(is_word_BW.shape, np.int64)
        numbers_BW[is_word_BW] = numbers
        return move_to_device(numbers_BW, self.device)

    def _encode_characters(self, words: Sequence[str], is_word_BW: np.ndarray) -> Tensor:
        """What the character CNN makes of each word, every distinct word being read once."""
        assert self.characters is not None
        places = {word: place for place, word in enumerate(dict.fromkeys(words), start=1)}
        ids_UC = torch.from_numpy(self.scheme.word_ids(list(places)))
        # Columns are cut here, where it needs no answer from a GPU.
        ids_UC = ids_UC[:, : count_needed_columns(ids_UC, self.characters.widest_filter)].contiguous()
        features_UF = F.pad(self.characters(move_to_device(ids_UC, self.device), trim=False), (0, 0, 1, 0))
        return F.embedding(self._place_numbers([places[word] for word in words], is_word_BW), features_UF)

    def _layers(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """All layers (L, B, W, E) of the batch."""
        if self.tuned is not None:
            return self.tuned(self.tuned.word_ids(sentences)).layers
        layers_LBWE = self.store.gather(sentences) if self.store is not None else None
        return self._compute_layers(sentences) if layers_LBWE is None else layers_LBWE.to(self.device)

    def _compute_layers(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The layers of a frozen biLM for sentences that no store holds, rounded as a store would."""
        assert self.elmo is not None
        if self._embedder is None or self._embedder.device != self.device:
            self._embedder = Embedder(self.elmo.elmo, device=self.device)
        longest = max(1, max(map(len, sentences)))
        layers_BLWE = np.zeros((len(sentences), self.elmo.num_layers, longest, self.elmo.dim), np.float16)
        for places, arrays in self._embedder.embed_batches(sentences, layers="all"):
            for place, layers_LWE in zip(places, arrays, strict=True):
                check_layers_fit(layers_LWE, sentences[place])
                layers_BLWE[place, :, : layers_LWE.shape[1]] = layers_LWE
        return torch.from_numpy(layers_BLWE).to(self.device).float().transpose(0, 1)


class _Rows(dict[str, int]):
    """The row of a word's static vector, or of its lower-cased form; 0 for none."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__((word, row) for row, word in enumerate(words, start=1))

    def __missing__(self, word: str) -> int:
        return self.get(word.lower(), 0)  # not remembered: a server is asked for words without end


def _table(vectors_VE: np.ndarray | Tensor, *, learns: bool) -> nn.Embedding:
    """The vectors below a row of zeros for padding and unknown words; frozen ones are rounded as they are saved."""
    table_VE = torch.as_tensor(vectors_VE, dtype=torch.float32)
    if not learns and not table_VE.is_meta:
        check_float16(table_VE.numpy(force=True), "the static vectors", advice="scale them, such as to length 1")
        table_VE = table_VE.half().float()
    table_VE = F.pad(table_VE, (0, 0, 1, 0))
    return nn.Embedding.from_pretrained(table_VE, freeze=not learns, padding_idx=0)


def _mix(config: InputConfig, elmo: TaskElmo) -> ScalarMix:
    if config.elmo_layers == "mix":
        return ScalarMix(elmo.num_layers)
    if config.elmo_layers == "average":
        return ScalarMix.average(elmo.num_layers)
    layer = elmo.num_layers - 1 if config.elmo_layers == "top" else int(config.elmo_layers)
    return ScalarMix.only(layer, elmo.num_layers)
