"""Where to compute: a device by its name, or the best there is."""

from __future__ import annotations

import torch

from elmokit.errors import InputError

__all__ = ["found_device"]


def found_device(name: str | torch.device | None = None) -> torch.device:
    """The device of this name, a GPU if there is one; an `InputError` if nothing can be put on it.

    Example:
        >>> found_device("cpu")
        device(type='cpu')
    """
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name)
    except (AssertionError, NotImplementedError, RuntimeError) as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        raise InputError(
            f"cannot compute on the device {str(name)!r} ({reason}): try cpu, or leave it out"
        ) from problem
    return torch.device(name)
