"""One `.hdf5` file: read as data from anyone, and written to a disk that may be full.

Reading: a path arrives; plain datasets of floating-point numbers leave, with exactly the shape the caller expects. An
hdf5 file can point outside itself (links, external storage, virtual datasets), name a plug-in to run (filters), or
claim more than it holds: all of that is refused before anything is allocated or followed.

Writing: a path arrives; an open file leaves, to be filled, or the one `OSError` that says why it could not be. Models
(`allennlp.py`) and vectors (`embed/sinks.py`) are written through it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import torch
from torch import Tensor

from elmokit.errors import CheckpointError
from elmokit.io.text_files import check_not_pointer

__all__ = ["find_dataset", "list_names", "new_hdf5", "open_hdf5", "read_rows"]

SAFE_FILTERS = {1, 2, 3, 4, 5, 6, 32000}  # those inside HDF5 itself, and h5py's lzf: any other loads a plug-in


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
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


def find_dataset(file: h5py.File, name: str, shape: tuple[int, ...] | None = None) -> h5py.Dataset:
    """The dataset of that name, refused unless it is plain, complete and of that shape (`None` for any)."""
    data, where = _find_node(file, name), file.filename
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


def list_names(file: h5py.File, group: str) -> list[str]:
    """What a group holds; nothing for one that is not there."""
    node = _find_node(file, group) if group else file
    return list(node) if isinstance(node, h5py.Group) else []


def read_rows(data: h5py.Dataset, first: int, last: int) -> Tensor:
    """Rows `first` to `last` of a dataset, read straight into the tensor's own memory."""
    # torch's memory, not numpy's: numpy asks Linux for huge pages, which on a virtual machine took four times as long.
    values = torch.empty((last - first, *data.shape[1:]), dtype=torch.float32)
    data.read_direct(values.numpy(), source_sel=slice(first, last))
    return values


def _find_node(file: h5py.File, name: str) -> object:
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


@contextmanager
def new_hdf5(path: Path) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """A new file, and what to call after each dataset: it raises the `OSError` of a write that failed before."""
    with path.open("w+b", buffering=0) as raw:
        patient = _PatientFile(raw)
        with h5py.File(patient, "w") as file:
            yield file, patient.check
        patient.check()


class _PatientFile:
    """A file that never fails while HDF5 is looking.

    When a write fails (full disk), HDF5 2.0 crashes the whole process as it closes the file. So the failure is kept
    for us, in `check()`, and what HDF5 still has to say is kept in memory: little, if the writer checks often.
    """

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw
        self._place = 0
        self._problem: OSError | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise what went wrong."""
        if self._problem is not None:
            raise self._problem

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            offset += max([self._raw.seek(0, io.SEEK_END), *(start + len(data) for start, data in self._unwritten)])
        self._place = offset + (self._place if whence == io.SEEK_CUR else 0)
        return self._place

    def tell(self) -> int:
        return self._place

    def write(self, data: memoryview) -> int:
        if self._problem is None:
            try:
                self._raw.seek(self._place)
                rest = memoryview(data).cast("B")
                while rest:
                    rest = rest[self._raw.write(rest) :]
            except OSError as problem:
                self._problem = problem
        if self._problem is not None:
            self._unwritten.append((self._place, bytes(data)))
        self._place += len(data)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Asked for by h5py as the mark of a file; `readinto` is what it calls."""
        raise NotImplementedError

    def readinto(self, data: memoryview) -> int:
        self._raw.seek(self._place)
        found = bytearray(len(data))
        self._raw.readinto(found)
        for start, late in self._unwritten:
            first, last = max(start, self._place), min(start + len(late), self._place + len(found))
            if first < last:
                found[first - self._place : last - self._place] = late[first - start : last - start]
        memoryview(data).cast("B")[:] = found
        self._place += len(found)
        return len(found)

    def truncate(self, size: int) -> int:
        if self._problem is None:
            try:
                self._raw.truncate(size)
            except OSError as problem:
                self._problem = problem
        return size

    def flush(self) -> None:
        """Nothing waits here: writes are not buffered."""
