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
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.packing import Packed, Storage, choose_storage, pack, remember
from elmokit.engines.cpp.threads import num_threads
from elmokit.nn.operations import Clips, LayerState, LstmpWeights, Precision, Recurrence

__all__ = ["run", "run_in_int8"]

# Memory of one block of matmuls with the inputs, per direction: small enough to stay near the core that reads it.
BLOCK_BYTES = 8 * 2**20


class _Direction(ctypes.Structure):
    """`Direction` of `lstmp.cpp`."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            "inputs", "input", "recurrent", "projection",
            "first_hidden", "first_cell", "last_hidden", "last_cell", "outputs",
        )
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
    input_dim, output_dim = recurrences[0].inputs_ND.shape[1], recurrences[0].state.hidden_BP.shape[1]
    num_rows, cell_dim = recurrences[0].state.cell_BH.shape
    all_weights = [recurrence.weights for recurrence in recurrences]
    packed = remember(list(chain.from_iterable(all_weights)), precision, lambda: _pack(all_weights, precision))
    directions = (_Direction * len(recurrences))()
    results, alive, sizes = [], [], array("l", batch_sizes)  # what the pointers point to
    for number, (inputs_ND, _, state) in enumerate(recurrences):
        inputs_ND = inputs_ND.contiguous()
        first = [part.float().contiguous() for part in state]
        last = LayerState(*map(torch.empty_like, first))
        outputs_NP = inputs_ND.new_empty(inputs_ND.shape[0], output_dim)
        directions[number] = (
            inputs_ND.data_ptr(), *packed.addresses[number], *map(Tensor.data_ptr, (*first, *last, outputs_NP))
        )  # fmt: skip
        results.append((outputs_NP, last))
        alive += [inputs_ND, *first]
    library().elmokit_lstmp(
        packed.storage, directions, len(recurrences), input_dim, cell_dim, output_dim, num_rows,
        sizes.buffer_info()[0], len(batch_sizes), BLOCK_BYTES // (16 * cell_dim),
        *(math.inf if bound is None else bound for bound in clips), _threads_for(recurrences, len(batch_sizes)),
    )  # fmt: skip
    return results


def _threads_for(recurrences: Sequence[Recurrence], num_steps: int) -> int:
    """Threads of one direction meet at every step; the two directions only at the end."""
    hidden_BP, cell_BH = recurrences[0].state
    multiplications = len(recurrences) * 5 * cell_BH.numel() * hidden_BP.shape[1]
    return max(num_threads(multiplications), min(len(recurrences), num_threads(multiplications * num_steps)))


class _Layer(NamedTuple):
    """The packed weights of a layer; all are stored alike, because one kernel reads them."""

    storage: Storage
    addresses: list[tuple[int | None, ...]]  # of each direction: input, recurrent, projection
    memory: list[Packed]


def _pack(directions: Sequence[LstmpWeights], precision: Precision) -> _Layer:
    matrices = [
        matrix
        for weights in directions
        for matrix in (weights.input_D4H, weights.recurrent_P4H, weights.projection_HP)
        if matrix is not None
    ]
    storage, memory, addresses = choose_storage(precision, matrices), [], []
    for weights in directions:
        own = [
            pack(weights.input_D4H, weights.bias_4H, storage=storage, groups=4),
            pack(weights.recurrent_P4H, storage=storage, groups=4),
        ]
        if weights.projection_HP is not None:
            own.append(pack(weights.projection_HP, storage=storage))
        places = [part.memory.data_ptr() for part in own]
        addresses.append((*places, None)[:3])
        memory += own
    return _Layer(storage, addresses, memory)
