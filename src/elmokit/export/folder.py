"""What `elmo export` writes: a folder with two graphs, how words are read, and what runs them without torch.

    elmo.json         format_version, elmokit's version, opset, precision, state, the sizes of the model, its mix
    words.onnx        ids of words → word vectors
    layers.onnx       word vectors of sentences → layers
    segmenter.json    the rules that split text
    alphabet.json     the characters of a model that has its own
    vocabulary.json   the words of a model that has a table of them
    run_elmo.py       text in, vectors out; needs numpy and onnxruntime
    README.md         how to use it

and for a browser, which needs onnxruntime-web from npm beside them:

    index.html, page/   the explorer's views that need vectors alone, over `page/` of this package instead of a server
    package.json        what `npm install` fetches

A source arrives; the folder appears complete or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from string import Template
from typing import Any, get_args

from elmokit.config import ElmoConfig
from elmokit.errors import InputError, suggest
from elmokit.export.bundling import bundle_runner
from elmokit.export.graphs import OPSET, Precision, State, build_graphs, check_installed
from elmokit.export.rules import describe_rules
from elmokit.export.runner import ALPHABET, CONFIG, FORMAT_VERSION, LAYERS, PATTERNS, VOCABULARY, WORDS
from elmokit.io import load
from elmokit.io.atomic import new_folder
from elmokit.model import Elmo
from elmokit.version import find_version

__all__ = ["export_model"]

HERE = Path(__file__).parent
EXPLORER = HERE.parent / "serve" / "static"
RUNNER = "run_elmo.py"
WEB_RUNTIME = "1.30.0"  # of onnxruntime-web, the version that the page was tested with
OWN_FILES = (
    *(CONFIG, WORDS, LAYERS, PATTERNS, ALPHABET, VOCABULARY, RUNNER, "README.md"),
    *("index.html", "page", "package.json", "package-lock.json", "node_modules"),
)


def export_model(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    precision: Precision = "float32",
    state: State = "zero",
    browser: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a model for onnxruntime; give the folder's path.

    Arguments:
        source: a model's name, a folder, a `.zip` or a hub id.
        dest: the folder, new or empty.
        precision: how weights are stored; `"int8"` takes a quarter of the room. Either is computed in float32.
        state: what each sentence starts from, `"zero"` or `"canonical"`.
        browser: also write a page for browsers.
        overwrite: replace a folder at `dest` that holds an exported model and nothing else.
    """
    _check_choice("precision", precision, get_args(Precision))
    _check_choice("state", state, get_args(State))
    check_installed()
    checkpoint = load(source)
    elmo = Elmo.from_checkpoint(checkpoint)
    name = checkpoint.metadata.get("name") or Path(source).stem
    path = Path(dest).expanduser()
    with new_folder(path, replaces=OWN_FILES if overwrite else None) as folder:
        words, layers = build_graphs(elmo, precision=precision, state=state)
        (folder / WORDS).write_bytes(words.SerializeToString())
        (folder / LAYERS).write_bytes(layers.SerializeToString())
        _write_json(folder / CONFIG, _describe(elmo, name, precision, state), indent=2)
        _write_json(folder / PATTERNS, describe_rules())
        for file, symbols in ((ALPHABET, elmo.alphabet), (VOCABULARY, elmo.vocabulary)):
            if symbols is not None:
                _write_json(folder / file, symbols)
        (folder / RUNNER).write_text(bundle_runner(), encoding="utf-8")
        (folder / "README.md").write_text(_write_readme(elmo.config, name, browser), encoding="utf-8")
        if browser:
            _write_page(folder)
    return path


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} is {value!r}: use one of {', '.join(known)}{suggest(value, known)}")


def _describe(elmo: Elmo, name: str, precision: str, state: str) -> dict[str, Any]:
    mix = elmo.stored_mix
    return {
        "format_version": FORMAT_VERSION,
        "elmokit": find_version(),
        "name": name,
        "opset": OPSET,
        "precision": precision,
        "state": state,
        "elmo": elmo.config.to_dict(),
        "alphabet": elmo.alphabet is not None,
        "vocabulary": elmo.vocabulary is not None,
        "swaps_markers": elmo.swaps_markers,
        "mix": None if mix is None else {"weights": mix.weights.softmax(0).tolist(), "gamma": float(mix.gamma)},
    }


def _write_json(path: Path, values: object, *, indent: int | None = None) -> None:
    path.write_text(json.dumps(values, indent=indent), encoding="utf-8")


def _write_readme(config: ElmoConfig, name: str, browser: bool) -> str:
    text = Template((HERE / "folder.md").read_text(encoding="utf-8"))
    page = (HERE / "page.md").read_text(encoding="utf-8") if browser else ""
    return text.substitute(name=name, dim=config.dim, layers=config.num_layers, last=config.num_layers - 1, page=page)


def _write_page(folder: Path) -> None:
    """The explorer's own files, and in the place of what asks a server, what computes here."""
    page = folder / "page"
    shutil.copytree(EXPLORER, page, ignore=shutil.ignore_patterns("index.html"))
    shutil.copytree(HERE / "page", page, dirs_exist_ok=True)
    index = (EXPLORER / "index.html").read_text(encoding="utf-8").replace("/static/", "page/")
    (folder / "index.html").write_text(index, encoding="utf-8")
    _write_json(folder / "package.json", {"private": True, "dependencies": {"onnxruntime-web": WEB_RUNTIME}}, indent=2)
