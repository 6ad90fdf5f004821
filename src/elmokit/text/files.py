"""Text files → lines, or blocks of whole lines: the only place that opens a text file.

Names of files, glob patterns and `-` (standard input) arrive; undecoded UTF-8 leaves, with the place of every line so
that a message can name it. Files ending in .gz, .bz2, .xz, .zst or .lz4 are unpacked on the way, a byte-order mark is
left out. Only a newline ends a line (a carriage return before it is dropped): U+2028 and its like are characters of the
text. What is not UTF-8 is refused with its place, since guessing an encoding would spoil a corpus silently. A
line may have no end (a small packed file can hide gigabytes of it), so who reads lines as sentences says how long one
may be.

    LineReader     lines, one after the other: what nearly every command reads
    read_blocks    about a megabyte of whole lines at a time: what training reads, in several processes
    open_text      the bytes themselves
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import io
import lzma
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from elmokit.errors import CheckpointError, InputError

__all__ = [
    "LONGEST_SENTENCE",
    "PACKED_SUFFIXES",
    "STANDARD_INPUT",
    "FileIdentity",
    "Line",
    "LineReader",
    "TextBlock",
    "explain_encoding",
    "find_files",
    "identify_files",
    "measure_files",
    "open_text",
    "peek_line",
    "read_blocks",
    "split_lines",
]

STANDARD_INPUT = "-"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
HEAD_BYTES = 4096  # of a file tell its encoding
# What people take for text, by its first bytes, and what to do.
NO_TEXT = {
    b"%PDF-": "a PDF: take its text out first, e.g. with pdftotext",
    b"PK\x03\x04": "a zip archive (as .docx and .xlsx are): save it as plain text in UTF-8, or unpack it first",
    b"\xd0\xcf\x11\xe0": "an old Office document (.doc, .xls): save it as plain text in UTF-8 first",
    b"{\\rtf": "an RTF document: save it as plain text in UTF-8 first",
    b"PAR1\x15": "a Parquet file: write its text out as lines first",
    b"\x89HDF": "an HDF5 file: a text file is expected here",
    b"\x89PNG": "a PNG image: name a text file",
    b"\xff\xd8\xff": "a JPEG image: name a text file",
    b"GIF87a": "a GIF image: name a text file",
    b"GIF89a": "a GIF image: name a text file",
    b"\x7fELF": "a program: name a text file",
    b"MZ\x90\x00": "a program: name a text file",
    b"\xcf\xfa\xed\xfe": "a program: name a text file",
    b"\x93NUMPY": "an array of numpy: name a text file",
    b"\x1f\x8b": "packed by gzip: end its name in .gz",
}
LONGEST_HEADER = 100_000_000  # bytes; safetensors allows no more before the weights
CONTROLS = bytes({*range(32)} - set(b"\t\n\v\f\r\x1b"))  # no text has them, in any encoding of single bytes
ARROW_CODECS = {".bz2": "bz2", ".gz": "gzip", ".zst": "zstd", ".lz4": "lz4"}
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 16 << 20  # bytes; in a block, a longer line is cut at a space, or else between two characters
LONGEST_SENTENCE = 1 << 20  # bytes of a line that is one sentence, some 200,000 words: their layers are 2 GB and more

IDENTITY_BYTES = 1 << 16  # at the head and at the tail of a file, by which it is known again

PACKED_SUFFIXES = (".xz", *ARROW_CODECS)

PathName = str | os.PathLike[str]
OpenFile = tuple[BinaryIO, Callable[[], int]]  # the unpacked bytes, and how many on the disk are taken so far


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
                f"of the line{explain_encoding(self.raw)}"
            ) from None


def explain_encoding(head: bytes) -> str:
    """The end of a message about bytes that are no UTF-8: what they may be, and how to convert them."""
    if head.startswith(UTF16_MARKS):
        return ", which looks like UTF-16: convert the file first, e.g. with iconv -f utf-16 -t utf-8"
    return ": convert the file first, e.g. with iconv -f latin1 -t utf-8"


class LineReader:
    """The lines of some files, one after the other. A file that is missing is an error at once, not hours later.

    Arguments:
        inputs: names of files or patterns, one or several; `-` is standard input and may come once.
        longest: bytes that a line may have; unset, any number.
        cuts: give a longer line in pieces, each with the number of the line, instead of refusing it.
    """

    def __init__(
        self, inputs: PathName | Iterable[PathName], *, longest: int | None = None, cuts: bool = False
    ) -> None:
        self.files = find_files(inputs)
        self._longest, self._cuts = longest, cuts
        self.bytes_total = measure_files(self.files)
        self._bytes_before = 0
        self._tell: Callable[[], int] = lambda: 0

    @property
    def bytes_done(self) -> int:
        """Bytes of the input taken so far, counted as they lie on the disk."""
        return self._bytes_before + self._tell()

    def __iter__(self) -> Iterator[Line]:
        number = 0
        for name in self.files:
            shown = "standard input" if name == STANDARD_INPUT else name
            with open_text(name) as (data, self._tell):
                _check_beginning(data, shown)
                for place, raw, is_cut in split_lines(data, longest=self._longest or -1):
                    if is_cut and not self._cuts:
                        raise InputError(
                            f"{shown}:{place}: expected one sentence on a line, found a line of more than "
                            f"{self._longest:,} bytes: break it into lines, e.g. with fold -s -w 10000"
                        )
                    yield Line(number, f"{shown}:{place}", raw)
                    number += not is_cut
                self._bytes_before, self._tell = self.bytes_done, lambda: 0


class TextBlock(NamedTuple):
    """Whole lines of one file: undecoded bytes, the file's name, and where in its unpacked text they stand."""

    data: bytes
    source: str
    first_line: int
    offset: int


def read_blocks(
    file: str, *, block_bytes: int = BLOCK_BYTES, report: Callable[[int], object] | None = None
) -> Iterator[TextBlock]:
    """The blocks of one file.

    Where a block ends depends on the text alone, so whatever is made of the blocks does too; a line without an end is
    cut, so memory stays bounded whatever comes.

    Arguments:
        file: a path, or `-`.
        block_bytes: about how long a block is.
        report: called with the number of bytes of the file, as it lies on the disk, that are read so far.
    """
    first_line, offset = 1, 0
    with open_text(file) as (stream, tell):
        for data in _cut_blocks(stream, block_bytes):
            if report is not None:
                report(tell())
            if offset == 0:
                _check_head(data[:HEAD_BYTES], file)
            mark = len(BYTE_ORDER_MARK) if offset == 0 and data.startswith(BYTE_ORDER_MARK) else 0
            yield TextBlock(data[mark:], file, first_line, offset + mark)
            first_line += data.count(b"\n")
            offset += len(data)


def find_files(sources: PathName | Iterable[PathName]) -> list[str]:
    """The files that names, patterns and `-` stand for, in the order given; those of a pattern are sorted."""
    sources = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    files = [file for source in sources for file in _find_matches(os.fspath(source))]
    if not files:
        raise InputError("expected at least one input file, found none: name a file, or - for standard input")
    if files.count(STANDARD_INPUT) > 1:
        raise InputError("standard input (-) was named more than once: it can be read only once")
    return files


def measure_files(files: Iterable[str]) -> int | None:
    """Bytes of all files as they lie on the disk; `None` where one of them is standard input or a pipe."""
    sizes = [os.stat(file).st_size if os.path.isfile(file) else None for file in files]
    return None if None in sizes else sum(size for size in sizes if size is not None)


class FileIdentity(NamedTuple):
    """What a file is known by when a job continues: its name, its bytes on the disk, a hash of its head and its tail.

    The hash of a whole corpus would take as long as reading it. Standard input and pipes have neither bytes nor hash.
    """

    name: str
    bytes: int | None = None
    hash: str | None = None

    def __str__(self) -> str:
        known = [f"{self.bytes:,} bytes"] if self.bytes is not None else []
        known += [f"hash {self.hash[:8]}"] if self.hash is not None else []
        shown = "standard input" if self.name == STANDARD_INPUT else self.name
        return f"{shown} ({', '.join(known)})" if known else shown


def identify_files(files: Iterable[str]) -> list[FileIdentity]:
    """The identities of files."""
    return [_identify(file) for file in files]


def peek_line(name: PathName) -> bytes:
    """The first line of a file that is not blank; what comes from standard input can still be read afterwards."""
    if os.fspath(name) != STANDARD_INPUT:
        return next((line.raw for line in LineReader([name]) if line.raw.strip()), b"")
    head = cast(io.BufferedReader, sys.stdin.buffer).peek(HEAD_BYTES).removeprefix(BYTE_ORDER_MARK)
    return next((line for line in head.splitlines() if line.strip()), b"")


@contextmanager
def open_text(name: PathName, *, error: type[InputError | CheckpointError] = InputError) -> Iterator[OpenFile]:
    """The unpacked bytes of a file, and a function that tells how many of the bytes on the disk are taken so far.

    Arguments:
        name: a path, or `-` for standard input.
        error: what a file that cannot be opened or read to its end becomes.
    """
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise error("standard input is closed: name a file, or give it some text")
        yield cast(BinaryIO, sys.stdin.buffer), lambda: 0
        return
    opener = {".xz": _open_xz, **dict.fromkeys(ARROW_CODECS, _open_with_arrow)}
    try:
        with opener.get(Path(name).suffix.lower(), _open_plain)(os.fspath(name)) as opened:
            yield opened
    except (OSError, EOFError, lzma.LZMAError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise error(
            f"{os.fspath(name)}: cannot be read: {' '.join(reason.split())}; check that the file is whole and what "
            "its name says"
        ) from problem


def _check_beginning(data: BinaryIO, name: str) -> None:
    peek = getattr(data, "peek", None)  # what replaces standard input may have none
    if peek is not None:
        _check_head(peek(HEAD_BYTES)[:HEAD_BYTES], name)


def _check_head(head: bytes, name: str) -> None:
    """Refuse files of other kinds, which would otherwise be called text in a wrong encoding."""
    if found := next((what for mark, what in NO_TEXT.items() if head.startswith(mark)), None):
        raise InputError(f"{name}: expected text, found {found}")
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") <= LONGEST_HEADER:
        raise InputError(f"{name}: expected text, found the weights of a model (safetensors): name a text file")
    _refuse_utf16(head, name)


def _refuse_utf16(head: bytes, name: str) -> None:
    """Refuse UTF-16 that does not say so by a mark: with Latin letters it would pass as UTF-8 full of NULs.

    What is no text in any encoding has as many control characters, and is told apart by what UTF-16 would make of it.
    """
    halves = head[::2], head[1::2]
    if len(head) < 4 or head.startswith(UTF16_MARKS):
        return
    # The upper bytes of Latin, Greek, Cyrillic, Hebrew and Arabic letters are 0 to 6.
    few, many = sorted(_count_controls(half) / len(half) for half in halves)
    if (many > 0.6 and few < 0.3) or (few + many > 0.1 and not _begins_in_utf8(head)):
        # The upper halves of the letters of a text are few: they name its scripts.
        order = "be" if len({*halves[0]}) < len({*halves[1]}) else "le"
        if not _may_be_text(head, f"utf-16-{order}"):
            raise InputError(f"{name}: expected text, found a binary file: name a text file")
        raise InputError(
            f"{name}: expected UTF-8, found what looks like UTF-16: convert the file first, e.g. with "
            f"iconv -f utf-16{order} -t utf-8"
        )


def _count_controls(head: bytes) -> int:
    return len(head) - len(head.translate(None, delete=CONTROLS))


def _begins_in_utf8(head: bytes) -> bool:
    return _decode_head(head, "utf-8") is not None


def _may_be_text(head: bytes, encoding: str) -> bool:
    """Whether nearly all characters are some that texts have."""
    text = _decode_head(head, encoding)
    if text is None:
        return False
    # Cc control characters, Cn without a meaning, Co for private use, Cs halves of a pair
    num_odd = sum(unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") and char not in "\t\n\r" for char in text)
    return num_odd <= 0.05 * len(text)


def _decode_head(head: bytes, encoding: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return None


def _identify(file: str) -> FileIdentity:
    if file == STANDARD_INPUT or not os.path.isfile(file):
        return FileIdentity(file)
    with open(file, "rb") as data:
        size = os.fstat(data.fileno()).st_size
        digest = hashlib.blake2b(data.read(IDENTITY_BYTES), digest_size=16)
        data.seek(max(0, size - IDENTITY_BYTES))
        digest.update(data.read(IDENTITY_BYTES))
    return FileIdentity(file, size, digest.hexdigest())


def split_lines(data: BinaryIO, *, longest: int = -1) -> Iterator[tuple[int, bytes, bool]]:
    """The lines of unpacked bytes: number from 1, bytes without the end, whether the line goes on in the next piece.

    Arguments:
        data: the bytes; a byte-order mark is left out.
        longest: bytes that a piece may have; a longer line is cut at a space, or else between two characters.
    """
    number, rest, raw = 1, b"", data.readline(longest)
    is_cut = len(raw) == longest
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    while raw:
        piece = rest + raw
        if raw.endswith(b"\n"):
            yield number, piece.removesuffix(b"\n").removesuffix(b"\r"), False
            number, rest = number + 1, b""
        elif is_cut:
            end = _find_cut(piece)
            yield number, piece[:end], True
            rest = piece[end:]
        else:  # the end of the file
            rest = piece
            break
        room = longest - len(rest) if longest >= 0 else longest
        raw = data.readline(room)
        is_cut = len(raw) == room
    if rest:
        yield number, rest, False


def _find_matches(source: str) -> list[str]:
    if source == STANDARD_INPUT:
        return [source]
    if os.path.isdir(source):
        raise InputError(f"the input {source} is a folder: name the files in it, such as {Path(source, '*.txt')}")
    found = [source] if os.path.exists(source) else sorted(glob.glob(source, recursive=True))
    found = [file for file in found if not os.path.isdir(file)]
    if not found:
        raise InputError(f"the input {source} does not exist, and no file matches it as a pattern: check the name")
    return found


@contextmanager
def _open_plain(name: str) -> Iterator[OpenFile]:
    with open(name, "rb") as file:
        yield file, file.tell if file.seekable() else lambda: 0


@contextmanager
def _open_xz(name: str) -> Iterator[OpenFile]:
    with open(name, "rb") as packed, lzma.open(packed) as data:
        yield cast(BinaryIO, data), packed.tell


@contextmanager
def _open_with_arrow(name: str) -> Iterator[OpenFile]:
    import pyarrow  # late: plain text does not need it

    try:
        with pyarrow.OSFile(name) as packed:
            unpacked = pyarrow.CompressedInputStream(packed, ARROW_CODECS[Path(name).suffix.lower()])
            with io.BufferedReader(cast(io.RawIOBase, unpacked), BLOCK_BYTES) as data:
                yield cast(BinaryIO, data), packed.tell
    except pyarrow.ArrowInvalid as problem:
        raise OSError(str(problem)) from problem


def _cut_blocks(stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    rest = b""
    while True:
        new = stream.read(block_bytes)  # fewer bytes only at the end, also from a pipe: the stream is buffered
        block = rest + new
        if len(new) < block_bytes:
            if block:
                yield block
            return
        end = block.rfind(b"\n") + 1
        if not end and len(block) >= LONGEST_LINE:
            end = _find_cut(block)
        if end:
            yield block[:end]
        rest = block[end:]


def _find_cut(block: bytes) -> int:
    end = block.rfind(b" ", len(block) // 2) + 1
    if end:
        return end
    end = len(block)
    while end > len(block) - 4 and block[end - 1] & 0xC0 == 0x80:  # back over the later bytes of a character
        end -= 1
    return end - 1 if block[end - 1] >= 0xC0 else end
