"""What this machine does at best: multiplications a second, bytes read a second. The floors are made of these.

Sizes of memory arrive; rates leave. Each is the best of many repeats, because a floor is what nothing can be faster
than. The products are those of torch, large and of the shape that a batch of sentences makes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["machine_rates"]

SECONDS = 0.3
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (128, 512, 16384), (512, 512, 16384))


def machine_rates(read_bytes: Sequence[int], *, seconds: float = SECONDS) -> dict[str, Any]:
    """Operations a second in float32 and int8 (`None` if torch cannot), and bytes a second from memory of each size.

    Arguments:
        read_bytes: sizes of memory that is read again and again; what fits into a cache is read faster.
        seconds: how long each rate is looked for.

    Example:
        >>> sorted(machine_rates([4096], seconds=0.001))
        ['float32', 'int8', 'read']
    """
    with torch.no_grad():
        int8 = None
        with contextlib.suppress(RuntimeError):  # not every build of torch multiplies int8 on a CPU
            int8 = max(_product_rate(shape, torch.int8, seconds) for shape in SHAPES)
        return {
            "float32": max(_product_rate(shape, torch.float32, seconds) for shape in SHAPES),
            "int8": int8,
            "read": {str(size): _read_rate(size, seconds) for size in read_bytes},
        }


def _product_rate(shape: tuple[int, int, int], dtype: torch.dtype, seconds: float) -> float:
    rows, inner, columns = shape
    left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
    multiply = torch.ops.aten._int_mm if dtype == torch.int8 else torch.mm
    return 2 * rows * inner * columns / _shortest(lambda: multiply(left, right), seconds)


def _read_rate(size: int, seconds: float) -> float:
    numbers = torch.ones(size // 4)
    return size / _shortest(lambda: numbers.sum(), seconds)


def _shortest(run: Callable[[], object], seconds: float) -> float:
    run()
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until or best == float("inf"):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
