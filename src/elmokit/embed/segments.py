"""Lines of input cut into segments: the pieces in which a job works, is saved and continues after a kill.

Arrives: lines. Leaves: `Segment`s of rows. Lines are split into rows in blocks, on a GPU's host by several processes
(`rows.py`), and the blocks are put together again: a segment is consecutive lines until they have so many words or are
a quarter as many, so its borders depend on the input alone. Batches never cross them, and the word cache only where a
word has the same bits in any company. So a segment has the same bytes whichever run computes it. The size is a
compromise: a kill loses the segments on their way, of which each has its vectors in memory (67 MB for 2^15 words of
the original model in float16), and each becomes one Parquet row group; but a GPU wants many sentences at a time.

Shapes: L lines, R rows, N words, U distinct words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from safetensors import SafetensorError

from elmokit.embed.parts import Part
from elmokit.embed.rows import Rows, RowSplitter
from elmokit.errors import ConfigError, InputError
from elmokit.reading.processes import run_in_order
from elmokit.text.files import Line
from elmokit.validation import Count, build_from

__all__ = ["SEGMENT_WORDS", "Cutter", "Segment", "choose_segment_words", "skip_finished"]

SEGMENT_WORDS = {"cpu": 2**15, "cuda": 2**17}
WORDS_PER_LINE = 4  # a segment ends after segment_words / WORDS_PER_LINE lines, however short they are
BLOCK_BYTES = 1 << 18  # some 45,000 words: a tenth of a second of a process


def choose_segment_words(device_type: str) -> int:
    """Words after which a segment ends on such a device."""
    return SEGMENT_WORDS.get(device_type, SEGMENT_WORDS["cpu"])


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive lines of the input as rows.

    Attributes:
        lines_R: the line of each row.
        lengths_R: its words.
        words: each distinct word once, in order of appearance.
        numbers_N: which of them stands at each place, row after row.
        num_lines: how many lines the rows come from.
        num_cut: words that the model does not see whole, or that hold a NUL.
        digest: hash of the lines, by which a later run knows them again.
        ended: whether the input ended before the segment was full.
        texts: of the rows, where they are asked for.
        bytes_read: of the input, when the segment's last line had been read.
    """

    lines_R: np.ndarray
    lengths_R: np.ndarray
    words: list[str]
    numbers_N: np.ndarray
    num_lines: int
    num_cut: int
    digest: str
    ended: bool
    texts: list[str] | None = None
    bytes_read: int = 0

    @property
    def num_words(self) -> int:
        """Words of all rows."""
        return len(self.numbers_N)

    @property
    def offsets(self) -> np.ndarray:
        """Where the words of each row begin, and where the last ones end (R + 1)."""
        return np.concatenate([[0], self.lengths_R.cumsum()])

    def rows(self) -> Iterator[list[str]]:
        """The words of each row."""
        words = [self.words[number] for number in self.numbers_N.tolist()]
        return (words[start:end] for start, end in pairwise(self.offsets.tolist()))

    def header(self) -> dict[str, Any]:
        """What is stored about a segment beside its arrays."""
        names = ("num_lines", "num_words", "num_cut", "digest", "ended")
        return {"num_rows": len(self.lines_R), **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Cutter:
    """How rows become segments.

    Arguments:
        splitter: makes rows of lines.
        segment_words: words after which a segment ends.
        rows_per_batch: end only after full batches of so many rows, which carry mode needs to pair rows over segments.
        workers: processes that split lines; 1 means that this one does.
    """

    splitter: RowSplitter
    segment_words: int
    rows_per_batch: int = 1
    workers: int = 1

    def segments(self, lines: Iterable[Line], *, tell: Callable[[], int] = lambda: 0) -> Generator[Segment]:
        """The segments of the lines, read some blocks ahead where processes split them.

        Arguments:
            lines: of the input.
            tell: how many bytes of it are read.
        """
        draft = _Draft()
        pieces = ((block, block.raw) for block in self._read_blocks(lines, tell))
        doer = f"the segmenter {type(self.splitter.segmenter).__name__}"
        for block, rows in run_in_order(self.splitter, pieces, workers=self.workers, doer=doer):
            yield from self._cut_block(draft, block, rows)
            if len(rows.rows_L) < len(block.raw):
                raise self.splitter.complain(block.line(len(rows.rows_L)))
        if draft.num_lines:
            yield draft.finish(ended=True)

    def _read_blocks(self, lines: Iterable[Line], tell: Callable[[], int]) -> Iterator[_Block]:
        block_bytes = min(BLOCK_BYTES, 2 * self.segment_words)  # some of them per segment, for who waits for the first
        block, num_bytes = _Block(), 0
        for number, place, raw in lines:
            block.numbers.append(number)
            block.places.append(place)
            block.raw.append(raw)
            num_bytes += len(raw) + 1
            if num_bytes >= block_bytes:
                block.bytes_read = tell()
                yield block
                block, num_bytes = _Block(), 0
        if block.raw:
            block.bytes_read = tell()
            yield block

    def _cut_block(self, draft: _Draft, block: _Block, rows: Rows) -> Iterator[Segment]:
        rows_before_L = np.concatenate([[0], rows.rows_L.cumsum()])
        words_before_L = np.concatenate([[0], rows.lengths_R.cumsum()])[rows_before_L]
        lines_before_L = np.arange(len(rows_before_L))
        done = 0
        while done < len(rows.rows_L):
            num_words = draft.num_words + words_before_L[done + 1 :] - words_before_L[done]
            num_lines = draft.num_lines + lines_before_L[done + 1 :] - lines_before_L[done]
            num_rows = draft.num_rows + rows_before_L[done + 1 :] - rows_before_L[done]
            is_full = (num_words >= self.segment_words) | (WORDS_PER_LINE * num_lines >= self.segment_words)
            is_full &= num_rows % self.rows_per_batch == 0
            ends = bool(is_full.any())
            stop = done + 1 + int(is_full.argmax()) if ends else len(rows.rows_L)
            taken = slice(rows_before_L[done], rows_before_L[stop]), slice(words_before_L[done], words_before_L[stop])
            draft.add(block, rows, slice(done, stop), *taken)
            if ends:
                yield draft.finish(ended=False)
            done = stop


@dataclass
class _Block:
    """Some lines: their numbers, where they stand, their bytes, and how much of the input was read after them."""

    numbers: list[int] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    bytes_read: int = 0

    def line(self, index: int) -> Line:
        return Line(self.numbers[index], self.places[index], self.raw[index])


class _Draft:
    """A segment that grows, block by block."""

    def __init__(self) -> None:
        self.num_lines = self.num_rows = self.num_words = self.num_cut = self.bytes_read = 0
        self._numbers: dict[str, int] = {}
        self._lines: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._words: list[np.ndarray] = []
        self._texts: list[str] = []
        self._has_texts = False
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, block: _Block, rows: Rows, lines: slice, taken_rows: slice, taken_words: slice) -> None:
        """These lines of a block, which have these rows and these words."""
        rows_L, lengths_R = rows.rows_L[lines], rows.lengths_R[taken_rows]
        local_N = rows.numbers_N[taken_words]
        known_U = self._number_words(rows, local_N)
        self._lines.append(np.array(block.numbers[lines], np.int64).repeat(rows_L))
        self._lengths.append(lengths_R)
        self._words.append(known_U[local_N])
        if rows.texts is not None:
            self._has_texts = True
            self._texts += rows.texts[taken_rows]
        self._digest.update(b"\n".join([*block.raw[lines], b""]))
        self.num_lines += len(rows_L)
        self.num_rows += len(lengths_R)
        self.num_words += len(local_N)
        self.num_cut += int(rows.is_cut_U[local_N].sum())
        self.bytes_read = block.bytes_read

    def finish(self, *, ended: bool) -> Segment:
        """The segment; the draft is empty afterwards."""
        segment = Segment(
            lines_R=np.concatenate(self._lines),
            lengths_R=np.concatenate(self._lengths).astype(np.int64),
            words=list(self._numbers),
            numbers_N=np.concatenate(self._words),
            num_lines=self.num_lines,
            num_cut=self.num_cut,
            digest=self._digest.hexdigest(),
            ended=ended,
            texts=self._texts if self._has_texts else None,
            bytes_read=self.bytes_read,
        )
        self.__init__()
        return segment

    def _number_words(self, rows: Rows, local_N: np.ndarray) -> np.ndarray:
        """The number in this segment of each word of a block (U), where it occurs among these."""
        known_U = np.zeros(len(rows.words), np.int32)
        if len(local_N) == len(rows.numbers_N):
            used_V = np.arange(len(rows.words))
        else:  # in the order of their first appearance, too, so that it depends on the segment alone
            used_V, first_V = np.unique(local_N, return_index=True)
            used_V = used_V[first_V.argsort()]
        numbers, words = self._numbers, rows.words
        found = (numbers.setdefault(words[place], len(numbers)) for place in used_V.tolist())
        known_U[used_V] = np.fromiter(found, np.int32, len(used_V))
        return known_U


def skip_finished(lines: Iterator[Line], parts: Iterable[Part]) -> None:
    """Pass over the lines of finished parts; an `InputError` when they are not the lines the parts were made from."""
    first = 0
    for part in parts:
        header = _check_part(part)
        expected, digest, count = header.num_lines, hashlib.blake2b(digest_size=16), 0
        for line in islice(lines, expected):
            digest.update(line.raw + b"\n")
            count += 1
        grown = header.ended and next(lines, None) is not None
        if count < expected or digest.hexdigest() != header.digest or grown:
            raise InputError(
                f"the input has changed since the job was started (between lines {first + 1} and {first + expected}, "
                "or after them): give the same input, or start again with --overwrite (overwrite=True)"
            )
        first += expected


@dataclass(frozen=True)
class _PartHeader:
    """`Segment.header` as it comes back from a file, and the checksum of the arrays beside it."""

    num_rows: Count
    num_lines: Count
    num_words: Count
    num_cut: Count
    digest: str
    ended: bool
    crc32: Count


def _check_part(part: Part) -> _PartHeader:
    """The header of a finished part that is whole; everything in it is read once."""
    try:
        header = build_from(_PartHeader, part.header)
        expected = {"lines": header.num_rows, "offsets": header.num_rows + 1, "vectors": header.num_words}
        lengths = {name: len(part.array(name)) for name in expected if not part.has_grown or name in part}
    except (ConfigError, SafetensorError) as problem:
        raise part.damage(str(problem)) from problem
    if any(lengths[name] != expected[name] for name in lengths):
        raise part.damage(f"its arrays have {list(lengths.values())} entries, which does not fit its header")
    part.verify()
    return header
