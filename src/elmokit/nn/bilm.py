"""Two language models read a sentence, one from each end; the output of each layer at each word is kept.

Arrives: word vectors (B, W, P) with the sentence boundaries already in place, the length of each row, and the state to
start from. Leaves: L+1 layers (L+1, B, W, 2P), forward and backward side by side, layer 0 being the word vector
twice; and the state after each row's last word. The stacks share nothing. Positions past a row's length are zero.

Whoever wants vectors or scores of sentences calls `BiLM.read`, which packs them (`packing.py`) and calls
`BiLM.read_packed`. Training, whose batches are packed ahead of the step and which alone has dropout, calls
`read_packed` itself.

Shapes: B rows, W words of the longest row, N packed words, T positions of a text, U distinct words, P width of a
direction, H cell width, L LSTM layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.config import LstmConfig
from elmokit.devices import move_to_device
from elmokit.nn.lstmp import Lstmp
from elmokit.nn.operations import (
    Choice,
    Clips,
    EngineModule,
    LayerState,
    LstmpWeights,
    Precision,
    Recurrence,
    choose,
    describe,
    find_engine,
    get_parameters,
)
from elmokit.nn.packing import BoundedText, Packing, join_directions

__all__ = ["BiLM", "BilmState", "Reading"]


class BilmState(NamedTuple):
    """What both stacks remember of each row: `hidden` (L, 2, B, P) and `cell` (L, 2, B, H); direction 0 is forward.

    The published models were trained, and are used by their own code, with a state that is carried from batch to batch:
    row b of a batch starts from the state that row b of the batch before ended with, whatever their sentences are.
    Vectors equal theirs only with the same state; zeros make a sentence's vectors independent of what was read before.
    """

    hidden: Tensor
    cell: Tensor

    @classmethod
    def zeros(cls, config: LstmConfig, batch: int, *, like: Tensor | None = None) -> BilmState:
        """The state of rows that have read nothing, with the dtype and device of `like`."""
        like = torch.empty(0) if like is None else like
        shape = (config.num_layers, 2, batch)
        return cls(like.new_zeros(*shape, config.projection_dim), like.new_zeros(*shape, config.cell_dim))

    @property
    def num_rows(self) -> int:
        """B."""
        return self.hidden.shape[2]

    def resize(self, count: int) -> BilmState:
        """The first `count` rows; where there are fewer, rows of zeros are added."""
        missing = count - self.num_rows
        if missing <= 0:
            return BilmState(self.hidden[:, :, :count], self.cell[:, :, :count])
        return BilmState(*(nn.functional.pad(part, (0, 0, 0, missing)) for part in self))

    def repeat(self, count: int) -> BilmState:
        """A single row, `count` times."""
        assert self.num_rows == 1, "only a state of one row can be repeated"
        return BilmState(*(part.expand(-1, -1, count, -1) for part in self))

    def split(self, count: int) -> tuple[BilmState, BilmState]:
        """The first `count` rows, and the others."""
        first, others = ([part[:, :, rows] for part in self] for rows in (slice(count), slice(count, None)))
        return BilmState(*first), BilmState(*others)

    def join(self, others: BilmState) -> BilmState:
        """These rows, then the others."""
        return BilmState(*(torch.cat(parts, dim=2) for parts in zip(self, others, strict=True)))

    def reorder(self, order_B: Tensor) -> BilmState:
        """The same rows in another order."""
        return BilmState(self.hidden[:, :, order_B], self.cell[:, :, order_B])

    def detach(self) -> BilmState:
        """The same values, without the history that gradients would follow."""
        return BilmState(self.hidden.detach(), self.cell.detach())

    def to(self, like: Tensor) -> BilmState:
        """The same values with the dtype and device of `like`."""
        return BilmState(self.hidden.to(like), self.cell.to(like))


class Reading(NamedTuple):
    """The outputs of both stacks for the sentences they read.

    Arguments:
        layers: L+1 pairs [forward, backward] of tensors (N, P) in the order of reading; pair 0 is the word vectors.
        positions_2N: the position in the text that each direction had just read (`Packing.positions_2N`). A forward
            output at position p predicts the word at p+1, a backward one that at p-1.
        state: what is remembered of each row, in the order in which the rows were asked for.
    """

    layers: list[list[Tensor]]
    positions_2N: Tensor
    state: BilmState

    def join_layers(self, num_positions: int) -> Tensor:
        """All layers (L+1, T, 2P) of a text of so many positions; zero where nothing was read."""
        return torch.stack([join_directions(pair, self.positions_2N, num_positions) for pair in self.layers])


class BiLM(EngineModule):
    """Forward and backward stacks of LSTM layers with projection, residual from the second layer on.

    Example:
        >>> import torch
        >>> bilm = BiLM(LstmConfig(cell_dim=8, projection_dim=4))
        >>> layers, state = bilm(torch.randn(2, 5, 4), lengths=[5, 3])
        >>> layers.shape, state.cell.shape
        (torch.Size([3, 2, 5, 8]), torch.Size([2, 2, 2, 8]))
    """

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        self.precision: Precision = "float32"  # of the matmuls; int8 is for inference on a CPU
        self.forward_layers = nn.ModuleList(Lstmp(config) for _ in range(config.num_layers))
        self.backward_layers = nn.ModuleList(Lstmp(config) for _ in range(config.num_layers))

    @property
    def clips(self) -> Clips:
        """The bounds that an engine applies."""
        return Clips(self.config.cell_clip, self.config.projection_clip)

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        """Device and dtype of the weights."""
        (bias_4H,) = get_parameters(next(iter(self.forward_layers)), "bias")
        return bias_4H.device, bias_4H.dtype

    @property
    def engine(self) -> Choice:
        """The engine that would run the layers now, on this module's device, and why.

        It is chosen by the weights and whether gradients are enabled. A call also looks at its words and its state, and
        may take another engine where these want gradients, or have a dtype, that the weights do not.
        """
        return self._choose(self._weights())

    def forward(
        self, words_BWP: Tensor, *, lengths: Sequence[int], state: BilmState | None = None
    ) -> tuple[Tensor, BilmState]:
        """All layers (L+1, B, W, 2P) of these padded sentences, and the state after them."""
        num_rows, num_words, width = words_BWP.shape
        words_TP = words_BWP.reshape(num_rows * num_words, width)
        starts_B = np.arange(num_rows) * num_words
        text = BoundedText(words_TP, np.arange(len(words_TP)), starts_B, np.array(lengths, np.int64))
        reading = self.read(text, state=state)
        return reading.join_layers(len(words_TP)).unflatten(1, (num_rows, num_words)), reading.state

    def read(
        self,
        text: BoundedText,
        *,
        rows: Sequence[int] | None = None,
        state: BilmState | None = None,
        for_prediction: bool = False,
    ) -> Reading:
        """Read sentences of a text, all at once, each direction in its own order.

        Arguments:
            text: the sentences with their boundaries.
            rows: which of its sentences; all if not given.
            state: what each of them starts from, in the same order; nothing if not given.
            for_prediction: stop before the last boundary of each direction, as in training, because that is the last
                word it predicts. What the state continues from is then not the whole sentence.
        """
        chosen = slice(None) if rows is None else np.asarray(rows, np.int64)
        packing = Packing(text.lengths_B[chosen], text.starts_B[chosen], for_prediction=for_prediction)
        (device, dtype), num_rows = self.place, len(packing.order_B)
        words_2N = move_to_device(text.words_T[packing.positions_2N], device)
        words_MP = text.vectors_UP.index_select(0, words_2N.flatten()).to(dtype)
        words = list(words_MP.chunk(2))
        if state is None:
            state = BilmState.zeros(self.config, num_rows, like=words[0])
        else:
            state = state.to(words[0])
            state = state.reorder(move_to_device(packing.order_B, device)) if num_rows > 1 else state
        # Autocast would run parts of the recurrence in half precision, where the state loses its meaning word by
        # word; the LSTMs always compute in the dtype of their weights.
        casts = torch.is_autocast_enabled(device.type)
        with torch.autocast(device.type, enabled=False) if casts else nullcontext():
            outputs, state = self.read_packed(words, packing.batch_sizes, state)
        if num_rows > 1:
            state = state.reorder(move_to_device(packing.order_B.argsort(), device))
        return Reading([words, *outputs], move_to_device(packing.positions_2N, device), state)

    def read_packed(
        self,
        words: Sequence[Tensor],
        batch_sizes: Sequence[int],
        state: BilmState,
        *,
        dropout: Callable[[Tensor, int, int], Tensor] | None = None,
    ) -> tuple[list[list[Tensor]], BilmState]:
        """For each layer the outputs (N, P) of both directions, from words packed as engines take them.

        Arguments:
            words: (N, P) word vectors, once in the order in which the forward stack reads them, once for the backward.
            batch_sizes: how many rows read a word at each step (see `packing.py`).
            state: what each row starts from, rows sorted like the words.
            dropout: applied to what a layer reads: (inputs, layer number, direction) to inputs. The residual adds the
                inputs after dropout, as in bilm-tf.
        """
        read = self._read_packed
        if torch.compiler.is_compiling():  # a graph would unroll the loop over words anew for every sentence length
            read = cast(Callable, torch.compiler.disable(read))
        return read(words, batch_sizes, state, dropout)

    def _read_packed(
        self,
        words: Sequence[Tensor],
        batch_sizes: Sequence[int],
        state: BilmState,
        dropout: Callable[[Tensor, int, int], Tensor] | None,
    ) -> tuple[list[list[Tensor]], BilmState]:
        weights = self._weights()
        # Engines want at least one step; the reference can do without.
        engine = self._choose(weights, words, state).name if batch_sizes else "reference"
        run, clips = find_engine("recurrence", engine), self.clips
        states = iter(map(LayerState, *(part.flatten(0, 1).unbind() for part in state)))
        inputs, layers, hidden, cell = list(words), [], [], []
        for number, pair in enumerate(weights):
            if dropout is not None:
                inputs = [dropout(inputs_NP, number, direction) for direction, inputs_NP in enumerate(inputs)]
            recurrences = [Recurrence(*each, next(states)) for each in zip(inputs, pair, strict=True)]
            results = run(recurrences, batch_sizes, clips)
            outputs = [output_NP for output_NP, _ in results]
            if self.config.residual and number > 0:
                # The layer's own recurrence never sees the sum: only what is reported and what the next layer reads.
                outputs = [output_NP + input_NP for output_NP, input_NP in zip(outputs, inputs, strict=True)]
            inputs = outputs
            layers.append(outputs)
            hidden += [final.hidden_BP for _, final in results]
            cell += [final.cell_BH for _, final in results]
        final = (torch.stack(part).view(len(weights), 2, *part[0].shape) for part in (hidden, cell))
        return layers, BilmState(*final)

    def _choose(
        self,
        weights: Sequence[tuple[LstmpWeights, LstmpWeights]],
        words: Sequence[Tensor] = (),
        state: Sequence[Tensor] = (),
    ) -> Choice:
        details = {"precision": self.precision, "clips": self.clips, "has_projection": self.config.has_projection}
        parts = [part for pair in weights for direction in pair for part in direction]
        return choose(describe("recurrence", (*parts, *words), others=state, **details))

    def _weights(self) -> list[tuple[LstmpWeights, LstmpWeights]]:
        """The weights of each layer, forward and backward."""
        pairs = zip(self.forward_layers, self.backward_layers, strict=True)
        return [(cast(Lstmp, one).weights(), cast(Lstmp, other).weights()) for one, other in pairs]
