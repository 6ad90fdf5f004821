"""Small random models in the file layouts of both families, so that the tests need no published weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np

__all__ = ["write_bilm", "write_manylangs"]


def write_bilm(
    folder: Path,
    rng: np.random.Generator,
    *,
    layers: int = 2,
    highways: int = 1,
    filters: Sequence[tuple[int, int]] = ((1, 4), (2, 8), (3, 8)),
    char_dim: int = 4,
    dim: int = 12,
    projection_dim: int = 6,
    cell_clip: float | None = 3.0,
    proj_clip: float | None = 3.0,
    residual: bool = True,
    activation: str = "relu",
    columns: int = 50,
    n_characters: int = 262,
    words: Sequence[str] | None = None,
    gain: float = 1.25,
) -> Path:
    """A random AllenNLP / bilm-tf folder; with `words`, a word-input one. `dim == projection_dim`: no projection."""
    folder.mkdir(parents=True, exist_ok=True)
    lstm = {"dim": dim, "projection_dim": projection_dim, "n_layers": layers, "cell_clip": cell_clip,
            "proj_clip": proj_clip, "use_skip_connections": residual}  # fmt: skip
    options: dict[str, object] = {"lstm": lstm}
    arrays: dict[str, np.ndarray] = {}

    normal = normal_draws(rng, gain)
    if words is not None:
        options["n_tokens_vocab"] = len(words)
        arrays["embedding"] = rng.uniform(-1, 1, (len(words), projection_dim)).astype(np.float32)
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    else:
        options["char_cnn"] = {
            "activation": activation, "filters": [list(pair) for pair in filters], "n_highway": highways,
            "embedding": {"dim": char_dim}, "n_characters": n_characters, "max_characters_per_token": columns,
        }  # fmt: skip
        arrays["char_embed"] = rng.uniform(-1, 1, (261, char_dim)).astype(np.float32)
        arrays |= bilm_cnn(normal, char_dim, filters, highways, projection_dim)
    for direction in range(2):
        for number in range(layers):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
            arrays[f"{cell}/W_0"] = normal(2 * projection_dim, 4 * dim, fan_in=projection_dim)
            arrays[f"{cell}/B"] = normal(4 * dim, fan_in=9)
            if dim != projection_dim:
                arrays[f"{cell}/W_P_0"] = normal(dim, projection_dim, fan_in=projection_dim)
    (folder / "options.json").write_text(json.dumps(options, indent=1))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return folder


def write_manylangs(
    folder: Path,
    rng: np.random.Generator,
    *,
    layers: int = 2,
    highways: int = 2,
    filters: Sequence[tuple[int, int]] = ((1, 4), (2, 8), (3, 8)),
    word_dim: int = 5,
    char_dim: int = 4,
    dim: int = 12,
    projection_dim: int = 6,
    cell_clip: float | None = 3.0,
    proj_clip: float | None = 3.0,
    activation: str = "relu",
    columns: int = 50,
    words: Sequence[str] = ("the", "bank", "river", "Übermut", "\u3000"),
    letters: str = "abcdefghijklmnoprstuvÜü\u3000銀",
    config_path: str = "architecture.json",
    gain: float = 1.25,
) -> Path:
    """A random ELMoForManyLangs folder, ids of both dictionaries shuffled; a dim of 0 leaves that input out."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    architecture = {
        "encoder": {"name": "elmo", "projection_dim": projection_dim, "cell_clip": cell_clip, "proj_clip": proj_clip,
                    "dim": dim, "n_layers": layers},
        "token_embedder": {"name": "cnn", "activation": activation, "filters": [list(pair) for pair in filters],
                           "n_highway": highways, "word_dim": word_dim, "char_dim": char_dim,
                           "max_characters_per_token": columns},
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }  # fmt: skip
    (folder / Path(config_path).name).write_text(json.dumps(architecture, indent=1))
    (folder / "config.json").write_text(json.dumps({"config_path": config_path, "seed": 1, "word_embedding": None}))

    normal = normal_draws(rng, gain)

    def write_dictionary(name: str, items: list[str]) -> int:
        rows = rng.permutation(len(items))
        lines = [f"{item}\t{row}\n" for item, row in zip(items, rows, strict=True)]
        (folder / name).write_text("".join(lines), encoding="utf-8")
        return len(items)

    embedder: dict[str, np.ndarray] = {}
    # The package writes a word dictionary even for models that take characters alone.
    num_words = write_dictionary("word.dic", ["<oov>", "<bos>", "<eos>", "<pad>", *words])
    features = 0
    if word_dim:
        embedder["word_emb_layer.embedding.weight"] = normal(num_words, word_dim, fan_in=word_dim)
        features += word_dim
    if char_dim:
        num_letters = write_dictionary("char.dic", ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *letters])
        embedder["char_emb_layer.embedding.weight"] = normal(num_letters, char_dim, fan_in=char_dim)
        for i, (width, channels) in enumerate(filters):
            embedder[f"convolutions.{i}.weight"] = normal(channels, char_dim, width, fan_in=width * char_dim)
            embedder[f"convolutions.{i}.bias"] = normal(channels, fan_in=9)
        channels = sum(channels for _, channels in filters)
        for i in range(highways):
            embedder[f"highways._layers.{i}.weight"] = normal(2 * channels, channels, fan_in=channels)
            embedder[f"highways._layers.{i}.bias"] = normal(2 * channels, fan_in=9)
        features += channels
    embedder["projection.weight"] = normal(projection_dim, features, fan_in=features)
    embedder["projection.bias"] = normal(projection_dim, fan_in=9)
    encoder: dict[str, np.ndarray] = {}
    for direction in ("forward", "backward"):
        for number in range(layers):
            cell = f"{direction}_layer_{number}"
            encoder[f"{cell}.input_linearity.weight"] = normal(4 * dim, projection_dim, fan_in=projection_dim)
            encoder[f"{cell}.state_linearity.weight"] = normal(4 * dim, projection_dim, fan_in=projection_dim)
            encoder[f"{cell}.state_linearity.bias"] = normal(4 * dim, fan_in=9)
            encoder[f"{cell}.state_projection.weight"] = normal(projection_dim, dim, fan_in=projection_dim)
    for name, arrays in (("token_embedder.pkl", embedder), ("encoder.pkl", encoder)):
        torch.save({key: torch.from_numpy(array) for key, array in arrays.items()}, folder / name)
    return folder


def normal_draws(rng: np.random.Generator, gain: float) -> Callable[..., np.ndarray]:
    def normal(*shape: int, fan_in: int) -> np.ndarray:
        return rng.normal(0, gain / np.sqrt(fan_in), shape).astype(np.float32)

    return normal


def bilm_cnn(
    normal: Callable[..., np.ndarray],
    char_dim: int,
    filters: Sequence[tuple[int, int]],
    highways: int,
    projection_dim: int,
) -> dict[str, np.ndarray]:
    arrays = {}
    for i, (width, channels) in enumerate(filters):
        arrays[f"CNN/W_cnn_{i}"] = normal(1, width, char_dim, channels, fan_in=width * char_dim)
        arrays[f"CNN/b_cnn_{i}"] = normal(channels, fan_in=9)
    features = sum(channels for _, channels in filters)
    for i in range(highways):
        for part in ("carry", "transform"):
            arrays[f"CNN_high_{i}/W_{part}"] = normal(features, features, fan_in=features)
            arrays[f"CNN_high_{i}/b_{part}"] = normal(features, fan_in=9)
    if features != projection_dim:
        arrays["CNN_proj/W_proj"] = normal(features, projection_dim, fan_in=features)
        arrays["CNN_proj/b_proj"] = normal(projection_dim, fan_in=9)
    return arrays
