"""Column formats: CoNLL's (one word per line, its labels beside it, blank lines between sentences) and CoNLL-U.

A path arrives; `TaggedSentence`s leave, with the labels of one column. CoNLL files of 2000 to 2012 have blanks or tabs
between columns and the word in the first, or in the second after its number (GermEval); CoNLL-U has ten columns between
tabs and the word in the second. Which one a file is shows in its first sentence of several words. Lines before a
sentence that begin with `#` are comments where they have other columns than words; `#` may be a word of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile

from elmokit.tasks.data import Example, Problems, read_lines, split_blocks
from elmokit.text.conllu import COLUMNS as CONLLU_COLUMNS
from elmokit.text.conllu import parse_conllu

__all__ = ["TaggedSentence", "read_columns"]

DOCUMENT_LINES = ("-DOCSTART-", "-DOCEND-")
COMMENT = ("# ", "#\t")  # not #word, of which short messages are full
NAMED_COMMENT = re.compile(r"# (id |\S+ = )")  # MultiCoNER's and UD's, which may have as many columns as words have
BETWEEN = re.compile("[\t ]+")  # no other blanks: U+00A0 and its like stand in words
NUMBER = re.compile(r"\d+([-.]\d+)?")
Lines = list[tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class TaggedSentence(Example):
    """A sentence with a label for each word; without labels, something to predict.

    Arguments:
        words: of the sentence.
        labels: one per word, or none at all.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...] = ()


def read_columns(
    path: str | os.PathLike[str], *, column: str = "last", problems: Problems | None = None
) -> Iterator[TaggedSentence]:
    r"""The sentences of a file in columns.

    Arguments:
        path: the file.
        column: which one holds the labels: a number from 1, `"last"`, or a name of CoNLL-U (`"upos"`).
        problems: what happens to ragged sentences.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("my.conll").write_text("Ann NNP I-PER\nsat VBD O\n\nHere RB O\n")
        >>> [(sentence.words, sentence.labels) for sentence in read_columns("my.conll")]
        [(('Ann', 'sat'), ('I-PER', 'O')), (('Here',), ('O',))]
    """
    problems = problems or Problems()
    column = column.lower()
    sentences = [
        lines
        for block in split_blocks(read_lines(path, problems))
        if (lines := [line for line in block if not line[1].startswith(DOCUMENT_LINES)])
    ]
    telling = _telling(sentences)
    width = max((len(fields) for fields in _fields(telling[-1:])), default=0)
    is_conllu, is_numbered = _is_conllu(telling), _is_numbered(telling)
    for lines in sentences:
        if is_conllu:
            found = _read_conllu(path, lines, column, problems)
        else:
            words = list(dropwhile(lambda line: _is_comment(line[1], width), lines))
            found = _read_conll(path, words, column, problems, is_numbered=is_numbered) if words else None
        if found is not None:
            yield found


def _telling(sentences: list[Lines]) -> Lines:
    """The first sentence of several words, or else the first, by which a file is judged; no comments."""
    bare = ([line for line in lines if not line[1].startswith("#")] for lines in sentences)
    some = sorted((lines for lines in bare if lines), key=lambda lines: len(lines) == 1)
    return some[0] if some else []


def _is_comment(text: str, width: int) -> bool:
    return text.startswith(COMMENT) and (
        NAMED_COMMENT.match(text) is not None or len(BETWEEN.split(text.strip("\t "))) != width
    )


def _is_conllu(lines: Lines) -> bool:
    first = lines[0][1].split("\t") if lines else []
    return len(first) == len(CONLLU_COLUMNS) and NUMBER.fullmatch(first[0]) is not None


def _is_numbered(lines: Lines) -> bool:
    """Whether words stand behind their numbers 1, 2, …; a sentence of one word does not tell."""
    rows = _fields(lines)
    numbers = [row[0] for row in rows if row[0].isdecimal()]
    is_counted = numbers == [str(number) for number in range(1, len(numbers) + 1)] and len(numbers) > 1
    return is_counted and all(len(row) > 2 and NUMBER.fullmatch(row[0]) for row in rows)


def _fields(lines: Lines) -> list[list[str]]:
    """The columns of each line; only tabs part them where words hold blanks."""
    rows = [BETWEEN.split(text.strip("\t ")) for _, text in lines]
    tabbed = [text.split("\t") for _, text in lines]
    widths, tabbed_widths = {len(row) for row in rows}, {len(row) for row in tabbed}
    return tabbed if len(widths) > 1 and len(tabbed_widths) == 1 and tabbed_widths != {1} else rows


def _read_conll(
    path: str | os.PathLike[str], lines: Lines, column: str, problems: Problems, *, is_numbered: bool
) -> TaggedSentence | None:
    rows = _fields(lines)
    width, word_place = len(rows[0]), 1 if is_numbered else 0
    if column != "last" and not column.isdecimal():
        problems.add(path, lines[0][0], f"column {column!r} is a name of CoNLL-U, but this line has {width} columns")
        return None
    place = width - 1 if column == "last" else int(column) - 1
    for (number, _), row in zip(lines, rows, strict=True):
        if len(row) != width:
            problems.add(path, number, f"expected {width} columns like the sentence's first line, found {len(row)}")
            return None
        if not word_place < place < width:
            problems.add(path, number, f"expected a word and its label in column {column}, found {width} column(s)")
            return None
        if not row[word_place].strip("\t ") or not row[place].strip("\t "):
            problems.add(path, number, "expected a word and its label, found an empty column")
            return None
    words = [row for row in rows if not is_numbered or row[0].isdecimal()]  # no ranges, no empty nodes
    return TaggedSentence(
        words=tuple(row[word_place].strip("\t ") for row in words),
        labels=tuple(row[place].strip("\t ") for row in words),
        source=f"{os.fspath(path)}:{lines[0][0]}",
    )


def _read_conllu(path: str | os.PathLike[str], lines: Lines, column: str, problems: Problems) -> TaggedSentence | None:
    name = "upos" if column == "last" else column
    place = int(name) - 1 if name.isdigit() else CONLLU_COLUMNS.index(name) if name in CONLLU_COLUMNS else -1
    if not 2 <= place < len(CONLLU_COLUMNS):
        problems.add(path, lines[0][0], f"expected labels in one of {CONLLU_COLUMNS[2:]}, found column {column!r}")
        return None
    words = parse_conllu(path, lines, problems)
    if not words:
        return None
    first = next(number for number, text in lines if not text.startswith("#"))
    return TaggedSentence(
        words=tuple(columns[1] for columns in words),
        labels=tuple(columns[place] for columns in words),
        source=f"{os.fspath(path)}:{first}",
    )
