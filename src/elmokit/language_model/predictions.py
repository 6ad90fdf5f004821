"""Both language models read sentences; what each says of every word before it reads it comes out.

Arrives: sentences in words. Leaves: for each direction the outputs of its top layer (N, P), from which an output layer
predicts, and which place of the text each of them predicts. The forward model reads `<S> w1 … wn` and predicts
`w1 … wn </S>`; the backward model reads `</S> wn … w1` and predicts `wn … w1 <S>`. Neither ever reads the mark that
ends its own reading, because neither did in training (`Elmo`, which wants vectors and not predictions, reads both).
Each distinct word is encoded once, and nothing is padded.

Shapes: S sentences, T places of the text (words and boundaries), U distinct words, B rows, N packed words, P width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.embed.cache import Word, WordCache
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState

__all__ = ["Passage", "Predictions", "PredictionReader"]

BEGIN, END = 0, 1  # numbers of the boundaries among the distinct words of a passage
NUM_BOUNDARIES = 2


class Passage(NamedTuple):
    """Some sentences one after the other, each as `<S> w1 … wn </S>`, with the vectors of their words.

    Arguments:
        words: the distinct words, without the boundaries.
        vectors_UP: context-free vectors of begin, end, and the distinct words.
        numbers_T: which of them stands at each place.
        starts_S: the place at which each sentence begins.
        lengths_S: predictions of each sentence: its words and one boundary.
    """

    words: list[str]
    vectors_UP: Tensor
    numbers_T: np.ndarray
    starts_S: np.ndarray
    lengths_S: np.ndarray


class Predictions(NamedTuple):
    """What a batch of sentences gave.

    Arguments:
        outputs_NP: of the forward and of the backward model.
        places_N: the place of the passage that each output predicts, forward and backward.
        state: what both models remember of each row, in the order in which the rows came.
    """

    outputs_NP: tuple[Tensor, Tensor]
    places_N: tuple[np.ndarray, np.ndarray]
    state: BilmState


class PredictionReader:
    """Both stacks of a model, with a memory of word vectors before them.

    Arguments:
        elmo: the model, in evaluation mode.
        cache_words: words whose context-free vectors are remembered; 0 for none.

    Example:
        >>> from elmokit import ElmoConfig
        >>> reader = PredictionReader(Elmo.random(ElmoConfig.tiny()), cache_words=100)
        >>> passage = reader.passage([["the", "bank"], ["hello"]])
        >>> predictions = reader.read(passage, [0, 1])
        >>> predictions.outputs_NP[0].shape, predictions.places_N[0].tolist()  # the, hello; bank, </S>; </S>
        (torch.Size([5, 64]), [1, 5, 2, 6, 3])
    """

    def __init__(self, elmo: Elmo, *, cache_words: int) -> None:
        self.elmo = elmo
        self._cache = WordCache(cache_words)

    @torch.inference_mode()
    def passage(self, sentences: Sequence[Sequence[str]]) -> Passage:
        """Lay sentences out for reading; their words are encoded here."""
        numbers: dict[str, int] = {}
        flat: list[int] = []
        for sentence in sentences:
            flat.append(BEGIN)
            flat += [numbers.setdefault(word, NUM_BOUNDARIES + len(numbers)) for word in sentence]
            flat.append(END)
        lengths_S = np.array([len(sentence) + 1 for sentence in sentences], np.int64)
        starts_S = np.cumsum(lengths_S + 1) - (lengths_S + 1)
        words = list(numbers)
        boundaries_2P = self.elmo.encode_words(torch.stack(self.elmo.boundary_ids))
        vectors_UP = torch.cat([boundaries_2P, self._cache.vectors(words, self._encode)]) if words else boundaries_2P
        return Passage(words, vectors_UP, np.array(flat, np.int64), starts_S, lengths_S)

    @torch.inference_mode()
    def read(self, passage: Passage, sentences: Sequence[int], state: BilmState | None = None) -> Predictions:
        """Read these sentences of a passage, all at once.

        Arguments:
            passage: where they stand.
            sentences: their numbers; at least one.
            state: what each of them starts from, a row a sentence; nothing unless given.
        """
        numbers_B = np.asarray(sentences, np.int64)
        order_B = np.argsort(-passage.lengths_S[numbers_B], kind="stable")  # packed rows go by falling length
        starts_B, lengths_B = passage.starts_S[numbers_B[order_B]], passage.lengths_S[numbers_B[order_B]]
        sizes, row_N, step_N = _packed(lengths_B)
        first_N, last_N = starts_B[row_N], starts_B[row_N] + lengths_B[row_N]
        read_places = np.stack([first_N + step_N, last_N - step_N])
        numbers_2N = torch.from_numpy(passage.numbers_T[read_places]).to(passage.vectors_UP.device)
        weight = next(self.elmo.bilm.parameters())
        words = [passage.vectors_UP.index_select(0, numbers_N).to(weight.dtype) for numbers_N in numbers_2N]
        if state is None:
            state = BilmState.zeros(self.elmo.config.lstm, len(numbers_B), like=words[0])
        order = torch.from_numpy(order_B).to(weight.device)
        # As in `Elmo.read`: autocast would run parts of the recurrence in half precision.
        with torch.autocast(weight.device.type, enabled=False):
            layers, state = self.elmo.bilm.read_packed(words, sizes, state.to(words[0]).reorder(order))
        forward_NP, backward_NP = layers[-1]
        places = (read_places[0] + 1, read_places[1] - 1)
        return Predictions((forward_NP, backward_NP), places, state.reorder(order.argsort()))

    def _encode(self, words: Sequence[Word]) -> Tensor:
        # Words of like length go through the convolutions together, which then skip the columns no word reaches.
        order = sorted(range(len(words)), key=lambda place: len(str(words[place])))
        ids_UC = torch.from_numpy(self.elmo.scheme.word_ids([str(words[place]) for place in order]))
        sorted_UP = self.elmo.encode_words(ids_UC.to(self.elmo.device))
        return sorted_UP[torch.tensor(order, device=sorted_UP.device).argsort()]


def _packed(lengths_B: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Rows that take part in each step, and the row and the step of each packed word; lengths never rise.

    Example:
        >>> sizes, row_N, step_N = _packed(np.array([3, 1]))
        >>> sizes, row_N.tolist(), step_N.tolist()
        ([2, 1, 1], [0, 1, 0, 0], [0, 0, 1, 2])
    """
    steps = np.arange(lengths_B[0])
    sizes = np.searchsorted(-lengths_B, -steps, side="left")
    step_N = np.repeat(steps, sizes)
    row_N = np.arange(len(step_N)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return sizes.tolist(), row_N, step_N
