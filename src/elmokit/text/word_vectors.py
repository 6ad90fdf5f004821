"""Vectors of words that others have trained: GloVe's and word2vec's text files, or gensim's KeyedVectors.

A path (plain or packed) or an object of gensim arrives; words and one array leave. A line holds a word and its
numbers, between blanks; word2vec's and fastText's files begin with a line that says how many words of which width
follow, GloVe's do not. Some words of `glove.840B` hold blanks themselves, so lines are read from their right end.

Only numpy is needed here. Shapes: V words, E width of a vector.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from elmokit.errors import CheckpointError
from elmokit.text.files import open_text, split_lines

__all__ = ["WordVectors", "read_vectors", "read_width"]

LONGEST_LINE = 1 << 20  # bytes; the widest published vectors take 20,000


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors.

    Arguments:
        words: V different words.
        table_VE: (V, E) float32, their vectors in the same order.
    """

    words: list[str]
    table_VE: np.ndarray

    @property
    def width(self) -> int:
        """E."""
        return self.table_VE.shape[1]


def read_vectors(
    source: str | os.PathLike[str] | Any,  # noqa: ANN401
    *,
    only: Collection[str] | None = None,
    first: int = 0,
) -> WordVectors:
    r"""The vectors of a file or of gensim's KeyedVectors; of a word that comes twice, the first.

    Arguments:
        source: a path to GloVe or word2vec text, plain or packed; or KeyedVectors.
        only: the words to keep, so that a file larger than memory can be read; `None` for all.
        first: beside `only`, so many words from the beginning, where files have their commonest.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("my.vec").write_text("river 0.5 1\nbank 0.25 2\n")
        >>> read_vectors("my.vec", only={"bank"}).table_VE
        array([[0.25, 2.  ]], dtype=float32)
    """
    if not isinstance(source, (str, os.PathLike)):
        return _read_gensim(source, only, first)
    path = Path(source)
    wanted = None if only is None else {word.encode("utf-8", "ignore") for word in only}
    rows: dict[bytes, np.ndarray] = {}
    width = 0
    for count, line in enumerate(_read_lines(path)):
        width = line.width
        word = line.word()
        if word not in rows and (wanted is None or count < first or word in wanted):
            rows[word] = line.numbers()
    try:
        words = [word.decode("utf-8") for word in rows]
    except UnicodeDecodeError as problem:
        raise CheckpointError(f"{path}: expected UTF-8 text, found the word {problem.object[:40]!r}") from problem
    table_VE = np.stack(list(rows.values())) if rows else np.empty((0, width), np.float32)
    return WordVectors(words, table_VE)


def read_width(source: str | os.PathLike[str] | Any) -> int:  # noqa: ANN401
    """E, the width of the vectors, from the first lines of the file."""
    if not isinstance(source, (str, os.PathLike)):
        return int(_check_gensim(source).vectors.shape[1])
    return next(_read_lines(Path(source))).width


@dataclass(frozen=True)
class _VectorLine:
    """One line of a file: read only as far as it is asked about."""

    text: bytes
    width: int
    path: Path
    number: int

    def word(self) -> bytes:
        """The word; a line with too few numbers is an error."""
        if self.text.count(b" ") == self.width:  # the ordinary line: no need to split all of it
            return self.text.partition(b" ")[0] or self._fail()
        return self._split()[0]

    def numbers(self) -> np.ndarray:
        """(E,) float32."""
        try:
            numbers_E = np.array(self._split()[1:], dtype=np.float32)
        except ValueError:
            self._fail()
        if not np.isfinite(numbers_E).all():
            self._fail()
        return numbers_E

    def _split(self) -> list[bytes]:
        pieces = self.text.rsplit(None, self.width)
        # What is left of the numbers is the word, blanks and all; but not where it ends in one number more.
        if len(pieces) != self.width + 1 or any(_is_number(part) for part in pieces[0].split()[1:][-1:]):
            self._fail()
        return pieces

    def _fail(self) -> NoReturn:
        raise CheckpointError(
            f"{self.path}:{self.number}: expected a word and {self.width} numbers, found {self.text[:60]!r}; the file "
            "is damaged, or no text (a binary word2vec file must be saved as text first, with gensim)"
        )


def _read_lines(path: Path) -> Iterator[_VectorLine]:
    """The lines with a vector; they must be as many as the header says, where there is one."""
    count, promised, width = 0, None, None
    for number, text in _number_lines(path):
        fields = text.split() if width is None else []
        if width is None and len(fields) == 2 and all(field.isdigit() for field in fields):
            promised, width = (int(field) for field in fields)
            if width < 1:
                raise CheckpointError(f"{path}:1: the header says that vectors are {width} wide: expected 1 or more")
            continue
        if width is None:
            width = _count_trailing_numbers(fields)
            if not width:
                raise CheckpointError(
                    f"{path}:{number}: expected a word and its numbers, found {text[:60]!r}; is this a file of vectors?"
                )
        count += 1
        yield _VectorLine(text, width, path, number)
    if promised is not None and count != promised:
        raise CheckpointError(f"{path}: its first line promises {promised:,} words, found {count:,}; fetch it anew")
    if not count:
        raise CheckpointError(f"{path}: expected vectors of words, found none")


def _number_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.suffix in (".zip", ".bin", ".model", ".kv"):
        raise CheckpointError(
            f"{path}: expected GloVe or word2vec text, plain, .gz, .bz2, .xz or .zst; "
            "unpack it, or save it as text with gensim"
        )
    with open_text(path, error=CheckpointError) as (data, _):
        for number, line, _ in split_lines(data, longest=LONGEST_LINE):
            if text := line.rstrip():  # bytes: only ASCII blanks; some words are others
                yield number, text


def _count_trailing_numbers(fields: list[bytes]) -> int:
    count = 0
    while count < len(fields) - 1 and _is_number(fields[-1 - count]):
        count += 1
    return count


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _check_gensim(source: Any) -> Any:  # noqa: ANN401
    if not hasattr(source, "index_to_key") or getattr(getattr(source, "vectors", None), "ndim", 0) != 2:
        raise CheckpointError(f"expected a path to vectors or gensim's KeyedVectors, found {type(source).__name__}")
    return source


def _read_gensim(source: Any, only: Collection[str] | None, first: int) -> WordVectors:  # noqa: ANN401
    words, table = list(_check_gensim(source).index_to_key), source.vectors
    kept = [row for row, word in enumerate(words) if only is None or row < first or word in only]
    return WordVectors([words[row] for row in kept], np.asarray(table[kept], np.float32))
