"""Which engine computes a request, and why: one pure function of the request and of what this machine has.

The same model on the same machine always takes the same way, and `elmo info` can show it. `choose` takes the first
engine that can, fastest first, and the reason names what kept the faster ones from it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil

import torch

from elmokit.engines.cpp.building import library, why_no_library
from elmokit.errors import EngineError
from elmokit.nn.operations import Choice, Request

__all__ = ["TABLE_BYTES", "TRITON_DTYPES", "choose", "fits_tables", "why_no_cpu", "why_no_triton"]

TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Widths of an output layer for which the tiles fit a GPU's registers and shared memory; Triton wants powers of two.
# Wider float32 runs as well, but spills registers: there torch's own matmuls are faster.
LOSS_WIDTHS = {torch.bfloat16: (64, 128, 256, 512), torch.float32: (64, 128)}
# How large the tables of a character encoder may be (13 MB for the published models).
TABLE_BYTES = 64 * 2**20


def choose(request: Request) -> Choice:
    """The fastest engine for this request: exact, unless int8 is asked for.

    An `EngineError` where int8 is asked for and cannot be had.

    Example:
        >>> from elmokit.nn.operations import Clips
        >>> request = Request("recurrence", torch.device("cpu"), torch.float32, clips=Clips(3.0, 3.0), wants_grad=True)
        >>> print(choose(request))
        engine=packed (float32 on cpu; C++: computes no gradients)
    """
    if request.operation == "loss":
        return _choose_loss(request)
    if request.precision == "int8":
        return _choose_int8(request)
    return _choose_words(request) if request.operation == "words" else _choose_recurrence(request)


def _choose_recurrence(request: Request) -> Choice:
    on = f"{_name(request.dtype)} on {request.device.type}"
    if request.device.type == "cuda":
        why_not = why_no_triton(request.device, request.dtype)
        why_not = why_not or (None if request.has_projection else "made for layers with a projection")
        if why_not is None:
            return Choice("triton", on)
        reasons = [f"triton: {why_not}"]
        clips_output = request.has_projection and request.clips.projection is not None
        if request.clips.cell is not None or clips_output:
            reasons.append("cudnn: cannot clip")
        elif request.dtype in TRITON_DTYPES:
            return Choice("cudnn", f"{on}, nothing clipped; {reasons[0]}")
    else:
        why_not = why_no_cpu(request)
        if why_not is None:
            return Choice("cpu", f"{on}, C++ with {_instructions()}", is_batch_invariant=True)
        reasons = [f"C++: {why_not}"] if request.device.type == "cpu" else []
    if request.dtype == torch.float32 and request.is_plain:
        return Choice("packed", "; ".join([on, *reasons]))
    why_not = _NOT_PLAIN if not request.is_plain else f"proved for float32 only, found {_name(request.dtype)}"
    return Choice("reference", "; ".join([*reasons, f"packed: {why_not}"]))


def _choose_words(request: Request) -> Choice:
    on = f"{_name(request.dtype)} on {request.device.type}"
    if request.device.type == "cuda":
        why_not = why_no_triton(request.device, request.dtype)
        return Choice("triton", on) if why_not is None else Choice("reference", f"{on}; triton: {why_not}")
    why_not = why_no_cpu(request)
    if why_not is not None:
        return Choice("reference", f"{on}; C++: {why_not}" if request.device.type == "cpu" else on)
    return Choice("cpu", f"{on}, C++ with {_instructions()}", is_batch_invariant=fits_tables(request))


def _choose_int8(request: Request) -> Choice:
    why_not = why_no_cpu(request)
    if why_not is not None:
        raise EngineError(f'precision="int8" cannot run here: {why_not}. Use precision="float32"')
    is_batch_invariant = request.operation == "recurrence" or fits_tables(request)
    return Choice("int8", f"int8 matmuls on cpu, asked for, C++ with {_instructions()}", is_batch_invariant)


def _choose_loss(request: Request) -> Choice:
    if request.device.type == "cpu":
        why_not = why_no_cpu(request)
        if why_not is not None:
            return Choice("chunked", f"C++: {why_not}")
        return Choice("cpu", f"{_name(request.dtype)} on cpu, C++ with {_instructions()}", is_batch_invariant=True)
    widths = LOSS_WIDTHS.get(request.dtype, ())  # pyright: ignore[reportArgumentType, reportCallIssue]
    wants = [
        (request.device.type == "cuda", f"needs CUDA, found {request.device.type}"),
        (bool(widths), f"computes in bfloat16 and float32, found {_name(request.dtype)}"),
        (request.width in widths, f"made for the widths {widths}, found {request.width}"),
        (importlib.util.find_spec("triton") is not None, "not installed"),
    ]
    for holds, reason in wants:
        if not holds:
            return Choice("chunked", f"triton: {reason}")
    return Choice("triton", f"{_name(request.dtype)} on {request.device.type}")


_NOT_PLAIN = "torch records or replaces operations here, and cannot look into it"


def why_no_cpu(request: Request) -> str | None:
    """What keeps the C++ engines from this request; `None` if nothing does. The first call may compile them."""
    if request.device.type != "cpu":
        return f"made for a CPU, found {request.device.type}"
    if request.dtype != torch.float32:
        return f"takes float32, found {_name(request.dtype)}"
    if request.wants_grad:
        return "computes no gradients" + (" (use torch.no_grad())" if request.precision == "int8" else "")
    return why_no_library() if request.is_plain else _NOT_PLAIN


def fits_tables(request: Request) -> bool:
    """Whether the C++ engine of words replaces its convolutions by sums of rows of tables; else torch convolves."""
    return _count_table_bytes(request.num_symbols, request.filters) <= TABLE_BYTES


@functools.cache
def _count_table_bytes(num_symbols: int, filters: tuple[tuple[int, int], ...]) -> int:
    block = library().elmokit_char_block()
    rows = sum(-(-channels // block) * block * width for width, channels in filters)
    return 4 * rows * (num_symbols + 1)


@functools.cache
def _instructions() -> str:
    return library().elmokit_instructions().decode()


def why_no_triton(device: torch.device, dtype: torch.dtype | None) -> str | None:
    """What keeps Triton's kernels from running on this device in this dtype; `None` if nothing does."""
    if device.type != "cuda":
        return f"needs CUDA, found {device.type}"
    if dtype not in TRITON_DTYPES:
        return f"computes in float32, bfloat16 and float16, found {_name(dtype)}"
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


def _name(dtype: torch.dtype | None) -> str:
    return "several dtypes" if dtype is None else str(dtype).removeprefix("torch.")
