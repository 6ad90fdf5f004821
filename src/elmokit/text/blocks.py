"""Text files → blocks of whole lines: the only place that opens a corpus.

Names of files, globs and `-` (standard input) arrive; blocks of about a megabyte of undecoded UTF-8 leave, in order,
each with its place in its file so that a message can name the line. Files ending in .bz2, .gz, .xz, .zst or .lz4 are
unpacked on the way. Where a block ends depends on the text alone, so whatever is made of the blocks does too; a line
without an end is cut, so memory stays bounded whatever comes.
"""

from __future__ import annotations

import glob
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow

from elmokit.errors import InputError

__all__ = ["STANDARD_INPUT", "TextBlock", "find_files", "read_blocks", "total_size"]

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 16 << 20  # bytes; a longer line is cut at a space, or else between two characters
CODECS = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd", ".lz4": "lz4"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextBlock(NamedTuple):
    """Whole lines of one file: undecoded bytes, the file's name, and where in its unpacked text they stand."""

    data: bytes
    source: str
    first_line: int
    offset: int


def find_files(sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that names, globs and `-` stand for, in the order given; those of a glob are sorted."""
    sources = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    files = [file for source in sources for file in _matches(os.fspath(source))]
    if not files:
        raise InputError("expected text to read, but no file was named: give files, globs, or - for standard input")
    if files.count(STANDARD_INPUT) > 1:
        raise InputError("standard input (-) was named more than once: it can be read only once")
    return files


def total_size(files: Sequence[str]) -> int | None:
    """Bytes of all files as they lie on disk; `None` where one of them is standard input or has no size."""
    sizes = [os.stat(file).st_size if os.path.isfile(file) else None for file in files]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def read_blocks(
    file: str, *, block_bytes: int = BLOCK_BYTES, tell: Callable[[int], object] | None = None
) -> Iterator[TextBlock]:
    """The blocks of one file.

    Arguments:
        file: a path, or `-`.
        block_bytes: about how long a block is.
        tell: called with the number of bytes of the file (packed, if it is) read so far.
    """
    first_line, offset = 1, 0
    with _opened(file) as stream:
        for data in _cut_blocks(stream, file, block_bytes):
            if tell is not None:
                tell(_position(stream, offset + len(data)))
            mark = len(BYTE_ORDER_MARK) if offset == 0 and data.startswith(BYTE_ORDER_MARK) else 0
            yield TextBlock(data[mark:], file, first_line, offset + mark)
            first_line += data.count(b"\n")
            offset += len(data)


class _Stream(NamedTuple):
    read: Callable[[int], bytes]
    packed: pyarrow.OSFile | IO[bytes] | None  # whose position says how far we are


def _matches(source: str) -> list[str]:
    if source == STANDARD_INPUT:
        return [source]
    if os.path.isdir(source):
        raise InputError(f"{source}: expected a text file, found a folder; name its files: {Path(source, '*.txt')}")
    found = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    found = [file for file in found if not os.path.isdir(file)]
    if not found:
        raise InputError(f"{source}: no such file, and no file matches it as a pattern; check the path")
    return found


@contextmanager
def _opened(file: str) -> Iterator[_Stream]:
    if file == STANDARD_INPUT:
        yield _Stream(sys.stdin.buffer.read, None)
        return
    ending = Path(file).suffix.lower()
    try:
        packed = pyarrow.OSFile(file) if ending in CODECS else open(file, "rb")  # noqa: SIM115
        stream = packed
        if ending in CODECS:
            stream = pyarrow.CompressedInputStream(packed, CODECS[ending])
        elif ending == ".xz":
            stream = lzma.LZMAFile(packed)  # noqa: SIM115
    except OSError as problem:
        raise InputError(f"{file}: cannot be read: {problem.strerror or problem}") from problem
    with closing(packed), closing(stream):
        yield _Stream(stream.read, packed)


def _cut_blocks(stream: _Stream, file: str, block_bytes: int) -> Iterator[bytes]:
    rest = b""
    while True:
        new = _read_all(stream, file, block_bytes)
        block = rest + new
        if len(new) < block_bytes:
            if block:
                yield block
            return
        end = block.rfind(b"\n") + 1
        if not end and len(block) >= LONGEST_LINE:
            end = _place_to_cut(block)
        if end:
            yield block[:end]
        rest = block[end:]


def _read_all(stream: _Stream, file: str, count: int) -> bytes:
    """The next `count` bytes, fewer only at the end: a pipe hands over what it happens to have."""
    parts: list[bytes] = []
    try:
        while count and (part := stream.read(count)):
            parts.append(part)
            count -= len(part)
    except (OSError, EOFError, lzma.LZMAError, pyarrow.ArrowInvalid) as problem:
        reason = " ".join(str(problem).split())
        raise InputError(
            f"{file}: cannot be read to its end: {reason}; is it complete, and what its name says?"
        ) from problem
    return b"".join(parts)


def _place_to_cut(block: bytes) -> int:
    end = block.rfind(b" ") + 1
    if end:
        return end
    end = len(block)
    while end > len(block) - 4 and block[end - 1] & 0xC0 == 0x80:  # back over the later bytes of a character
        end -= 1
    return end - 1 if block[end - 1] >= 0xC0 else end


def _position(stream: _Stream, otherwise: int) -> int:
    return otherwise if stream.packed is None else stream.packed.tell()
