"""Blocks of text → numbered words, in several processes.

`TextBlock`s arrive; for each, in the same order, a `SegmentedBlock` leaves: its distinct words once, and its text as
numbers into them. That is a fifth of the text, so the process that gathers the results has little to do.

Shapes: N words of a block, U distinct words, S sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.reading.processes import run_in_order
from elmokit.text.files import TextBlock, explain_encoding
from elmokit.text.segmenters import Segmenter, split_at_blanks

__all__ = ["SegmentedBlock", "Segmenting", "segment_blocks"]


class Segmenting(NamedTuple):
    """How text becomes sentences: by a segmenter, or with `None` one per line, its words between spaces."""

    segmenter: Segmenter | None
    max_sentence_words: int

    def sentences(self, line: str) -> list[list[str]]:
        """The sentences of one line."""
        if self.segmenter is None:
            return [split_at_blanks(line)]
        return [[word[0] for word in sentence] for sentence in self.segmenter(line)]


class SegmentedBlock(NamedTuple):
    """A block's distinct words (UTF-8, in order of appearance), its text as numbers into them, and its sentences."""

    words: list[bytes]
    counts_U: np.ndarray
    ids_N: np.ndarray
    lengths_S: np.ndarray


def segment_blocks(blocks: Iterable[TextBlock], segmenting: Segmenting, *, workers: int) -> Iterator[SegmentedBlock]:
    """The blocks in order, segmented by `workers` processes; 1 means in this one."""
    pieces = ((block, block.data) for block in blocks)
    doer = f"the segmenter {type(segmenting.segmenter).__name__}"
    for block, answer in run_in_order(partial(_segment, segmenting=segmenting), pieces, workers=workers, doer=doer):
        yield _unpack(block, answer)


class _Answer(NamedTuple):
    """What comes back of a block, cheap to send: distinct words are joined by line ends. Or what went wrong."""

    words: bytes = b""
    counts_U: np.ndarray | None = None
    ids_N: np.ndarray | None = None
    lengths_S: np.ndarray | None = None
    bad_byte: int | None = None
    problem: str | None = None


def _unpack(block: TextBlock, answer: _Answer) -> SegmentedBlock:
    """The answer as a segmented block; its problem as an error that names the file, the line and the byte."""
    if answer.bad_byte is not None:
        line, byte = block.first_line + block.data.count(b"\n", 0, answer.bad_byte), block.offset + answer.bad_byte
        advice = explain_encoding(block.data if block.offset == 0 else b"")
        raise InputError(f"{block.source}: expected UTF-8, but line {line} (byte {byte} of the text) is not{advice}")
    if answer.problem is not None:
        last_line = block.first_line + block.data.removesuffix(b"\n").count(b"\n")
        raise InputError(f"{block.source}: lines {block.first_line} to {last_line}: {answer.problem}")
    assert answer.counts_U is not None and answer.ids_N is not None and answer.lengths_S is not None
    words = answer.words.split(b"\n") if len(answer.counts_U) else []
    return SegmentedBlock(words, answer.counts_U, answer.ids_N, answer.lengths_S)


def _segment(data: bytes, segmenting: Segmenting) -> _Answer:
    """Segment one block."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        return _Answer(bad_byte=problem.start)
    lengths, words = [], []
    try:
        # One line at a time: to any segmenter the end of a line is the end of a sentence, and the spans of its words,
        # which nobody needs here, are gone before they fill the processor's caches.
        for line in text.split("\n"):
            for sentence in segmenting.sentences(line):
                lengths.append(len(sentence))
                words += sentence
    except Exception as problem:  # noqa: BLE001 - whatever a foreign segmenter raises belongs beside the line
        return _Answer(problem=f"the segmenter failed: {type(problem).__name__}: {problem}")
    lengths_S = np.array(lengths, dtype=np.int64)
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids_N = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
    distinct = "\n".join(numbers)
    if "" in numbers or distinct.count("\n") != max(len(numbers) - 1, 0):
        return _Answer(problem="the segmenter gave a word that is empty or holds a line end; expected neither")
    return _Answer(
        distinct.encode("utf-8"),
        np.bincount(ids_N, minlength=len(numbers)),
        ids_N,
        _cut_lengths(lengths_S[lengths_S > 0], segmenting.max_sentence_words),
    )


def _cut_lengths(lengths_S: np.ndarray, longest: int) -> np.ndarray:
    """The lengths after cutting longer sentences into pieces of `longest` words and a last one."""
    pieces_S = -(-lengths_S // longest)
    cut = np.full(int(pieces_S.sum()), longest, dtype=np.int64)
    cut[pieces_S.cumsum() - 1] = lengths_S - (pieces_S - 1) * longest
    return cut
