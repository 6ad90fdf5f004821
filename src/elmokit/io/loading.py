"""A source becomes a `Checkpoint`, whatever family its files are of; a `Checkpoint` becomes a folder of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from elmokit.errors import CheckpointError, InputError, OutputError
from elmokit.io.allennlp import load_allennlp, save_allennlp
from elmokit.io.atomic import new_folder
from elmokit.io.checkpoint import Checkpoint, WantsSoftmax
from elmokit.io.manylangs import load_manylangs
from elmokit.io.native import load_native, save_native
from elmokit.io.source import open_source

__all__ = ["load", "save"]

OWN_FILES = {
    "native": (
        "config.json",
        "model.safetensors",
        "alphabet.json",
        "words.json",
        "softmax.safetensors",
        "vocab.txt",
        "README.md",
    ),
    "allennlp": ("options.json", "weights.hdf5", "softmax_weights.hdf5", "vocab.txt"),
}


def load(source: str | os.PathLike[str], *, softmax: WantsSoftmax = False) -> Checkpoint:
    """Read a model from its name, a folder, a `.zip` or a hub id, whatever family its files are of.

    Arguments:
        source: what to read.
        softmax: also read the output layer, where there is one; `"shape"` reads its sizes alone, into tensors on
            the device "meta", and fetches nothing for it.
    """
    with open_source(source, softmax=softmax is True) as folder:
        if folder.family == "native":
            checkpoint = load_native(folder.path, softmax=softmax, copies=folder.is_temporary)
        elif folder.family == "allennlp":
            checkpoint = load_allennlp(folder.path, softmax=softmax)
        else:
            checkpoint = load_manylangs(folder.path)
        checkpoint.path = Path(source) if folder.is_temporary else folder.path
    return checkpoint


def save(
    checkpoint: Checkpoint,
    dest: str | os.PathLike[str],
    *,
    format: Literal["native", "allennlp"] = "native",
    dtype: Literal["float32", "float16", "int8"] = "float32",
    softmax_dtype: Literal["float32", "float16", "int8"] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model as a folder that appears complete or not at all; give its path.

    Arguments:
        checkpoint: the model.
        dest: the folder, new or empty.
        format: `"native"`, or `"allennlp"` for tools of 2018 (bytes or words in, float32).
        dtype: how weights are stored; they load as float32 in any case. `"int8"` takes a quarter of the room: the
            matrices have one scale per unit, and the other tensors are float16.
        softmax_dtype: how the output layer is stored; like the rest if unset.
        overwrite: replace a folder at `dest` that holds a model of this format and nothing else.
    """
    dtypes = {dtype, softmax_dtype or dtype}
    if format not in OWN_FILES or not dtypes <= {"float32", "float16", "int8"}:
        expected = "format native or allennlp and dtype float32, float16 or int8, softmax_dtype one of these or unset"
        raise InputError(f"expected {expected}, got {format}, {dtype}, {softmax_dtype}")
    if format == "allennlp" and dtypes != {"float32"}:
        raise InputError(
            "AllenNLP's layout stores float32 only: use dtype='float32' and no softmax_dtype, or format='native'"
        )
    path = Path(dest).expanduser()
    try:
        checkpoint.check("the model to be saved")
        with new_folder(path, replaces=OWN_FILES[format] if overwrite else None) as folder:
            if format == "native":
                save_native(checkpoint, folder, dtype=dtype, softmax_dtype=softmax_dtype)
            else:
                save_allennlp(checkpoint, folder)
    except (CheckpointError, UnicodeEncodeError) as problem:
        raise OutputError(f"{path}: cannot be written: {problem}") from problem
    return path
