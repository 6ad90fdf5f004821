"""One `.safetensors` file, read as data from anyone.

A path arrives; named tensors leave, mapped from the file where they are stored as float32. The header is checked
here before safetensors sees it: its own length, every offset against the size of the file, and every name, type
and shape against what the caller expects, so that a lying header costs a line of text and no memory.

A tensor NAME may be stored as int8 beside its scale, one float32 for each unit of one dimension: what is read is their
product. The scale is called NAME.scale and has the dimensions of the tensor, all but that one of size 1; that of
`softmax.weight` is older, is called `softmax.scale` and has one number for each row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elmokit.errors import CheckpointError
from elmokit.io.text_files import check_not_pointer, explain_failures

__all__ = ["name_scale", "quantise", "read_safetensors", "read_sizes"]

LARGEST_HEADER = 2 * 2**20  # a model with a thousand layers needs less than 1 MB
BYTES = {"F16": 2, "BF16": 2, "F32": 4}
INT8 = {"I8": 1}  # only where the caller expects scales
Shapes = dict[str, tuple[int, ...]]


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
    shapes, scales = _check_header(path, {**BYTES, **INT8} if allows_int8 else BYTES)
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
    shapes, _ = _check_header(path, {**BYTES, **INT8})
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


def name_scale(name: str) -> str:
    """What the scale of a tensor is called."""
    return "softmax.scale" if name == "softmax.weight" else f"{name}.scale"


def _check_header(path: Path, num_bytes: dict[str, int]) -> tuple[Shapes, Shapes]:
    """The shape of each tensor, and that by which the scale of one stored as int8 is multiplied."""
    header, data_bytes = _read_header(path)
    shapes: Shapes = {}
    kinds: dict[str, str] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            # `true` is an integer to Python, and no size to torch.
            whole = isinstance(kind, str) and all(type(size) is int and size >= 0 for size in (*shape, begin, end))
        except (KeyError, TypeError, ValueError):
            whole, kind, shape, begin, end = False, None, (), 0, 0
        if not whole:
            raise CheckpointError(f"{path}: the header's entry for {name!r:.80} is no tensor; fetch the file anew")
        if kind not in num_bytes:
            raise CheckpointError(
                f"{path}: {name!r:.80} should be stored as one of {', '.join(num_bytes)}, found {kind!r:.20}"
            )
        if not begin <= end <= data_bytes or end - begin != num_bytes[kind] * prod(shape):
            raise CheckpointError(
                f"{path}: the header claims bytes {begin:,} to {end:,} for {name!r:.80}, the file has "
                f"{data_bytes:,}; it is truncated or damaged: fetch it anew"
            )
        shapes[name], kinds[name] = shape, kind
    stored = [name for name, kind in kinds.items() if kind in INT8]
    scales = {name: _check_scale(path, name, shapes) for name in stored}
    for name in stored:
        del shapes[name_scale(name)]
    return shapes, scales


def _check_scale(path: Path, name: str, shapes: Shapes) -> tuple[int, ...]:
    """The shape by which a scale is multiplied; refused unless it has a number for each unit of one dimension."""
    shape, scale = shapes[name], shapes.get(name_scale(name))
    legal = [tuple(size if place == dim else 1 for place, size in enumerate(shape)) for dim in range(len(shape))]
    if name == "softmax.weight" and scale == shape[:1]:
        return legal[0]
    if scale is None or scale not in legal:
        raise CheckpointError(
            f"{path}: {name!r:.80} is stored as int8, so {name_scale(name)!r:.80} should have a number for each of its "
            f"rows or columns, found {'no such tensor' if scale is None else f'shape {scale}'}; fetch the file anew"
        )
    return scale


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and how many bytes follow it."""
    with explain_failures(path, "the header is not JSON"):
        check_not_pointer(path)
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, LARGEST_HEADER):
                raise CheckpointError(
                    f"{path}: the header claims {length:,} bytes, the file has {size:,}; "
                    "it is truncated or not a safetensors file: fetch it anew"
                )
            header = json.loads(file.read(length).decode("utf-8"))
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is no JSON object; fetch the file anew")
    return header, size - 8 - length
