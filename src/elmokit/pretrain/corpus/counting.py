"""Counting words in bounded memory, exactly.

Blocks of distinct words with their counts arrive; each word gets a provisional number, the vocabulary is chosen when
all are counted, and then every provisional number gets its final id. A table of all words would grow with the corpus.
So a table is kept of at most some 260,000 words: when it is full it goes to disk, sorted, as a *run*, and the next one
starts empty, so a provisional number means something within its run only. Merging the sorted runs gives every word's
exact count one word after the other; the most frequent are kept in a heap as large as the vocabulary. Nothing is
pruned or estimated, and none of this depends on how fast blocks arrive.

Shapes: U distinct words of a block, R words of a run.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import ConfigError

__all__ = ["SPECIAL_WORDS", "SortedRun", "WordCounter", "build_alphabet", "find_most_frequent"]

SPECIAL_WORDS = (b"<S>", b"</S>", b"<UNK>")  # rows 0, 1 and 2 of every vocabulary, as in bilm-tf's files
ALPHABET_SPECIALS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
TABLE_WORDS = 1 << 18  # about 8 million words of English fill it; 40 MB
TABLE_BYTES = 16 << 20  # of the words alone: a table of very long words is full sooner
RUNS_AT_ONCE = 64  # open files while merging


class SortedRun(NamedTuple):
    """A full table on disk: its words sorted, each with its count and its provisional number.

    Attributes:
        path: where its files lie, less their endings.
        num_tokens: how many words of text were numbered by it.
    """

    path: Path
    num_tokens: int

    def words(self) -> list[bytes]:
        """The words, sorted."""
        return self.path.with_suffix(".words").read_bytes().removesuffix(b"\n").split(b"\n")

    def numbers_R(self) -> np.ndarray:
        """(R,) the provisional number of each word."""
        return np.fromfile(self.path.with_suffix(".numbers"), np.int32)

    def read_counts(self) -> Iterator[tuple[bytes, int]]:
        """The words, sorted, each with its count; read piece by piece."""
        with self.path.with_suffix(".words").open("rb") as words, self.path.with_suffix(".counts").open("rb") as counts:
            for word in words:
                yield word[:-1], int.from_bytes(counts.read(8), "little")


class WordCounter:
    """Numbers and counts the words of a corpus, block by block.

    Arguments:
        folder: an existing folder for the runs; whoever made it removes it.
        table_words: words in memory at a time.
    """

    def __init__(self, folder: Path, *, table_words: int = TABLE_WORDS) -> None:
        self._folder, self._table_words = folder, table_words
        self._runs: list[SortedRun] = []
        self._start_table()

    def add(self, words: Sequence[bytes], counts_U: np.ndarray) -> np.ndarray:
        """(U,) int32 provisional numbers of a block's distinct words, which occur so many times in it."""
        if len(self._numbers) >= self._table_words or self._num_bytes >= TABLE_BYTES:
            self._write_run()
        numbers, before = self._numbers, len(self._numbers)
        numbers_U = np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int32)
        if len(numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(numbers), np.int64)])
        self._counts[numbers_U] += counts_U
        self._num_bytes += sum(len(words[place]) for place in (numbers_U >= before).nonzero()[0].tolist())
        return numbers_U

    def finish(self) -> list[SortedRun]:
        """All runs, in the order of the text; the counter is of no use after this."""
        if self._numbers:
            self._write_run()
        return self._runs

    def _start_table(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._counts = np.zeros(self._table_words, np.int64)
        self._num_bytes = 0

    def _write_run(self) -> None:
        words, counts = sorted(self._numbers), self._counts
        numbers_R = np.fromiter(map(self._numbers.__getitem__, words), np.int32, len(words))
        run = SortedRun(self._folder / f"run{len(self._runs):06}", int(counts.sum()))
        _write_counts(run.path, zip(words, counts[numbers_R].tolist(), strict=True))
        numbers_R.tofile(run.path.with_suffix(".numbers"))
        self._runs.append(run)
        self._start_table()


def find_most_frequent(runs: Sequence[SortedRun], *, count: int, min_count: int) -> list[bytes]:
    """The most frequent words of all runs, by falling count; the specials are left out.

    Words of equal count are sorted by their bytes, so the result depends on the text alone.
    """
    heap: list[tuple[int, int, bytes]] = []  # count, falling place in the alphabet, word: the first is the next to go
    for place, (word, total) in enumerate(_merge_runs(_reduce_runs(runs))):
        if total < min_count or (len(heap) == count and total <= heap[0][0]) or word in SPECIAL_WORDS:
            continue
        if len(heap) < count:
            heapq.heappush(heap, (total, -place, word))
        else:
            heapq.heapreplace(heap, (total, -place, word))
    heap.sort(reverse=True)
    return [word for _, _, word in heap]


def build_alphabet(words_with_counts: Iterable[tuple[str, int]], max_symbols: int) -> list[str]:
    """The symbols of a `UnicodeScheme`: six specials, then the most frequent characters of the words.

    Arguments:
        words_with_counts: pairs (word, how often it occurs), for instance a corpus's vocabulary and its counts.
        max_symbols: the longest alphabet wanted, specials included.

    Example:
        >>> build_alphabet([("<S>", 9), ("abba", 2), ("b", 1)], max_symbols=7)
        ['<bos>', '<eos>', '<oov>', '<pad>', '<bow>', '<eow>', 'b']
    """
    if max_symbols <= len(ALPHABET_SPECIALS):
        raise ConfigError(
            f"max_symbols is {max_symbols}: {len(ALPHABET_SPECIALS)} specials and a character need "
            f"{len(ALPHABET_SPECIALS) + 1}"
        )
    totals: Counter[str] = Counter()
    for word, count in words_with_counts:
        if word.encode("utf-8", "surrogatepass") not in SPECIAL_WORDS:
            for character in word:
                totals[character] += int(count)
    ordered = sorted(totals, key=lambda character: (-totals[character], character))
    return [*ALPHABET_SPECIALS, *ordered[: max_symbols - len(ALPHABET_SPECIALS)]]


def _reduce_runs(runs: Sequence[SortedRun]) -> Sequence[SortedRun]:
    """The same counts in few enough runs to open them all at once."""
    level = 0
    while len(runs) > RUNS_AT_ONCE:
        merged: list[SortedRun] = []
        for start in range(0, len(runs), RUNS_AT_ONCE):
            some = runs[start : start + RUNS_AT_ONCE]
            path = some[0].path.with_name(f"merged{level}-{start:06}")
            _write_counts(path, _merge_runs(some))
            merged.append(SortedRun(path, sum(run.num_tokens for run in some)))
        runs, level = merged, level + 1
    return runs


def _merge_runs(runs: Sequence[SortedRun]) -> Iterator[tuple[bytes, int]]:
    """Every word of the runs once, sorted, with its count in all of them."""
    if len(runs) == 1:
        yield from runs[0].read_counts()
        return
    for word, same in groupby(heapq.merge(*(run.read_counts() for run in runs)), key=itemgetter(0)):
        yield word, sum(count for _, count in same)


def _write_counts(path: Path, pairs: Iterable[tuple[bytes, int]]) -> None:
    with path.with_suffix(".words").open("wb") as words, path.with_suffix(".counts").open("wb") as counts:
        for word, count in pairs:
            words.write(word + b"\n")
            counts.write(count.to_bytes(8, "little"))
