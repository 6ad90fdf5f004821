"""Sentiment trees in brackets, as the Stanford Sentiment Treebank has them: one tree per line.

A path arrives; `LabelledSentence`s leave: the sentence with the label of its root and, if asked for, each of its
phrases with its own. Trees are read without recursion, so a deep one is no danger.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from elmokit.tasks.data import Problems, read_lines
from elmokit.tasks.data.tables import LabelledSentence

__all__ = ["read_trees", "tree_phrases"]

PIECES = re.compile(r"\(|\)|[^\s()]+")
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
Phrase = tuple[str, tuple[str, ...]]


def read_trees(
    path: str | os.PathLike[str], *, phrases: bool = False, problems: Problems | None = None
) -> Iterator[LabelledSentence]:
    r"""The sentences of a file of trees.

    Arguments:
        path: the file.
        phrases: give the phrases of the trees too, each after its sentence and once per file: half of them are repeats,
            such as every comma, and would double the length of an epoch.
        problems: what happens to lines that are no trees.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("trees.txt").write_text("(3 (2 a) (4 (3 lovely) (2 film)))\n")
        >>> [(each.label, each.words) for each in read_trees("trees.txt")]
        [('3', ('a', 'lovely', 'film'))]
    """
    problems = problems or Problems()
    seen: set[Phrase] = set()
    for number, text in read_lines(path, problems):
        if not text.strip():
            continue
        try:
            found = tree_phrases(text)
        except ValueError as problem:
            problems.add(path, number, str(problem))
            continue
        kept = found[:1]
        if phrases:
            seen.add(found[0])
            kept += [phrase for phrase in dict.fromkeys(found[1:]) if phrase not in seen]
            seen.update(kept)
        for label, words in kept:
            yield LabelledSentence(words=words, label=label, source=f"{os.fspath(path)}:{number}")


def tree_phrases(text: str) -> list[Phrase]:
    """Label and words of the tree and of every phrase in it, the whole first; a `ValueError` for what is no tree."""
    open_phrases: list[tuple[str, int, int]] = []  # label, place of its first word, place in the result
    words: list[str] = []
    phrases: list[Phrase | None] = []
    pieces: list[str] = PIECES.findall(text)
    place = 0
    while place < len(pieces):
        piece = pieces[place]
        if piece == "(":
            if phrases and not open_phrases:
                raise ValueError("expected one tree, found text after its end")
            label = pieces[place + 1] if place + 1 < len(pieces) else ")"
            if label in "()":
                raise ValueError("expected a label after every '(', found none")
            open_phrases.append((label, len(words), len(phrases)))
            phrases.append(None)
            place += 1
        elif not open_phrases:
            raise ValueError(f"expected a tree such as (3 (2 a) (4 film)), found {piece!r} outside of brackets")
        elif piece == ")":
            label, first, number = open_phrases.pop()
            if first == len(words):
                raise ValueError("expected words in every pair of brackets, found a phrase without any")
            phrases[number] = (label, tuple(words[first:]))
        else:
            words.append(ESCAPES.get(piece) or piece)
        place += 1
    if open_phrases or not phrases:
        raise ValueError(f"expected as many ')' as '(', {len(open_phrases)} missing")
    return [phrase for phrase in phrases if phrase is not None]
