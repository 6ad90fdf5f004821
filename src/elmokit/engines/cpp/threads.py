"""How many threads work, and how torch's are kept from standing in their way.

torch shares its own small operations among OpenMP's threads, and those spin for a while after each, awake for more: on
a machine of few cores they hold a core that the C++ kernels wait for. Between kernels torch has little to do, so
`torch_alone()` lets the calling thread do it alone. OpenMP keeps that number for each thread, so no other thread and
nothing after the block is affected; `torch.set_num_threads` would change it for the whole process.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from elmokit.cores import count_cores

__all__ = ["num_threads", "torch_alone"]

# Some ten microseconds of work: what it costs to wake a thread and to wait for it.
MULTIPLICATIONS_PER_THREAD = 200_000

_here = threading.local()


def num_threads(num_multiplications: int | None = None) -> int:
    """Threads to work with: as many as torch was told and this process has cores, none without enough to do."""
    most = getattr(_here, "most", None) or min(torch.get_num_threads(), count_cores())
    enough = most if num_multiplications is None else num_multiplications // MULTIPLICATIONS_PER_THREAD
    return max(1, min(most, enough))


@contextmanager
def torch_alone() -> Iterator[None]:
    """Let the calling thread do torch's own operations alone; the C++ kernels go on with as many as they had."""
    openmp = _openmp()
    if openmp is None or getattr(_here, "most", None) is not None:
        yield
        return
    told = openmp.omp_get_max_threads()
    _here.most = min(told, count_cores())
    openmp.omp_set_num_threads(1)
    try:
        yield
    finally:
        openmp.omp_set_num_threads(told)
        _here.most = None


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that torch has loaded; `None` where torch brings none of its own."""
    for path in sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*")):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except (AttributeError, OSError):  # not loaded, or a system without such modes
            continue
        if library.omp_get_max_threads() == torch.get_num_threads():
            return library
    return None
