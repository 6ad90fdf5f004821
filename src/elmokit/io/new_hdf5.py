"""A new `.hdf5` file on a disk that may be full.

A path arrives; an open file leaves, to be filled, or the one `OSError` that says why it could not be. Models
(`hdf5.py`) and vectors (`embed/sinks/hdf5.py`) are written through it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

__all__ = ["new_hdf5"]


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
