"""The definition of correct: the recurrence of Peters et al. (2018), one obvious step at a time.

Slow on purpose. Every other engine is a claim "equal to this one"; `tests/engines` holds them to it.
Shapes as in `engines/__init__.py`; n is the number of rows still reading at a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.engines import Clips, LayerState, Recurrence

__all__ = ["run"]


def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence, each on its own."""
    return [_run_one(recurrence, batch_sizes, clips) for recurrence in recurrences]


def _run_one(recurrence: Recurrence, batch_sizes: Sequence[int], clips: Clips) -> tuple[Tensor, LayerState]:
    weights, (hidden_BP, cell_BH) = recurrence.weights, recurrence.state
    outputs = []
    for input_nD in recurrence.inputs_ND.split(list(batch_sizes)):
        n = len(input_nD)
        gates_n4H = input_nD @ weights.input_D4H + hidden_BP[:n] @ weights.recurrent_P4H + weights.bias_4H
        i_nH, j_nH, f_nH, o_nH = gates_n4H.chunk(4, dim=-1)
        # The cell is clipped before the output gate reads it, as bilm-tf and AllenNLP do.
        cell_nH = _clip(f_nH.sigmoid() * cell_BH[:n] + i_nH.sigmoid() * j_nH.tanh(), clips.cell)
        hidden_nP = o_nH.sigmoid() * cell_nH.tanh()
        if weights.projection_HP is not None:
            hidden_nP = _clip(hidden_nP @ weights.projection_HP, clips.projection)
        outputs.append(hidden_nP)
        # Rows that have ended keep the state of their last word.
        hidden_BP = torch.cat([hidden_nP, hidden_BP[n:]])
        cell_BH = torch.cat([cell_nH, cell_BH[n:]])
    outputs_NP = torch.cat(outputs) if outputs else hidden_BP[:0]
    return outputs_NP, LayerState(hidden_BP, cell_BH)


def _clip(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else values.clamp(-bound, bound)
