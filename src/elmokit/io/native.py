"""Our own format, version 1: a folder that any hub, `safetensors` and a text editor can read.

    config.json          format_version, model_type "elmo", the sizes under "elmo", what is known under "metadata"
    model.safetensors    the weights by the names of `expected_shapes`, float32 or float16
    alphabet.json        the symbols, for models that read Unicode characters
    words.json           the rows of the word table, when they have names
    softmax.safetensors  softmax.weight and softmax.bias, when the model brings its output layer; the weight may be
                         int8 with one float32 softmax.scale per row
    vocab.txt            the words of that output layer, one per line
    README.md            the model card

A folder arrives and a `Checkpoint` leaves, or the other way round. A file of a later version than this one is
refused with the advice to upgrade; every version ever released keeps loading.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from elmokit.config import ElmoConfig
from elmokit.errors import CheckpointError, ConfigError
from elmokit.io.checkpoint import Checkpoint, WantsSoftmax, check_fits, check_shapes, num_parameters
from elmokit.io.safe_tensors import read_safetensors, read_sizes
from elmokit.io.text_files import read_json, read_json_words, read_words, write_words
from elmokit.validation import build_from

__all__ = ["FORMAT_VERSION", "load_native", "looks_like_native", "save_native"]

FORMAT_VERSION = 1
DTYPES = {"float32": torch.float32, "float16": torch.float16}
ALWAYS_FLOAT32 = ("mix.", "canonical.", "softmax.scale")  # a frozen mix may hold -9e10, which float16 cannot


def looks_like_native(folder: Path) -> bool:
    """Whether a folder has the files of this format."""
    if (folder / "model.safetensors").exists():
        return True
    return (folder / "config.json").exists() and "format_version" in read_json(folder / "config.json")


def load_native(folder: Path, *, softmax: WantsSoftmax = False, copies: bool = False) -> Checkpoint:
    """Read the model in `folder`; `copies` reads its tensors instead of mapping them, for a folder about to go."""
    path = folder / "config.json"
    stored = _read_config(read_json(path), path)
    config = stored.elmo
    weights = folder / "model.safetensors"
    if weights.exists():
        check_fits(config, weights)
    tensors = read_safetensors(weights, lambda shapes: check_shapes(config, shapes, weights), copies=copies)
    checkpoint = Checkpoint(
        config,
        tensors,
        swaps_markers=stored.swaps_markers,
        path=folder,
        metadata=stored.metadata,
    )
    if config.characters is not None and config.characters.scheme == "unicode":
        checkpoint.alphabet = read_json_words(folder / "alphabet.json")
    if stored.has_words:
        checkpoint.vocabulary = read_json_words(folder / "words.json")
    if softmax and (folder / "softmax.safetensors").exists():
        path = folder / "softmax.safetensors"
        if softmax == "shape":
            checkpoint.softmax = read_sizes(path)
        else:
            checkpoint.softmax = read_safetensors(path, copies=copies, allows_int8=True)
        checkpoint.softmax = _dequantise_softmax(checkpoint.softmax, path)
        if (folder / "vocab.txt").exists():
            checkpoint.output_words = read_words(folder / "vocab.txt")
    checkpoint.check(str(folder))
    return checkpoint


def save_native(
    checkpoint: Checkpoint, folder: Path, *, dtype: str = "float32", softmax_dtype: str | None = None
) -> None:
    """Write the model into an existing folder; the output layer in `softmax_dtype`, or like the rest."""
    config = checkpoint.config
    values = {
        "format_version": FORMAT_VERSION,
        "model_type": "elmo",
        "elmo": config.to_dict(),
        "swaps_markers": checkpoint.swaps_markers,
        "has_words": checkpoint.vocabulary is not None,
        "metadata": checkpoint.metadata,
    }
    _write_json(folder / "config.json", values, indent=2)
    _save_tensors(checkpoint.tensors, folder / "model.safetensors", dtype)
    if checkpoint.alphabet is not None:
        _write_json(folder / "alphabet.json", checkpoint.alphabet)
    if checkpoint.vocabulary is not None:
        _write_json(folder / "words.json", checkpoint.vocabulary)
    if checkpoint.softmax is not None:
        softmax = _quantise_softmax(checkpoint.softmax) if softmax_dtype == "int8" else checkpoint.softmax
        stored_dtype = dtype if softmax_dtype in (None, "int8") else softmax_dtype
        _save_tensors(softmax, folder / "softmax.safetensors", stored_dtype)
        if checkpoint.output_words is not None:
            write_words(folder / "vocab.txt", checkpoint.output_words)
    (folder / "README.md").write_text(_fill_card(checkpoint, dtype), encoding="utf-8")


@dataclass(frozen=True)
class NativeConfig:
    """What is read of a config.json; hubs and their tools add fields of their own."""

    ignores_others: ClassVar[bool] = True
    elmo: ElmoConfig
    swaps_markers: bool = False
    has_words: bool = False
    metadata: dict[str, str] = field(default_factory=dict)


def _read_config(values: dict[str, Any], path: Path) -> NativeConfig:
    version = values.get("format_version")
    if type(version) is not int or version < 1:
        raise CheckpointError(
            f"{path}: expected format_version 1 to {FORMAT_VERSION}, found {version!r:.60}; is this a model of elmokit?"
        )
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version {version} is newer than {FORMAT_VERSION}, the latest that this elmokit reads; "
            "upgrade with: pip install --upgrade elmokit"
        )
    try:
        return build_from(NativeConfig, values)
    except ConfigError as problem:
        raise CheckpointError(f"{path}: describes no model: {problem}") from problem


def _save_tensors(tensors: dict[str, Tensor], path: Path, dtype: str) -> None:
    stored = {}
    for name, tensor in tensors.items():
        kind = torch.float32 if name.startswith(ALWAYS_FLOAT32) else DTYPES[dtype]
        kind = torch.int8 if tensor.dtype == torch.int8 else kind
        values = tensor.detach().to("cpu", kind).contiguous()
        if kind == torch.float16 and not all(extreme.isfinite() for extreme in values.aminmax()):
            raise CheckpointError(f"{name} holds numbers too large for {dtype}; save the model as float32")
        stored[name] = values
    save_file(stored, path, metadata={"format": "pt"})
    shutil.copymode(path.with_name("config.json"), path)  # safetensors makes files that only their owner can read


def _quantise_softmax(softmax: dict[str, Tensor]) -> dict[str, Tensor]:
    """The output layer with its weight as int8; each row has a scale, by which its largest number becomes 127."""
    weight = softmax["softmax.weight"].float()
    scale_V = weight.abs().amax(dim=1).clamp_min(1e-12) / 127
    rounded = (weight / scale_V.unsqueeze(1)).round().to(torch.int8)
    return {**softmax, "softmax.weight": rounded, "softmax.scale": scale_V}


def _dequantise_softmax(softmax: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The output layer in float32, whether or not it was stored as int8 with scales."""
    scale_V = softmax.pop("softmax.scale", None)
    if scale_V is None:
        return softmax
    weight = softmax.get("softmax.weight", torch.empty(0))
    if weight.dim() != 2 or scale_V.shape != weight.shape[:1]:
        raise CheckpointError(
            f"{path}: softmax.scale should have a number for each of the {len(weight):,} rows of softmax.weight, "
            f"found shape {tuple(scale_V.shape)}; fetch the file anew"
        )
    return {**softmax, "softmax.weight": weight * scale_V.unsqueeze(1)}


def _write_json(path: Path, values: object, *, indent: int | None = None) -> None:
    path.write_text(json.dumps(values, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def _fill_card(checkpoint: Checkpoint, dtype: str) -> str:
    """The model card: `card.md` with this model's facts in it."""
    config, known = checkpoint.config, checkpoint.metadata
    front = {key: known[key] for key in ("license", "language") if key in known}
    reads = [f"{config.characters.scheme} of its characters"] if config.characters else []
    reads += [f"a table of {config.words.num_words:,} words"] if config.words else []
    facts = {key: value for key, value in known.items() if key not in ("name", "description")}
    return Template(Path(__file__).with_name("card.md").read_text(encoding="utf-8")).substitute(
        front="".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in front.items()),
        name=known.get("name", "An ELMo model"),
        description=known.get("description", "Contextual word vectors from a bidirectional language model (ELMo)."),
        reads=" and ".join(reads),
        layers=config.num_layers,
        dim=config.dim,
        cell=config.lstm.cell_dim,
        projection=config.lstm.projection_dim,
        parameters=f"{num_parameters(config):,}",
        dtype=dtype,
        softmax="yes" if checkpoint.softmax is not None else "no",
        facts="".join(f"| {key} | {' '.join(value.split())} |\n" for key, value in sorted(facts.items())),
    )
