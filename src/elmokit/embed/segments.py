"""Lines of input cut into segments: the pieces in which a job works, is saved and continues after a kill.

Arrives: lines. Leaves: `Segment`s of rows. A segment is consecutive lines until they have 2^15 words or are 2^13 in
number, so its borders depend on the input alone; batches never cross them, and the word cache only where a word has the
same bits in any company. So a segment has the same bytes whichever run computes it. The size is a compromise: a kill
loses at most two segments, one being embedded and one being written; the vectors of both (67 MB each for the original
model in float16) are held in memory, and each becomes one Parquet row group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from safetensors import SafetensorError

from elmokit.embed.parts import Part
from elmokit.errors import ConfigError, InputError
from elmokit.text.characters import Scheme
from elmokit.text.files import Line
from elmokit.text.segmenters import Segmenter
from elmokit.validation import Count, build_from

__all__ = ["SEGMENT_WORDS", "Cutter", "Row", "Segment", "skip_finished"]

SEGMENT_WORDS = 2**15
WORDS_PER_LINE = 4  # a segment ends after SEGMENT_WORDS / WORDS_PER_LINE lines, however short they are


@dataclass(frozen=True)
class Row:
    """One row of the output: a line or, when lines are split, one sentence of it."""

    line: int
    text: str
    words: list[str]


@dataclass
class Segment:
    """Consecutive lines of the input as rows.

    Attributes:
        rows: the rows in order.
        num_lines, num_words: how many lines they come from and how many words they have.
        num_cut: words that the model does not see whole, or that hold a NUL.
        digest: hash of the lines, by which a later run knows them again.
        ended: whether the input ended before the segment was full.
    """

    rows: list[Row] = field(default_factory=list)
    num_lines: int = 0
    num_words: int = 0
    num_cut: int = 0
    digest: str = ""
    ended: bool = False

    def header(self) -> dict[str, Any]:
        """What is stored about a segment beside its arrays."""
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"}
        return {"num_rows": len(self.rows), **facts}


@dataclass(frozen=True)
class Cutter:
    """How lines become rows and rows become segments.

    Arguments:
        scheme: of the model; knows which words are too long for it.
        segmenter: splits a line into sentences of words; `None` when words stand between spaces already.
        split: one row per sentence instead of one row per line; a line without words still gives one empty row.
        strict: a word that is too long or holds a NUL is an error instead of being counted.
        segment_words: words after which a segment ends.
        rows_per_batch: end only after full batches of so many rows, which carry mode needs to pair rows over segments.
    """

    scheme: Scheme
    segmenter: Segmenter | None
    split: bool = False
    strict: bool = False
    segment_words: int = SEGMENT_WORDS
    rows_per_batch: int = 1

    def segments(self, lines: Iterable[Line]) -> Iterator[Segment]:
        """The segments of the lines, each read only when it is asked for."""
        segment, digest = Segment(), hashlib.blake2b(digest_size=16)
        for line in lines:
            rows = self._split_line(line)
            segment.rows += rows
            segment.num_lines += 1
            segment.num_words += sum(len(row.words) for row in rows)
            segment.num_cut += sum(self._count_cut(row, line.place) for row in rows)
            digest.update(line.raw + b"\n")
            if self._is_full(segment):
                segment.digest = digest.hexdigest()
                yield segment
                segment, digest = Segment(), hashlib.blake2b(digest_size=16)
        if segment.num_lines:
            segment.digest, segment.ended = digest.hexdigest(), True
            yield segment

    def _is_full(self, segment: Segment) -> bool:
        enough = segment.num_words >= self.segment_words or WORDS_PER_LINE * segment.num_lines >= self.segment_words
        return enough and len(segment.rows) % self.rows_per_batch == 0

    def _split_line(self, line: Line) -> list[Row]:
        text = line.text()
        if self.segmenter is None:
            return [Row(line.number, text.strip(), text.split())]
        sentences = [words for words in self.segmenter(text) if words]
        if self.split and sentences:
            return [
                Row(line.number, text[words[0].start : words[-1].end], [word.text for word in words])
                for words in sentences
            ]
        return [Row(line.number, text.strip(), [word.text for words in sentences for word in words])]

    def _count_cut(self, row: Row, place: str) -> int:
        num_cut = self.scheme.count_cut(row.words)
        if num_cut and self.strict:
            word = next(word for word in row.words if self.scheme.count_cut([word]))
            what = "holds a NUL" if "\0" in word else "is longer than this model reads"
            shown = repr(word if len(word) <= 40 else f"{word[:40]}…")
            raise InputError(f"{place}: the word {shown} of {len(word)} characters {what}, and strict was asked for")
        return num_cut


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
        lengths = [len(part.array(name)) for name in ("lines", "offsets", "vectors")]
    except (ConfigError, SafetensorError) as problem:
        raise part.damage(str(problem)) from problem
    if lengths != [header.num_rows, header.num_rows + 1, header.num_words]:
        raise part.damage(f"its arrays have {lengths} entries, which does not fit its header")
    part.verify()
    return header
