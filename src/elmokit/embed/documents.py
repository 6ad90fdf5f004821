"""Document: the words of a text with their places and vectors, as `Embedder.read` gives them.

Arrives: a text of any number of sentences, and the vectors of each. Leaves: one `Document`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from elmokit.reading.cache import Token
from elmokit.reading.encoder import Sentence, split_sentence
from elmokit.text.segmenters import Segmenter

__all__ = ["Document", "make_document", "split_text"]


@dataclass(frozen=True, eq=False)
class Document:
    """A text that was read.

    Arguments:
        text: the text; `None` where a list of words was given.
        words: its words in order.
        spans: where each word stands, `text[start:end]`; `None` where a list of words was given.
        sentences: the words of each sentence, `words[start:end]`.
        vectors: (words, dim), or (layers, words, dim) for all layers.

    Example:
        >>> from elmokit import Elmo, ElmoConfig, Embedder
        >>> document = Embedder(Elmo.random(ElmoConfig.tiny())).read("It's late. Go!")
        >>> document.words, document.sentences
        (['It', "'s", 'late', '.', 'Go', '!'], [(0, 4), (4, 6)])
        >>> document.spans[1], document.vectors.shape
        ((2, 4), (6, 128))
    """

    text: str | None
    words: list[Token]
    spans: list[tuple[int, int]] | None
    sentences: list[tuple[int, int]]
    vectors: np.ndarray = field(repr=False)


def split_text(
    text: Sentence, segmenter: Segmenter, *, name: str, takes_rows: bool
) -> tuple[list[Sequence[Token]], list[tuple[int, int]] | None]:
    """The words of each sentence of a text, and the spans of all words; arguments are those of `split_sentence`."""
    if isinstance(text, str):
        found = [sentence for sentence in segmenter(text) if sentence]  # some segmenters find one in no text
        spans = [(word.start, word.end) for sentence in found for word in sentence]
        return [[word.text for word in sentence] for sentence in found], spans
    words = split_sentence(text, segmenter, name=name, takes_rows=takes_rows)
    return [words] if words else [], None


def make_document(
    text: Sentence, sentences: Sequence[Sequence[Token]], spans: list[tuple[int, int]] | None, vectors: np.ndarray
) -> Document:
    """The Document of a text that `split_text` split, given the vectors of all its words."""
    ends = accumulate((len(words) for words in sentences), initial=0)
    words = [word for sentence in sentences for word in sentence]
    return Document(text if isinstance(text, str) else None, words, spans, list(pairwise(ends)), vectors)
