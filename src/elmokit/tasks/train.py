"""From labelled files to a trained task model: read, build, learn, save, from top to bottom.

`train` takes files; `train_model` takes examples that are in memory already. Both leave a folder with the model, its
scores and its log. What cannot be used in a file is an error with file and line, or is counted (`skip_bad`).

Batches hold examples of similar size in an order that the seed decides. After each epoch the development set is scored;
the best weights are kept, the learning rate is halved when the score stops rising, and training ends when it has not
risen for `patience` epochs. The layers of a frozen biLM are computed once, before the first epoch (`layer_store.py`),
so an epoch costs only the head. All randomness follows from one seed. A short job: nothing is resumed, and the folder
appears complete at the end or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from elmokit.devices import find_device
from elmokit.errors import InputError, OutputError, TrainingError
from elmokit.io.atomic import new_folder, sweep_partial
from elmokit.io.locks import lock_output
from elmokit.reading.batching import batch_by_length
from elmokit.tasks import find_task
from elmokit.tasks.base import FILES, TaskModel
from elmokit.tasks.config import TaskConfig, TrainingConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.layer_store import LayerStore, open_elmo
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.optimiser import TaskOptimiser
from elmokit.version import describe_version
from elmokit.waits import show_progress

__all__ = ["Results", "draw_part", "read_examples", "train", "train_model"]

USES = {"train": "learn from", "dev": "choose by", "test": "test on"}
Paths = str | PathLike[str]


@dataclass
class Results:
    """The record of a run, as it stands in `results.json`.

    Arguments:
        task: its name.
        config, training: the settings.
        metric: the score that decided.
        dev, test: scores of the best weights.
        best_epoch: the epoch (from 1) they came from.
        ended_by: what ended the run: `"epochs"`, all of them run; `"patience"`; or `"minutes"`, out of time.
        history: the deciding score after each epoch.
        mixes: the layer weights and γ that each ELMo mix learned.
        num_train: examples learned from.
        num_weights: numbers that learned.
        seconds: of the epochs, scoring the development set included.
        layers_seconds: of computing ELMo's layers beforehand.
        device, versions: what it ran on.
    """

    task: str
    config: dict[str, Any]
    training: dict[str, Any]
    metric: str
    dev: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    best_epoch: int = 0
    ended_by: str = "epochs"
    history: list[float] = field(default_factory=list)
    mixes: dict[str, Any] = field(default_factory=dict)
    num_train: int = 0
    num_weights: int = 0
    seconds: float = 0.0
    layers_seconds: float = 0.0
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)


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
    kind = find_task(task)
    config, training = config or kind.Config(), training or kind.training_config
    report = report or (lambda line: None)
    destination = Path(destination)
    _check_destination(destination, results_only=results_only)
    place = find_device(device)
    paths = {"train": train, "dev": dev} | ({} if test is None else {"test": test})
    problems = Problems(skips=skip_bad)
    examples = {
        name: read_examples(kind, path, config, problems, learns=name == "train") for name, path in paths.items()
    }
    # All labels of the file are known, also to a model that learns from a part of it.
    model = _build(kind, config, examples, vectors=vectors, seed=training.seed, path=train)
    for name, path in paths.items():
        examples[name] = model.usable(examples[name], problems)
        _check_any(examples[name], path, problems, use=USES[name])
    examples["train"] = draw_part(examples["train"], training.share, training.seed)
    counts = ", ".join(f"{len(part):,} to {USES[name]}" for name, part in examples.items())
    report(f"{task}: {counts}; {sum(each.numel() for each in model.parameters() if each.requires_grad):,} weights")
    if model.inputs.vectors is not None:
        words = (words for example in examples["train"] for words in model.sentences(example))
        report(f"{100 * model.inputs.measure_coverage(words):.1f} % of the words to learn from have a static vector")
    if summary := problems.summary():
        report(summary)
    with lock_output(destination):
        sweep_partial(destination)
        results = train_model(
            model,
            examples["train"],
            examples["dev"],
            config=training,
            test=examples.get("test", ()),
            folder=None if results_only else destination,
            layers_folder=layers_folder or destination.parent / "elmo-layers",
            device=place,
            started=started,
            report=report,
            progress=progress,
        )
        if results_only:
            with new_folder(destination, replaces=("results.json",)) as partial:
                (partial / "results.json").write_text(json.dumps(results.to_dict(), indent=2) + "\n", encoding="utf-8")
    return results


def read_examples(
    kind: type[TaskModel], path: Paths, config: TaskConfig, problems: Problems, *, learns: bool = False
) -> list[Any]:
    """All examples of a file, to learn from or to score; none at all is an `InputError`."""
    read = kind.read_train if learns else kind.read
    examples = list(read(path, config=config, problems=problems))
    _check_any(examples, path, problems, use=USES["train"] if learns else None)
    return examples


def train_model(
    model: TaskModel,
    train: Sequence[Any],
    dev: Sequence[Any],
    *,
    config: TrainingConfig | None = None,
    test: Sequence[Any] = (),
    folder: Paths | None = None,
    layers_folder: Paths | None = None,
    device: str | torch.device | None = None,
    started: float | None = None,
    report: Callable[[str], None] = lambda line: None,
    progress: bool = False,
) -> Results:
    """Train a task model on examples; it holds the best weights afterwards.

    Arguments:
        model: as `build` made it.
        train: examples to learn from.
        dev: examples whose score decides which weights are kept.
        config: how; the task's own defaults if not given.
        test: examples that are scored once, at the end.
        folder: where the trained model is written, `None` for nowhere.
        layers_folder: where layers of a frozen biLM are kept between runs; `None` computes them in every step.
        device: where to compute; a GPU if there is one.
        started: when the run began, by `time.perf_counter`, for `config.minutes`; now if not given.
        report: takes one line of text per epoch.
        progress: show bars on standard error.
    """
    config, started = config or type(model).training_config, started or time.perf_counter()
    if not train or not dev:
        raise InputError(f"expected examples to learn from and to choose by, found {len(train)} and {len(dev)}")
    place = find_device(device)
    model.to(place)
    results = Results(model.name, model.config.to_dict(), dataclasses.asdict(config), model.metric)
    results.num_train = len(train)
    results.device = _name_device(place)
    results.versions = {"elmokit": describe_version(), "torch": torch.__version__, "python": sys.version.split()[0]}
    if layers_folder is not None:
        results.layers_seconds = _fill_layers(model, [*train, *dev, *test], layers_folder, progress=progress)
    ends = started + 60 * config.minutes if config.minutes else math.inf
    with torch.random.fork_rng(), _tf32_matmuls(place):
        torch.manual_seed(config.seed)
        log = _run_epochs(model, train, dev, config, results, ends=ends, report=report, progress=progress)
        if test:
            results.test = model.evaluate(test, progress=progress)
    results.mixes = model.inputs.learned_mixes()
    if folder is not None:
        model.save(folder, results=results.to_dict(), log="".join(json.dumps(line) + "\n" for line in log))
    return results


def _run_epochs(
    model: TaskModel,
    train: Sequence[Any],
    dev: Sequence[Any],
    config: TrainingConfig,
    results: Results,
    *,
    ends: float,
    report: Callable[[str], None],
    progress: bool,
) -> list[dict[str, Any]]:
    """Run the epochs, leave the best weights in the model, and give the lines of the log."""
    start = epoch_began = time.perf_counter()
    sizes = [model.size(example) for example in train]
    optimiser = TaskOptimiser(model, config, steps_per_epoch=len(_draw_batches(sizes, config, 0)))
    results.num_weights = optimiser.num_weights
    best_weights = []
    log: list[dict[str, Any]] = []
    for epoch in range(config.epochs):
        optimiser.begin_epoch(epoch)
        model.train()
        losses = []
        batches = _draw_batches(sizes, config, epoch)
        for places in show_progress(batches, desc=f"epoch {epoch + 1}", leave=False, hidden=not progress):
            batch = [train[place] for place in places]
            with model.memory_for(batch):
                loss = model.loss(batch)
                optimiser.step(loss + model.inputs.penalty())
            losses.append(loss.detach())
        mean_loss = torch.stack(losses).mean().item()  # only here a GPU is waited for
        if not math.isfinite(mean_loss):
            raise TrainingError(f"the loss of epoch {epoch + 1} is {mean_loss}: try a smaller --learning-rate")
        with optimiser.averaged_weights():
            scores = model.evaluate(dev, progress=progress)
            score, best = scores[model.metric], max(results.history, default=float("-inf"))
            # While nothing is right yet, no epoch is worse than those before it, and it has learned longer.
            if score > best or score == best == 0:
                best_weights = optimiser.copy_weights()
                results.dev, results.best_epoch = scores, epoch + 1
        results.history.append(score)
        log.append({"epoch": epoch + 1, "loss": mean_loss, "rate": optimiser.rate, **scores})
        epochs_since_best = epoch + 1 - results.best_epoch
        best_mark = "" if epochs_since_best else "  best"
        report(f"epoch {epoch + 1:>3}  loss {mean_loss:8.4f}  {model.metric} {score:.4f}{best_mark}")
        now = time.perf_counter()
        if epochs_since_best >= config.patience:
            results.ended_by = "patience"
            break
        if epoch + 1 < config.epochs and 2 * now - epoch_began > ends:
            results.ended_by = "minutes"
            break
        epoch_began = now
        optimiser.end_epoch(epochs_since_best=epochs_since_best)
    optimiser.load_weights(best_weights)
    results.seconds = time.perf_counter() - start
    return log


def draw_part(examples: Sequence[Any], share: float, seed: int) -> list[Any]:
    """A fraction of the examples, at least one, drawn by the seed; a larger part holds every smaller one.

    Example:
        >>> draw_part(range(10), 0.2, seed=1), draw_part(range(10), 0.3, seed=1)
        ([6, 8], [6, 8, 9])
    """
    if share >= 1:
        return list(examples)
    order = list(range(len(examples)))
    random.Random(seed).shuffle(order)
    return [examples[place] for place in order[: max(1, round(share * len(order)))]]


def _check_destination(destination: Path, *, results_only: bool) -> None:
    """Say at once what would otherwise be said after all the work."""
    if destination.is_dir():
        own = ("results.json",) if results_only else FILES
        foreign = sorted(entry.name for entry in destination.iterdir() if entry.name not in own)
        if foreign:
            whose = "one with results.json alone" if results_only else "a task model's"
            raise OutputError(f"{destination}: expected a new folder or {whose}, found {foreign[0]} in it")
    elif destination.exists():
        raise OutputError(f"{destination}: expected a new folder, found a file; choose another place")


def _check_any(examples: Sequence[Any], path: Paths, problems: Problems, *, use: str | None) -> None:
    if not examples:
        skipped = f" ({problems.summary()})" if problems.num_bad else ""
        raise InputError(f"{path}: expected examples{f' to {use}' if use else ''}, found none{skipped}")


def _build(
    kind: type[TaskModel],
    config: TaskConfig,
    examples: dict[str, list[Any]],
    *,
    vectors: Any,  # noqa: ANN401
    seed: int,
    path: Paths,
) -> TaskModel:
    """A fresh model, with the vectors of all words of the files."""
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


def _fill_layers(model: TaskModel, examples: Iterable[Any], folder: Paths, *, progress: bool) -> float:
    """Compute the layers of all sentences that are not in the store yet; how many seconds that took."""
    elmo = model.inputs.elmo
    if elmo is None or model.inputs.tuned is not None:
        return 0.0
    start = time.perf_counter()
    store = LayerStore(folder, elmo, device=model.device)
    store.add((words for example in examples for words in model.sentences(example)), progress=progress)
    model.inputs.store = store
    return time.perf_counter() - start


def _name_device(place: torch.device) -> str:
    """What results are said to come from: the model of a GPU, or the kind of device, such as `mps`."""
    return torch.cuda.get_device_name(place) if place.type == "cuda" else place.type


@contextmanager
def _tf32_matmuls(place: torch.device) -> Iterator[None]:
    """Matmuls in TF32 inside, where a GPU has it: a head needs no more."""
    before = torch.get_float32_matmul_precision()
    if place.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _draw_batches(sizes: Sequence[int], config: TrainingConfig, epoch: int) -> list[list[int]]:
    """Positions of the examples of each batch, of similar size and in an order drawn for the epoch."""
    drawn = random.Random(config.seed * 1_000_003 + epoch)
    noisy = [round(size * drawn.uniform(0.9, 1.1) + drawn.random() * 2) for size in sizes]
    batches = list(batch_by_length(noisy, budget=config.batch_words, batch_size=config.batch_size))
    drawn.shuffle(batches)
    return batches
