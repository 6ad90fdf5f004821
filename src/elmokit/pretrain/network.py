"""The network that is trained: word encoder, both stacks and one output layer, from a packed batch to its loss.

Arrives: a `Batch` of distinct words and, for each direction, the order in which it reads them and the words it must
predict. Leaves: the summed negative log-likelihood of each direction and the state after the batch. The character
encoder runs once per distinct word of the batch; encoder and output layer are shared by the directions, the LSTMs not.

Shapes: N packed words, P width of a direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from elmokit.config import ElmoConfig
from elmokit.nn.bilm import BiLM, BilmState
from elmokit.nn.word_encoder import WordEncoder

if TYPE_CHECKING:
    from elmokit.pretrain.reader import Batch

__all__ = ["LanguageModelNetwork", "keyed_dropout"]

Loss = Callable[[Tensor, Tensor], Tensor]
Dropout = Callable[[Tensor, int, int], Tensor]


class LanguageModelNetwork(nn.Module):
    """Encoder, stacks and output layer.

    Arguments:
        config: the sizes of the model.
        softmax: the output layer (`nn/softmax.py`).
        dropout: share of zeros in what every LSTM layer reads and in what the output layer reads.
        dtype: what encoder and stacks compute in. Parameters stay float32; with bfloat16 they are cast by hand,
            because autocast would run cuDNN's LSTM in float16, where small gradients vanish.
    """

    def __init__(
        self, config: ElmoConfig, softmax: nn.Module, *, dropout: float = 0.1, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        self.dtype = dtype
        self.body = _Body(config)
        self.softmax = softmax

    def zero_state(self, num_rows: int) -> BilmState:
        """The state of rows that have read nothing."""
        like = torch.empty(0, dtype=self.dtype, device=next(self.parameters()).device)
        return BilmState.zeros(self.config.lstm, num_rows, like=like)

    def forward(
        self, batch: Batch, state: BilmState, *, loss: Loss, seed: int | None = None
    ) -> tuple[Tensor, Tensor, BilmState]:
        """Summed negative log-likelihood of the forward and of the backward direction, and the state after the batch.

        Arguments:
            batch: what to read and to predict.
            state: what each row starts from.
            loss: (outputs, targets) to the summed loss: the full softmax, or a sampled one with this step's negatives.
            seed: the number of this step, from which dropout is drawn; `None` for no dropout.
        """
        (forward_NP, backward_NP), state = self.predictions(batch, state, seed=seed)
        losses = (loss(forward_NP, batch.forward_targets_N), loss(backward_NP, batch.backward_targets_N))
        return (*losses, state)

    def predictions(self, batch: Batch, state: BilmState, *, seed: int | None = None) -> tuple[list[Tensor], BilmState]:
        """What the top layers of both directions say (N, P), from which the output layer predicts."""
        weights = {name: weight.to(self.dtype) for name, weight in self.body.named_parameters()}
        drop = None
        if seed is not None and self.dropout > 0:
            keys_N = batch.position_keys_N()

            def drop(values_NP: Tensor, layer: int, direction: int) -> Tensor:
                return keyed_dropout(values_NP, keys_N, seed=(seed * 16 + layer) * 2 + direction, rate=self.dropout)

        return functional_call(self.body, weights, (batch, state, drop))


class _Body(nn.Module):
    """Encoder and stacks: everything below the output layer."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.encoder = WordEncoder(config)
        self.bilm = BiLM(config.lstm)

    def forward(self, batch: Batch, state: BilmState, dropout: Dropout | None) -> tuple[list[Tensor], BilmState]:
        vectors_UP = self.encoder(batch.distinct_UC, trims=False)  # the reader has left out what cannot matter
        words = [vectors_UP.index_select(0, index_N) for index_N in (batch.forward_words_N, batch.backward_words_N)]
        layers, state = self.bilm.read_packed(words, batch.batch_sizes, state, dropout=dropout)
        top = layers[-1]
        if dropout is not None:
            top = [dropout(top_NP, len(layers), direction) for direction, top_NP in enumerate(top)]
        return top, state


def keyed_dropout(values_NP: Tensor, keys_N: Tensor, *, seed: int, rate: float) -> Tensor:
    """Dropout whose mask follows from (seed, key of the word, feature) alone.

    Ranks that share a batch, or a run that is resumed, then drop exactly what one uninterrupted process would.
    """
    features_P = torch.arange(values_NP.shape[1], dtype=torch.int32, device=values_NP.device)
    mixed = _scramble(_scramble((keys_N + seed * 0x9E3779B97F4A7C15 % 2**63).to(torch.int32)).unsqueeze(1) + features_P)
    kept = (mixed & 0xFFFFFF) >= int(rate * 2**24)
    return values_NP * kept * (1 / (1 - rate))


def _scramble(values: Tensor) -> Tensor:
    """A 32-bit finaliser (the constants of Wellons' lowbias32), with arithmetic shifts: good enough for masks."""
    values = (values ^ (values >> 16)) * 0x7FEB352D
    values = (values ^ (values >> 15)) * -2073254261
    return values ^ (values >> 16)
