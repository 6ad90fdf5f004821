"""ELMoForManyLangs' `Embedder`, with its signatures: an old script changes its import line.

ELMoForManyLangs need not be installed. As in the original, sentences are sorted by length, and state is carried from
batch to batch and from call to call. Only its random order of batches is left out: the numbers are the original's
(≤ 1e-5) where it had one batch, and where it had more, those of one order that it might have drawn. `state="zero"`
gives a sentence the same vectors every time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from elmokit.embed import embedder
from elmokit.embed.inputs import check_tokenised
from elmokit.embed.layers import Layers
from elmokit.reading.encoder import StateMode

__all__ = ["Embedder"]

NAMED_LAYERS: dict[int, Layers] = {-1: "average", -2: "all"}


class Embedder:
    """`elmoformanylangs.Embedder`.

    Arguments:
        model_dir: a folder of any kind that elmokit loads, also a `.zip` or the name of an installed model.
        batch_size: sentences that are read together; it moves the numbers where state is carried.
        state: `"carry"`, as in the original, or `"zero"`, where a sentence has the same vectors every time.
    """

    def __init__(self, model_dir: str | os.PathLike[str], batch_size: int = 64, *, state: StateMode = "carry") -> None:
        self.model_dir, self.batch_size = model_dir, batch_size
        self.embedder = embedder.Embedder.from_pretrained(model_dir, state=state)

    def sents2elmo(self, sents: Sequence[Sequence[str]], output_layer: int = -1) -> list[np.ndarray]:
        """Vectors of the words of each sentence, in input order.

        Arguments:
            sents: each a list of words.
            output_layer: -1 for the average of all layers, -2 for all of them, or the number of one.

        Returns:
            One float32 array (words, dim) per sentence, or (layers, words, dim) for -2.
        """
        sents = list(sents)
        check_tokenised(sents)
        order = sorted(range(len(sents)), key=lambda place: -len(sents[place]))
        layers = NAMED_LAYERS.get(output_layer, output_layer)
        arrays = self.embedder.embed([sents[place] for place in order], layers=layers, batch_size=self.batch_size)
        vectors = dict(zip(order, arrays, strict=True))
        return [vectors[place] for place in range(len(sents))]
