"""The recurrence in plain torch, faster: equal to the reference within 1e-5 in float32.

Three things are done differently. The matmuls with the inputs need no history, so they are one large matmul over many
words instead of a small one per step. The gates are then computed in place in that matmul's memory. And nothing is
padded: a step works on the rows that are still reading. With gradients the same plan runs out of place, so that
autograd can follow it.

Shapes as in `nn/operations.py`; n is the number of rows still reading at a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from elmokit.nn.operations import Clips, LayerState, LstmpWeights, Recurrence

__all__ = ["run"]

# Memory of one block of hoisted matmuls. Long sentences are cut into such blocks of whole steps, so the peak
# does not grow with their length.
BLOCK_BYTES = 32 * 2**20


def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence."""
    results = []
    for recurrence in recurrences:
        tensors = (recurrence.inputs_ND, *recurrence.weights, *recurrence.state)
        needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        results.append((_run_with_grad if needs_grad else _run_in_place)(recurrence, batch_sizes, clips))
    return results


def _run_in_place(recurrence: Recurrence, batch_sizes: Sequence[int], clips: Clips) -> tuple[Tensor, LayerState]:
    weights, inputs_ND = recurrence.weights, recurrence.inputs_ND
    hidden_BP, cell_BH = recurrence.state.hidden_BP.clone(), recurrence.state.cell_BH.clone()
    cell_dim, output_dim = cell_BH.shape[1], hidden_BP.shape[1]
    outputs_NP = inputs_ND.new_empty(len(inputs_ND), output_dim)
    gated_BH = torch.empty_like(cell_BH)
    previous_nP = hidden_BP
    start = 0
    for block in _blocks(batch_sizes, 4 * cell_dim * inputs_ND.element_size()):
        num_words = sum(block)
        gates_M4H = torch.addmm(weights.bias_4H, inputs_ND[start : start + num_words], weights.input_D4H)
        for gates_n4H in gates_M4H.split(list(block)):
            n = len(gates_n4H)
            hidden_BP[n : len(previous_nP)] = previous_nP[n:]  # rows that ended with the step before
            gates_n4H.addmm_(previous_nP[:n], weights.recurrent_P4H)
            i_nH = gates_n4H[:, :cell_dim].sigmoid_()
            j_nH = gates_n4H[:, cell_dim : 2 * cell_dim].tanh_()
            f_nH, o_nH = gates_n4H[:, 2 * cell_dim :].sigmoid_().chunk(2, dim=1)
            cell_nH = cell_BH[:n].mul_(f_nH).addcmul_(i_nH, j_nH)
            if clips.cell is not None:
                cell_nH.clamp_(-clips.cell, clips.cell)
            output_nP = outputs_NP[start : start + n]
            if weights.projection_HP is None:
                torch.mul(cell_nH.tanh(), o_nH, out=output_nP)
            else:
                gated_nH = torch.tanh(cell_nH, out=gated_BH[:n]).mul_(o_nH)
                torch.mm(gated_nH, weights.projection_HP, out=output_nP)
                if clips.projection is not None:
                    output_nP.clamp_(-clips.projection, clips.projection)
            previous_nP = output_nP
            start += n
    hidden_BP[: len(previous_nP)] = previous_nP
    return outputs_NP, LayerState(hidden_BP, cell_BH)


def _run_with_grad(recurrence: Recurrence, batch_sizes: Sequence[int], clips: Clips) -> tuple[Tensor, LayerState]:
    weights, (hidden_BP, cell_BH) = recurrence.weights, recurrence.state
    gates_N4H = torch.addmm(weights.bias_4H, recurrence.inputs_ND, weights.input_D4H)
    hidden_nP, cell_nH = hidden_BP, cell_BH
    outputs, ended_hidden, ended_cell = [], [], []
    for gates_n4H in gates_N4H.split(list(batch_sizes)):
        n = len(gates_n4H)
        if n < len(hidden_nP):  # collect the rows that ended, the shortest sentences first
            ended_hidden.append(hidden_nP[n:])
            ended_cell.append(cell_nH[n:])
        hidden_nP, cell_nH = _step(gates_n4H, hidden_nP[:n], cell_nH[:n], weights, clips)
        outputs.append(hidden_nP)
    outputs_NP = torch.cat(outputs) if outputs else hidden_BP[:0]
    final_hidden_BP = torch.cat([hidden_nP, *reversed(ended_hidden)])
    final_cell_BH = torch.cat([cell_nH, *reversed(ended_cell)])
    return outputs_NP, LayerState(final_hidden_BP, final_cell_BH)


def _step(
    gates_n4H: Tensor, hidden_nP: Tensor, cell_nH: Tensor, weights: LstmpWeights, clips: Clips
) -> tuple[Tensor, Tensor]:
    i_nH, j_nH, f_nH, o_nH = torch.addmm(gates_n4H, hidden_nP, weights.recurrent_P4H).chunk(4, dim=1)
    cell_nH = f_nH.sigmoid() * cell_nH + i_nH.sigmoid() * j_nH.tanh()
    if clips.cell is not None:
        cell_nH = cell_nH.clamp(-clips.cell, clips.cell)
    hidden_nP = o_nH.sigmoid() * cell_nH.tanh()
    if weights.projection_HP is not None:
        hidden_nP = hidden_nP @ weights.projection_HP
        if clips.projection is not None:
            hidden_nP = hidden_nP.clamp(-clips.projection, clips.projection)
    return hidden_nP, cell_nH


def _blocks(batch_sizes: Sequence[int], bytes_per_word: int) -> Iterator[list[int]]:
    """Runs of whole steps whose hoisted matmuls fit into `BLOCK_BYTES` (at least one step each)."""
    limit = max(1, BLOCK_BYTES // bytes_per_word)
    block: list[int] = []
    words = 0
    for size in batch_sizes:
        if block and words + size > limit:
            yield block
            block, words = [], 0
        block.append(size)
        words += size
    if block:
        yield block
