"""elmokit itself as a contestant, and what only it is asked for: models of random weights, rates of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ACTIONS", "Model"]

WORDS_AT_ONCE = 200


class Model:
    """An Embedder.

    Arguments:
        settings: `model` (a source), `precision`, `cache_words`, and `known_words`, whose vectors are computed now
            and kept.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        from elmokit.embed import Embedder

        self._source, known = settings["model"], list(settings.get("known_words", ()))
        self._options = {name: settings[name] for name in ("precision", "cache_words") if name in settings}
        self.embedder = Embedder.from_pretrained(self._source, device="cpu", **self._options)
        self.about = self.embedder.elmo.engine
        self._remembers = bool(known)
        for start in range(0, len(known), WORDS_AT_ONCE):
            self.embedder.embed([[word] for word in known[start : start + WORDS_AT_ONCE]])

    def embed(self, sentences: list[list[str]]) -> list[np.ndarray]:
        """All layers of one batch."""
        return self.embedder.embed(sentences, layers="all", batch_size=len(sentences))

    def vectors(self, batches: list[list[list[str]]]) -> list[np.ndarray]:
        """All layers as the originals compute them: each row continues the row of the batch before."""
        from elmokit.embed import Embedder

        carrying = Embedder.from_pretrained(self._source, device="cpu", state="carry", **self._options)
        return [array for batch in batches for array in carrying.embed(batch, layers="all", batch_size=len(batch))]

    def forget(self) -> None:
        """Start with no word vectors, unless words were to be known."""
        if not self._remembers:
            self.embedder.clear_cache()


def _versions() -> dict[str, str]:
    """Of elmokit and what it computes with."""
    import torch

    from elmokit.version import describe_version

    return {"elmokit": describe_version(), "torch": torch.__version__, "python": sys.version.split()[0]}


def _write(size: str, folder: str) -> dict[str, Any]:
    """A model of random weights in AllenNLP's layout, the same for the same size; kept if it is there."""
    from elmokit.config import ElmoConfig
    from elmokit.model import Elmo

    if not Path(folder).exists():
        Elmo.random(getattr(ElmoConfig, size)()).save_pretrained(folder, format="allennlp")
    return {}


def _config(source: str) -> dict[str, Any]:
    from elmokit.io import load as loaded
    from elmokit.io import num_parameters

    config = loaded(source).config
    return {"config": config.to_dict(), "num_parameters": num_parameters(config)}


def _rates(read_bytes: list[int]) -> dict[str, Any]:
    from elmokit.bench.floors import measure_rates

    return measure_rates(read_bytes)


ACTIONS = {"versions": _versions, "write": _write, "config": _config, "rates": _rates}
