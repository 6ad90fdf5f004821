"""Files of tiny random models, written dataset by dataset from the published description and not by our own writer."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.io import Checkpoint, expected_shapes

OPTIONS = {
    "lstm": {
        "cell_clip": 3,
        "dim": 6,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 4,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 3},
        "filters": [[1, 2], [2, 3]],
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": 2,
    },
}


@pytest.fixture
def options():
    return copy.deepcopy(OPTIONS)


@pytest.fixture
def write_bilm(tmp_path):
    """A function that writes options and weights into a folder; it gives the folder and the arrays in the file."""

    def write(options, *, folder="model", name="weights.hdf5", options_name="options.json", **layout):
        path = tmp_path / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / options_name).write_text(json.dumps(options))
        arrays = bilm_arrays(options, **layout)
        with h5py.File(path / name, "w") as file:
            for dataset, values in arrays.items():
                file[dataset] = values
        return path, arrays

    return write


@pytest.fixture
def tiny_config():
    characters = CharConfig(dim=3, filters=((1, 2), (2, 3)), num_highways=1)
    return ElmoConfig(characters, lstm=LstmConfig(cell_dim=6, projection_dim=4))


@pytest.fixture
def random_checkpoint(tiny_config):
    """A function that makes a checkpoint of random numbers for a config."""

    def make(config: ElmoConfig = tiny_config, **parts) -> Checkpoint:
        generator = torch.Generator().manual_seed(0)
        shapes = expected_shapes(config)
        tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        return Checkpoint(config, tensors, **parts)

    return make


@pytest.fixture
def native_folder(random_checkpoint, tmp_path) -> Path:
    from elmokit.io import save

    return save(random_checkpoint(), tmp_path / "native")


def bilm_arrays(options, *, symbols=261, num_words=None, single_cell=False, projects=None, seed=0):
    random = np.random.default_rng(seed)
    lstm, cnn = options["lstm"], options.get("char_cnn")
    cell, width = lstm["dim"], lstm["projection_dim"]
    shapes = {}
    if num_words is not None:
        shapes["embedding"] = (num_words, width)
    if cnn is not None:
        characters, features = cnn["embedding"]["dim"], sum(count for _, count in cnn["filters"])
        shapes["char_embed"] = (symbols, characters)
        for i, (size, count) in enumerate(cnn["filters"]):
            shapes[f"CNN/W_cnn_{i}"] = (1, size, characters, count)
            shapes[f"CNN/b_cnn_{i}"] = (count,)
        for i in range(cnn.get("n_highway") or 0):
            for part in ("carry", "transform"):
                shapes[f"CNN_high_{i}/W_{part}"] = (features, features)
                shapes[f"CNN_high_{i}/b_{part}"] = (features,)
        if projects if projects is not None else features != width:
            shapes["CNN_proj/W_proj"] = (features, width)
            shapes["CNN_proj/b_proj"] = (width,)
    for direction in (0, 1):
        for layer in range(lstm.get("n_layers", 1)):
            middle = "" if single_cell else f"MultiRNNCell/Cell{layer}/"
            root = f"RNN_{direction}/RNN/{middle}LSTMCell"
            shapes[f"{root}/W_0"] = (2 * width, 4 * cell)
            shapes[f"{root}/B"] = (4 * cell,)
            if cell != width:
                shapes[f"{root}/W_P_0"] = (cell, width)
    return {name: random.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
