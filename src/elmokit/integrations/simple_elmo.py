"""simple_elmo's `ElmoModel`, with its signatures: an old script changes its import line.

Neither simple_elmo nor TensorFlow need be installed. As in the original, each call starts from zero, reads the first
batch once to warm up, and carries state from batch to batch, so the numbers are the original's (≤ 1e-5);
`state="zero"` gives a sentence the same vectors every time. What the original did wrong and is right here stands in
docs/how-to/coming-from-other-libraries.md.

Shapes: B texts, W words of the longest, L layers, D width of a layer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.inputs import check_tokenised
from elmokit.embed.layers import pool_words, scale_to_unit_length
from elmokit.errors import InputError
from elmokit.reading.encoder import StateMode

__all__ = ["ElmoModel"]


class ElmoModel:
    """`simple_elmo.ElmoModel`: `load` a model, then ask for vectors of tokenised texts."""

    def __init__(self) -> None:
        self._embedder: Embedder | None = None
        self.batch_size = 32

    def load(
        self,
        directory: str | os.PathLike[str],
        max_batch_size: int = 32,
        limit: int = 100,
        full: bool = False,
        *,
        state: StateMode = "carry",
    ) -> str:
        """Load a model.

        Arguments:
            directory: a folder or `.zip` of any kind that elmokit loads, or the name of an installed model.
            max_batch_size: texts that are read together; it moves the numbers where state is carried.
            limit: has no effect; the original's cache of so many words moved no number, and ours fills itself.
            full: not taken; the language model is `elmokit.LanguageModel`.
            state: `"carry"`, as in the original, or `"zero"`, where a text has the same vectors every time.
        """
        if full:
            raise InputError(
                "full=True is not taken here: substitutes and probabilities come from "
                "elmokit.LanguageModel.from_pretrained(directory)"
            )
        self._embedder, self.batch_size = Embedder.from_pretrained(directory, state=state), max_batch_size
        return "The model is now loaded."

    @property
    def vector_size(self) -> int:
        """D."""
        return self.embedder.dim

    @property
    def n_layers(self) -> int:
        """L."""
        return self.embedder.num_layers

    @property
    def embedder(self) -> Embedder:
        """The model that was loaded."""
        if self._embedder is None:
            raise InputError("no model is loaded: call load(directory) first")
        return self._embedder

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: None = None
    ) -> np.ndarray:
        """Vectors of all words of the texts, zero where a text has no more words.

        Arguments:
            texts: each a list of words.
            warmup: read the first batch once before; without effect where no state is carried.
            layers: `"average"`, `"top"` or `"all"`.
            session: not taken; there is no TensorFlow here.

        Returns:
            float64 (B, W, D), or (B, L, W, D) for `"all"`.
        """
        arrays = self._embed(texts, warmup, layers, session)
        shape = (self.n_layers,) if layers == "all" else ()
        width = max((array.shape[-2] for array in arrays), default=0)
        padded = np.zeros((len(arrays), *shape, width, self.vector_size))
        for row, array in zip(padded, arrays, strict=True):
            row[..., : array.shape[-2], :] = array
        return padded

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: None = None
    ) -> np.ndarray:
        """The mean of each text's own word vectors, scaled to length 1; arguments are those of `get_elmo_vectors`.

        Returns:
            float64 (B, D), or (B, L, D) for `"all"`, the layers of a text scaled together; zeros for a text without
            words.
        """
        means = [pool_words(array, "mean") for array in self._embed(texts, warmup, layers, session)]
        shape = (self.n_layers, self.vector_size) if layers == "all" else (self.vector_size,)
        flat = np.array(means, np.float64).reshape(len(means), math.prod(shape))
        return scale_to_unit_length(flat).reshape(len(means), *shape)

    def _embed(self, texts: Sequence[Sequence[str]], warmup: bool, layers: str, session: object) -> list[np.ndarray]:
        if session is not None:
            raise InputError("session= is TensorFlow's, which is not used here: leave it out")
        if layers not in ("average", "top", "all"):
            raise InputError(f"asked for layers={layers!r}: use 'average', 'top' or 'all'")
        texts = list(texts)
        check_tokenised(texts)
        self.embedder.reset_state()
        if warmup and self.embedder.state == "carry":
            self.embedder.embed(texts[: self.batch_size], batch_size=self.batch_size)
        return self.embedder.embed(texts, layers=layers, batch_size=self.batch_size)
