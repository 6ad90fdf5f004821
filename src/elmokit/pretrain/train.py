"""Training, one story from top to bottom: text → encoded corpus → batches → steps → a model folder.

    elmo train TEXT… -o DIR [--recipe small] [--field value]…

The model appears in DIR, complete, at the end. Until then, and afterwards for whoever wants to look, `DIR.training`
holds the encoded text, `log.jsonl` (a line now and then) and the last two checkpoints. Called again with the same
arguments, a run that was killed goes on from its last checkpoint to the same losses; a finished one says so. Under
`torchrun` every process takes its rows of each batch; the checkpoints do not depend on how many there are.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmokit.errors import ConfigError, OutputError, TrainingError
from elmokit.io.atomic import replace_text
from elmokit.io.text_files import read_json
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.journal import Report
from elmokit.pretrain.place import Place, found_place
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.run import Run
from elmokit.pretrain.saving import save_model
from elmokit.pretrain.start import Start, start_of
from elmokit.text.files import find_files, measure_files

__all__ = ["train"]

Texts = Sequence[str | os.PathLike[str]]

# How long, how fast and how often: what a run may change when it goes on. The rest decides what its numbers mean.
CHANGEABLE = {
    "tokens", "learning_rate", "muon_learning_rate", "weight_decay", "warmup_tokens", "decay", "final_learning_rate",
    "clip_norm", "hold", "output_rate", "second_beta", "average_tokens", "evaluate_every", "checkpoint_every",
    "log_every",
}  # fmt: skip


def train(
    texts: Texts,
    destination: str | os.PathLike[str],
    config: TrainConfig,
    *,
    held_out: Texts = (),
    tokenised: bool = False,
    held_out_tokenised: bool | None = None,
    start_from: str | os.PathLike[str] | None = None,
    vectors: Any = None,  # noqa: ANN401
    workers: int | None = None,
    device: str | None = None,
    minutes: float | None = None,
    tensorboard: bool = False,
    report: Report | None = None,
) -> Path | None:
    """Train a model on text and write it to `destination`; gives that folder, or `None` if `minutes` ran out before.

    Arguments:
        texts: files, globs or `-`; compressed files are unpacked. An encoded corpus folder is taken as it is.
        destination: the model's folder, which must not exist yet; a run begun for it goes on.
        config: what to compute. A run goes on with what it began with; only how long, how fast and how often it does
            what may change.
        held_out: text for perplexity, never trained on.
        tokenised: the text has one sentence a line, words between spaces.
        held_out_tokenised: the same for the held-out text; like `tokenised` if not given.
        start_from: a source to go on from (see `start.py`): any model that can be loaded.
        vectors: a file of word vectors, or gensim's KeyedVectors, with which the table of a model of words begins.
        workers: processes that segment.
        device: where to compute; a GPU if there is one.
        minutes: stop with a checkpoint after so many minutes; call again to go on.
        tensorboard: also write the log for TensorBoard, to `DIR.training/tensorboard`.
        report: is handed every line of the log.
    """
    began = time.monotonic()
    model_folder = Path(destination)
    folder = model_folder.with_name(model_folder.name + ".training")
    if tensorboard:
        from elmokit.pretrain.reports import to_tensorboard

        report = to_tensorboard(folder / "tensorboard", then=report)
    with found_place(device) as place:
        start = start_of(config, start_from=start_from, vectors=vectors)
        changed: dict[str, Any] = {}
        if place.is_first:
            changed = _keep_config(folder, {**start.config.to_dict(), **start.origin}, model_folder)
        place.wait()
        if (model_folder / "config.json").is_file():
            place.say(f"{model_folder}: this run is finished, and its model is there")
            return model_folder
        if place.is_first:
            _encode(texts, held_out, folder, start.config, tokenised, held_out_tokenised, workers)
        place.wait()
        corpus = EncodedCorpus.open(_corpus_folder(texts, folder))
        deadline = None if minutes is None else began + 60 * minutes
        finished = _run(start, corpus, place, folder, model_folder, bool(held_out), report, changed, deadline)
        if not finished:
            place.say(f"stopped     after {minutes} minutes with a checkpoint; the same command goes on")
            return None
        _say_goodbye(place, model_folder, folder)
    return model_folder


def _run(
    start: Start,
    corpus: EncodedCorpus,
    place: Place,
    folder: Path,
    model_folder: Path,
    has_held_out: bool,
    report: Report | None,
    changed: dict[str, Any],
    deadline: float | None,
) -> bool:
    """Train to the end or the deadline, and save the model at the end; whether that was reached.

    A function of its own: what DistributedDataParallel holds of the group of processes is gone when it returns.
    """
    try:
        run = Run(start, folder, corpus, place, held_out=folder / "held-out" if has_held_out else None, report=report)
        run.introduce()
        run.resume()
        if changed:
            run.note({"kind": "settings", **changed})
        finished = run.go_on(deadline)
    except torch.OutOfMemoryError as problem:
        reason = str(problem).split(".")[0]
        raise TrainingError(f"{reason}: start anew with a smaller --tokens-per-batch or model") from problem
    if finished and place.is_first:
        with run.averaged():
            save_model(model_folder, run.network, run.scheme_parts, corpus.vocabulary, run.facts())
    place.wait()
    return finished


def _say_goodbye(place: Place, model_folder: Path, folder: Path) -> None:
    place.say(f"The model is in {model_folder}. Use it:")
    place.say(f"  elmo embed FILE -o vectors.parquet --model {model_folder}")
    place.say(f'  elmo predict "The beginning of a sentence" --model {model_folder}')
    place.say(f"{folder} holds what was needed on the way; keep its log.jsonl, remove the rest when you like.")


def _encode(
    texts: Texts,
    held_out: Texts,
    folder: Path,
    config: TrainConfig,
    tokenised: bool,
    held_out_tokenised: bool | None,
    workers: int | None,
) -> None:
    """Encode text and held-out text, unless that was done before."""
    if not texts:
        raise ConfigError("no text was given: name files, globs or - for standard input")
    corpus = _corpus_folder(texts, folder)
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


def _corpus_folder(texts: Texts, folder: Path) -> Path:
    given = Path(texts[0]) if len(texts) == 1 else None
    return given if given is not None and (given / "corpus.json").is_file() else folder / "corpus"


def _check_same_text(corpus: Path, texts: Texts) -> None:
    """Refuse to go on with other files than those that were encoded; they may have moved."""
    encoded = [(Path(file["name"]).name, file["bytes"]) for file in read_json(corpus / "corpus.json").get("files", [])]
    now = [(Path(file).name, measure_files([file])) for file in find_files(list(texts))]
    if encoded != now:
        raise ConfigError(
            f"{corpus} was made from {_few(encoded)}, but now {_few(now)} came: a run goes on with the text it began "
            "with; name the same files, or another folder for the model"
        )


def _few(files: Sequence[tuple[str, int | None]]) -> str:
    named = ", ".join(f"{name} ({size:,} bytes)" if size is not None else name for name, size in files[:2])
    return named + (f" and {len(files) - 2} more" if len(files) > 2 else "")


def _keep_config(folder: Path, settings: dict[str, Any], model_folder: Path) -> dict[str, Any]:
    """A run keeps its configuration; gives what of the changeable settings has changed since it was last called."""
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
            f"{values[name]!r:.60}): go on with the same settings, or choose another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(values, indent=2) + "\n")
    except OSError as problem:
        raise OutputError(f"{folder} cannot be written: {problem.strerror or problem}") from problem
    return changed
