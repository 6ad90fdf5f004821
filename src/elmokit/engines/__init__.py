"""Engines: interchangeable ways to run one LSTM-with-projection layer over packed sentences.

`README.md` beside this file holds the contract. `best_for` chooses the engine of a device; the choice is a
pure function, so the same model on the same machine always takes the same path, and `elmo info` can show it.

Shapes: N packed words, B rows (sentences), D input width, H cell width, P output width.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from elmokit.errors import EngineError

__all__ = [
    "TRITON_DTYPES",
    "Choice",
    "Clips",
    "LayerState",
    "LstmpWeights",
    "Precision",
    "Recurrence",
    "best_for",
    "engine_named",
    "outside_graphs",
    "why_no_cpu",
    "why_no_triton",
]

Precision = Literal["float32", "int8"]
_Function = TypeVar("_Function", bound=Callable)


def outside_graphs(run: Run) -> Run:
    """The engine, left out of compiled graphs, as `torch.compiler.disable` would do it.

    That imports torch's compiler (two seconds, 170 MB) at once; here it is imported only if somebody compiles.
    """

    @functools.wraps(run)
    def outside(
        recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips
    ) -> list[tuple[Tensor, LayerState]]:
        if "torch._dynamo" in sys.modules:
            return cast(Run, torch.compiler.disable(run))(recurrences, batch_sizes, clips)
        return run(recurrences, batch_sizes, clips)

    return outside


def _constant(function: _Function) -> _Function:
    """What `torch.compiler.assume_constant_result` does, without importing torch's compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class LstmpWeights(NamedTuple):
    """The weights of one layer in one direction, used as `x @ W`; gates lie in the order i, j, f, o."""

    input_D4H: Tensor
    recurrent_P4H: Tensor
    bias_4H: Tensor  # the forget gate's +1 is already in it
    projection_HP: Tensor | None  # None: the output is the gated cell itself


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; `None` clips nothing."""

    cell: float | None
    projection: float | None


class LayerState(NamedTuple):
    """What a layer remembers of each row: its last output and its cell."""

    hidden_BP: Tensor
    cell_BH: Tensor


class Recurrence(NamedTuple):
    """One layer in one direction with everything it needs: words in the order in which it reads them."""

    inputs_ND: Tensor
    weights: LstmpWeights
    state: LayerState


ENGINES = ("cpu", "cudnn", "int8", "packed", "reference", "triton")
TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Run = Callable[[Sequence[Recurrence], Sequence[int], Clips], list[tuple[Tensor, LayerState]]]


class Choice(NamedTuple):
    """An engine and why it was taken."""

    name: str
    reason: str

    def __str__(self) -> str:
        """The line that `elmo info` and the log show."""
        return f"engine={self.name} ({self.reason})"


def best_for(
    device: torch.device,
    dtype: torch.dtype,
    clips: Clips,
    *,
    precision: Precision = "float32",
    trains: bool = False,
) -> Choice:
    """The fastest engine for this device, dtype and clipping: exact, unless products in int8 are asked for.

    Arguments:
        device: where the weights are.
        dtype: of the weights.
        clips: the bounds that the engine must apply.
        precision: `"int8"` where products of 8-bit numbers are near enough; an `EngineError` where they cannot be had.
        trains: whether gradients are wanted.

    Example:
        >>> print(best_for(torch.device("cpu"), torch.float32, Clips(3.0, 3.0), trains=True))
        engine=packed (float32 on cpu)
    """
    name = str(dtype).removeprefix("torch.")
    if precision == "int8":
        return _int8_for(device, dtype, trains=trains)
    why_not = why_no_triton(device, dtype)
    if why_not is None:
        return Choice("triton", f"{name} on {device.type}")
    reasons = [f"triton: {why_not}"] if device.type == "cuda" else []
    if device.type == "cuda" and dtype in TRITON_DTYPES:
        if clips == Clips(None, None):
            return Choice("cudnn", f"{name} on cuda, nothing clipped; {reasons[0]}")
        reasons.append("cudnn: cannot clip")
    if device.type == "cpu" and dtype == torch.float32 and not trains:
        why_not = why_no_cpu(device, dtype)
        if why_not is None:
            return Choice("cpu", f"float32 on cpu, C++ with {_instructions()}")
        reasons.append(f"cpu: {why_not}")
    if dtype == torch.float32:
        return Choice("packed", "; ".join([f"float32 on {device.type}", *reasons]))
    return Choice("reference", "; ".join([*reasons, f"packed: proved for float32 only, found {name}"]))


def _int8_for(device: torch.device, dtype: torch.dtype, *, trains: bool) -> Choice:
    why_not = "it has no gradients" if trains else why_no_cpu(device, dtype)
    if why_not is not None:
        raise EngineError(f'precision="int8" cannot run here: {why_not}. Use precision="float32"')
    return Choice("int8", f"int8 products on cpu, asked for, C++ with {_instructions()}")


@_constant
def why_no_cpu(device: torch.device, dtype: torch.dtype) -> str | None:
    """What keeps the C++ kernels from running on this device in this dtype; `None` if nothing does.

    The first call may compile them (`engines/kernels/cpu/building.py`).
    """
    if device.type != "cpu":
        return f"made for a CPU, found {device.type}"
    if dtype != torch.float32:
        return f"takes float32 weights, found {str(dtype).removeprefix('torch.')}"
    from elmokit.engines.kernels.cpu import why_no_library

    return why_no_library()


@_constant
def _instructions() -> str:
    from elmokit.engines.kernels.cpu import library

    return library().elmokit_instructions().decode()


def why_no_triton(device: torch.device, dtype: torch.dtype) -> str | None:
    """What keeps Triton's kernels from running on this device in this dtype; `None` if nothing does."""
    if device.type != "cuda":
        return f"needs CUDA, found {device.type}"
    if dtype not in TRITON_DTYPES:
        return f"computes in float32, bfloat16 and float16, found {str(dtype).removeprefix('torch.')}"
    return _why_no_triton_here(device)


@functools.cache
def _why_no_triton_here(device: torch.device) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "not installed"
    if not any(map(shutil.which, (os.environ.get("CC", "gcc"), "gcc", "clang"))):
        return "needs a C compiler to launch kernels, found neither gcc nor clang"
    if torch.cuda.is_available() and torch.cuda.get_device_capability(device) < (8, 0):
        return "needs compute capability 8.0, found {}.{}".format(*torch.cuda.get_device_capability(device))
    return None


def engine_named(name: str) -> Run:
    """The engine of that name; an unknown name is an `EngineError` that lists the known ones."""
    if name not in ENGINES:
        raise EngineError(f"no engine is called {name!r}: use one of {', '.join(ENGINES)}")
    return cast(Run, importlib.import_module(f"elmokit.engines.{name}").run)
