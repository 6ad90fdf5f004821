"""How exactly a network computes, and where each way can be had.

    float32    everywhere; equal to the published models
    bfloat16   weights and matmuls of 16 bits, on CUDA
    int8       matmuls of 8-bit whole numbers, on a CPU (`cpp/`): for inference only

A way that a machine does not have is declined with the reason; nothing is tried out that could end the process.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import torch

from elmokit.engines.cpp.building import why_no_library
from elmokit.errors import EngineError

__all__ = ["PrecisionName", "check_precision", "why_not"]

PrecisionName = Literal["float32", "bfloat16", "int8"]


def why_not(precision: PrecisionName, device: torch.device) -> str | None:
    """What keeps a precision from being computed on a device; `None` if nothing does.

    Example:
        >>> why_not("int8", torch.device("cuda"))
        'needs a CPU, found cuda'
    """
    if precision == "bfloat16" and device.type != "cuda":
        # On a CPU torch's bfloat16 matmuls end the process on some virtual machines, and int8 is faster.
        return f"needs CUDA, found {device.type}"
    if precision == "int8" and device.type != "cpu":
        return f"needs a CPU, found {device.type}"
    if precision == "int8" and (reason := why_no_library()) is not None:
        return f"needs the C++ kernels: {reason}"
    return None


def check_precision(precision: str, device: torch.device | None = None) -> PrecisionName:
    """The same precision, or an `EngineError` when there is no such one or not on that device."""
    names = get_args(PrecisionName)
    if precision not in names:
        raise EngineError(f"asked for precision={precision!r}: use one of {', '.join(map(repr, names))}")
    found = cast(PrecisionName, precision)
    if device is not None and (reason := why_not(found, device)) is not None:
        others = ", ".join(repr(name) for name in names if why_not(name, device) is None)
        raise EngineError(f"precision={precision!r} {reason}: use one of {others} here")
    return found
