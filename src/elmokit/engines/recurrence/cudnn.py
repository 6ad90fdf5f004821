"""cuDNN's LSTM with projection: the engine of GPUs where nothing is clipped, in float32, bfloat16 and float16.

cuDNN keeps weights as (out, in) with gates in the order i, f, g, o, so ours are copied into it at every call: a few
megabytes, next to nothing beside the recurrence. The two directions are independent and each leaves most of a GPU
idle, so they run on two streams; autograd goes back on the same two.

Shapes as in `nn/operations.py`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.errors import EngineError
from elmokit.nn.operations import Clips, LayerState, LstmpWeights, Recurrence

__all__ = ["run"]

_LSTM = 2  # cuDNN's number of the cell


def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence."""
    if clips.cell is not None or (clips.projection is not None and recurrences[0].weights.projection_HP is not None):
        raise EngineError("the cudnn engine cannot clip: use the packed engine, or a model whose clips are null")
    main = torch.cuda.current_stream(recurrences[0].inputs_ND.device)
    sides = [main, *(_side_stream(main.device, number) for number in range(1, len(recurrences)))]
    for side in sides[1:]:  # before anything is queued on the main stream: what comes later there is not waited for
        side.wait_stream(main)
    results = []
    for recurrence, stream in zip(recurrences, sides, strict=True):
        with torch.cuda.stream(stream):
            results.append(_run_one(recurrence, batch_sizes))
    for (outputs_NP, state), side in zip(results[1:], sides[1:], strict=True):
        main.wait_stream(side)
        for tensor in (outputs_NP, *state):
            tensor.record_stream(main)
    return results


@functools.cache
def _side_stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """One stream per direction and device; a stream costs memory, so it is made once."""
    del number
    return torch.cuda.Stream(device)


def _run_one(recurrence: Recurrence, batch_sizes: Sequence[int]) -> tuple[Tensor, LayerState]:
    inputs_ND, weights, (hidden_BP, cell_BH) = recurrence
    n = batch_sizes[0]
    ragged = batch_sizes[-1] != n
    inputs = inputs_ND if ragged else inputs_ND.unflatten(0, (len(batch_sizes), n))
    cell_dim, output_dim = cell_BH.shape[1], hidden_BP.shape[1]
    has_projection = weights.projection_HP is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not part of single contiguous chunk.*")
        outputs, hidden, cell, *_ = torch._cudnn_rnn(  # pyright: ignore[reportPrivateImportUsage]
            inputs,
            _turn_weights(weights),
            5 if has_projection else 4,
            None,
            hidden_BP[:n].unsqueeze(0).to(inputs_ND.dtype).contiguous(),
            cell_BH[:n].unsqueeze(0).to(inputs_ND.dtype).contiguous(),
            _LSTM,
            cell_dim,
            output_dim if has_projection else 0,
            1,
            False,
            0.0,
            torch.is_grad_enabled(),
            False,
            list(batch_sizes) if ragged else [],
            None,
        )
    # Rows without a word keep the state they came with.
    ends = ((hidden[0], hidden_BP), (cell[0], cell_BH))
    final = LayerState(*(torch.cat([last.to(first.dtype), first[n:]]) for last, first in ends))
    return outputs.reshape(len(inputs_ND), output_dim), final


def _turn_weights(weights: LstmpWeights) -> list[Tensor]:
    """Our weights as cuDNN takes them: (out, in), gates i, f, g, o, a second bias of zeros."""

    def gates(values: Tensor) -> Tensor:
        i, j, f, o = values.chunk(4, dim=-1)
        return torch.cat([i, f, j, o], dim=-1)

    bias_4H = gates(weights.bias_4H)
    turned = [gates(weights.input_D4H).t().contiguous(), gates(weights.recurrent_P4H).t().contiguous()]
    turned += [bias_4H, torch.zeros_like(bias_4H)]
    if weights.projection_HP is not None:
        turned.append(weights.projection_HP.t().contiguous())
    return turned
