"""What a run keeps beside its model, in `DIR.training`, so that it can continue: its settings and its encoded text.

A run continues with what it began with: other settings that decide what its numbers mean, and other text, are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from elmokit.errors import CheckpointError, ConfigError, InputError, OutputError
from elmokit.io.atomic import replace_text, sweep_partial
from elmokit.io.inside import check_entries
from elmokit.io.source import as_source
from elmokit.io.text_files import read_json
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.start import name_source
from elmokit.text.files import FileIdentity, find_files, identify_files
from elmokit.text.segmenters import RuleSegmenter
from elmokit.validation import build_from

__all__ = [
    "Changes",
    "Texts",
    "check_texts",
    "compare_settings",
    "describe_changes",
    "encode_held_out",
    "encode_text",
    "find_corpus",
    "keep_settings",
    "refuse_changes",
]

Texts = Sequence[str | os.PathLike[str]]
Changes = dict[str, tuple[Any, Any]]  # the settings that differ: before, and now

# How long, how fast and how often: what a run may change when it continues. The rest decides what its numbers mean.
CHANGEABLE = {
    "tokens", "learning_rate", "muon_learning_rate", "weight_decay", "warmup_tokens", "hold", "final_learning_rate",
    "clip_norm", "evaluate_every", "checkpoint_every", "log_every",
}  # fmt: skip
# What a run remembers of a file that it began with: the option that named it.
HASHES = {"start_from_hash": "from", "vectors_hash": "vectors"}
MOST_TOLD = 4  # differences that an error names


def check_texts(texts: Texts, held_out: Texts, folder: Path) -> None:
    """Refuse text that is not there before anything is written; what was encoded by an earlier call may be gone."""
    if not texts:
        raise ConfigError("no text was given: name files, globs or - for standard input")
    for sources, corpus in ((texts, find_corpus(texts, folder)), (held_out, folder / "held-out")):
        if sources and not (corpus / "corpus.json").is_file():
            find_files(list(sources))
    if "-" in texts and "-" in held_out:
        raise ConfigError("standard input (-) is named as text and as held-out text: it can be read only once")


def compare_settings(folder: Path, settings: dict[str, Any], model_folder: Path) -> Changes:
    """The settings that a run changes when it continues; those that must stay, and a foreign model, are refused."""
    path = folder / "training.json"
    values = _as_json(settings)
    before: dict[str, Any] = values
    if folder.is_dir():
        check_entries(folder)
    if path.exists():
        before = _read_settings(path)
    elif model_folder.exists() and (not model_folder.is_dir() or any(model_folder.iterdir())):
        raise OutputError(f"{model_folder} exists and is not of a run of this program: choose another folder")
    changes = {name: (before[name], values[name]) for name in values if name in before and before[name] != values[name]}
    fixed = {name: pair for name, pair in changes.items() if name not in CHANGEABLE}
    if fixed:
        raise ConfigError(
            f"{folder} holds a run with other settings: {describe_changes(fixed)}; continue with the same ones, or "
            "choose another folder"
        )
    return changes


def describe_changes(changes: Changes) -> str:
    """How settings differ, by the options that set them.

    Example:
        >>> describe_changes({"model": ({"lstm": {"cell_dim": 256}}, {"lstm": {"cell_dim": 128}}), "seed": (1, 2)})
        '--lstm.cell-dim was 256, now 128; --seed was 1, now 2'
    """
    before, now = (dict(_flatten({name: pair[side] for name, pair in changes.items()})) for side in (0, 1))
    told = []
    for name in sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
        option = f"--{HASHES.get(name, name).replace('_', '-')}"
        if name not in HASHES:
            told.append(f"{option} was {_show(before.get(name))}, now {_show(now.get(name))}")
        elif HASHES[name] not in before:  # the name is the same
            told.append(f"{option} was another file or folder of that name")
    return "; ".join(told[:MOST_TOLD]) + (f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else "")


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names as options have them, with their values, those of a model's parts too."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, "" if name == "model" else f"{prefix}{name}.")
        else:
            yield ("from" if name == "start_from" else prefix + name), value


def _show(value: Any) -> str:  # noqa: ANN401
    return "not given" if value is None else f"{value!s:.60}"


def keep_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a run, which bind all that continue it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / "training.json", json.dumps(_as_json(settings), indent=2) + "\n")
    except OSError as problem:
        raise OutputError(f"{folder} cannot be written: {problem.strerror or problem}") from problem


def _read_settings(path: Path) -> dict[str, Any]:
    """The settings that a run began with; an older version may not have known all of them."""
    values = read_json(path)
    if isinstance(values.get("start_from"), str):
        values["start_from"] = name_source(values["start_from"])  # older versions kept the slash of base/
    for name, only in (("nearby", 0.0), ("input_dropout", None), ("output_dropout", None)):
        values.setdefault(name, only)  # older versions knew no other
    if values.get("optimiser") == "adagrad":
        values["weight_decay"] = 0.0  # older versions took another one
    known = {field.name for field in fields(TrainConfig)}
    try:
        build_from(TrainConfig, {name: value for name, value in values.items() if name in known})
    except ConfigError as problem:
        raise CheckpointError(
            f"{path}: holds no settings of a training: {problem}; choose another folder, or remove {path.parent}"
        ) from problem
    return values


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as they come back from a file."""
    return json.loads(json.dumps(settings))


def encode_text(texts: Texts, folder: Path, config: TrainConfig, tokenised: bool, workers: int | None) -> None:
    """Encode the text of a run, unless that was done before; a failure leaves no folder that it made."""
    corpus = find_corpus(texts, folder)
    if corpus.parent == folder:
        sweep_partial(corpus)
    _check_complete(corpus)
    if not (corpus / "corpus.json").is_file():
        encode_corpus(
            list(texts),
            corpus,
            vocabulary_size=config.vocabulary_size,
            min_count=config.min_count,
            tokenised=tokenised,
            workers=workers,
        )
    elif corpus.parent == folder:
        _check_encoding(corpus, texts, config, tokenised)


def refuse_changes(
    model_folder: Path, folder: Path, changes: Changes, texts: Texts, config: TrainConfig, tokenised: bool
) -> None:
    """Refuse what a finished run cannot take any more: other settings, and other text where its own is still there."""
    if changes:
        raise ConfigError(
            f"{model_folder} is finished and was trained with other settings: {describe_changes(changes)}; train "
            f"further with --from {as_source(model_folder)} and another folder after -o"
        )
    corpus = find_corpus(texts, folder)
    if corpus.parent == folder and (corpus / "corpus.json").is_file():
        _check_encoding(corpus, texts, config, tokenised)


def _check_encoding(corpus: Path, texts: Texts, config: TrainConfig, tokenised: bool) -> None:
    _check_same_text(
        corpus,
        texts,
        segmenter=_name_segmenter(tokenised),
        vocabulary_size=config.vocabulary_size,
        min_count=config.min_count,
    )


def encode_held_out(held_out: Texts, corpus: Path, folder: Path, tokenised: bool, workers: int | None) -> None:
    """Encode the held-out text of a run with the vocabulary of its corpus, unless that was done before."""
    destination = folder / "held-out"
    sweep_partial(destination)
    _check_complete(destination)
    if held_out and not (destination / "corpus.json").is_file():
        vocabulary = EncodedCorpus.open(corpus).vocabulary
        encode_corpus(list(held_out), destination, vocabulary=vocabulary, tokenised=tokenised, workers=workers)
    elif held_out:
        _check_same_text(destination, held_out, segmenter=_name_segmenter(tokenised))
        if EncodedCorpus.open(destination).vocabulary != EncodedCorpus.open(corpus).vocabulary:
            raise ConfigError(
                f"{destination} was encoded with the vocabulary of another text than {corpus}: continue with the text "
                f"that the run began with, or remove {destination}, and the held-out text is encoded anew"
            )


def _check_complete(corpus: Path) -> None:
    """Refuse a folder that should be an encoded corpus, or not there yet."""
    if corpus.is_dir() and any(corpus.iterdir()) and not (corpus / "corpus.json").is_file():
        raise CheckpointError(
            f"{corpus}: expected an encoded corpus, found no file corpus.json in it; remove the folder, and the text "
            "is encoded anew"
        )


def find_corpus(texts: Texts, folder: Path) -> Path:
    """Where the encoded text of a run is: in its folder, unless an encoded corpus was given."""
    given = Path(texts[0]) if len(texts) == 1 else None
    # Not Path.is_file, to which a name that is too long for the system is a failure.
    return given if given is not None and os.path.isfile(given / "corpus.json") else folder / "corpus"


def _name_segmenter(tokenised: bool) -> str:
    """As the header of a corpus names it."""
    return "spaces" if tokenised else RuleSegmenter.__name__


def _check_same_text(corpus: Path, texts: Texts, **settings: str | int) -> None:
    """Refuse to continue with other files than those that were encoded (they may have moved), or with other settings.

    Arguments:
        corpus: the encoded text.
        texts: what was given now; it may be gone.
        settings: how it would be encoded now, by the names in its header.
    """
    header = EncodedCorpus.open(corpus)
    before, now = header.files, _identify_texts(texts, header.files)
    if len(before) != len(now) or not all(map(_is_same_file, before, now)):
        raise ConfigError(
            f"{corpus} was made from {_list_files(before)}, but now {_list_files(now)} came: a run continues with "
            "the text it began with; name the same files, or another folder for the model"
        )
    for name, value in settings.items():
        if header.settings.get(name, value) != value:
            raise ConfigError(
                f"{corpus} was encoded with {name} {header.settings[name]!s:.60}, but now {value} is asked for: "
                "continue with the same settings, or choose another folder for the model"
            )


def _identify_texts(texts: Texts, encoded: Sequence[FileIdentity]) -> list[FileIdentity]:
    """The files that came now; what is gone is taken to be what was encoded under its name."""
    found: list[FileIdentity] = []
    for text in texts:
        try:
            found += identify_files(find_files(text))
        except InputError:
            gone = [file for file in encoded if file.name == os.fspath(text) or fnmatchcase(file.name, os.fspath(text))]
            if not gone:
                raise
            found += gone
    return found


def _is_same_file(before: FileIdentity, now: FileIdentity) -> bool:
    """Whether it has the same name, wherever it lies, and holds the same; corpora of older versions have no hash."""
    has_hash = before.hash is not None
    return (Path(before.name).name, before[1:]) == (Path(now.name).name, (now.bytes, now.hash if has_hash else None))


def _list_files(files: Sequence[FileIdentity]) -> str:
    named = [str(file._replace(name=Path(file.name).name)) for file in files[:2]]
    return ", ".join(named) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
