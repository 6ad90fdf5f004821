"""Token embeddings for Flair: every word of a Flair `Sentence` gets its ELMo vector.

Flair's sentences arrive, split into tokens by Flair; their tokens leave with embeddings, on `flair.device`. The model
is frozen, so Flair computes an embedding once and keeps it as its `embeddings_storage_mode` says.

A model that Flair saves keeps the name of an installed ELMo model, and a copy of any other, so that it loads wherever
elmokit is installed, also where this file was never imported: see `Settings`.

    pip install 'elmokit[flair]'     # in an environment of its own: Flair 0.15 holds transformers below 5

Shapes: W words of a sentence, L layers, D width of a layer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, check_layers
from elmokit.engines.precision import PrecisionName
from elmokit.errors import MissingExtra
from elmokit.io import model_names
from elmokit.io.archive import pack

try:
    import flair  # pyright: ignore[reportMissingImports]
    from flair.data import Sentence  # pyright: ignore[reportMissingImports]
    from flair.embeddings.base import TokenEmbeddings, register_embeddings  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as problem:
    raise MissingExtra("Flair is not installed: pip install 'elmokit[flair]'") from problem

__all__ = ["ElmoTokenEmbeddings", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What a saved Flair model keeps of its ELMo embeddings.

    Flair looks classes up in a table that they enter when they are imported, and pickles what `to_params` gives.
    Opening such a pickle imports the module of this class, so that the class below is in the table in time.

    Arguments:
        source: the model's name, or where it once was.
        layers: which are asked for.
        precision: how exactly to compute.
        packed: the model as a zip archive; `None` for an installed one.
    """

    source: str
    layers: Layers
    precision: PrecisionName
    packed: bytes | None


class ElmoTokenEmbeddings(TokenEmbeddings):
    """ELMo vectors as Flair's embeddings of tokens, alone or in a `StackedEmbeddings`.

    Not Flair's own `ELMoEmbeddings`, which asks for AllenNLP 0.9 and for files that are gone.

    Arguments:
        source: a model's name, a folder, a `.zip` or a hub id.
        layers: as for `Embedder.embed`; the vectors of `"all"` layers are put end to end, for a model that learns its
            own weights of them.
        precision: `"float32"`, `"bfloat16"` (on CUDA) or `"int8"` (always on a CPU).
        name: under which tokens hold the embeddings.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] = "en-small",
        *,
        layers: Layers = "average",
        precision: PrecisionName = "float32",
        name: str | None = None,
    ) -> None:
        self.source = os.fspath(source)
        self.name = name or f"elmo-{Path(self.source).name}-{layers}"
        self.static_embeddings = True  # Flair reads both before its constructor has run
        super().__init__()
        self.precision: PrecisionName = precision
        self._embedder = Embedder(self.source, device=self._find_device(), precision=precision)
        self.layers = check_layers(layers, self._embedder.num_layers)
        self.eval()

    @property
    def embedding_length(self) -> int:
        """The width of a token's embedding: D, or L·D for `"all"` layers."""
        return self._embedder.dim * (self._embedder.num_layers if self.layers == "all" else 1)

    @property
    def embedder(self) -> Embedder:
        """The model, where Flair computes now: `flair.device` may be set at any time."""
        if self._embedder.device != self._find_device():
            self._embedder = Embedder(self._embedder.elmo, device=self._find_device())
        return self._embedder

    def to_params(self) -> dict[str, Any]:
        """What Flair saves."""
        packed = None
        if self.source not in model_names():
            with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
                self._embedder.elmo.save_pretrained(Path(temporary, "model"))
                packed = pack(Path(temporary, "model"))
        return {"settings": Settings(self.source, self.layers, self.precision, packed), "name": self.name}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> ElmoTokenEmbeddings:
        """The embeddings of what `to_params` gave."""
        settings: Settings = params["settings"]
        with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
            source = settings.source
            if settings.packed is not None:
                source = str(Path(temporary, "model.zip"))
                Path(source).write_bytes(settings.packed)
            found = cls(source, layers=settings.layers, precision=settings.precision, name=params["name"])
        found.source = settings.source
        return found

    def extra_repr(self) -> str:
        """What Flair prints of the embeddings in a model."""
        return f"{self.source!r}, layers={self.layers!r}, precision={self.precision!r}"

    def _add_embeddings_internal(self, sentences: Sequence[Sentence]) -> None:
        words = [[token.text for token in sentence] for sentence in sentences]
        for sentence, array in zip(sentences, self.embedder.embed(words, layers=self.layers), strict=True):
            vectors_WF = np.concatenate(list(array), axis=-1) if self.layers == "all" else array
            for token, vector_F in zip(sentence, torch.from_numpy(vectors_WF).to(flair.device), strict=True):
                token.set_embedding(self.name, vector_F)

    def _find_device(self) -> torch.device:
        return torch.device("cpu") if self.precision == "int8" else torch.device(flair.device)


register_embeddings(ElmoTokenEmbeddings)  # no decorator: the site is made without Flair, and would lose the class
