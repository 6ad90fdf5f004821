"""What a run keeps beside its model, in `DIR.training`, so that it can continue: its settings and its encoded text.

A run continues with what it began with: other settings that decide what its numbers mean, and other text, are refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, OutputError
from elmokit.io.atomic import replace_text
from elmokit.io.text_files import read_json
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.recipes import TrainConfig
from elmokit.text.files import find_files, measure_files

__all__ = ["Texts", "check_texts", "encode_texts", "find_corpus", "keep_settings", "remove_unless_encoded"]

Texts = Sequence[str | os.PathLike[str]]

# How long, how fast and how often: what a run may change when it continues. The rest decides what its numbers mean.
CHANGEABLE = {
    "tokens", "learning_rate", "muon_learning_rate", "weight_decay", "warmup_tokens", "hold", "final_learning_rate",
    "clip_norm", "evaluate_every", "checkpoint_every", "log_every",
}  # fmt: skip


def check_texts(texts: Texts, held_out: Texts, folder: Path) -> None:
    """Refuse text that is not there before anything is written; what was encoded by an earlier call may be gone."""
    if not texts:
        raise ConfigError("no text was given: name files, globs or - for standard input")
    for sources, corpus in ((texts, find_corpus(texts, folder)), (held_out, folder / "held-out")):
        if sources and not (corpus / "corpus.json").is_file():
            find_files(list(sources))
    if "-" in texts and "-" in held_out:
        raise ConfigError("standard input (-) is named as text and as held-out text: it can be read only once")


@contextmanager
def remove_unless_encoded(folder: Path | None) -> Iterator[None]:
    """Remove the folder of a run that fails before its text is encoded: its settings bind nobody yet.

    Arguments:
        folder: of a run that began just now; `None` for one that continues, which is left alone.
    """
    try:
        yield
    except BaseException:
        if folder is not None and not (folder / "corpus" / "corpus.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def keep_settings(folder: Path, settings: dict[str, Any], model_folder: Path) -> dict[str, Any]:
    """Write the settings of a run, or compare them with those it has; gives those that were changed since."""
    path = folder / "training.json"
    values = json.loads(json.dumps(settings))
    before: dict[str, Any] = values
    if path.is_file():
        before = read_json(path)
    elif model_folder.exists() and (not model_folder.is_dir() or any(model_folder.iterdir())):
        raise OutputError(f"{model_folder} exists and is not of a run of this program: choose another folder")
    changed = {name: values[name] for name in values if name in before and before[name] != values[name]}
    fixed = sorted(set(changed) - CHANGEABLE)
    if fixed:
        name = fixed[0]
        raise ConfigError(
            f"{folder} holds a run with another {', '.join(fixed)} ({name} was {before[name]!r:.60}, now "
            f"{values[name]!r:.60}): continue with the same settings, or choose another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(values, indent=2) + "\n")
    except OSError as problem:
        raise OutputError(f"{folder} cannot be written: {problem.strerror or problem}") from problem
    return changed


def encode_texts(
    texts: Texts,
    held_out: Texts,
    folder: Path,
    config: TrainConfig,
    tokenised: bool,
    held_out_tokenised: bool | None,
    workers: int | None,
) -> None:
    """Encode text and held-out text, unless that was done before."""
    corpus = find_corpus(texts, folder)
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
        _check_same_text(corpus, texts)
    if held_out and not (folder / "held-out" / "corpus.json").is_file():
        encode_corpus(
            list(held_out),
            folder / "held-out",
            vocabulary=EncodedCorpus.open(corpus).vocabulary,
            tokenised=tokenised if held_out_tokenised is None else held_out_tokenised,
            workers=workers,
        )
    elif held_out:
        _check_same_text(folder / "held-out", held_out)


def find_corpus(texts: Texts, folder: Path) -> Path:
    """Where the encoded text of a run is: in its folder, unless an encoded corpus was given."""
    given = Path(texts[0]) if len(texts) == 1 else None
    return given if given is not None and (given / "corpus.json").is_file() else folder / "corpus"


def _check_same_text(corpus: Path, texts: Texts) -> None:
    """Refuse to continue with other files than those that were encoded; they may have moved."""
    encoded = [(Path(file["name"]).name, file["bytes"]) for file in read_json(corpus / "corpus.json").get("files", [])]
    now = [(Path(file).name, measure_files([file])) for file in find_files(list(texts))]
    if encoded != now:
        raise ConfigError(
            f"{corpus} was made from {_list_files(encoded)}, but now {_list_files(now)} came: a run continues with "
            "the text it began with; name the same files, or another folder for the model"
        )


def _list_files(files: Sequence[tuple[str, int | None]]) -> str:
    named = ", ".join(f"{name} ({size:,} bytes)" if size is not None else name for name, size in files[:2])
    return named + (f" and {len(files) - 2} more" if len(files) > 2 else "")
