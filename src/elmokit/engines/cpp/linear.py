"""Linear maps and highways by the C++ kernels, for inference.

Arrives: rows of float32 on a CPU and weights as `nn.Linear` keeps them. Leaves: new rows. float32 differs from torch
by the order of summation only; int8 rounds weights (one scale per column) and activations (one scale per row) to whole
numbers within ±127. Only for what `choice.why_no_cpu` lets pass.

Shapes: N rows, K width in, M width out, F width of a highway.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.packing import Packed, choose_storage, pack, remember
from elmokit.engines.cpp.threads import num_threads
from elmokit.nn.operations import Precision

__all__ = ["Activation", "apply_highway", "apply_linear"]

Activation = Literal["none", "relu", "sigmoid", "tanh"]
_NUMBERS = {"none": 0, "relu": 1, "sigmoid": 2, "tanh": 3}


def apply_linear(
    inputs_NK: Tensor,
    weight_MK: Tensor,
    bias_M: Tensor | None = None,
    *,
    activation: Activation = "none",
    precision: Precision = "float32",
) -> Tensor:
    """Linear map and activation, (N, M): activation(inputs @ weight.T + bias)."""
    (packed,) = remember((weight_MK, bias_M), precision, lambda: _pack(weight_MK.detach(), bias_M, precision))
    inputs_NK = inputs_NK.contiguous()
    outputs_NM = inputs_NK.new_empty(len(inputs_NK), len(weight_MK))
    library().elmokit_linear(
        packed.storage, packed.inner, packed.columns, packed.memory.data_ptr(), inputs_NK.data_ptr(),
        len(inputs_NK), _NUMBERS[activation], outputs_NM.data_ptr(), num_threads(outputs_NM.numel() * packed.inner),
    )  # fmt: skip
    return outputs_NM


def apply_highway(
    inputs_NF: Tensor,
    gate: tuple[Tensor, Tensor],
    transform: tuple[Tensor, Tensor],
    *,
    precision: Precision = "float32",
) -> Tensor:
    """Highway, (N, F): g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x)).

    Arguments:
        inputs_NF: x.
        gate: weight (F, F) and bias (F) of the gate.
        transform: weight and bias of the other map.
        precision: of the matmuls.
    """
    (packed,) = remember(
        (*gate, *transform),
        precision,
        lambda: _pack(torch.cat([gate[0], transform[0]]), torch.cat([gate[1], transform[1]]), precision, groups=2),
    )
    inputs_NF = inputs_NF.contiguous()
    outputs_NF = torch.empty_like(inputs_NF)
    library().elmokit_highway(
        packed.storage, packed.columns, packed.memory.data_ptr(), inputs_NF.data_ptr(), len(inputs_NF),
        outputs_NF.data_ptr(), num_threads(2 * outputs_NF.numel() * packed.inner),
    )  # fmt: skip
    return outputs_NF


def _pack(weight_MK: Tensor, bias_M: Tensor | None, precision: Precision, *, groups: int = 1) -> tuple[Packed]:
    return (pack(weight_MK.T, bias_M, storage=choose_storage(precision, [weight_MK]), groups=groups),)
