"""CoNLL-U: files of Universal Dependencies into sentences of words and tags.

A path arrives; sentences leave, each with its words and one tag a word: UPOS, XPOS, or a feature by its name. A wrong
line is an error that names it, or costs its sentence (`--skip-bad`).
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

from elmokit.errors import InputError
from elmokit.text.conllu import word_columns
from elmokit.text.labelled import Problems, blocks, text_lines

__all__ = ["NO_VALUE", "TaggedSentence", "read_conllu"]

NO_VALUE = "_"


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags."""

    words: list[str]
    tags: list[str]


def read_conllu(
    path: str | PathLike[str], *, tag: str = "UPOS", problems: Problems | None = None
) -> list[TaggedSentence]:
    r"""The sentences of a file.

    Arguments:
        path: a CoNLL-U file in UTF-8; plain or packed.
        tag: `"UPOS"`, `"XPOS"`, or a feature such as `"Number"`, whose tag is `_` for words without it.
        problems: what happens to sentences with a wrong line.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("a.conllu").write_text("1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_\n")
        >>> read_conllu("a.conllu", tag="Number")
        [TaggedSentence(words=['Dogs'], tags=['Plur'])]
    """
    problems = problems or Problems()
    tag = tag.upper() if tag.upper() in ("UPOS", "XPOS") else tag
    sentences: list[TaggedSentence] = []
    for lines in blocks(text_lines(path, problems)):
        words = word_columns(path, lines, problems)
        if words:
            sentences.append(TaggedSentence([columns[1] for columns in words], [_tag(each, tag) for each in words]))
    _check(path, sentences, tag, problems)
    return sentences


def _tag(fields: Sequence[str], tag: str) -> str:
    if tag == "UPOS":
        return fields[3]
    if tag == "XPOS":
        return fields[4]
    for feature in fields[5].split("|"):
        name, _, value = feature.partition("=")
        if name == tag:
            return value
    return NO_VALUE


def _check(path: str | PathLike[str], sentences: Sequence[TaggedSentence], tag: str, problems: Problems) -> None:
    if not sentences:
        skipped = f" ({problems.summary()})" if problems.num_bad else ""
        raise InputError(f"{path}: expected sentences in CoNLL-U, found none{skipped}")
    if all(value == NO_VALUE for sentence in sentences for value in sentence.tags):
        raise InputError(
            f"{path}: no word has a value of {tag}; use UPOS, XPOS if the treebank has one, or a feature such as Number"
        )
