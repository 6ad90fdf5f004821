"""Text, larger than memory if need be → an encoded corpus (`encoded.py`), in one pass over the text.

The story: files are read in blocks (`text/files.py`), segmented in several processes (`segmenting.py`), their words
numbered and counted in a bounded table (`counting.py`) and written as provisional numbers. When the text is at its end
the vocabulary is known, and the numbers on disk are replaced by final ids, run by run. Memory does not depend on the
size of the corpus, and the folder depends neither on the number of processes nor on the machine. It appears complete
or not at all.

Shapes: N tokens of a block, U distinct words of it, S its sentences, R words of a run, V words of the vocabulary.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from tqdm import tqdm

from elmokit.cores import count_threads
from elmokit.errors import ConfigError, InputError
from elmokit.io.atomic import new_folder
from elmokit.pretrain.corpus.counting import SPECIAL_WORDS, TABLE_WORDS, SortedRun, WordCounter, find_most_frequent
from elmokit.pretrain.corpus.encoded import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    FORMAT,
    FORMAT_VERSION,
    UNKNOWN,
    EncodedCorpus,
    find_fingerprint,
)  # fmt: skip
from elmokit.pretrain.corpus.segmenting import Segmenting, segment_blocks
from elmokit.text.files import BLOCK_BYTES, TextBlock, find_files, identify_files, measure_files, read_blocks
from elmokit.text.segmenters import RuleSegmenter, Segmenter
from elmokit.waits import show_progress

__all__ = ["encode_corpus"]

SMALLEST_VOCABULARY = len(SPECIAL_WORDS) + 1
TOKENS_AT_ONCE = 1 << 20
LARGEST_ID = 2**31 - 1


def encode_corpus(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    vocabulary_size: int = 100_000,
    min_count: int = 1,
    vocabulary: Sequence[str] | None = None,
    tokenised: bool = False,
    segmenter: Segmenter | None = None,
    max_sentence_words: int = 400,
    workers: int | None = None,
    progress: bool = True,
    table_words: int = TABLE_WORDS,
) -> EncodedCorpus:
    """Encode text into a new folder, and open it.

    Arguments:
        sources: files, globs, `-` for standard input; .bz2, .gz, .xz, .zst and .lz4 are unpacked. UTF-8.
        folder: must not exist, or be empty.
        vocabulary_size: most words of the vocabulary, `<S>`, `</S>` and `<UNK>` included.
        min_count: a word that occurs less often is outside the vocabulary.
        vocabulary: take these words instead of counting: the training corpus's, to encode held-out text.
        tokenised: the text has one sentence per line, words between spaces; nothing is segmented.
        segmenter: of raw text, whose lines are paragraphs; the default rules unless given. Must be picklable.
        max_sentence_words: a longer sentence is cut into pieces of so many words.
        workers: processes that segment; as many as threads compute unless given, 1 for none but this one.
        progress: show a progress bar on a terminal.
        table_words: words in memory while counting; a smaller table needs less memory and more time.
    """
    _check_numbers(vocabulary_size, min_count, max_sentence_words, workers)
    given = None if vocabulary is None else _check_vocabulary(vocabulary)
    if tokenised and segmenter is not None:
        raise ConfigError("tokenised text needs no segmenter, but one came: leave out one of the two")
    segmenting = Segmenting(None if tokenised else segmenter or RuleSegmenter(), max_sentence_words)
    files = find_files(sources)
    with new_folder(Path(folder)) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        counter = WordCounter(scratch, table_words=table_words)
        num_tokens, num_sentences = _write_provisional(partial, files, segmenting, counter, workers, progress)
        if not num_tokens:
            raise InputError(f"expected text, but found no words at all in {', '.join(files[:3])}")
        runs = counter.finish()
        if given is None:
            counted = find_most_frequent(runs, count=vocabulary_size - len(SPECIAL_WORDS), min_count=min_count)
            if not counted:
                raise InputError(
                    f"no word of the text occurs {min_count:,} times or more: there is nothing to predict; use a "
                    "smaller --min-count, or more text"
                )
            given = [*SPECIAL_WORDS, *counted]
        num_words, counts_V = _write_final(partial, runs, given)
        counts_V[[BEGIN_SENTENCE, END_SENTENCE]] += num_sentences
        counts_V.astype("<i8").tofile(partial / "counts.bin")
        (partial / "vocab.txt").write_bytes(b"".join(word + b"\n" for word in given))
        shutil.rmtree(scratch)
        header = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "num_tokens": num_tokens,
            "num_sentences": num_sentences,
            "vocabulary_size": len(given),
            "num_words": num_words,
            "coverage": 1 - int(counts_V[UNKNOWN]) / num_tokens,
            "settings": {
                "segmenter": "spaces" if tokenised else type(segmenting.segmenter).__name__,
                "vocabulary": "counted" if vocabulary is None else "given",
                "vocabulary_size": vocabulary_size if vocabulary is None else len(given),
                "min_count": min_count,
                "max_sentence_words": max_sentence_words,
            },
            "files": [file._asdict() for file in identify_files(files)],
            "sha256": find_fingerprint(partial),
        }
        (partial / "corpus.json").write_text(json.dumps(header, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return EncodedCorpus.open(folder)


def _write_provisional(
    folder: Path,
    files: Sequence[str],
    segmenting: Segmenting,
    counter: WordCounter,
    workers: int | None,
    progress: bool,
) -> tuple[int, int]:
    """Write the tokens of all text as the counter numbers them, and where sentences begin; their numbers come back."""
    size = measure_files(files)
    if workers is None:
        workers = count_threads() if size is None else min(count_threads(), size // BLOCK_BYTES + 1)
    num_tokens = num_sentences = 0
    with (
        (folder / "tokens.bin").open("wb") as tokens,
        (folder / "sentences.bin").open("wb") as sentences,
        show_progress(total=size, unit="B", unit_scale=True, desc="encoding", hidden=not progress) as bar,
    ):
        sentences.write(bytes(8))
        for block in segment_blocks(_all_blocks(files, bar), segmenting, workers=workers):
            numbers_U = counter.add(block.words, block.counts_U)
            tokens.write(numbers_U.astype("<i4")[block.ids_N].tobytes())
            sentences.write((num_tokens + block.lengths_S.cumsum()).astype("<i8").tobytes())
            num_tokens += len(block.ids_N)
            num_sentences += len(block.lengths_S)
            bar.set_postfix_str(f"{num_tokens / 1e6:.1f} M words", refresh=False)
    return num_tokens, num_sentences


def _all_blocks(files: Sequence[str], bar: tqdm) -> Iterator[TextBlock]:
    done = 0
    for file in files:
        yield from read_blocks(file, report=lambda read, done=done: bar.update(done + read - bar.n))
        done = bar.n


def _write_final(folder: Path, runs: Sequence[SortedRun], vocabulary: Sequence[bytes]) -> tuple[int, np.ndarray]:
    """Put final ids in the place of provisional numbers and write all words; their number and the counts come back."""
    rows = {word: row for row, word in enumerate(vocabulary)}
    counts_V = np.zeros(len(vocabulary), np.int64)
    with (
        (folder / "tokens.bin").open("r+b") as tokens,
        (folder / "words.bin").open("wb") as spellings,
        (folder / "words.offsets.bin").open("wb") as offsets,
    ):
        words = _WordWriter(spellings, offsets)
        words.write(vocabulary)
        for run in runs:
            run_words = run.words()
            ids_R = np.fromiter((rows.get(word, -1) for word in run_words), np.int64, len(run_words))
            outside = (ids_R < 0).nonzero()[0]
            ids_R[outside] = words.count + np.arange(len(outside))
            words.write([run_words[place] for place in outside])
            final_R = np.empty(len(ids_R), "<i4")
            final_R[run.numbers_R()] = ids_R
            _replace(tokens, run.num_tokens, final_R, counts_V)
    return words.count, counts_V


def _replace(tokens: IO[bytes], count: int, final_R: np.ndarray, counts_V: np.ndarray) -> None:
    """Replace the next `count` provisional numbers of an open file by final ids, and count the targets."""
    while count:
        numbers_N = np.frombuffer(tokens.read(4 * min(count, TOKENS_AT_ONCE)), "<i4")
        ids_N = final_R[numbers_N]
        tokens.seek(-ids_N.nbytes, os.SEEK_CUR)
        tokens.write(ids_N.tobytes())
        inside_N = ids_N[ids_N < len(counts_V)]
        counts_V += np.bincount(inside_N, minlength=len(counts_V))
        counts_V[UNKNOWN] += len(ids_N) - len(inside_N)
        count -= len(ids_N)


class _WordWriter:
    """Appends words to words.bin, and where they end to words.offsets.bin."""

    def __init__(self, spellings: IO[bytes], offsets: IO[bytes]) -> None:
        self.count = 0
        self._spellings, self._offsets, self._end = spellings, offsets, 0
        offsets.write(bytes(8))

    def write(self, words: Sequence[bytes]) -> None:
        self._spellings.write(b"".join(words))
        ends = self._end + np.fromiter(map(len, words), np.int64, len(words)).cumsum()
        self._offsets.write(ends.astype("<i8").tobytes())
        self._end = int(ends[-1]) if len(ends) else self._end
        self.count += len(words)
        if self.count > LARGEST_ID:
            raise InputError(f"a corpus may hold {LARGEST_ID} different words, but more came; split it, or clean it")


def _check_vocabulary(vocabulary: Sequence[str]) -> list[bytes]:
    words = [word.encode("utf-8") for word in vocabulary]
    if tuple(words[:3]) != SPECIAL_WORDS:
        raise ConfigError(f"a vocabulary begins with <S>, </S>, <UNK>, but this one begins with {list(vocabulary[:3])}")
    if len(words) < SMALLEST_VOCABULARY or len(set(words)) < len(words) or b"" in words:
        raise ConfigError(f"a vocabulary holds each word once, and {SMALLEST_VOCABULARY} at least; this one does not")
    return words


def _check_numbers(vocabulary_size: int, min_count: int, max_sentence_words: int, workers: int | None) -> None:
    if vocabulary_size < SMALLEST_VOCABULARY:
        raise ConfigError(
            f"vocabulary_size is {vocabulary_size}: <S>, </S>, <UNK> and a word need {SMALLEST_VOCABULARY}; "
            "100,000 is usual for English"
        )
    for name, value in (("min_count", min_count), ("max_sentence_words", max_sentence_words), ("workers", workers)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}, but must be at least 1")
