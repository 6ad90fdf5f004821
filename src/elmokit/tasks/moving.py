"""Where a model computes, and numbers of the host on their way there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import InputError

__all__ = ["found_device", "moved"]


def found_device(name: str | torch.device | None) -> torch.device:
    """The device of this name, a GPU if there is one; an `InputError` if it cannot be used."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (AssertionError, NotImplementedError, RuntimeError) as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        raise InputError(f"cannot compute on the device {name!r} ({reason}): try cpu, or leave it out") from problem


def moved(numbers: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """The numbers on a device; a GPU fetches them when it comes to it, and the host goes on meanwhile.

    Example:
        >>> moved(np.arange(3), torch.device("cpu"))
        tensor([0, 1, 2])
    """
    tensor = torch.as_tensor(numbers)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
