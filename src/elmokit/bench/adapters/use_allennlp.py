# pyright: reportMissingImports=false
# The library is in another environment.
"""AllenNLP's `Elmo` (the library's last release is 2.10.1): text to all layers, as its own commands do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["LIBRARIES", "Model"]

LIBRARIES = ("allennlp", "torch")


class Model:
    """AllenNLP's biLM behind `batch_to_ids`.

    Arguments:
        settings: `model` (a folder with options.json and an hdf5 file), `known_words` for its `vocab_to_cache`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch
        from allennlp.modules import token_embedders
        from allennlp.modules.elmo import Elmo, batch_to_ids
        from allennlp.modules.token_embedders.embedding import Embedding
        from allennlp.nn.util import remove_sentence_boundaries

        # Where a user's setup has emptied the package, the cache would not find this name.
        token_embedders.Embedding = Embedding
        self._torch, self._ids, self._without_boundaries = torch, batch_to_ids, remove_sentence_boundaries
        # Row 0 means padding, so no word may have it.
        known = ["<padding>", *settings["known_words"]] if "known_words" in settings else None
        self._rows: dict[str, int] = {word: row for row, word in enumerate(known or ())}
        options, weights = _files(Path(settings["model"]))
        elmo = Elmo(options, weights, 1, dropout=0.0, vocab_to_cache=known)
        self._bilm = elmo.eval()._elmo_lstm

    def embed(self, sentences: list[list[str]]) -> list[Any]:
        """All layers of one batch, each (sentences, words, dim)."""
        with self._torch.no_grad():
            found = self._bilm(None, self._known(sentences)) if self._rows else self._bilm(self._ids(sentences))
            return [self._without_boundaries(layer, found["mask"])[0] for layer in found["activations"]]

    def vectors(self, batches: list[list[list[str]]]) -> list[np.ndarray]:
        """All layers of batches in order, from a state of zeros; the state is carried from batch to batch."""
        self._bilm._elmo_lstm.reset_states()
        arrays = []
        for batch in batches:
            layers_LBWD = np.stack([layer.numpy() for layer in self.embed(batch)])
            arrays += [layers_LBWD[:, row, : len(words)] for row, words in enumerate(batch)]
        return arrays

    def forget(self) -> None:
        """Nothing is remembered but what was asked for."""

    def _known(self, sentences: list[list[str]]) -> Any:  # noqa: ANN401
        rows = self._torch.zeros(len(sentences), max(map(len, sentences)), dtype=self._torch.long)
        for place, words in enumerate(sentences):
            rows[place, : len(words)] = self._torch.tensor([self._rows[word] for word in words])
        return rows


def _files(folder: Path) -> tuple[str, str]:
    return str(folder / "options.json"), str(next(folder.glob("*.hdf5")))
