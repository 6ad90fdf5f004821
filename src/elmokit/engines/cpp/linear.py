"""Linear maps and highways by the C++ kernels, for inference.

Arrives: rows of float32 on a CPU and weights as `nn.Linear` keeps them. Leaves: new rows. float32 differs from torch
by the order of summation only; int8 rounds weights (one scale per column) and activations (one scale per row) to whole
numbers within ±127. Only for what `choice.why_no_cpu` lets pass.

Shapes: N rows, K width in, M width out, F width of a highway.
"""

from __future__ import annotations

import ctypes
from typing import Literal

import torch
from torch import Tensor

from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.packing import Packed, choose_storage, pack, remember
from elmokit.engines.cpp.threads import num_threads
from elmokit.nn.operations import Linear, Precision

__all__ = ["Activation", "Map", "apply_highway", "apply_linear", "pack_highway", "pack_linear"]

Activation = Literal["none", "relu", "sigmoid", "tanh"]
_NUMBERS = {"none": 0, "relu": 1, "sigmoid": 2, "tanh": 3}


class Map(ctypes.Structure):
    """`Map` of `linear.hpp`: one of them with its packed weights, which must outlive it."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("storage", "inner", "columns", "groups", "activation")),
        ("memory", ctypes.c_void_p),
    ]

    @classmethod
    def of(cls, packed: Packed, activation: Activation = "none") -> Map:
        """A linear map or, of two groups of columns, a highway."""
        storage, inner, columns, groups = packed[1:]
        return cls(storage, inner, columns, groups, _NUMBERS[activation], packed.memory.data_ptr())


def apply_linear(
    inputs_NK: Tensor,
    weight_MK: Tensor,
    bias_M: Tensor | None = None,
    *,
    activation: Activation = "none",
    precision: Precision = "float32",
) -> Tensor:
    """Linear map and activation, (N, M): activation(inputs @ weight.T + bias)."""
    return _apply(pack_linear(weight_MK, bias_M, precision=precision), inputs_NK, activation)


def apply_highway(inputs_NF: Tensor, gate: Linear, transform: Linear, *, precision: Precision = "float32") -> Tensor:
    """Highway, (N, F): g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x)).

    Arguments:
        inputs_NF: x.
        gate: weight (F, F) and bias (F) of the gate.
        transform: weight and bias of the other map.
        precision: of the matmuls.
    """
    return _apply(pack_highway(gate, transform, precision=precision), inputs_NF)


def pack_linear(weight_MK: Tensor, bias_M: Tensor | None, *, precision: Precision) -> Packed:
    """The weights of a linear map, packed and remembered."""
    return remember((weight_MK, bias_M), precision, lambda: _pack(weight_MK.detach(), bias_M, precision))


def pack_highway(gate: Linear, transform: Linear, *, precision: Precision) -> Packed:
    """The weights of a highway, packed and remembered."""

    def make() -> Packed:
        weight_MK, bias_M = map(torch.cat, zip(gate, transform, strict=True))
        return _pack(weight_MK, bias_M, precision, groups=2)

    return remember((*gate, *transform), precision, make)


def _pack(weight_MK: Tensor, bias_M: Tensor | None, precision: Precision, *, groups: int = 1) -> Packed:
    return pack(weight_MK.T, bias_M, storage=choose_storage(precision, [weight_MK]), groups=groups)


def _apply(packed: Packed, inputs_NK: Tensor, activation: Activation = "none") -> Tensor:
    inputs_NK = inputs_NK.contiguous()
    outputs_NM = inputs_NK.new_empty(len(inputs_NK), packed.columns)
    library().elmokit_maps(
        ctypes.byref(Map.of(packed, activation)), 1, inputs_NK.data_ptr(), len(inputs_NK), outputs_NM.data_ptr(),
        num_threads(packed.groups * outputs_NM.numel() * packed.inner),
    )  # fmt: skip
    return outputs_NM
