"""Finished pieces of a job: the folder `<output>.partial`, its manifest and its parts.

Arrives: the rows of one segment of the input with their vectors. Leaves: a file that holds them, there completely or
not at all, and later a `Part` that reads it back without loading it. A part is one line of JSON (what it holds and
which lines of input it came from) followed by the arrays one after the other. Everything is written beside its final
name, flushed to the disk and renamed, so that a kill at any moment leaves only whole files and one stale `.tmp`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import OutputError

__all__ = ["Part", "PartialFolder", "buffer_of", "flush_to_disk", "packed_strings"]

MANIFEST = "manifest.json"
ASSEMBLY = "assembly"
ALIGNMENT = 64


class Part:
    """One finished segment, read from its file when asked for.

    Arrays of every part: `lines` (rows), `offsets` (rows + 1, where the words of each row start), `texts` and `words`
    as packed strings, `vectors` (words, dim) or (words, layers, dim); in carry mode `hidden` and `cell` too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.header: dict[str, Any] = json.loads(file.readline())
            self._start = _aligned(file.tell())

    def __contains__(self, name: str) -> bool:
        return name in self.header["arrays"]

    def array(self, name: str) -> np.ndarray:
        """An array, mapped from the file: pages are read when they are touched."""
        about = self.header["arrays"][name]
        shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
        if 0 in shape:
            return np.zeros(shape, dtype)
        mapped = np.memmap(self.path, dtype, mode="r", offset=self._start + about["offset"], shape=shape)
        return mapped.view(np.ndarray)

    def strings(self, name: str) -> list[str]:
        """Packed strings as a list."""
        data = self.array(f"{name}.data").tobytes()
        offsets = self.array(f"{name}.offsets").tolist()
        return [data[start:end].decode("utf-8") for start, end in zip(offsets, offsets[1:], strict=False)]

    def rows(self) -> Iterator[tuple[int, str, list[str], np.ndarray]]:
        """Line number, text, words and vectors of each row."""
        offsets = self.array("offsets").tolist()
        words, vectors = self.strings("words"), self.array("vectors")
        lines = self.array("lines").tolist()
        for line, text, start, end in zip(lines, self.strings("texts"), offsets, offsets[1:], strict=False):
            yield line, text, words[start:end], vectors[start:end]


class PartialFolder:
    """The folder of an unfinished job.

    It exists, with its manifest, exactly as long as the job is unfinished: it is made under another name and renamed,
    and when the output is in place it is renamed away before it is deleted.

    Arguments:
        output: the file that the job is to make.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(f"{output.name}.partial")
        self._new = output.with_name(f"{output.name}.partial.new")
        self._old = output.with_name(f"{output.name}.partial.old")

    def exists(self) -> bool:
        """Whether an unfinished job lies here."""
        return os.path.exists(self.path)  # unlike Path.exists, False for a name that no file can have

    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not self._part_path(0).exists()

    def start(self, manifest: dict[str, Any]) -> None:
        """Make the folder with its manifest; an older one is thrown away."""
        self.discard()
        self._new.mkdir()
        _write_atomically(self._new / MANIFEST, [json.dumps(manifest, indent=2).encode()])
        os.replace(self._new, self.path)
        flush_to_disk(self.output.parent)

    def manifest(self) -> dict[str, Any]:
        """What the job was started with."""
        try:
            return json.loads((self.path / MANIFEST).read_text("utf-8"))
        except (OSError, ValueError) as problem:
            raise OutputError(
                f"{self.path} is not the folder of an unfinished job ({problem}): remove it, or start again with "
                "--overwrite (overwrite=True)"
            ) from problem

    def parts(self) -> list[Part]:
        """The finished parts in order; a stale temporary file is removed."""
        for stale in self.path.glob("*.tmp"):
            stale.unlink()
        parts = []
        while (path := self._part_path(len(parts))).exists():
            parts.append(Part(path))
        return parts

    def add(self, number: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write one finished part."""
        about, buffers, offset = {}, [], 0
        for name, array in arrays.items():
            about[name] = {"dtype": array.dtype.str, "shape": array.shape, "offset": offset}
            padding = _aligned(offset + array.nbytes) - offset - array.nbytes
            buffers += [buffer_of(array), b"\0" * padding]
            offset += array.nbytes + padding
        line = json.dumps({**header, "arrays": about}).encode()
        line += b" " * (_aligned(len(line) + 1) - len(line) - 1) + b"\n"
        _write_atomically(self._part_path(number), [line, *buffers])

    def assembly(self) -> Path:
        """An empty folder for the files of the output, on the same disk as their final place."""
        folder = self.path / ASSEMBLY
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        return folder

    def finish(self, names: Sequence[str]) -> None:
        """Put the assembled files in place, the last name last, and remove the folder."""
        for name in names:
            flush_to_disk(self.path / ASSEMBLY / name)
        for name in names:
            os.replace(self.path / ASSEMBLY / name, self.output.with_name(name))
        flush_to_disk(self.output.parent)
        self.discard()

    def discard(self) -> None:
        """Throw the folder away, and whatever a kill left half-deleted."""
        for leftover in (self._old, self._new):
            if leftover.exists():
                shutil.rmtree(leftover)
        if self.path.exists():
            os.replace(self.path, self._old)
            shutil.rmtree(self._old)

    def _part_path(self, number: int) -> Path:
        return self.path / f"part-{number:08d}"


def packed_strings(name: str, strings: Sequence[str]) -> dict[str, np.ndarray]:
    """Strings as two arrays: their UTF-8 bytes end to end, and where each starts (n + 1)."""
    encoded = [string.encode("utf-8") for string in strings]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return {f"{name}.data": np.frombuffer(b"".join(encoded), np.uint8), f"{name}.offsets": offsets}


def buffer_of(array: np.ndarray) -> memoryview:
    """The bytes of an array in memory order, without a copy where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk, where the system can do that."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_atomically(path: Path, buffers: Sequence[bytes | memoryview]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(buffers)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
