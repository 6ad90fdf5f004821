"""Static tables of word vectors for gensim: one vector per word, as `KeyedVectors`.

A word's vector is the context-free one, or the mean over its uses in a text. The other way needs nothing of this file:
`elmo train --vectors` and task models read what `KeyedVectors.save_word2vec_format` writes, and their functions in
Python take `KeyedVectors` themselves (`text/word_vectors.py`).

    pip install 'elmokit[gensim]'

Shapes: V words, D width of a layer, P = D / 2, W words of a sentence.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, check_layers
from elmokit.errors import InputError, MissingExtra
from elmokit.reading.encoder import Sentence, split_sentence

if TYPE_CHECKING:
    from gensim.models import KeyedVectors  # pyright: ignore[reportMissingImports]

__all__ = ["make_usage_table", "make_word_table"]


def make_word_table(embedder: Embedder, words: Iterable[str]) -> KeyedVectors:
    """The context-free vectors (V, P) of these words, in their order; of a word that comes twice, the first.

    They are half of layer 0, whose other half repeats them.
    """
    if isinstance(words, str):
        raise InputError(f"expected a list of words, found the string {words!r:.40}: put it into a list, [word]")
    words = list(dict.fromkeys(words))
    with torch.no_grad():
        table_VP = embedder.elmo.encode_words(embedder.elmo.word_ids([words])[0]).float().cpu().numpy()
    return _make_keyed_vectors(words, table_VP)


def make_usage_table(
    embedder: Embedder, sentences: Iterable[Sentence], *, layers: Layers = "average", min_count: int = 1
) -> KeyedVectors:
    """The mean of each word's vectors (V, D) over all its uses in the sentences, the commonest word first.

    The sentences may be any iterable, such as an open file; only the sums are kept. `get_vecattr(word, "count")` is the
    number of a word's uses.

    Arguments:
        embedder: the model.
        sentences: each a string (ONE sentence, split into words by the segmenter) or a list of words.
        layers: as for `Embedder.embed`, except `"all"`.
        min_count: leave out words with fewer uses.
    """
    if check_layers(layers, embedder.num_layers) == "all":
        raise InputError('a table has one vector per word: use layers="average", "top", "mix" or a layer number')
    counts, means = _average_uses(embedder, sentences, layers)
    common = [(word, count) for word, count in counts.most_common() if count >= min_count]
    table_VD = np.stack([means[word] for word, _ in common]) if common else np.zeros((0, embedder.dim), np.float32)
    vectors = _make_keyed_vectors([word for word, _ in common], table_VD)
    for word, count in common:
        vectors.set_vecattr(word, "count", count)
    return vectors


def _average_uses(
    embedder: Embedder, sentences: Iterable[Sentence], layers: Layers
) -> tuple[Counter[str], dict[str, np.ndarray]]:
    """How often each word comes, and the mean of its vectors."""
    ahead: deque[Sequence[str]] = deque()  # sentences that the embedder has taken and not given back yet

    def split() -> Iterator[list[str]]:
        for number, sentence in enumerate(sentences):
            words = [str(word) for word in split_sentence(sentence, embedder.segmenter, name=f"sentence {number}")]
            ahead.append(words)
            yield words

    counts: Counter[str] = Counter()
    sums: dict[str, np.ndarray] = {}
    for vectors_WD in embedder.stream(split(), layers=layers):
        for word, vector_D in zip(ahead.popleft(), vectors_WD, strict=True):
            counts[word] += 1
            if word in sums:
                sums[word] += vector_D
            else:
                sums[word] = vector_D.astype(np.float64)
    return counts, {word: (total_D / counts[word]).astype(np.float32) for word, total_D in sums.items()}


def _make_keyed_vectors(words: list[str], table: np.ndarray) -> KeyedVectors:
    # Imported here, not above, so that tests can import every module: gensim has no wheels for Python 3.14.
    try:
        from gensim.models import KeyedVectors  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as problem:
        raise MissingExtra("gensim is not installed: pip install 'elmokit[gensim]'") from problem
    vectors = KeyedVectors(table.shape[1], dtype=np.float32)
    vectors.add_vectors(words, table)
    return vectors
