"""Weights laid out as the C++ kernels read them: packed at first use, and again when they have changed.

A packed copy lives as long as the weights it was made of. Their changes are noticed by torch's count of in-place
changes (optimisers, `copy_`, `load_state_dict`) and by their address; `forget` drops the copies of weights that may
have changed past that count, which modules call in `train()`, `eval()` and `to()`. Tensors of inference mode have no
count: they are packed at every call. Nothing is stored in modules, so copies and pickles of them know nothing of it.

Weights that float16 holds exactly, as those of a model that was saved in it, are stored so: the kernels read half of
the bytes, and every sum keeps its bits.

Shapes: K inner dimension, M columns.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from elmokit.engines.cpp.building import library
from elmokit.nn.operations import Precision

__all__ = ["Packed", "Storage", "choose_storage", "forget", "pack", "remember"]


class Storage(IntEnum):
    """How weights lie in memory; the numbers are those of `panels.hpp`."""

    FLOATS = 0
    INT8 = 1
    HALVES = 2


class Packed(NamedTuple):
    """One matrix in panels (`panels.hpp`), with its bias."""

    memory: Tensor  # bytes
    storage: Storage
    inner: int
    columns: int  # of one group
    groups: int


T = TypeVar("T")


class _Entry(NamedTuple):
    owners: tuple[weakref.ref[Tensor], ...]
    version: list[int]
    made: Any


_entries: dict[tuple[object, ...], _Entry] = {}


def remember(owners: Sequence[Tensor | None], precision: Precision, make: Callable[[], T]) -> T:
    """What `make` lays out of these weights; remembered until one of them changes or is gone."""
    given = [owner for owner in owners if owner is not None]
    if any(map(Tensor.is_inference, given)):
        return make()
    _watch_optimisers()
    key = (precision, *map(id, owners))
    version = [*map(attrgetter("_version"), given), *map(Tensor.data_ptr, given)]
    entry = _entries.get(key)  # it goes with the first of its owners, so the ids are still theirs
    if entry is not None and entry.version == version:
        return entry.made
    made = make()
    refs = tuple(weakref.ref(owner, lambda _: _entries.pop(key, None)) for owner in given)
    _entries[key] = _Entry(refs, version, made)
    return made


@functools.cache
def _watch_optimisers() -> None:
    """Forget the weights of every optimiser after its step: torch does not count what fused ones change."""

    def forget_stepped(optimiser: Optimizer, *_: object) -> None:
        forget(weight for group in optimiser.param_groups for weight in group["params"])

    register_optimizer_step_post_hook(forget_stepped)


def forget(weights: Iterable[Tensor]) -> None:
    """Drop what was laid out of these weights: they are packed anew when they are next used."""
    changed = set(map(id, weights))
    for key in [key for key in _entries if not changed.isdisjoint(key)]:
        _entries.pop(key, None)


def choose_storage(precision: Precision, weights: Iterable[Tensor]) -> Storage:
    """The smallest way to store all of these matrices that loses nothing but what the precision allows."""
    if precision == "int8":
        return Storage.INT8
    fits = library().elmokit_reads_halves() and all(torch.equal(weight.half().float(), weight) for weight in weights)
    return Storage.HALVES if fits else Storage.FLOATS


def pack(weight_KM: Tensor, bias_M: Tensor | None = None, *, storage: Storage, groups: int = 1) -> Packed:
    """A matrix that is used as `x @ weight`, and its bias, in panels; its columns lie group after group."""
    inner, num_columns = weight_KM.shape
    shape = (storage, inner, num_columns // groups, groups)
    memory = torch.empty(library().elmokit_packed_bytes(*shape), dtype=torch.uint8)
    bias_M = None if bias_M is None else bias_M.contiguous()
    bias_address = None if bias_M is None else bias_M.data_ptr()
    library().elmokit_pack(*shape, weight_KM.data_ptr(), *weight_KM.stride(), bias_address, memory.data_ptr())
    return Packed(memory, storage, inner, num_columns // groups, groups)
