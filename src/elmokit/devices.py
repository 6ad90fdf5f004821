"""The machine: which device to compute on, how arrays get there, recorded launches, and whether its memory ran out.

Nothing here imports torch before it is needed: a command asks about memory without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elmokit.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

__all__ = ["find_device", "is_out_of_memory", "move_to_device", "record_launches"]

# CUDA raises an error of its own; on a CPU torch raises a plain RuntimeError whose wording differs between systems.
_OUT_OF_MEMORY = re.compile(r"out of memory|not enough memory|can't allocate memory", re.IGNORECASE)


def find_device(name: str | torch.device | None = None) -> torch.device:
    """The device of this name, a GPU if there is one; an `InputError` if nothing can be put on it.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    import torch

    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name)
    except (AssertionError, NotImplementedError, RuntimeError) as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        is_unknown = "Expected one of" in reason  # torch would list twenty kinds that hardly anybody has
        advice = ": use cpu, cuda, cuda:N or mps, or" if is_unknown else f" ({reason}): try cpu, or"
        raise InputError(f"cannot compute on the device {str(name)!r}{advice} leave it out") from problem
    return torch.device(name)


def move_to_device(numbers: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """The numbers on a device. A GPU copies them when it comes to it; the host does not wait.

    Example:
        >>> import numpy as np, torch
        >>> move_to_device(np.arange(3), torch.device("cpu"))
        tensor([0, 1, 2])
    """
    import torch

    tensor = torch.as_tensor(numbers)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def record_launches(run: Callable[[], None], pool: Any) -> Callable[[], None]:  # noqa: ANN401
    """All that this function launches on a GPU, as one launch; what it compiles must be compiled before.

    Other threads may use the device meanwhile.

    Arguments:
        run: reads and writes memory that stays where it is.
        pool: the memory for what it makes on the way (`torch.cuda.graph_pool_handle`), which several recordings may
            share if none needs it after its own end.
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        run()
    return graph.replay


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether this error says that memory ran out, on a CPU or on a GPU.

    Example:
        >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(KeyError())
        (True, False)
    """
    return isinstance(problem, MemoryError) or bool(_OUT_OF_MEMORY.search(str(problem)))
