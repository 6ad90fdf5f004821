"""Two language models read a sentence, one from each end; what each layer says of each word is kept.

Arrives: word vectors (B, W, P) with the sentence boundaries already in place, the length of each row, and the state to
start from. Leaves: L+1 layers (L+1, B, W, 2P), forward and backward side by side, layer 0 being the word vector
twice; and the state after each row's last word. The stacks share nothing. Positions past a row's length are zero.

Shapes: B rows, W words, N packed words, P width of a direction, H cell width, L LSTM layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import LstmConfig
from elmokit.engines import Choice, Clips, LayerState, LstmpWeights, Precision, Recurrence, best_for, engine_named
from elmokit.nn.lstmp import Lstmp

__all__ = ["BiLM", "BilmState"]


class BilmState(NamedTuple):
    """What both stacks remember of each row: `hidden` (L, 2, B, P) and `cell` (L, 2, B, H); direction 0 is forward."""

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

    def rows(self, count: int) -> BilmState:
        """The first `count` rows; where there are fewer, rows of zeros are added."""
        missing = count - self.num_rows
        if missing <= 0:
            return BilmState(self.hidden[:, :, :count], self.cell[:, :, :count])
        return BilmState(*(nn.functional.pad(part, (0, 0, 0, missing)) for part in self))

    def repeat(self, count: int) -> BilmState:
        """A single row, `count` times."""
        assert self.num_rows == 1, "only a state of one row can be repeated"
        return BilmState(*(part.expand(-1, -1, count, -1) for part in self))

    def permuted(self, order_B: Tensor) -> BilmState:
        """The same rows in another order."""
        return BilmState(self.hidden[:, :, order_B], self.cell[:, :, order_B])

    def detach(self) -> BilmState:
        """The same values, without the history that gradients would follow."""
        return BilmState(self.hidden.detach(), self.cell.detach())

    def to(self, like: Tensor) -> BilmState:
        """The same values with the dtype and device of `like`."""
        return BilmState(self.hidden.to(like), self.cell.to(like))


class BiLM(nn.Module):
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
        self.precision: Precision = "float32"  # of the products; int8 is for inference on a CPU
        self.forward_layers = nn.ModuleList(Lstmp(config) for _ in range(config.num_layers))
        self.backward_layers = nn.ModuleList(Lstmp(config) for _ in range(config.num_layers))

    @property
    def clips(self) -> Clips:
        """The bounds that an engine applies."""
        return Clips(self.config.cell_clip, self.config.projection_clip)

    @property
    def engine(self) -> Choice:
        """The engine that runs the layers on this module's device, and why."""
        weight = next(self.parameters())
        return best_for(weight.device, weight.dtype, self.clips, precision=self.precision)

    def forward(
        self, words_BWP: Tensor, *, lengths: Sequence[int], state: BilmState | None = None
    ) -> tuple[Tensor, BilmState]:
        """All layers (L+1, B, W, 2P) of these sentences, and the state after them."""
        num_rows, num_words, width = words_BWP.shape
        packing = _Packing(lengths, num_words, words_BWP.device)
        state = BilmState.zeros(self.config, num_rows, like=words_BWP) if state is None else state.to(words_BWP)
        words_QP = words_BWP.reshape(num_rows * num_words, width)
        packed = [words_QP[index_N] for index_N in packing.indices]  # one copy a direction, each in its reading order
        outputs, state = self.read_packed(packed, packing.batch_sizes, state.permuted(packing.order))
        layers = [torch.cat([words_BWP, words_BWP], dim=2)]
        layers += [packing.unpack(pair, num_rows, num_words) for pair in outputs]
        return torch.stack(layers), state.permuted(packing.rank)

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
            batch_sizes: how many rows read a word at each step (see `engines/README.md`).
            state: what each row starts from, rows sorted like the words.
            dropout: applied to what a layer reads: (inputs, layer number, direction) to inputs. The residual adds the
                dropped inputs, as in bilm-tf.
        """
        run = engine_named(self.engine.name)
        inputs, layers, hidden, cell = list(words), [], [], []
        for number in range(self.config.num_layers):
            if dropout is not None:
                inputs = [dropout(inputs_NP, number, direction) for direction, inputs_NP in enumerate(inputs)]
            recurrences = [
                Recurrence(inputs[d], weights, LayerState(state.hidden[number, d], state.cell[number, d]))
                for d, weights in enumerate(self._weights(number))
            ]
            results = run(recurrences, batch_sizes, self.clips)
            outputs = [output_NP for output_NP, _ in results]
            if self.config.residual and number > 0:
                # The layer's own recurrence never sees the sum: only what is reported and what the next layer reads.
                outputs = [output_NP + input_NP for output_NP, input_NP in zip(outputs, inputs, strict=True)]
            inputs = outputs
            layers.append(outputs)
            hidden += [final.hidden_BP for _, final in results]
            cell += [final.cell_BH for _, final in results]
        return layers, BilmState(*(torch.stack(part).unflatten(0, (-1, 2)) for part in (hidden, cell)))

    def _weights(self, number: int) -> list[LstmpWeights]:
        """The weights of layer `number`, forward then backward."""
        layers = self.forward_layers[number], self.backward_layers[number]
        return [layer.weights() for layer in layers if isinstance(layer, Lstmp)]


class _Packing:
    """Where each word of a padded batch lies when rows are sorted by falling length and read step by step."""

    def __init__(self, lengths: Sequence[int], num_words: int, device: torch.device) -> None:
        lengths_B = torch.as_tensor(lengths, dtype=torch.int64)
        order_B = lengths_B.argsort(descending=True, stable=True)
        sorted_B = lengths_B[order_B]
        num_steps = int(sorted_B[0]) if len(sorted_B) else 0
        steps_S = torch.arange(num_steps)
        sizes_S = (sorted_B > steps_S.unsqueeze(1)).sum(dim=1)
        step_N = steps_S.repeat_interleave(sizes_S)
        row_N = torch.arange(len(step_N)) - (sizes_S.cumsum(0) - sizes_S).repeat_interleave(sizes_S)
        first_N = order_B[row_N] * num_words
        self.batch_sizes: list[int] = sizes_S.tolist()
        self.order = order_B.to(device)
        self.rank = order_B.argsort().to(device)
        # A backward row is read from its own last word, not from the end of the padded row.
        self.indices = [(first_N + step_N).to(device), (first_N + sorted_B[row_N] - 1 - step_N).to(device)]

    def unpack(self, outputs: Sequence[Tensor], num_rows: int, num_words: int) -> Tensor:
        """Packed outputs of both directions as one padded tensor (B, W, 2P), zero where no word is."""
        halves = [
            output_NP.new_zeros(num_rows * num_words, output_NP.shape[1]).index_copy(0, index_N, output_NP)
            for output_NP, index_N in zip(outputs, self.indices, strict=True)
        ]
        return torch.cat(halves, dim=1).unflatten(0, (num_rows, num_words))
