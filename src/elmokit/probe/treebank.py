"""CoNLL-U: files of Universal Dependencies into sentences of words and tags.

A path arrives; sentences leave, each with its words and one tag a word: UPOS, XPOS, or a feature by its name. Ranges
(`3-4`) and empty nodes (`5.1`) are no words of their own and are passed over. A wrong line is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

from elmokit.embed.lines import LineReader
from elmokit.errors import InputError

__all__ = ["NO_VALUE", "TaggedSentence", "read_conllu"]

COLUMNS = 10
NO_VALUE = "_"


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags."""

    words: list[str]
    tags: list[str]


def read_conllu(path: str | PathLike[str], *, tag: str = "UPOS") -> list[TaggedSentence]:
    r"""The sentences of a file.

    Arguments:
        path: a CoNLL-U file in UTF-8; `.gz`, `.bz2` and `.xz` are unpacked.
        tag: `"UPOS"`, `"XPOS"`, or a feature such as `"Number"`, whose tag is `_` for words without it.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("a.conllu").write_text("1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_\n")
        >>> read_conllu("a.conllu", tag="Number")
        [TaggedSentence(words=['Dogs'], tags=['Plur'])]
    """
    sentences: list[TaggedSentence] = []
    current = TaggedSentence([], [])
    for line in LineReader([path]):
        text = line.text()
        if not text.strip():
            if current.words:
                sentences.append(current)
                current = TaggedSentence([], [])
        elif not text.startswith("#"):
            fields = text.split("\t")
            if len(fields) != COLUMNS:
                raise InputError(
                    f"{line.place}: expected {COLUMNS} columns between tabs, found {len(fields)}; is this CoNLL-U?"
                )
            if fields[0].isdecimal():
                if int(fields[0]) != len(current.words) + 1:
                    raise InputError(
                        f"{line.place}: expected word {len(current.words) + 1} of the sentence, found the number "
                        f"{fields[0]}; a blank line must end each sentence"
                    )
                current.words.append(fields[1])
                current.tags.append(_tag(fields, tag))
            elif not fields[0].replace("-", "").replace(".", "").isdecimal():
                raise InputError(f"{line.place}: expected the number of a word, found {fields[0][:40]!r}")
    if current.words:
        sentences.append(current)
    _check(path, sentences, tag)
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


def _check(path: str | PathLike[str], sentences: Sequence[TaggedSentence], tag: str) -> None:
    if not sentences:
        raise InputError(f"{path}: expected sentences in CoNLL-U, found none")
    if all(value == NO_VALUE for sentence in sentences for value in sentence.tags):
        raise InputError(
            f"{path}: no word has a value of {tag}; use UPOS, XPOS if the treebank has one, or a feature such as Number"
        )
