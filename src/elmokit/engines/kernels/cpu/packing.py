"""Weights laid out as the C++ kernels read them, made once and remembered as long as the weights live.

A change of the weights is noticed: by another tensor, by torch's count of in-place changes, and by a few values that
are read at every call, which shows what goes past that count (`weight.data.mul_(2)`). Nothing is stored in modules,
so copies and pickles of them know nothing of it.

Shapes: K inner dimension, M columns.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from ctypes import c_long, c_void_p
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from elmokit.engines import Precision
from elmokit.engines.kernels.cpu.building import library, why_no_library

__all__ = ["Packed", "can_run", "pack", "remembered"]


class Packed(NamedTuple):
    """One matrix in panels (`panels.hpp`), with its bias."""

    memory: Tensor  # bytes
    quantises: bool
    inner: int
    columns: int  # of one group
    groups: int


class _Entry(NamedTuple):
    owners: tuple[weakref.ref[Tensor], ...]
    version: list[tuple[int, int]]
    samples: _Samples
    some_values: int
    packed: tuple[Packed, ...]


_entries: dict[tuple[object, ...], _Entry] = {}


def can_run(*tensors: Tensor | None) -> bool:
    """Whether the C++ kernels take these: float32 on a CPU, no gradient wanted, and a library that was built."""
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return False
    return all(map(_is_plain, given)) and not _is_watched() and why_no_library() is None


def _is_plain(tensor: Tensor) -> bool:
    """Float32 values that lie in this process's memory."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.dtype == torch.float32 and tensor.is_cpu


def _is_watched() -> bool:
    """Whether torch records, replaces or differentiates operations forward; it would not see those of a library."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None  # type: ignore[attr-defined]
        or forward_ad._current_level >= 0
    )


def remembered(
    owners: Sequence[Tensor | None], precision: Precision, make: Callable[[], tuple[Packed, ...]]
) -> tuple[Packed, ...]:
    """What `make` lays out of these weights; remembered until one of them changes or is gone."""
    given = [owner for owner in owners if owner is not None]
    key = (precision, *map(id, owners))
    version = [(0 if owner.is_inference() else owner._version, owner.data_ptr()) for owner in given]
    entry = _entries.get(key)
    if entry is not None and entry.version == version and all(map(_is_same, entry.owners, given)):  # noqa: SIM102
        if entry.samples.read() == entry.some_values:
            return entry.packed
    samples = _Samples(given)
    some_values = samples.read()
    made = make()

    def forget(_: object) -> None:
        _entries.pop(key, None)

    refs = tuple(weakref.ref(owner, forget) for owner in given)
    _entries[key] = _Entry(refs, version, samples, some_values, made)
    return made


class _Samples:
    """Places of a few values of each tensor; of all where torch does not count changes (tensors of inference mode)."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._count = len(tensors)
        self._addresses = (c_void_p * self._count)(*(tensor.data_ptr() for tensor in tensors))
        self._extents = (c_long * self._count)(*map(_extent, tensors))
        self._every = any(tensor.is_inference() for tensor in tensors)

    def read(self) -> int:
        """A number that depends on what these values are now."""
        return library().elmokit_some_values(self._count, self._addresses, self._extents, self._every)


def pack(weight_KM: Tensor, bias_M: Tensor | None = None, *, precision: Precision, groups: int = 1) -> Packed:
    """A matrix that is used as `x @ weight`, and its bias, in panels; its columns lie group after group."""
    inner, num_columns = weight_KM.shape
    shape = (int(precision == "int8"), inner, num_columns // groups, groups)
    memory = torch.empty(library().elmokit_packed_bytes(*shape), dtype=torch.uint8)
    bias_M = None if bias_M is None else bias_M.contiguous()
    bias_address = None if bias_M is None else bias_M.data_ptr()
    library().elmokit_pack(*shape, weight_KM.data_ptr(), *weight_KM.stride(), bias_address, memory.data_ptr())
    return Packed(memory, precision == "int8", inner, num_columns // groups, groups)


def _is_same(owner: weakref.ref[Tensor], given: Tensor) -> bool:
    return owner() is given


def _extent(tensor: Tensor) -> int:
    """How many values lie from a tensor's first to its last."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
