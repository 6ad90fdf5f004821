"""The recurrence on a processor, in C++: equal to the reference within 1e-5 in float32, near it in int8.

One call runs a layer in both directions, each direction on its own threads. Weights are laid out once as the machine
reads them (`cpp/packing.py`); a step is two matmuls and the gates, without Python and without padding (`lstmp.cpp`).

In int8, weights are rounded once, one scale per column; what a step reads (inputs, previous outputs, gated cells) is
rounded at that step, one scale per row. Sums are exact; gates, cells and outputs are float32. It needs a quarter of the
bytes and is several times faster, but not equal to the reference, so it is taken only where it is asked for.

Shapes as in `nn/operations.py`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.packing import Packed, choose_storage, pack, remember
from elmokit.engines.cpp.threads import num_threads
from elmokit.nn.operations import Clips, LayerState, LstmpWeights, Precision, Recurrence

__all__ = ["run", "run_in_int8"]

# Memory of one block of matmuls with the inputs, per direction: small enough to stay near the core that reads it.
BLOCK_BYTES = 8 * 2**20


class _Direction(ctypes.Structure):
    """`Direction` of `lstmp.cpp`."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("inputs", "input", "recurrent", "projection", "hidden", "cell", "outputs")
    ]  # fmt: skip


def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence."""
    return _run("float32", recurrences, batch_sizes, clips)


def run_in_int8(
    recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips
) -> list[tuple[Tensor, LayerState]]:
    """The same with int8 matmuls."""
    return _run("int8", recurrences, batch_sizes, clips)


def _run(
    precision: Precision, recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips
) -> list[tuple[Tensor, LayerState]]:
    first = recurrences[0]
    input_dim, output_dim = first.inputs_ND.shape[1], first.state.hidden_BP.shape[1]
    num_rows, cell_dim = first.state.cell_BH.shape
    all_weights = [recurrence.weights for recurrence in recurrences]
    packed = remember(list(chain.from_iterable(all_weights)), precision, lambda: _pack(all_weights, precision))
    matrices = len(packed) // len(recurrences)
    directions = (_Direction * len(recurrences))()
    results, alive = [], []  # what the pointers point to
    for number, (inputs_ND, _, (hidden_BP, cell_BH)) in enumerate(recurrences):
        inputs_ND = inputs_ND.contiguous()
        hidden_BP = hidden_BP.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        cell_BH = cell_BH.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        outputs_NP = inputs_ND.new_empty(inputs_ND.shape[0], output_dim)
        own = [part.memory.data_ptr() for part in packed[number * matrices : (number + 1) * matrices]]
        directions[number] = (
            inputs_ND.data_ptr(), own[0], own[1], own[2] if matrices > 2 else None,
            hidden_BP.data_ptr(), cell_BH.data_ptr(), outputs_NP.data_ptr(),
        )  # fmt: skip
        results.append((outputs_NP, LayerState(hidden_BP, cell_BH)))
        alive.append(inputs_ND)
    library().elmokit_lstmp(
        packed[0].storage, directions, len(recurrences), input_dim, cell_dim, output_dim, num_rows,
        (ctypes.c_long * len(batch_sizes))(*batch_sizes), len(batch_sizes), BLOCK_BYTES // (16 * cell_dim),
        *(math.inf if bound is None else bound for bound in clips), _threads_for(recurrences, len(batch_sizes)),
    )  # fmt: skip
    return results


def _threads_for(recurrences: Sequence[Recurrence], num_steps: int) -> int:
    """Threads of one direction meet at every step; the two directions only at the end."""
    hidden_BP, cell_BH = recurrences[0].state
    multiplications = len(recurrences) * 5 * cell_BH.numel() * hidden_BP.shape[1]
    return max(num_threads(multiplications), min(len(recurrences), num_threads(multiplications * num_steps)))


def _pack(directions: Sequence[LstmpWeights], precision: Precision) -> tuple[Packed, ...]:
    """The matrices of each direction in turn; all are stored alike, because one kernel reads them."""
    matrices = [
        matrix
        for weights in directions
        for matrix in (weights.input_D4H, weights.recurrent_P4H, weights.projection_HP)
        if matrix is not None
    ]
    storage, parts = choose_storage(precision, matrices), []
    for weights in directions:
        parts.append(pack(weights.input_D4H, weights.bias_4H, storage=storage, groups=4))
        parts.append(pack(weights.recurrent_P4H, storage=storage, groups=4))
        if weights.projection_HP is not None:
            parts.append(pack(weights.projection_HP, storage=storage))
    return tuple(parts)
