"""What every loader returns and every writer takes: a config, named tensors, and the lists that go with them.

A `Checkpoint` arrives from a file format (`native`, `allennlp`, `manylangs`) or from a model about to be saved, and
leaves for the other side. Its tensors carry one set of names whatever file they came from, and their shapes
follow from the config alone (`expected_shapes`), so a wrong file is found out before a network is built and,
where the format allows, before a byte of it is read.

Shapes: S symbols, E character width, K channels, w filter width, F features, V words, P projection, H cell, L layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.config import ElmoConfig
from elmokit.errors import CheckpointError
from elmokit.text.characters import Scheme, make_scheme

__all__ = [
    "Checkpoint",
    "WantsSoftmax",
    "check_finite",
    "check_fits",
    "check_shapes",
    "check_softmax",
    "check_values",
    "compare_shapes",
    "expected_shapes",
    "num_output_words",
    "num_parameters",
    "optional_shapes",
]

Shape = tuple[int, ...]
WantsSoftmax = bool | Literal["shape"]  # the output layer: left out, read, or its sizes alone

# A file may be compressed, but weights barely compress: a claim beyond this is a bomb or a mistake.
LARGEST_RATIO = 20
LARGEST_SLACK = 64 * 2**20


@dataclass
class Checkpoint:
    """A model outside a network: everything that a file of it holds.

    Arguments:
        config: the sizes.
        tensors: the weights by name, float32 (see `expected_shapes`); Linear weights may be transposed views.
        alphabet: the symbols of a Unicode-character scheme, symbol number = position.
        swaps_markers: whether a word starts with the symbol named end-of-word, as in ELMoForManyLangs.
        vocabulary: the words of a word table, row = position; `None` for a table that is addressed by number.
        format: the family of files it came from, `"native"`, `"allennlp"` or `"manylangs"`.
        path: where it came from.
        softmax: `softmax.weight` (V, P) and `softmax.bias` (V) when asked for and there; on the device "meta" when only
            their sizes were asked for.
        output_words: the word of each row of the softmax.
        metadata: what is known about the model (`name`, `license`, `language`, ...), for its card.
    """

    config: ElmoConfig
    tensors: dict[str, Tensor]
    alphabet: list[str] | None = None
    swaps_markers: bool = False
    vocabulary: list[str] | None = None
    format: str = "native"
    path: Path | None = None
    softmax: dict[str, Tensor] | None = None
    output_words: list[str] | None = None
    metadata: dict[str, str] = field(default_factory=dict)

    def scheme(self) -> Scheme:
        """What turns this model's words into ids."""
        return make_scheme(self.config, self.alphabet, self.vocabulary, swaps_markers=self.swaps_markers)

    def check(self, where: str) -> None:
        """Raise a `CheckpointError` unless tensors and lists are those the config describes."""
        check_shapes(self.config, {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}, where)
        check_values(self.tensors, where)
        characters, words = self.config.characters, self.config.words
        if characters is not None and characters.scheme == "unicode":
            _check_list("alphabet", self.alphabet or [], characters.num_symbols, where)
        if words is not None and self.vocabulary is not None:
            _check_list("vocabulary", self.vocabulary, words.num_words, where)
        if self.softmax is not None:
            check_softmax(self.config, self.softmax, self.output_words, where)


def expected_shapes(config: ElmoConfig) -> dict[str, Shape]:
    """Name and shape of every tensor that a model of this config has; nothing is allocated.

    Example:
        >>> expected_shapes(ElmoConfig.original())["encoder.characters.embedding"]
        (261, 16)
    """
    shapes = dict(_encoder_shapes(config))
    for direction in ("forward", "backward"):
        for layer in range(config.lstm.num_layers):
            for name, shape in _layer_shapes(config):
                shapes[f"bilm.{direction}_layers.{layer}.{name}"] = shape
    return shapes


def optional_shapes(config: ElmoConfig) -> dict[str, Shape]:
    """Name and shape of the tensors that a model may have beside its own: a stored mix and a canonical state."""
    lstm = config.lstm
    return {
        "mix.weights": (config.num_layers,),
        "mix.gamma": (),
        "canonical.hidden": (lstm.num_layers, 2, lstm.projection_dim),
        "canonical.cell": (lstm.num_layers, 2, lstm.cell_dim),
    }


def num_parameters(config: ElmoConfig) -> int:
    """Numbers that a model of this config stores, without its softmax.

    Example:
        >>> num_parameters(ElmoConfig.original())
        93600848
    """
    # By multiplication, not by walking the shapes: a hostile config may claim a billion layers.
    lstm_layer = sum(prod(shape) for _, shape in _layer_shapes(config))
    highways = 0
    if config.characters is not None:
        features = config.characters.num_features
        highways = config.characters.num_highways * 2 * features * (features + 1)
    rest = sum(prod(shape) for _, shape in _encoder_shapes(config, highways=False))
    return 2 * config.lstm.num_layers * lstm_layer + highways + rest


def check_fits(config: ElmoConfig, file: Path) -> None:
    """Refuse a config that claims far more numbers than `file` can hold, before anything is allocated for it."""
    claimed, held = 4 * num_parameters(config), file.stat().st_size
    if claimed > LARGEST_RATIO * held + LARGEST_SLACK:
        raise CheckpointError(
            f"{file}: the config beside it describes a model of {claimed / 1e6:,.1f} MB and the file has "
            f"{held / 1e6:,.1f} MB: they do not belong together; fetch both anew"
        )


def check_shapes(config: ElmoConfig, found: Mapping[str, Shape], where: str | Path) -> None:
    """Refuse tensors that are missing, misshapen or unknown, naming the first with both shapes."""
    expected = expected_shapes(config)
    optional = optional_shapes(config)
    for name, shape in expected.items():
        if name not in found:
            raise CheckpointError(
                f"{where}: the tensor {name} is missing: expected shape {shape}; "
                "the file is incomplete or its config belongs to another model"
            )
    for name, shape in found.items():
        wanted = expected.get(name, optional.get(name))
        if wanted is None:
            raise CheckpointError(
                f"{where}: the tensor {name!r:.80} {shape} is not part of a model with this config; "
                "the config belongs to another model"
            )
        if tuple(shape) != wanted:
            raise CheckpointError(
                f"{where}: the tensor {name} should have shape {wanted}, found {tuple(shape)}; "
                "the config belongs to another model"
            )


def compare_shapes(expected: Mapping[str, Shape], found: Mapping[str, Shape], where: str | Path) -> None:
    """Refuse tensors that are not exactly those expected, naming the first with both shapes."""
    for name in sorted({*expected, *found}):
        if expected.get(name) != found.get(name):
            raise CheckpointError(
                f"{where}: expected {name!s:.80} of shape {expected.get(name)}, found {found.get(name)}; "
                "it is damaged or of another version"
            )


def check_values(tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Refuse tensors that are not float32 or hold an infinity or NaN."""
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            raise CheckpointError(
                f"{where}: the tensor {name} should be float32, found {tensor.dtype}; convert it first"
            )
    check_finite(tensors, where)


def check_finite(tensors: Mapping[str, Tensor], where: str | Path) -> None:
    """Refuse tensors that hold an infinity or NaN."""
    for name, tensor in tensors.items():
        if tensor.is_meta or not tensor.is_floating_point():
            continue  # sizes without numbers, or numbers that are always finite
        if tensor.dtype == torch.bfloat16:  # which numpy does not know
            tensor = tensor.float()
        # One pass by numpy: a pass by torch wakes its threads, which costs more than it saves on a busy machine.
        # The exact test needs memory, so it runs only where the sum looks wrong.
        with np.errstate(all="ignore"):
            total = tensor.detach().cpu().numpy().sum()
        if not np.isfinite(total) and not tensor.isfinite().all():
            raise CheckpointError(
                f"{where}: the tensor {name} should hold finite numbers, found NaN or infinity; "
                "the file is damaged or its training diverged"
            )


def check_softmax(
    config: ElmoConfig, softmax: Mapping[str, Tensor], words: Sequence[str] | None, where: str | Path
) -> None:
    """Refuse an output layer whose tensors or words do not fit each other or the model."""
    if any(name.startswith("softmax.adaptive.") for name in softmax):
        raise CheckpointError(
            f"{where}: its output layer is an adaptive softmax, which elmokit no longer reads: train a new one "
            "(output='full' or 'sampled'), or remove softmax.safetensors to use the vectors alone"
        )
    found = {name: tuple(tensor.shape) for name, tensor in softmax.items()}
    rows = (*found.get("softmax.bias", ()), 0)[0]
    wanted = {"softmax.weight": (rows, config.lstm.projection_dim), "softmax.bias": (rows,)}
    if found != wanted:
        raise CheckpointError(f"{where}: the softmax should have the shapes {wanted}, found {found}")
    check_values(softmax, where)
    if words is not None:
        _check_list("softmax's vocabulary", words, num_output_words(softmax), where)


def num_output_words(softmax: Mapping[str, Tensor]) -> int:
    """How many words an output layer predicts."""
    return len(softmax["softmax.bias"])


def _encoder_shapes(config: ElmoConfig, *, highways: bool = True) -> Iterable[tuple[str, Shape]]:
    if config.characters is not None:
        chars = config.characters
        features = chars.num_features
        yield "encoder.characters.embedding", (chars.num_symbols, chars.dim)
        for i, (width, channels) in enumerate(chars.filters):
            yield f"encoder.characters.convolutions.{i}.weight", (channels, chars.dim, width)
            yield f"encoder.characters.convolutions.{i}.bias", (channels,)
        for i in range(chars.num_highways if highways else 0):
            for part in ("gate", "transform"):
                yield f"encoder.characters.highways.{i}.{part}.weight", (features, features)
                yield f"encoder.characters.highways.{i}.{part}.bias", (features,)
    if config.words is not None:
        yield "encoder.words.embedding", (config.words.num_words, config.words.dim)
    if config.projects_words:
        yield "encoder.projection.weight", (config.lstm.projection_dim, config.num_word_features)
        yield "encoder.projection.bias", (config.lstm.projection_dim,)


def _layer_shapes(config: ElmoConfig) -> Iterable[tuple[str, Shape]]:
    width, cell = config.lstm.projection_dim, config.lstm.cell_dim
    yield "input_weight", (width, 4 * cell)
    yield "recurrent_weight", (width, 4 * cell)
    yield "bias", (4 * cell,)
    if config.lstm.has_projection:
        yield "projection_weight", (cell, width)


def _check_list(what: str, items: Sequence[str], rows: int, where: str | Path) -> None:
    if len(items) != rows:
        raise CheckpointError(
            f"{where}: the {what} has {len(items):,} entries and its table {rows:,} rows: "
            "they should be equal; the list belongs to another model"
        )
