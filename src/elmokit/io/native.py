"""Our own format, versions 1 and 2: a folder that any hub, `safetensors` and a text editor can read.

    config.json          format_version, model_type "elmo", the sizes under "elmo", what is known under "metadata"
    model.safetensors    the weights by the names of `expected_shapes`, float32 or float16; in version 2 also int8 with
                         float32 scales (`safe_tensors.py`)
    alphabet.json        the symbols, for models that read Unicode characters
    words.json           the rows of the word table, when they have names
    softmax.safetensors  softmax.weight and softmax.bias, when the model brings its output layer; the weight may be
                         int8 with one float32 softmax.scale per row, in both versions
    vocab.txt            the words of that output layer, one per line
    README.md            the model card

A folder arrives and a `Checkpoint` leaves, or the other way round. Version 1 is written wherever it suffices. A file of
a later version than this one is refused with the advice to upgrade; every version ever released keeps loading.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from string import Template

import torch
from safetensors.torch import save_file
from torch import Tensor

from elmokit.errors import CheckpointError
from elmokit.io.checkpoint import Checkpoint, WantsSoftmax, check_fits, check_shapes, num_parameters
from elmokit.io.native_config import FORMAT_VERSION, read_config
from elmokit.io.safe_header import name_scale
from elmokit.io.safe_tensors import quantise, read_safetensors, read_sizes
from elmokit.io.text_files import read_json, read_json_words, read_words, write_words

__all__ = ["load_native", "looks_like_native", "save_native"]

DTYPES = {"float32": torch.float32, "float16": torch.float16}
ALWAYS_FLOAT32 = ("mix.", "canonical.")  # a frozen mix may hold -9e10, which float16 cannot
# The table of characters is too small to save anything.
NEVER_INT8 = ("encoder.characters.embedding", *ALWAYS_FLOAT32)


def looks_like_native(folder: Path) -> bool:
    """Whether a folder has the files of this format."""
    if (folder / "model.safetensors").exists():
        return True
    return (folder / "config.json").exists() and "format_version" in read_json(folder / "config.json")


def load_native(folder: Path, *, softmax: WantsSoftmax = False, copies: bool = False) -> Checkpoint:
    """Read the model in `folder`; `copies` reads its tensors instead of mapping them, for a folder about to go."""
    stored = read_config(folder)
    config = stored.elmo
    weights = folder / "model.safetensors"
    if weights.exists():
        check_fits(config, weights)
    tensors = read_safetensors(
        weights,
        lambda shapes: check_shapes(config, shapes, weights),
        copies=copies,
        allows_int8=True,
    )
    checkpoint = Checkpoint(
        config,
        tensors,
        swaps_markers=stored.swaps_markers,
        path=folder,
        metadata=stored.metadata,
    )
    if config.characters is not None and config.characters.scheme == "unicode":
        checkpoint.alphabet = read_json_words(folder / "alphabet.json", config.characters.num_symbols)
    if stored.has_words:
        num_rows = config.words.num_words if config.words else None
        checkpoint.vocabulary = read_json_words(folder / "words.json", num_rows)
    if softmax and (folder / "softmax.safetensors").exists():
        path = folder / "softmax.safetensors"
        if softmax == "shape":
            checkpoint.softmax = read_sizes(path)
        else:
            checkpoint.softmax = read_safetensors(path, copies=copies, allows_int8=True)
        if (folder / "vocab.txt").exists():
            bias = checkpoint.softmax.get("softmax.bias")
            num_rows = len(bias) if bias is not None and bias.dim() == 1 else None
            checkpoint.output_words = read_words(folder / "vocab.txt", num_rows=num_rows)
    checkpoint.check(str(folder))
    return checkpoint


def save_native(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    dtype: str = "float32",
    softmax_dtype: str | None = None,
    source: str = "path/to/this/folder",
) -> None:
    """Write the model into an existing folder.

    Arguments:
        checkpoint: the model.
        folder: where to.
        dtype: how weights are stored.
        softmax_dtype: the same for the output layer; like the rest if unset.
        source: by which name the card says to load it.
    """
    config = checkpoint.config
    values = {
        "format_version": FORMAT_VERSION if dtype == "int8" else 1,
        "model_type": "elmo",
        "elmo": config.to_dict(),
        "swaps_markers": checkpoint.swaps_markers,
        "has_words": checkpoint.vocabulary is not None,
        "metadata": checkpoint.metadata,
    }
    _write_json(folder / "config.json", values, indent=2)
    rest = "float32" if dtype == "float32" else "float16"
    _save_tensors(checkpoint.tensors, folder / "model.safetensors", dtype, rest=rest)
    if checkpoint.alphabet is not None:
        _write_json(folder / "alphabet.json", checkpoint.alphabet)
    if checkpoint.vocabulary is not None:
        _write_json(folder / "words.json", checkpoint.vocabulary)
    if checkpoint.softmax is not None:
        _save_tensors(checkpoint.softmax, folder / "softmax.safetensors", softmax_dtype or dtype, rest=rest)
        if checkpoint.output_words is not None:
            write_words(folder / "vocab.txt", checkpoint.output_words)
    (folder / "README.md").write_text(_fill_card(checkpoint, dtype, source), encoding="utf-8")


def _save_tensors(tensors: dict[str, Tensor], path: Path, dtype: str, *, rest: str) -> None:
    """Write the tensors in `dtype`; where that is int8, those that are no matrices in `rest`."""
    stored, dtype_of_rest = {}, rest if dtype == "int8" else dtype
    for name, tensor in tensors.items():
        if dtype == "int8" and tensor.dim() > 1 and not name.startswith(NEVER_INT8):
            # A unit of the network has its own scale: those of an LSTM layer are columns (see `expected_shapes`).
            numbers, scale = quantise(tensor.detach().cpu(), dim=1 if name.startswith("bilm.") else 0)
            stored[name] = numbers.contiguous()
            stored[name_scale(name)] = scale.flatten() if name == "softmax.weight" else scale
            continue
        kind = torch.float32 if name.startswith(ALWAYS_FLOAT32) else DTYPES[dtype_of_rest]
        values = tensor.detach().to("cpu", kind).contiguous()
        if kind == torch.float16 and not all(extreme.isfinite() for extreme in values.aminmax()):
            raise CheckpointError(f"{name} holds numbers too large for float16; save the model as float32")
        stored[name] = values
    save_file(stored, path, metadata={"format": "pt"})
    shutil.copymode(path.with_name("config.json"), path)  # safetensors makes files that only their owner can read


def _write_json(path: Path, values: object, *, indent: int | None = None) -> None:
    path.write_text(json.dumps(values, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def _fill_card(checkpoint: Checkpoint, dtype: str, source: str) -> str:
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
        source=source,
        softmax="yes" if checkpoint.softmax is not None else "no",
        facts="".join(f"| {key} | {' '.join(value.split())} |\n" for key, value in sorted(facts.items())),
    )
