"""bilm-tf's and AllenNLP's files: `options.json` + `*.hdf5`, read into a `Checkpoint` and written from one.

A folder arrives; a config and named tensors leave, float32. Kernels are read into place in the order in which
they are stored, so loading takes little more than reading the file and no second copy of the weights: what
`nn` wants the other way round (Linear layout) is a transposed view. `hdf5.py` reads the datasets.

Shapes: K channels, E character width, w filter width, D input width, P projection, H cell.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import torch
from torch import Tensor

from elmokit.config import ElmoConfig
from elmokit.errors import CheckpointError
from elmokit.io.checkpoint import (
    LARGEST_RATIO,
    LARGEST_SLACK,
    Checkpoint,
    Shape,
    WantsSoftmax,
    check_fits,
    expected_shapes,
    num_output_words,
)
from elmokit.io.hdf5 import find_dataset, list_names, new_hdf5, open_hdf5, read_rows
from elmokit.io.options import WeightFacts, config_to_options, options_to_config, read_options
from elmokit.io.text_files import find_vocabulary, read_json, read_words, write_words

__all__ = ["load_allennlp", "load_allennlp_files", "looks_like_allennlp", "save_allennlp"]

log = logging.getLogger(__name__)

FORGET_BIAS = 1.0  # TensorFlow adds it when running; our bias holds it


def looks_like_allennlp(folder: Path) -> bool:
    """Whether a folder has the files of this family."""
    return bool(_list_hdf5_files(folder) or list(folder.glob("*options*.json")))


def load_allennlp(folder: Path, *, softmax: WantsSoftmax = False) -> Checkpoint:
    """Read the model in `folder`; its output layer (1.6 GB in the original) only when `softmax` asks for it."""
    options_path = _find_options(folder)
    weights_path, softmax_path = _find_weights(folder, softmax=bool(softmax))
    checkpoint = load_allennlp_files(options_path, weights_path)
    config, checkpoint.path = checkpoint.config, folder
    vocabulary_path = find_vocabulary(folder) if softmax or config.words is not None else None
    if softmax and softmax_path is not None:
        with open_hdf5(softmax_path) as file:
            checkpoint.softmax = _read_softmax(file, config, sizes_only=softmax == "shape")
    if vocabulary_path is not None and (config.words is not None or checkpoint.softmax is not None):
        num_rows = config.words.num_words if config.words else num_output_words(checkpoint.softmax or {})
        words = read_words(vocabulary_path, num_rows=num_rows, strips=True)
        checkpoint.vocabulary = words if config.words is not None else None
        checkpoint.output_words = words if checkpoint.softmax is not None else None
    checkpoint.check(str(folder))
    return checkpoint


def load_allennlp_files(options_path: Path, weights_path: Path) -> Checkpoint:
    """Read a model of two files, wherever they lie and whatever they are called; without words or an output layer."""
    options = read_options(read_json(options_path), options_path)
    with open_hdf5(weights_path) as file:
        config = options_to_config(options, options_path, _read_facts(file))
        check_fits(config, weights_path)
        _check_counts(file, config)
        checkpoint = Checkpoint(config, _read_tensors(file, config), format="allennlp", path=weights_path.parent)
    checkpoint.check(str(weights_path))
    return checkpoint


def save_allennlp(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the model into an existing folder as `options.json`, `weights.hdf5`, and its output layer beside them."""
    config = checkpoint.config
    options = json.dumps(config_to_options(config), indent=2)
    (folder / "options.json").write_text(options + "\n", encoding="utf-8")
    with new_hdf5(folder / "weights.hdf5") as (file, check):
        for stored in _lay_out(config):
            file.create_dataset(stored.dataset, data=stored.to_file(checkpoint.tensors).numpy())
            check()
    if checkpoint.softmax is not None:
        with new_hdf5(folder / "softmax_weights.hdf5") as (file, check):
            for theirs, ours in (("W", "weight"), ("b", "bias")):
                values = checkpoint.softmax[f"softmax.{ours}"].detach().cpu().contiguous()
                file.create_dataset(f"softmax/{theirs}", data=values.numpy())
                check()
    words = checkpoint.output_words or checkpoint.vocabulary
    if words is not None:
        write_words(folder / "vocab.txt", words)


# ---------------------------------------------------------------- what lies where


class Stored(NamedTuple):
    """One dataset: its name, the tensors it becomes, its shape in the file, and how the two are laid out."""

    dataset: str
    names: tuple[str, ...]
    shape: Shape
    kind: str

    def from_file(self, data: h5py.Dataset) -> Iterator[tuple[str, Tensor]]:
        """Read the dataset as named tensors."""
        if self.kind == "kernel":  # rows: first the D of the input, then the P of the previous output
            middle = self.shape[0] // 2
            yield self.names[0], read_rows(data, 0, middle)
            yield self.names[1], read_rows(data, middle, self.shape[0])
            return
        values = read_rows(data, 0, data.shape[0])
        if data.shape[0] > self.shape[0]:
            # 262 symbols: dumped from a prediction graph the first is its zero row for "no word"; trained with
            # n_characters 262 by mistake, the last is one that no byte ever reached.
            log.warning("%s: %s has %d rows, one is left out", data.file.filename, self.dataset, data.shape[0])
            values = values[:-1] if values[0].any() else values[1:]
        if self.kind == "convolution":
            values = torch.from_numpy(values.numpy()[0].transpose(2, 1, 0).copy())  # (1, w, E, K) to (K, E, w)
        elif self.kind == "linear":
            values = values.T
        elif self.kind == "bias":
            _slice_forget_gate(values).add_(FORGET_BIAS)
        yield self.names[0], values

    def to_file(self, tensors: dict[str, Tensor]) -> Tensor:
        """The values of the dataset."""
        values = tensors[self.names[0]].detach()
        if self.kind == "kernel":
            values = torch.cat([values, tensors[self.names[1]].detach()])
        elif self.kind == "convolution":
            values = values.permute(2, 1, 0)[None]
        elif self.kind == "linear":
            values = values.T
        elif self.kind == "bias":
            values = values.clone()
            _slice_forget_gate(values).sub_(FORGET_BIAS)
        return values.contiguous().cpu()


def _lay_out(config: ElmoConfig, *, single_cell: bool = False) -> Iterator[Stored]:
    shapes = expected_shapes(config)
    yield from _lay_out_encoder(config, shapes)
    for direction, ours in enumerate(("bilm.forward_layers", "bilm.backward_layers")):
        for i in range(config.lstm.num_layers):
            cell = f"RNN_{direction}/RNN/LSTMCell" if single_cell else f"{_name_cells(direction)}/Cell{i}/LSTMCell"
            names = (f"{ours}.{i}.input_weight", f"{ours}.{i}.recurrent_weight")
            (inputs, columns), (outputs, _) = shapes[names[0]], shapes[names[1]]
            yield Stored(f"{cell}/W_0", names, (inputs + outputs, columns), "kernel")
            yield Stored(f"{cell}/B", (f"{ours}.{i}.bias",), (columns,), "bias")
            if config.lstm.has_projection:
                name = f"{ours}.{i}.projection_weight"
                yield Stored(f"{cell}/W_P_0", (name,), shapes[name], "same")


def _lay_out_encoder(config: ElmoConfig, shapes: dict[str, Shape]) -> Iterator[Stored]:
    def same(dataset: str, name: str) -> Stored:
        return Stored(dataset, (name,), shapes[name], "same")

    def transposed(dataset: str, name: str, kind: str) -> Stored:
        shape = tuple(reversed(shapes[name]))
        return Stored(dataset, (name,), (1, *shape) if kind == "convolution" else shape, kind)

    if config.characters is not None:
        ours = "encoder.characters"
        yield same("char_embed", f"{ours}.embedding")
        for i in range(len(config.characters.filters)):
            yield transposed(f"CNN/W_cnn_{i}", f"{ours}.convolutions.{i}.weight", "convolution")
            yield same(f"CNN/b_cnn_{i}", f"{ours}.convolutions.{i}.bias")
        for i in range(config.characters.num_highways):
            for theirs, part in (("carry", "gate"), ("transform", "transform")):
                yield transposed(f"CNN_high_{i}/W_{theirs}", f"{ours}.highways.{i}.{part}.weight", "linear")
                yield same(f"CNN_high_{i}/b_{theirs}", f"{ours}.highways.{i}.{part}.bias")
    if config.words is not None:
        yield same("embedding", "encoder.words.embedding")
    if config.projects_words:
        yield transposed("CNN_proj/W_proj", "encoder.projection.weight", "linear")
        yield same("CNN_proj/b_proj", "encoder.projection.bias")


def _slice_forget_gate(bias: Tensor) -> Tensor:
    cell_dim = bias.shape[0] // 4
    return bias[2 * cell_dim : 3 * cell_dim]  # gates stand in the order i, j, f, o


def _name_cells(direction: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell"


# ---------------------------------------------------------------- which file is which


def _find_options(folder: Path) -> Path:
    found = sorted(folder.glob("*options*.json"))
    if folder / "options.json" in found:
        return folder / "options.json"
    if len(found) != 1:
        beside = ", ".join(path.name for path in _list_hdf5_files(folder))
        what = ", ".join(path.name for path in found) or f"none beside {beside}"
        raise CheckpointError(f"{folder}: expected one options.json, found {what}; put the model's options.json there")
    return found[0]


def _list_hdf5_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".hdf5", ".h5") and path.is_file())


def _find_weights(folder: Path, *, softmax: bool) -> tuple[Path, Path | None]:
    """The weights, and the output layer if it is there, told apart by what is in them."""
    contents = {}
    for path in _list_hdf5_files(folder):
        if softmax or "softmax" not in path.name:
            with open_hdf5(path) as file:
                contents[path] = set(file)
    weights = [path for path, names in contents.items() if names & {"RNN_0", "RNN_1"}]
    outputs = [path for path, names in contents.items() if "softmax" in names]
    cached = [path for path, names in contents.items() if names == {"embedding"}]
    if not weights:  # one unlike the others is taken, so that its missing datasets are named
        weights = [path for path in contents if path not in outputs + cached]
    if not weights and cached:
        raise CheckpointError(
            f"{cached[0]}: expected the weights of a model, found cached word vectors (the dataset 'embedding' alone); "
            "put the weights they were made with into the folder"
        )
    if not weights:
        raise CheckpointError(f"{folder}: expected an hdf5 file with weights beside options.json, found none; add it")
    for what, found in (("weights", weights), ("softmax", outputs)):
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CheckpointError(f"{folder}: expected one hdf5 file with the {what}, found {names}; leave one of them")
    return weights[0], outputs[0] if outputs else None


def _read_facts(file: h5py.File) -> WeightFacts:
    names = set(file)
    table = find_dataset(file, "embedding") if "embedding" in names and "char_embed" not in names else None
    rows = int(table.shape[0]) if table is not None and len(table.shape) == 2 else None
    return WeightFacts(Path(file.filename).name, "char_embed" in names, rows, "CNN_proj" in names)


def _check_counts(file: h5py.File, config: ElmoConfig) -> None:
    """Refuse options that name fewer parts than the weights have: dropping one silently would change vectors."""
    characters = config.characters
    counts = [(_name_cells(d), r"Cell\d+", config.lstm.num_layers, "LSTM layers (lstm.n_layers)") for d in (0, 1)]
    if characters is not None:
        counts.append(("", r"CNN_high_\d+", characters.num_highways, "highways (char_cnn.n_highway)"))
        counts.append(("CNN", r"W_cnn_\d+", len(characters.filters), "convolutions (char_cnn.filters)"))
    if not config.lstm.has_projection:
        counts.append(
            (f"{_name_cells(0)}/Cell0/LSTMCell", "W_P_0", 0, "projections (lstm.dim equals lstm.projection_dim)")
        )
    for group, pattern, named, what in counts:
        held = sum(re.fullmatch(pattern, name) is not None for name in list_names(file, group))
        if held > named:
            raise CheckpointError(
                f"{file.filename}: the options name {named} {what}, the weights hold {held}; "
                "correct the options, or take the options that came with these weights"
            )


def _read_tensors(file: h5py.File, config: ElmoConfig) -> dict[str, Tensor]:
    # bilm-tf trains a single layer without MultiRNNCell, and its dump keeps that name.
    single_cell = config.lstm.num_layers == 1 and "LSTMCell" in list_names(file, "RNN_0/RNN")
    layout = list(_lay_out(config, single_cell=single_cell))
    # All are found and checked before any is read.
    found = [find_dataset(file, stored.dataset, _find_shape(file, stored)) for stored in layout]
    return dict(pair for stored, data in zip(layout, found, strict=True) for pair in stored.from_file(data))


def _find_shape(file: h5py.File, stored: Stored) -> Shape:
    """The shape in the file: a character table may have a row too many, which `Stored.from_file` leaves out."""
    if stored.dataset == "char_embed" and find_dataset(file, "char_embed").shape[:1] == (stored.shape[0] + 1,):
        return (stored.shape[0] + 1, *stored.shape[1:])
    return stored.shape


def _read_softmax(file: h5py.File, config: ElmoConfig, *, sizes_only: bool) -> dict[str, Tensor]:
    bias = find_dataset(file, "softmax/b")
    rows = bias.shape[0] if bias.shape else 0
    if 4 * rows * config.lstm.projection_dim > LARGEST_RATIO * Path(file.filename).stat().st_size + LARGEST_SLACK:
        raise CheckpointError(f"{file.filename}: softmax/b claims {rows:,} rows, more than the file can hold")
    weight = find_dataset(file, "softmax/W", (rows, config.lstm.projection_dim))
    bias = find_dataset(file, "softmax/b", (rows,))
    tensors = {"softmax.weight": weight, "softmax.bias": bias}
    if sizes_only:
        return {name: torch.empty(data.shape, device="meta") for name, data in tensors.items()}
    return {name: read_rows(data, 0, rows) for name, data in tensors.items()}
