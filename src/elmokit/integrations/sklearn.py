"""A scikit-learn transformer: sentences in, one vector per sentence out, for a `Pipeline`, a `GridSearchCV`, `joblib`.

Nothing is learned from the data, so `fit` only opens the model, and `transform` works without it. A pickle holds the
source's name and the settings, not the weights, which are opened again where they are needed: a saved pipeline is
small, and needs the model where it is used.

    pip install 'elmokit[sklearn]'
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, Pooling, check_layers, check_pooling
from elmokit.engines.precision import PrecisionName
from elmokit.errors import InputError, MissingExtra
from elmokit.reading.encoder import Sentence
from elmokit.text.segmenters import Segmenter

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
except ModuleNotFoundError as problem:
    raise MissingExtra("scikit-learn is not installed: pip install 'elmokit[sklearn]'") from problem

__all__ = ["ElmoTransformer"]


class ElmoTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One vector per sentence, pooled over its words.

    Arguments:
        source: a model's name, a folder, a `.zip` or a hub id.
        layers: as for `Embedder.embed`; the vectors of `"all"` layers are put end to end.
        pooling: as for `Embedder.encode`: `"mean"`, `"max"` or `"first_last"`.
        normalize: scale each vector to length 1, with `layers="all"` that of each layer.
        precision: `"float32"`, `"bfloat16"` (on CUDA) or `"int8"` (on a CPU).
        device: where to compute; on the GPU if there is one, unless told.
        segmenter: splits strings into words; the rule of `elmokit.text.segmenters` if not given.

    Example:
        >>> transformer = ElmoTransformer("en-small", pooling="max")
        >>> transformer.fit_transform(["The river bank.", "The bank lent him money."]).shape
        (2, 256)
    """

    def __init__(
        self,
        source: str | os.PathLike[str] = "en-small",
        *,
        layers: Layers = "average",
        pooling: Pooling = "mean",
        normalize: bool = False,
        precision: PrecisionName = "float32",
        device: str | None = None,
        segmenter: Segmenter | None = None,
    ) -> None:
        self.source = source
        self.layers = layers
        self.pooling: Pooling = pooling
        self.normalize = normalize
        self.precision: PrecisionName = precision
        self.device = device
        self.segmenter = segmenter

    def fit(self, X: Iterable[Sentence], y: object = None) -> ElmoTransformer:  # noqa: N803
        """Open the model and check the settings; nothing is learned.

        Arguments:
            X: sentences, each a string (ONE sentence, split into words by the segmenter) or a list of words: a list, an
                array, a column of a table, or a table of one column.
            y: not used.
        """
        check_pooling(self.pooling)
        check_layers(self.layers, self._open().num_layers)
        _list_sentences(X)
        return self

    def transform(self, X: Iterable[Sentence]) -> np.ndarray:  # noqa: N803
        """The vectors (sentences, width), float32; zeros for a sentence without words. `X` is as for `fit`."""
        sentences = _list_sentences(X)
        vectors = self._open().encode(sentences, pooling=self.pooling, layers=self.layers, normalize=self.normalize)
        return vectors.reshape(len(sentences), self._n_features_out)

    @property
    def _n_features_out(self) -> int:
        """The width of a vector, by which scikit-learn names the features: elmotransformer0, elmotransformer1, …."""
        embedder = self._open()
        return embedder.dim * (embedder.num_layers if self.layers == "all" else 1)

    def _open(self) -> Embedder:
        """The model, opened again if a setting has changed since."""
        settings = (self.source, self.precision, self.device, self.segmenter)
        opened, embedder = getattr(self, "_opened", (None, None))
        if embedder is None or opened != settings:
            embedder = Embedder.from_pretrained(
                self.source, precision=self.precision, device=self.device, segmenter=self.segmenter
            )
            self._opened = (settings, embedder)
        return embedder

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_opened"}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = []  # float32, whatever comes
        return tags


def _list_sentences(given: Any) -> list[Sentence]:  # noqa: ANN401
    """The sentences of a list, an array, a column or a table of one column."""
    if isinstance(given, str):
        raise InputError("expected a list of sentences, found a single string: put it into a list, [sentence]")
    shape = getattr(given, "shape", None)
    if shape is not None and len(shape) != 1:
        if len(shape) != 2 or shape[1] != 1:
            raise InputError(
                f"expected sentences in one column, found a table of shape {tuple(shape)}: choose a column"
            )
        given = np.asarray(given)[:, 0]
    if isinstance(given, np.ndarray) and given.dtype.kind not in "OUT":
        raise InputError(f"expected sentences, found numbers ({given.dtype}): pass strings or lists of words")
    return list(given)
