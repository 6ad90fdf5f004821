"""Where a word, or a sequence of words, stands in sentences.

Arrives: spellings, each a list of words, and sentences of words. Leaves: a `Use` for each place, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Use", "find_uses"]


class Use(NamedTuple):
    """One place where the word stands.

    Arguments:
        label: the number of its sentence, and its own behind it where the sentence has several: `3` or `3.2`.
        sentence: the number of its sentence, from 0.
        begin, end: its words in the sentence.
    """

    label: str
    sentence: int
    begin: int
    end: int


def find_uses(spellings: Sequence[Sequence[str]], sentences: Sequence[Sequence[str]]) -> list[Use]:
    """The uses of each sentence from left to right, in any case of letters; none overlaps the one before.

    Example:
        >>> [use.label for use in find_uses([["bank"]], [["A", "bank", "is", "a", "bank"], ["Bank"], ["none"]])]
        ['1.1', '1.2', '2']
    """
    wanted = sorted(([word.casefold() for word in spelling] for spelling in spellings if spelling), key=len)[::-1]
    uses = []
    for number, sentence in enumerate(sentences):
        folded, spans, place = [word.casefold() for word in sentence], [], 0
        while place < len(folded):
            length = next((len(words) for words in wanted if folded[place : place + len(words)] == words), 0)
            if length:
                spans.append((place, place + length))
            place += length or 1
        labels = [f"{number + 1}.{each}" for each in range(1, len(spans) + 1)] if len(spans) > 1 else [f"{number + 1}"]
        uses += [Use(label, number, *span) for label, span in zip(labels, spans, strict=False)]
    return uses
