# pyright: reportMissingImports=false
# The library is in another environment.
"""simple_elmo (the TensorFlow implementation, repackaged): one session is kept open, the best its users can do."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np

__all__ = ["LIBRARIES", "Model"]

LIBRARIES = ("simple_elmo", "tensorflow")


class Model:
    """simple_elmo's model in one TensorFlow session.

    Arguments:
        settings: `model` (a folder with options.json and an hdf5 file) and `largest_batch`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 has no LSTM cell of this kind
        import tensorflow
        from simple_elmo import ElmoModel
        from simple_elmo.elmo import weight_layers

        self._tensorflow = tensorflow.compat.v1
        threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
        self._model = ElmoModel()
        logging.disable(logging.INFO)
        self._graph = self._tensorflow.Graph()
        with self._graph.as_default():
            self._model.load(settings["model"], max_batch_size=settings["largest_batch"])
            self._model.elmo_sentence_input = weight_layers(
                "input", self._model.sentence_embeddings_op, use_layers="all"
            )
            self._session = self._tensorflow.Session(
                config=self._tensorflow.ConfigProto(intra_op_parallelism_threads=threads)
            )
            self._session.run(self._tensorflow.global_variables_initializer())

    def embed(self, sentences: list[list[str]]) -> np.ndarray:
        """All layers of one batch."""
        with self._graph.as_default():
            return self._model.get_elmo_vectors(sentences, warmup=False, layers="all", session=self._session)

    def vectors(self, batches: list[list[list[str]]]) -> list[np.ndarray]:
        """All layers of batches in order, from a state of zeros; the state is carried from batch to batch."""
        with self._graph.as_default():
            self._session.run(self._tensorflow.global_variables_initializer())
        arrays = []
        for batch in batches:
            layers_BLWD = self.embed(batch)
            arrays += [layers_BLWD[row, :, : len(words)] for row, words in enumerate(batch)]
        return arrays

    def forget(self) -> None:
        """Nothing is remembered."""
