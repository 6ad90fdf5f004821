"""One LSTM layer with projection in one direction: its parameters, and its recurrence one obvious step at a time.

For each word x, with the output h and the cell c of the word before (Peters et al. 2018; Sak et al. 2014):

    i, j, f, o = x @ input_weight + h @ recurrent_weight + bias      (i input gate, j candidate, f forget, o output)
    c = clip(sigmoid(f) * c + sigmoid(i) * tanh(j))
    h = clip((sigmoid(o) * tanh(c)) @ projection_weight)             (without a projection: sigmoid(o) * tanh(c))

Without a projection h is not clipped, as it lies within ±1 anyway. The residual of a biLM is added later and outside
(`bilm.py`): it is neither clipped nor seen by the recurrence.

Weights lie as bilm-tf wrote them, (in, out) and gates in the order i, j, f, o, so published files load without a copy
and a formula reads like the paper. `run` is the definition of correct for every engine of the recurrence.

Shapes: D input width, H cell width, P output width, N packed words, B rows, n rows still reading at a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.config import LstmConfig
from elmokit.nn.operations import Clips, LayerState, LstmpWeights, Recurrence, get_parameters

__all__ = ["Lstmp", "pass_gates", "run"]


class Lstmp(nn.Module):
    """The weights of a layer: input, recurrence, bias and, where cell and output differ in width, projection."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        cell_dim, output_dim = config.cell_dim, config.projection_dim
        # Every layer reads vectors as wide as its output: words at the bottom, outputs of the layer below above.
        self.input_weight = nn.Parameter(torch.empty(output_dim, 4 * cell_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(output_dim, 4 * cell_dim))
        self.bias = nn.Parameter(torch.empty(4 * cell_dim))
        self.projection_weight = nn.Parameter(torch.empty(cell_dim, output_dim)) if config.has_projection else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw as bilm-tf does: Glorot-uniform over the joint kernel [input; hidden], forget bias 1."""
        fan_in = len(self.input_weight) + len(self.recurrent_weight)
        bound = (6 / (fan_in + self.bias.numel())) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        with torch.no_grad():
            self.bias.zero_()
            cell_dim = self.bias.numel() // 4
            self.bias[2 * cell_dim : 3 * cell_dim] = 1.0
        if self.projection_weight is not None:
            nn.init.xavier_uniform_(self.projection_weight)

    def weights(self) -> LstmpWeights:
        """The parameters as engines take them."""
        names = ("input_weight", "recurrent_weight", "bias", "projection_weight")
        return LstmpWeights(*get_parameters(self, *names))


def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence, each on its own."""
    return [_run_one(recurrence, batch_sizes, clips) for recurrence in recurrences]


def _run_one(recurrence: Recurrence, batch_sizes: Sequence[int], clips: Clips) -> tuple[Tensor, LayerState]:
    weights, (hidden_BP, cell_BH) = recurrence.weights, recurrence.state
    outputs = []
    for input_nD in recurrence.inputs_ND.split(list(batch_sizes)):
        n = len(input_nD)
        gates_n4H = input_nD @ weights.input_D4H + hidden_BP[:n] @ weights.recurrent_P4H + weights.bias_4H
        hidden_nP, cell_nH = pass_gates(gates_n4H, cell_BH[:n], weights.projection_HP, clips)
        outputs.append(hidden_nP)
        # Rows that have ended keep the state of their last word.
        hidden_BP = torch.cat([hidden_nP, hidden_BP[n:]])
        cell_BH = torch.cat([cell_nH, cell_BH[n:]])
    outputs_NP = torch.cat(outputs) if outputs else hidden_BP[:0]
    return outputs_NP, LayerState(hidden_BP, cell_BH)


def pass_gates(gates_n4H: Tensor, cell_nH: Tensor, projection_HP: Tensor | None, clips: Clips) -> tuple[Tensor, Tensor]:
    """The output (n, P) and the cell (n, H) after one word, from the sums that its gates see and the cell before it."""
    i_nH, j_nH, f_nH, o_nH = gates_n4H.chunk(4, dim=-1)
    # The cell is clipped before the output gate reads it, as bilm-tf and AllenNLP do.
    cell_nH = _clip(f_nH.sigmoid() * cell_nH + i_nH.sigmoid() * j_nH.tanh(), clips.cell)
    gated_nH = o_nH.sigmoid() * cell_nH.tanh()
    if projection_HP is None:  # P is H
        return gated_nH, cell_nH
    return _clip(gated_nH @ projection_HP, clips.projection), cell_nH


def _clip(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else values.clamp(-bound, bound)
