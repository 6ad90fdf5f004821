"""Lines of input become rows of words: the work that processes of their own do for a job.

Arrives: the undecoded lines of a block. Leaves: a `Rows` of a few flat arrays and each distinct word once, cheap to
send and to put together (`segments.py`). Nothing here imports torch, so that such a process starts quickly.

Shapes: L lines, R rows, N words, U distinct words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.text.characters import Scheme
from elmokit.text.files import Line
from elmokit.text.segmenters import Segmenter, split_at_blanks

__all__ = ["RowSplitter", "Rows"]


class Rows(NamedTuple):
    """The rows of some lines.

    Arguments:
        words: each distinct word once, in order of appearance.
        numbers_N: which of them stands at each place, row after row.
        lengths_R: words of each row.
        rows_L: rows of each line; fewer lines than were given where one of them is at fault: the next one.
        is_cut_U: which words the model does not see whole, or that hold a NUL.
        texts: of each row, where they are asked for.
    """

    words: list[str]
    numbers_N: np.ndarray
    lengths_R: np.ndarray
    rows_L: np.ndarray
    is_cut_U: np.ndarray
    texts: list[str] | None


@dataclass(frozen=True)
class RowSplitter:
    """How lines become rows.

    Arguments:
        scheme: of the model; knows which words are too long for it.
        segmenter: splits a line into sentences of words; `None` when words stand between spaces already.
        split: one row per sentence instead of one row per line; a line without words still gives one empty row.
        strict: a word that is too long or holds a NUL is an error instead of being counted.
        keeps_texts: whether the text of each row is kept.
    """

    scheme: Scheme
    segmenter: Segmenter | None
    split: bool = False
    strict: bool = False
    keeps_texts: bool = False

    def __call__(self, lines: Sequence[bytes]) -> Rows:
        """The rows of these lines, up to the first line that is at fault; `complain` says why it is."""
        words: list[str] = []
        lengths: list[int] = []
        rows: list[int] = []
        texts: list[str] = []
        for raw in lines:
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError:
                break
            found = self._split_text(text)
            for row_words, begin, end in found:
                words += row_words
                lengths.append(len(row_words))
                if self.keeps_texts:
                    texts.append(text[begin:end].strip())
            rows.append(len(found))
        distinct = list(dict.fromkeys(words))
        numbers = dict(zip(distinct, range(len(distinct)), strict=True))
        numbers_N = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
        lengths_R, rows_L = np.array(lengths, np.int32), np.array(rows, np.int32)
        result = Rows(distinct, numbers_N, lengths_R, rows_L, self._find_cut(distinct), texts or None)
        return _keep_before(result, result.is_cut_U) if self.strict and result.is_cut_U.any() else result

    def complain(self, line: Line) -> InputError:
        """What is wrong with a line at which the rows ended."""
        text = line.text()  # raises, if it is not UTF-8
        words = [word for row_words, _, _ in self._split_text(text) for word in row_words]
        word = next(word for word in words if self.scheme.count_cut([word]))
        what = "holds a NUL" if "\0" in word else "is longer than this model reads"
        shown = repr(word if len(word) <= 40 else f"{word[:40]}…")
        return InputError(f"{line.place}: the word {shown} of {len(word)} characters {what}, and strict was asked for")

    def _split_text(self, text: str) -> list[tuple[list[str], int, int]]:
        """Words, begin and end of each row of a line."""
        if self.segmenter is None:
            return [(split_at_blanks(text), 0, len(text))]
        sentences = [sentence for sentence in self.segmenter(text) if sentence]
        if self.split and sentences:
            return [([word[0] for word in words], words[0].start, words[-1].end) for words in sentences]
        return [([word[0] for words in sentences for word in words], 0, len(text))]

    def _find_cut(self, words: list[str]) -> np.ndarray:
        if not self.scheme.count_cut(words):  # nearly always, and quickly seen
            return np.zeros(len(words), bool)
        return np.fromiter((self.scheme.count_cut([word]) > 0 for word in words), bool, len(words))


def _keep_before(rows: Rows, is_bad_U: np.ndarray) -> Rows:
    """The rows of the lines before the first that has a bad word."""
    first = int(np.flatnonzero(is_bad_U[rows.numbers_N])[0])
    row = int(np.searchsorted(rows.lengths_R.cumsum(), first, side="right"))
    line = int(np.searchsorted(rows.rows_L.cumsum(), row, side="right"))
    num_rows = int(rows.rows_L[:line].sum())
    lengths_R = rows.lengths_R[:num_rows]
    texts = None if rows.texts is None else rows.texts[:num_rows]
    return rows._replace(
        numbers_N=rows.numbers_N[: int(lengths_R.sum())], lengths_R=lengths_R, rows_L=rows.rows_L[:line], texts=texts
    )
