"""One `.hdf5` file, read as data from anyone.

A path arrives; plain datasets of floating-point numbers leave, with exactly the shape the caller expects. An hdf5
file can point outside itself (links, external storage, virtual datasets), name a plug-in to run (filters), or
claim more than it holds: all of that is refused before anything is allocated or followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import torch
from torch import Tensor

from elmokit.errors import CheckpointError
from elmokit.io.text_files import check_not_pointer

__all__ = ["dataset_in", "names_in", "opened", "read_rows"]

SAFE_FILTERS = {1, 2, 3, 4, 5, 6, 32000}  # those inside HDF5 itself, and h5py's lzf: any other loads a plug-in


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """An hdf5 file open for reading; whatever HDF5 says against it becomes a `CheckpointError`."""
    try:
        check_not_pointer(path)
        with h5py.File(path, "r") as file:
            yield file
    except CheckpointError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as problem:  # h5py raises any of these on damage
        reason = " ".join(str(problem).split())
        size = path.stat().st_size if path.exists() else 0
        raise CheckpointError(
            f"{path}: expected a complete HDF5 file, found {size:,} bytes that cannot be read ({reason}); fetch it anew"
        ) from problem


def dataset_in(file: h5py.File, name: str, shape: tuple[int, ...] | None = None) -> h5py.Dataset:
    """The dataset of that name, refused unless it is plain, complete and of that shape (`None` for any)."""
    data, where = _node(file, name), file.filename
    wanted = f"expected a dataset{'' if shape is None else f' of shape {shape}'}"
    if not isinstance(data, h5py.Dataset) or data.shape is None:
        found = "none" if data is None else "no table of numbers"
        raise CheckpointError(f"{where}: {name}: {wanted}, found {found}; options.json and weights may not match")
    if shape is not None and data.shape != shape:
        raise CheckpointError(f"{where}: {name}: {wanted}, found {data.shape}; options.json and weights do not match")
    _check_storage(data, f"{where}: {name}")
    return data


def _check_storage(data: h5py.Dataset, where: str) -> None:
    if data.dtype.kind != "f":
        raise CheckpointError(f"{where}: expected floating-point numbers, found {data.dtype}; refused")
    plan = data.id.get_create_plist()
    filters = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
    if data.external or data.is_virtual or not filters <= SAFE_FILTERS:
        raise CheckpointError(f"{where}: expected numbers in the file itself, found other storage; refused")
    held = data.id.get_storage_size()
    if held < (data.nbytes if data.chunks is None else min(1, data.nbytes)):
        raise CheckpointError(
            f"{where}: expected {data.nbytes:,} bytes, found {held:,}: it was never fully written; fetch it anew"
        )


def names_in(file: h5py.File, group: str) -> list[str]:
    """What a group holds; nothing for one that is not there."""
    node = _node(file, group) if group else file
    return list(node) if isinstance(node, h5py.Group) else []


def read_rows(data: h5py.Dataset, first: int, last: int) -> Tensor:
    """Rows `first` to `last` of a dataset, read straight into the tensor's own memory."""
    # torch's memory, not numpy's: numpy asks Linux for huge pages, which on a virtual machine took four times as long.
    values = torch.empty((last - first, *data.shape[1:]), dtype=torch.float32)
    data.read_direct(values.numpy(), source_sel=slice(first, last))
    return values


def _node(file: h5py.File, name: str) -> object:
    """What stands under a name, reached through plain links only; `None` for nothing."""
    node: object = file
    for part in name.split("/"):
        if not isinstance(node, h5py.Group):
            return None
        link = node.get(part, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise CheckpointError(
                f"{file.filename}: {name} should be stored in the file, found a {type(link).__name__} "
                "that points elsewhere; refused"
            )
        node = node[part]
    return node
