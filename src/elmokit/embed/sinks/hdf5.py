"""AllenNLP's layout: what `allennlp elmo in.txt out.hdf5` wrote, for the tools that read it.

One dataset a row, named by the row's number from 0: (words, dim), or (layers, words, dim) with all layers; a blank line
has no words and keeps its place. `sentence_to_index` is one string of JSON from the text of a row to its number (as a
string; of equal texts the last wins). That string is the one thing here that grows with the input, as the layout
demands. When lines are split a row is a sentence, and the attribute `line` of its dataset says which line it is from.
What made the file stands in the attributes of the root. Times are not tracked, so equal input gives equal bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from elmokit.embed.parts import Part
from elmokit.embed.sinks.contents import Contents

__all__ = ["write_hdf5"]


def write_hdf5(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    """Write `name` into the folder."""
    with (folder / name).open("w+b", buffering=0) as raw:
        patient = _PatientFile(raw)
        with h5py.File(patient, "w") as file:
            _fill(file, parts, contents, patient)
        patient.check()


def _fill(file: h5py.File, parts: Sequence[Part], contents: Contents, patient: _PatientFile) -> None:
    for key, value in contents.metadata.items():
        file.attrs[f"elmokit.{key}"] = value
    index: dict[str, str] = {}
    row = 0
    for part in parts:
        for line, text, _, vectors in part.rows():
            values = vectors if contents.num_layers is None else np.ascontiguousarray(vectors.swapaxes(0, 1))
            dataset = file.create_dataset(str(row), data=values, track_times=False)
            if contents.split:
                dataset.attrs["line"] = line
            index[text] = str(row)
            row += 1
            patient.check()
    strings = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype(), track_times=False)
    # HDF5 ends a string at a NUL; JSON writes one as \u0000, so the text survives.
    strings[0] = json.dumps(index)


class _PatientFile:
    """A file that never fails while HDF5 is looking.

    When a write fails (full disk), HDF5 2.0 crashes the whole process as it closes the file. So the failure is kept
    for us, in `check()`, and what HDF5 still has to say is kept in memory: little, since we stop at the next row.
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
