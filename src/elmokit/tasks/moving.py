"""Numbers of the host on their way to where a model computes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["moved"]


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
