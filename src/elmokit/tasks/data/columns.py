"""Column formats: CoNLL's (a word a line, its labels beside it, blank lines between sentences) and CoNLL-U.

A path arrives; `TaggedSentence`s leave, with the labels of one column. CoNLL files of 2000 to 2012 have blanks or tabs
between columns and the word in the first; CoNLL-U has ten columns between tabs and the word in the second. Which one a
file is shows in its first sentence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from elmokit.conllu import COLUMNS as CONLLU_COLUMNS
from elmokit.conllu import word_columns
from elmokit.tasks.data import Example, Problems, blocks, text_lines

__all__ = ["TaggedSentence", "read_columns"]

DOCUMENT_LINES = ("-DOCSTART-", "-DOCEND-")
Lines = list[tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class TaggedSentence(Example):
    """A sentence with a label for each word; without labels, something to predict.

    Arguments:
        words: of the sentence.
        labels: one a word, or none at all.
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
    has_comments = True  # until a sentence without any says otherwise: "#" may be a word of its own
    for block in blocks(text_lines(path, problems)):
        lines = [(number, text) for number, text in block if not text.startswith(DOCUMENT_LINES)]
        if has_comments and all(text.startswith("# ") for _, text in lines):
            continue
        has_comments = _is_conllu(lines)
        if has_comments:
            found = _read_conllu(path, lines, column, problems)
        else:
            found = _read_conll(path, lines, column, problems)
        if found is not None:
            yield found


def _is_conllu(lines: Lines) -> bool:
    first = next((text for _, text in lines if not text.startswith("#")), "")
    return len(first.split("\t")) == len(CONLLU_COLUMNS) and first.split("\t")[0].split("-")[0].split(".")[0].isdigit()


def _read_conll(path: str | os.PathLike[str], lines: Lines, column: str, problems: Problems) -> TaggedSentence | None:
    # Blanks only: a word of the 2003 data is U+00A0's like in other encodings, and str.split() would eat it.
    rows = [text.rstrip("\t ").replace("\t", " ").split(" ") for _, text in lines]
    rows = [[field for field in row if field] for row in rows]
    if not rows:
        return None
    width = len(rows[0])
    if column != "last" and not column.isdigit():
        problems.bad(path, lines[0][0], f"column {column!r} is a name of CoNLL-U, but this line has {width} columns")
        return None
    place = width - 1 if column == "last" else int(column) - 1
    for (number, _), row in zip(lines, rows, strict=True):
        if len(row) != width:
            problems.bad(path, number, f"expected {width} columns like the sentence's first line, found {len(row)}")
            return None
        if not 0 < place < width:
            problems.bad(path, number, f"expected a word and its label in column {column}, found {width} column(s)")
            return None
    return TaggedSentence(
        words=tuple(row[0] for row in rows),
        labels=tuple(row[place] for row in rows),
        source=f"{os.fspath(path)}:{lines[0][0]}",
    )


def _read_conllu(path: str | os.PathLike[str], lines: Lines, column: str, problems: Problems) -> TaggedSentence | None:
    name = "upos" if column == "last" else column
    place = int(name) - 1 if name.isdigit() else CONLLU_COLUMNS.index(name) if name in CONLLU_COLUMNS else -1
    if not 2 <= place < len(CONLLU_COLUMNS):
        problems.bad(path, lines[0][0], f"expected labels in one of {CONLLU_COLUMNS[2:]}, found column {column!r}")
        return None
    words = word_columns(path, lines, problems)
    if not words:
        return None
    first = next(number for number, text in lines if not text.startswith("#"))
    return TaggedSentence(
        words=tuple(columns[1] for columns in words),
        labels=tuple(columns[place] for columns in words),
        source=f"{os.fspath(path)}:{first}",
    )
