"""How the output layer's loss is computed: two interchangeable ways, and the choice between them.

`chunked.py` is plain torch, runs everywhere, and is the definition of correct; `linear_cross_entropy.py` is Triton, for
NVIDIA GPUs, and is proved equal to it. Both have the same functions, and neither ever holds all logits at once (but
for `stored_shares.py`, where a GPU has memory to spare for speed). `…_entropies` give the sum and each row's loss:

    linear_cross_entropy(hidden_NP, weight_VP, bias_V, targets_N, *, reduction="sum")
    linear_cross_entropies(hidden_NP, weight_VP, bias_V, targets_N)
    sampled_cross_entropies(hidden_NP, weight_VP, bias_V, targets_N, negatives_S, log_expected_S, log_expected_N)

Both compute in the dtype of `hidden_NP`: weights are cast to it, products are summed in float32, the loss and the
gradients of weight and bias are float32. Triton is imported only where it is chosen, so the package runs without it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import ModuleType

import torch

from elmokit.engines import Choice
from elmokit.errors import EngineError

__all__ = ["best_for", "kernel_named"]

# Widths for which the tiles fit a GPU's registers and shared memory; Triton wants powers of two. Wider float32 runs as
# well, but spills registers: there torch's own products are faster.
TRITON_WIDTHS = {torch.bfloat16: (64, 128, 256, 512), torch.float32: (64, 128)}


def best_for(device: torch.device, dtype: torch.dtype, width: int) -> Choice:
    """The fastest exact way for outputs of this device, dtype and width."""
    wants = [
        (device.type == "cuda", f"needs CUDA, found {device.type}"),
        (dtype in TRITON_WIDTHS, f"computes in bfloat16 and float32, found {dtype}"),
        (width in TRITON_WIDTHS.get(dtype, ()), f"made for the widths {TRITON_WIDTHS.get(dtype)}, found {width}"),
        (importlib.util.find_spec("triton") is not None, "not installed"),
    ]
    for holds, reason in wants:
        if not holds:
            return Choice("chunked", f"triton: {reason}")
    return Choice("triton", f"{str(dtype).removeprefix('torch.')} on {device.type}")


def kernel_named(name: str) -> ModuleType:
    """The module of that name; an unknown name is an `EngineError` that lists the known ones."""
    modules: dict[str, Callable[[], ModuleType]] = {"chunked": _chunked, "triton": _triton}
    if name not in modules:
        raise EngineError(f"no output kernel is called {name!r}: use one of {sorted(modules)}")
    return modules[name]()


def _chunked() -> ModuleType:
    from elmokit.engines.kernels import chunked

    return chunked


def _triton() -> ModuleType:
    from elmokit.engines.kernels import linear_cross_entropy

    return linear_cross_entropy
