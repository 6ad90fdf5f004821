"""Files into lines: the text of a job, strictly UTF-8, with the place of every line.

Arrives: names of files, `-` for standard input, `.gz`, `.bz2` and `.xz` by suffix. Leaves: `Line`s, numbered from 0
over all files together. Only a newline ends a line (a carriage return before it is dropped): U+2028 and its like are
characters of the text. What is not UTF-8 is refused with its place, since guessing an encoding would spoil a corpus
silently.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from elmokit.errors import InputError

__all__ = ["Line", "LineReader"]

STANDARD_INPUT = "-"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class Line(NamedTuple):
    """One line: its number over all files from 0, where it stands (`file:line`, from 1), its bytes without the end."""

    number: int
    place: str
    raw: bytes

    def text(self) -> str:
        """The line as text; an `InputError` that names the place when it is not UTF-8."""
        try:
            return self.raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise InputError(
                f"{self.place}: expected UTF-8, found the byte 0x{self.raw[problem.start]:02x} at byte {problem.start} "
                "of the line: convert the file first, e.g. with iconv -f latin1 -t utf-8"
            ) from None


class LineReader:
    """The lines of some files, one after the other.

    Arguments:
        inputs: names of files; `-` is standard input and may come once.
    """

    def __init__(self, inputs: Sequence[str | os.PathLike[str]]) -> None:
        self.inputs = [os.fspath(name) for name in inputs]
        if not self.inputs:
            raise InputError("expected at least one input file, found none: name a file, or - for standard input")
        if self.inputs.count(STANDARD_INPUT) > 1:
            raise InputError("standard input (-) was named more than once: it can be read only once")
        sizes = [_size_of(name) for name in self.inputs]
        self.bytes_total = None if None in sizes else sum(size for size in sizes if size is not None)
        self._bytes_before = 0
        self._current: BinaryIO | None = None

    @property
    def bytes_done(self) -> int:
        """Bytes of the input taken so far, counted as they lie on the disk."""
        if self._current is None or not self._current.seekable():
            return self._bytes_before
        return self._bytes_before + self._current.tell()

    def __iter__(self) -> Iterator[Line]:
        number = 0
        for name in self.inputs:
            shown = "standard input" if name == STANDARD_INPUT else name
            for place, raw in enumerate(self._raw_lines(name), start=1):
                yield Line(number, f"{shown}:{place}", raw)
                number += 1

    def _raw_lines(self, name: str) -> Iterator[bytes]:
        try:
            with ExitStack() as stack:
                if name == STANDARD_INPUT:
                    file = raw_file = cast(BinaryIO, sys.stdin.buffer)
                else:
                    raw_file = stack.enter_context(open(name, "rb"))
                    opener = OPENERS.get(Path(name).suffix)
                    file = raw_file if opener is None else stack.enter_context(opener(raw_file, "rb"))
                self._current = raw_file
                yield from _without_ends(cast(BinaryIO, file))
                self._bytes_before, self._current = self.bytes_done, None
        except (OSError, EOFError, lzma.LZMAError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            raise InputError(f"cannot read {name}: {reason}; check the name and that the file is whole") from problem


def _without_ends(file: BinaryIO) -> Iterator[bytes]:
    for place, raw in enumerate(file):
        line = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
        yield line.removeprefix(BYTE_ORDER_MARK) if place == 0 else line


def _size_of(name: str) -> int | None:
    """Bytes of a regular file, `None` when unknown; a missing file is an error at once, not hours later."""
    if name == STANDARD_INPUT:
        return None
    path = Path(name)
    if not path.exists():
        raise InputError(f"the input {name} does not exist: check the name")
    if path.is_dir():
        raise InputError(f"the input {name} is a folder: name the files in it")
    return path.stat().st_size if path.is_file() else None
