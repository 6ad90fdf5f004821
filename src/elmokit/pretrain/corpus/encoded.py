"""An encoded corpus: a folder of numbers that is made once (`encoding.py`) and memory-mapped ever after.

    vocab.txt          V words, one per line: <S>, </S>, <UNK>, then by falling count
    counts.bin         int64 (V): how often each occurs; <S> and </S> once per sentence, <UNK> for all words outside
    tokens.bin         int32: the word of every token; below V a row of the vocabulary, above it a word outside
    sentences.bin      int64 (sentences + 1): where each sentence begins in tokens.bin; boundaries are not stored
    words.bin          the UTF-8 bytes of every word, those of the vocabulary first
    words.offsets.bin  int64 (words + 1): where each begins in words.bin
    corpus.json        format version, counts, coverage, settings, the files it was made from, SHA-256 of the above

A word outside the vocabulary keeps an id of its own: its characters are read, its target is <UNK>. Such a word may
have several ids (one for each run of counting.py). All numbers are little-endian.

Shapes: V vocabulary, N any number of tokens.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from elmokit.errors import CheckpointError, ConfigError
from elmokit.io.inside import check_entries
from elmokit.io.text_files import read_json, read_words
from elmokit.text.files import FileIdentity
from elmokit.validation import Bounds, build_from

__all__ = ["BEGIN_SENTENCE", "END_SENTENCE", "FORMAT_VERSION", "UNKNOWN", "EncodedCorpus", "find_fingerprint"]

FORMAT = "elmokit-corpus"
FORMAT_VERSION = 1
FILES = ("vocab.txt", "counts.bin", "tokens.bin", "sentences.bin", "words.bin", "words.offsets.bin")
BEGIN_SENTENCE, END_SENTENCE, UNKNOWN = range(3)  # rows of every vocabulary


@dataclass(frozen=True)
class CorpusHeader:
    """What is read of corpus.json."""

    ignores_others: ClassVar[bool] = True
    num_tokens: Annotated[int, Bounds(1, 2**48)]
    num_sentences: Annotated[int, Bounds(1, 2**48)]
    vocabulary_size: Annotated[int, Bounds(3, 2**31)]
    num_words: Annotated[int, Bounds(3, 2**31)]
    coverage: Annotated[float, Bounds(at_least=0, at_most=1)]
    sha256: str
    settings: dict[str, Any]
    files: list[FileIdentity] = field(default_factory=list)


class EncodedCorpus:
    """An encoded corpus on disk; opening costs nothing, reading touches only the pages that are asked for.

    Attributes:
        folder: where it lies.
        num_tokens: words of text, sentence boundaries not counted.
        num_sentences: sentences.
        vocabulary_size: V.
        num_words: words with an id: the vocabulary and those outside it.
        coverage: fraction of the tokens that the vocabulary holds.
        tokens: (num_tokens,) int32, memory-mapped.
        offsets: (num_sentences + 1,) int64, memory-mapped.
        counts_V: (V,) int64, how often each word of the vocabulary occurs.
        fingerprint: SHA-256 of the contents, equal for equal corpora.
        settings: how it was made.
        files: what it was made from.
    """

    def __init__(self, folder: Path, header: CorpusHeader) -> None:
        self.folder = folder
        self.num_tokens, self.num_sentences = header.num_tokens, header.num_sentences
        self.vocabulary_size, self.num_words = header.vocabulary_size, header.num_words
        self.coverage, self.fingerprint, self.settings = header.coverage, header.sha256, header.settings
        self.files = header.files
        self.tokens = self._map_file("tokens.bin", "<i4", self.num_tokens)
        self.offsets = self._map_file("sentences.bin", "<i8", self.num_sentences + 1)
        self.counts_V = self._map_file("counts.bin", "<i8", self.vocabulary_size)
        self._word_offsets = self._map_file("words.offsets.bin", "<i8", self.num_words + 1)
        self._map_file("words.bin", "u1", int(self._word_offsets[-1]))
        with (folder / "words.bin").open("rb") as file:
            self._word_bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self.offsets[0] != 0 or self.offsets[-1] != self.num_tokens:
            raise CheckpointError(f"{folder}/sentences.bin: does not fit tokens.bin; encode the corpus anew")

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> EncodedCorpus:
        """The encoded corpus in a folder; refused if of a newer format, or if a file has not the size it should."""
        folder = Path(folder)
        if not (folder / "corpus.json").is_file():
            raise CheckpointError(f"{folder}: expected an encoded corpus, found no corpus.json in it")
        check_entries(folder)
        header = read_json(folder / "corpus.json")
        version = header.get("format_version")
        if header.get("format") != FORMAT or type(version) is not int:
            raise CheckpointError(
                f"{folder}/corpus.json: expected the header of an encoded corpus, found something else"
            )
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"{folder}: format version {version} is newer than {FORMAT_VERSION}, the newest this elmokit reads; "
                "upgrade elmokit, or encode the corpus anew"
            )
        try:
            return cls(folder, build_from(CorpusHeader, header))
        except ConfigError as problem:
            raise CheckpointError(
                f"{folder}/corpus.json: lacks a sound header: {problem}; encode the corpus anew"
            ) from problem

    def verify(self) -> None:
        """Refuse a corpus whose files are not those that were written, or that point outside of each other.

        Everything is read once: about a second per gigabyte.
        """
        if find_fingerprint(self.folder) != self.fingerprint:
            raise CheckpointError(
                f"{self.folder}: the checksum in corpus.json does not fit its files: they are damaged; {self._advice}"
            )
        for name, offsets in (("sentences.bin", self.offsets), ("words.offsets.bin", self._word_offsets)):
            if offsets[0] != 0 or any((np.diff(part) < 0).any() for part in _split(offsets)):
                raise CheckpointError(f"{self.folder}/{name}: expected rising numbers; {self._advice}")
        if any(part.min() < 0 or part.max() >= self.num_words for part in _split(self.tokens)):
            raise CheckpointError(
                f"{self.folder}/tokens.bin: expected numbers of its {self.num_words:,} words; {self._advice}"
            )

    @property
    def _advice(self) -> str:
        return f"remove the folder {self.folder}, and the same command encodes the text anew"

    @cached_property
    def vocabulary(self) -> list[str]:
        """The V words of the vocabulary, by row."""
        words = read_words(self.folder / "vocab.txt")
        if len(words) != self.vocabulary_size:
            expected = f"expected {self.vocabulary_size} words, found {len(words)}"
            raise CheckpointError(f"{self.folder}/vocab.txt: {expected}; {self._advice}")
        return words

    def word_bytes(self, ids: Iterable[int] | np.ndarray) -> list[bytes]:
        """The UTF-8 bytes of the words with these ids."""
        ids_N = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int64)
        begins, ends = self._word_offsets[ids_N].tolist(), self._word_offsets[ids_N + 1].tolist()
        return [self._word_bytes[begin:end] for begin, end in zip(begins, ends, strict=True)]

    def words(self, ids: Iterable[int] | np.ndarray) -> list[str]:
        """The words with these ids."""
        return [word.decode("utf-8") for word in self.word_bytes(ids)]

    def sentence(self, number: int) -> list[str]:
        """The words of one sentence."""
        return self.words(self.tokens[self.offsets[number] : self.offsets[number + 1]])

    def target_of(self, ids_N: np.ndarray) -> np.ndarray:
        """What is to be predicted for these ids: the word's row, or that of <UNK>."""
        return np.where(ids_N < self.vocabulary_size, ids_N, UNKNOWN)

    def _map_file(self, name: str, dtype: str, count: int) -> np.ndarray:
        path, wanted = self.folder / name, count * np.dtype(dtype).itemsize
        size = path.stat().st_size if path.is_file() else None
        if size != wanted:
            found = "no such file" if size is None else f"{size}"
            raise CheckpointError(
                f"{path}: expected {wanted} bytes, found {found}: the corpus is incomplete; {self._advice}"
            )
        # As a plain array: the same pages, without the cost of np.memmap's own indexing.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(count,)))


def find_fingerprint(folder: Path) -> str:
    """SHA-256 of the files of a corpus."""
    digest = hashlib.sha256()
    for name in FILES:
        digest.update(name.encode())
        with (folder / name).open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def _split(numbers: np.ndarray, size: int = 1 << 24) -> Iterator[np.ndarray]:
    """The numbers in pieces that fit into memory, each beginning with the last of the piece before."""
    for start in range(0, max(1, len(numbers) - 1), size):
        yield numbers[start : start + size + 1]
