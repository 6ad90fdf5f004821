"""The tensors of a `.safetensors` file from anyone, once its header was found to be true (`safe_header.py`).

A path arrives; named tensors leave, mapped from the file where they are stored as float32, those stored as int8 times
their scales.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elmokit.errors import CheckpointError
from elmokit.io.safe_header import Shapes, name_scale, read_shapes

__all__ = ["quantise", "read_safetensors", "read_sizes"]


def read_safetensors(
    path: Path,
    check: Callable[[Shapes], None] = lambda shapes: None,
    *,
    copies: bool = False,
    allows_int8: bool = False,
) -> dict[str, Tensor]:
    """The tensors of a file as float32.

    Arguments:
        path: the file.
        check: given every name and shape, scales aside, before a tensor is read; raises what it thinks of them.
        copies: read into memory of our own, so that the file may go away on any system.
        allows_int8: whether tensors may be stored as int8 with scales.
    """
    shapes, scales = read_shapes(path, allows_int8=allows_int8)
    check(shapes)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in shapes}
            factors = {name: file.get_tensor(name_scale(name)).float() for name in scales}
    except (SafetensorError, OSError) as problem:
        raise CheckpointError(
            f"{path}: expected a safetensors file, found otherwise ({problem}); fetch it anew"
        ) from problem
    for name, scale in factors.items():
        tensors[name] = tensors[name] * scale.reshape(scales[name])
    if copies:
        return {name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}
    return {name: tensor.float() for name, tensor in tensors.items()}


def read_sizes(path: Path) -> dict[str, Tensor]:
    """The tensors of a file as sizes without numbers, on the device "meta": only the header is read."""
    shapes, _ = read_shapes(path, allows_int8=True)
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def quantise(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The tensor as int8 and its scale: the largest number of each unit of dimension `dim` becomes 127 or -127.

    Example:
        >>> numbers, scale = quantise(torch.tensor([[1.0, -0.5], [0.0, 254.0]]), 0)
        >>> numbers.tolist(), scale.shape
        ([[127, -64], [0, 127]], torch.Size([2, 1]))
    """
    others = [other for other in range(tensor.dim()) if other != dim]
    scale = tensor.float().abs().amax(dim=others, keepdim=True).clamp_min(1e-12) / 127
    return (tensor / scale).round().to(torch.int8), scale
