"""EmbedBatches: a batch of columns in, the same batch with words and vectors out, for any engine that maps batches.

Ray Data, `datasets.map(batched=True)`, Spark's `mapInPandas` and Dask's `map_partitions` all ask for the same thing:
something they can send to a worker, which then takes one batch after the other. So this class knows none of them. It
travels as its settings, without weights, and opens the model where it is called for the first time.

Shapes: W words of a row, D width of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from elmokit.cores import use_threads
from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, check_layers, refuse_overflow
from elmokit.engines.precision import PrecisionName
from elmokit.errors import InputError, describe
from elmokit.reading.encoder import StateMode, split_sentence

__all__ = ["EmbedBatches"]


class EmbedBatches:
    """A callable that adds the columns `words` and `vectors` to a batch of texts.

    Each text is one sentence. `vectors` holds one array (W, D) per row; with `layers="all"` one column per layer,
    `layer_0`, `layer_1` and so on, stands in its place, as in the files of `elmo embed`.

    Arguments:
        model: a model's name, a folder, a `.zip` or a hub id, which every worker can open.
        column: the column of texts: strings, or lists of words, which are taken as they are. `None` has no words.
        layers: as for `Embedder.embed`.
        dtype: of the vectors: `"float16"` or `"float32"`.
        batch_size: sentences that the model reads at once; unset, as many as fit a number of words.
        device: where to compute; the worker's GPU if it has one.
        precision: `"float32"`, `"bfloat16"` (on CUDA) or `"int8"` (on a CPU).
        state: `"zero"` or `"canonical"`: `"carry"` would depend on which batches a worker happens to get.
        threads: cores that a worker computes with, for its whole process; what the engine has set, if not given.

    Example:
        >>> embed = EmbedBatches("en-small", layers="top")
        >>> batch = embed({"text": np.array(["The river bank.", ""]), "id": np.array([7, 8])})
        >>> list(batch), batch["words"][0], [vectors.shape for vectors in batch["vectors"]]
        (['text', 'id', 'words', 'vectors'], ['The', 'river', 'bank', '.'], [(4, 256), (0, 256)])
    """

    def __init__(
        self,
        model: str | PathLike[str] = "en-small",
        *,
        column: str = "text",
        layers: Layers = "average",
        dtype: str = "float16",
        batch_size: int | None = None,
        device: str | None = None,
        precision: PrecisionName = "float32",
        state: StateMode = "zero",
        threads: int | None = None,
    ) -> None:
        if state == "carry":
            raise InputError(
                'state="carry" reads sentences in their order, which several workers cannot keep: use "zero" or '
                '"canonical"'
            )
        if dtype not in ("float16", "float32"):
            raise InputError(f"asked for dtype={dtype!r}: use one of 'float16', 'float32'")
        self.model, self.column, self.layers, self.dtype = str(model), column, layers, dtype
        self.batch_size, self.device, self.threads = batch_size, device, threads
        self.precision: PrecisionName = precision
        self.state: StateMode = state
        self._embedder: Embedder | None = None

    @property
    def embedder(self) -> Embedder:
        """The model, opened when it is asked for first."""
        if self._embedder is None:
            if self.threads is not None:
                use_threads(self.threads)
            embedder = Embedder.from_pretrained(
                self.model, device=self.device, precision=self.precision, state=self.state
            )
            self.layers = check_layers(self.layers, embedder.num_layers)
            self._embedder = embedder
        return self._embedder

    def __call__(self, batch: Mapping[str, Sequence[Any] | np.ndarray]) -> dict[str, Any]:
        """The columns of the batch, and with them `words` and the vectors, each a list with one entry per row."""
        if self.column not in batch:
            raise InputError(f"expected a column {self.column!r}, found {', '.join(map(repr, batch))}: say column=")
        embedder = self.embedder
        sentences = [self._split(text, row) for row, text in enumerate(batch[self.column])]
        rows = embedder.embed(sentences, layers=self.layers, batch_size=self.batch_size)
        found: dict[str, list[Any]] = {"words": sentences}
        if self.layers == "all":
            for number in range(embedder.num_layers):
                found[f"layer_{number}"] = [_round(layers_KWD[number], self.dtype) for layers_KWD in rows]
        else:
            found["vectors"] = [_round(vectors_WD, self.dtype) for vectors_WD in rows]
        return {**batch, **found}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_embedder": None}

    def _split(self, text: object, row: int) -> list[str]:
        if isinstance(text, np.ndarray):
            text = text.tolist()
        if text is None or text != text:  # a missing text is NaN in a table of pandas
            return []
        if not isinstance(text, (str, list, tuple)):
            raise InputError(
                f"row {row} of {self.column!r}: expected a text or a list of words, found {describe(text)}"
            )
        return [str(word) for word in split_sentence(text, self.embedder.segmenter, name=f"row {row}")]


def _round(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """The vectors in the dtype that was asked for, all finite as before."""
    if dtype == "float16" and vectors.size:
        refuse_overflow(float(np.abs(vectors).max()))
    return vectors.astype(dtype)
