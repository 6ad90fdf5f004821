# pyright: reportMissingImports=false
# The library is in another environment.
"""ELMoForManyLangs, with random weights of its published shape (4096/512, words 100 wide beside 2048 characters).

It needs `overrides` below version 4 to be imported. It computes gradients that nobody asked for unless told otherwise;
it is run as its page says, and so it does.
"""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["LIBRARIES", "Model"]

LIBRARIES = ("elmoformanylangs", "torch")
SHAPE = "cnn_50_100_512_4096_sample.json"  # comes with the library; all of its 44 languages have it
SPECIAL_WORDS = ["<oov>", "<bos>", "<eos>", "<pad>"]


class Model:
    """Its Embedder.

    Arguments:
        settings: `words` for the vocabulary, and `largest_batch`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        from elmoformanylangs import Embedder

        logging.disable(logging.WARNING)
        with tempfile.TemporaryDirectory() as folder:
            _write_random_model(Path(folder), settings["words"])
            self._embedder = Embedder(folder, batch_size=settings["largest_batch"])

    def embed(self, sentences: list[list[str]]) -> list[Any]:
        """All layers of one batch."""
        return self._embedder.sents2elmo(sentences, output_layer=-2)

    def vectors(self, batches: list[list[list[str]]]) -> list[Any]:
        """All layers; weights of its own, so nobody compares them."""
        return [array for batch in batches for array in self.embed(batch)]

    def forget(self) -> None:
        """Nothing is remembered."""


def _write_random_model(folder: Path, words: list[str]) -> None:
    import elmoformanylangs
    import torch
    from elmoformanylangs.frontend import Model as Network
    from elmoformanylangs.modules.embedding_layer import EmbeddingLayer

    shape = json.loads((Path(str(elmoformanylangs.__file__)).parent / "configs" / SHAPE).read_text(encoding="utf-8"))
    characters = sorted({character for word in words for character in word})
    lists = {"word": SPECIAL_WORDS + words, "char": [*SPECIAL_WORDS, "<bow>", "<eow>", *characters]}
    torch.manual_seed(0)
    tables = []
    for kind, items in lists.items():
        rows = {item: row for row, item in enumerate(items)}
        (folder / f"{kind}.dic").write_text("".join(f"{item}\t{row}\n" for item, row in rows.items()), encoding="utf-8")
        tables.append(EmbeddingLayer(shape["token_embedder"][f"{kind}_dim"], rows, fix_emb=False))
    (folder / "config.json").write_text(json.dumps({"config_path": SHAPE}), encoding="utf-8")
    network = Network(shape, *tables, False)
    torch.save(network.token_embedder.state_dict(), folder / "token_embedder.pkl")
    torch.save(network.encoder.state_dict(), folder / "encoder.pkl")
