"""From files to a trained task model: the story from top to bottom, and `python -m elmokit.tasks.train`.

Files of labelled examples and settings arrive; a folder with the model, its scores and its log leaves. What cannot be
used in the files is an error with file and line, or is counted (`skips_bad`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from elmokit.devices import find_device
from elmokit.errors import ElmoError, InputError, OutputError
from elmokit.io.atomic import new_folder
from elmokit.tasks import task_named
from elmokit.tasks.base import FILES, TaskModel
from elmokit.tasks.config import TaskConfig, TrainingConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.inputs import WordInputs
from elmokit.tasks.layers import open_elmo
from elmokit.tasks.training import Results, part_of, train_task

__all__ = ["main", "read_examples", "train"]

RESULT_FILES = ("results.json",)
USES = {"train": "learn from", "dev": "choose by", "test": "test on"}
Paths = str | PathLike[str]


def train(
    task: str,
    *,
    train: Paths,
    dev: Paths,
    destination: Paths,
    config: TaskConfig | None = None,
    training: TrainingConfig | None = None,
    test: Paths | None = None,
    vectors: Any = None,  # noqa: ANN401
    layers_folder: Paths | None = None,
    device: str | None = None,
    skip_bad: bool = False,
    results_only: bool = False,
    report: Callable[[str], None] | None = None,
    progress: bool = False,
) -> Results:
    """Train a task model on files.

    Arguments:
        task: its name, such as `"tag"`.
        train: a file of examples to learn from.
        dev: one whose score decides which weights are kept.
        test: one that is scored once, at the end.
        destination: the folder of the trained model; it appears when all is done.
        config: settings of the model; the task's defaults if not given.
        training: settings of the training, likewise.
        vectors: gensim's KeyedVectors instead of the file that the config names.
        layers_folder: where ELMo's layers are kept between runs; `elmo-layers` beside the destination if not given.
        device: where to compute; a GPU if there is one.
        skip_bad: count examples that cannot be used and go on.
        results_only: write results.json alone, for experiments of many runs.
        report: takes lines of text about how it goes.
        progress: show bars on standard error.
    """
    started = time.perf_counter()
    kind = task_named(task)
    config, training = config or kind.Config(), training or kind.training_config
    tell = report or (lambda line: None)
    destination = Path(destination)
    _check_destination(destination)
    place = find_device(device)
    problems = Problems(skips=skip_bad)
    examples = {"train": list(kind.read_train(train, config=config, problems=problems))}
    examples |= {
        name: read_examples(kind, path, config, problems)
        for name, path in (("dev", dev), ("test", test))
        if path is not None
    }
    if not examples["train"]:
        raise InputError(f"{train}: expected examples to learn from, found none{_skipped(problems)}")
    # All labels of the file are known, also to a model that learns from a share of it.
    model = _built(kind, config, examples, vectors=vectors, seed=training.seed, path=train)
    usable = {name: model.usable(part, problems) for name, part in examples.items()}
    for name, part in usable.items():
        if not part:
            path = {"train": train, "dev": dev, "test": test}[name]
            raise InputError(f"{path}: expected examples to {USES[name]}, found none{_skipped(problems)}")
    usable["train"] = part_of(usable["train"], training.share, training.seed)
    counts = ", ".join(f"{len(part):,} to {USES[name]}" for name, part in usable.items())
    tell(f"{task}: {counts}; {sum(each.numel() for each in model.parameters() if each.requires_grad):,} weights")
    if model.inputs.vectors is not None:
        words = (words for example in usable["train"] for words in model.sentences(example))
        tell(f"{100 * model.inputs.share_with_vectors(words):.1f} % of the words to learn from have a static vector")
    if summary := problems.summary():
        tell(summary)
    results = train_task(
        model,
        usable["train"],
        usable["dev"],
        config=training,
        test=usable.get("test", ()),
        folder=None if results_only else destination,
        layers_folder=layers_folder or destination.parent / "elmo-layers",
        device=place,
        started=started,
        report=report,
        progress=progress,
    )
    if results_only:
        with new_folder(destination, replaces=RESULT_FILES) as partial:
            (partial / "results.json").write_text(json.dumps(results.to_dict(), indent=2) + "\n", encoding="utf-8")
    return results


def read_examples(kind: type[TaskModel], path: Paths, config: TaskConfig, problems: Problems) -> list[Any]:
    """All examples of a file; none at all is an `InputError`."""
    examples = list(kind.read(path, config=config, problems=problems))
    if not examples:
        raise InputError(f"{path}: expected examples, found none{_skipped(problems)}")
    return examples


def _skipped(problems: Problems) -> str:
    return f" ({problems.summary()})" if problems.num_bad else ""


def _built(
    kind: type[TaskModel],
    config: TaskConfig,
    examples: dict[str, list[Any]],
    *,
    vectors: Any,  # noqa: ANN401
    seed: int,
    path: Paths,
) -> TaskModel:
    """A fresh model, with the vectors of all words that are known of."""
    inputs, elmo = config.inputs, None
    if inputs.elmo is not None:
        elmo = open_elmo(inputs.elmo, tunes=inputs.tune_elmo, random=inputs.random_elmo, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        words = WordInputs.without_words(inputs, elmo=elmo, vectors=vectors)
        try:
            model = kind.build(config, examples["train"], words)
        except InputError as problem:
            raise InputError(f"{path}: {problem}") from None
    sentences = (words for part in examples.values() for example in part for words in model.sentences(example))
    model.inputs.read_vectors(sentences, vectors)
    return model


def _check_destination(destination: Path) -> None:
    """Say at once what would otherwise be said after all the work."""
    if destination.is_dir():
        foreign = sorted(entry.name for entry in destination.iterdir() if entry.name not in FILES)
        if foreign:
            raise OutputError(f"{destination}: expected a new folder or a task model's, found {foreign[0]} in it")
    elif destination.exists():
        raise OutputError(f"{destination}: expected a new folder, found a file; choose another place")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as these arguments say; gives the exit code."""
    from elmokit.tasks.arguments import parsed

    def report(line: str) -> None:
        sys.stderr.write(line + "\n")

    try:
        config, training, options = parsed(arguments)
        results = train(options.pop("task"), config=config, training=training, report=report, **options)
    except (ElmoError, MemoryError) as problem:
        sys.stderr.write(f"elmokit: {' '.join(str(problem).split())}\n")
        return 2 if isinstance(problem, ValueError) else 1
    sys.stdout.write(json.dumps({"dev": results.dev, "test": results.test, "seconds": results.seconds}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
