r"""CoNLL-U, the format of Universal Dependencies: ten columns between tabs, one word per line.

The numbered lines of a sentence arrive; the columns of its words leave. Comments, ranges (`3-4`, written as one word)
and empty nodes (`5.1`, words that were left out) are no words of their own and are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from elmokit.text.labelled import Problems

__all__ = ["COLUMNS", "parse_conllu"]

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def parse_conllu(
    path: str | os.PathLike[str], lines: Iterable[tuple[int, str]], problems: Problems
) -> list[list[str]] | None:
    r"""The ten columns of each word of a sentence; `None` for one that cannot be used.

    Arguments:
        path: of the file, for messages.
        lines: of the sentence, with their numbers.
        problems: what happens to a sentence with a wrong line.

    Example:
        >>> lines = [(1, "# a comment"), (2, "1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_")]
        >>> [columns[1] for columns in parse_conllu("a.conllu", lines, Problems())]
        ['Dogs']
    """
    words: list[list[str]] = []
    for number, text in lines:
        if text.startswith("#"):
            continue
        columns = text.split("\t")
        fault = _find_fault(columns, len(words) + 1)
        if fault is not None:
            problems.add(path, number, fault)
            return None
        if columns[0].isdecimal():
            words.append(columns)
    return words


def _find_fault(columns: list[str], expected: int) -> str | None:
    if len(columns) != len(COLUMNS):
        return f"expected {len(COLUMNS)} columns between tabs, found {len(columns)} (is this CoNLL-U?)"
    number = columns[0]
    if not number.replace("-", "").replace(".", "").isdecimal():
        return f"expected the number of a word, found {number[:40]!r}"
    if not columns[1]:
        return "expected a word in the second column, found an empty one"
    if number.isdecimal() and int(number) != expected:
        return (
            f"expected word {expected} of the sentence, found the number {number}; a blank line must end each sentence"
        )
    return None
