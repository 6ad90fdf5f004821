"""The header of a `.safetensors` file from anyone: which tensors the file holds, their types, shapes and places.

A path arrives; names and shapes leave. The header's own length, every offset against the size of the file, and every
name, type and shape are checked here before safetensors sees them, so that a lying header costs a line of text and no
memory. torch is not needed for that: `elmo info` lists models without it.

A tensor NAME may be stored as int8 beside its scale, one float32 for each unit of one dimension: what is read is their
product. The scale is called NAME.scale and has the dimensions of the tensor, all but that one of size 1; that of
`softmax.weight` is older, is called `softmax.scale` and has one number for each row.
"""

from __future__ import annotations

import json
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

from elmokit.errors import CheckpointError
from elmokit.io.text_files import check_not_pointer, explain_failures

__all__ = ["Shapes", "name_scale", "read_shapes"]

LARGEST_HEADER = 2 * 2**20  # a model with a thousand layers needs less than 1 MB
BYTES = {"F16": 2, "BF16": 2, "F32": 4}
INT8 = {"I8": 1}  # only where the caller expects scales
Shapes = dict[str, tuple[int, ...]]


def read_shapes(path: Path, *, allows_int8: bool = False) -> tuple[Shapes, Shapes]:
    """The shape of each tensor, scales aside, and the shape by which the scale of each int8 tensor is multiplied."""
    num_bytes = {**BYTES, **INT8} if allows_int8 else BYTES
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
    for name, times in Counter(map(name_scale, stored)).items():
        if times > 1 or name in scales:
            problem = f"{times} tensors claim it" if times > 1 else "it is stored as int8 itself"
            raise CheckpointError(f"{path}: {name!r:.80} is no scale: {problem}; fetch the file anew")
        del shapes[name]
    return shapes, scales


def name_scale(name: str) -> str:
    """What the scale of a tensor is called."""
    return "softmax.scale" if name == "softmax.weight" else f"{name}.scale"


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
