"""The loop: a fresh task model and its examples come in; the best weights it found, and a record of how, go out.

Batches hold examples of like size in an order that the seed decides. After each epoch the development set is scored;
the best weights are kept, the learning rate is halved when the score stops rising, and training ends when it has not
risen for `patience` epochs. Layers of a frozen biLM are computed once, before the first epoch (`layers.py`), so an
epoch costs only the head. All randomness follows from one seed. A short job: nothing is resumed, and the folder appears
complete at the end or not at all.
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
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

import elmokit
from elmokit.devices import find_device
from elmokit.errors import InputError, TrainingError
from elmokit.tasks.base import TaskModel, like_sizes
from elmokit.tasks.config import TrainingConfig
from elmokit.tasks.layers import LayerStore
from elmokit.tasks.tuning import Optimiser

__all__ = ["Results", "fill_layers", "part_of", "train_task"]


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
        mixes: the layer shares and γ that each ELMo mix learned.
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


def train_task(
    model: TaskModel,
    train: Sequence[Any],
    dev: Sequence[Any],
    *,
    config: TrainingConfig | None = None,
    test: Sequence[Any] = (),
    folder: str | PathLike[str] | None = None,
    layers_folder: str | PathLike[str] | None = None,
    device: str | torch.device | None = None,
    started: float | None = None,
    report: Callable[[str], None] | None = None,
    progress: bool = False,
) -> Results:
    """Train a task model; it holds the best weights afterwards.

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
        report: takes one line of text an epoch.
        progress: show bars on standard error.
    """
    config, started = config or type(model).training_config, started or time.perf_counter()
    if not train or not dev:
        raise InputError(f"expected examples to learn from and to choose by, found {len(train)} and {len(dev)}")
    place = find_device(device)
    model.to(place)
    results = Results(model.name, model.config.to_dict(), dataclasses.asdict(config), model.metric)
    results.num_train = len(train)
    results.device = torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu"
    results.versions = {"elmokit": elmokit.__version__, "torch": torch.__version__, "python": sys.version.split()[0]}
    if layers_folder is not None:
        results.layers_seconds = fill_layers(model, [*train, *dev, *test], layers_folder, progress=progress)
    ends = started + 60 * config.minutes if config.minutes else math.inf
    with torch.random.fork_rng(), _tensor_cores(place):
        torch.manual_seed(config.seed)
        log = _epochs(model, train, dev, config, results, ends=ends, report=report, progress=progress)
        if test:
            results.test = model.evaluate(test)
    results.mixes = model.inputs.learned_mixes()
    if folder is not None:
        model.save(folder, results=results.to_dict(), log="".join(json.dumps(line) + "\n" for line in log))
    return results


def part_of(examples: Sequence[Any], share: float, seed: int) -> list[Any]:
    """A share of the examples, at least one, drawn by the seed; a larger share holds every smaller one.

    Example:
        >>> part_of(range(10), 0.2, seed=1), part_of(range(10), 0.3, seed=1)
        ([6, 8], [6, 8, 9])
    """
    if share >= 1:
        return list(examples)
    order = list(range(len(examples)))
    random.Random(seed).shuffle(order)
    return [examples[place] for place in order[: max(1, round(share * len(order)))]]


def fill_layers(
    model: TaskModel, examples: Iterable[Any], folder: str | PathLike[str], *, progress: bool = False
) -> float:
    """Compute the layers of all sentences that are not in the store yet; how many seconds that took."""
    elmo = model.inputs.elmo
    if elmo is None or model.inputs.tuned is not None:
        return 0.0
    start = time.perf_counter()
    store = LayerStore(folder, elmo, device=model.device)
    store.add((words for example in examples for words in model.sentences(example)), progress=progress)
    model.inputs.store = store
    return time.perf_counter() - start


def _epochs(
    model: TaskModel,
    train: Sequence[Any],
    dev: Sequence[Any],
    config: TrainingConfig,
    results: Results,
    *,
    ends: float,
    report: Callable[[str], None] | None,
    progress: bool,
) -> list[dict[str, Any]]:
    """Run the epochs, leave the best weights in the model, and give the lines of the log."""
    start = epoch_began = time.perf_counter()
    sizes = [model.size(example) for example in train]
    optimiser = Optimiser(model, config, steps_an_epoch=len(_batches(sizes, config, 0)))
    results.num_weights = optimiser.num_weights
    weights = _Weights(model, config.average)
    log: list[dict[str, Any]] = []
    for epoch in range(config.epochs):
        optimiser.begin_epoch(epoch)
        batches = _batches(sizes, config, epoch)
        shown = tqdm(batches, desc=f"epoch {epoch + 1}", leave=False, disable=None if progress else True)
        loss = _learn(model, ([train[place] for place in places] for places in shown), optimiser, weights)
        if not math.isfinite(loss):
            raise TrainingError(f"the loss of epoch {epoch + 1} is {loss}: try a smaller --learning-rate")
        with weights.averaged():
            scores = model.evaluate(dev)
            results.history.append(scores[model.metric])
            best = max(results.history[:-1], default=float("-inf"))
            # While nothing is right yet, no epoch is worse than those before it, and it has learned longer.
            if scores[model.metric] > best or scores[model.metric] == best == 0:
                weights.keep()
                results.dev, results.best_epoch = scores, epoch + 1
        log.append({"epoch": epoch + 1, "loss": loss, "rate": optimiser.rate, **scores})
        epochs_since_best = epoch + 1 - results.best_epoch
        if report is not None:
            shown_score = f"{model.metric} {scores[model.metric]:.4f}{'' if epochs_since_best else '  best'}"
            report(f"epoch {epoch + 1:>3}  loss {loss:8.4f}  {shown_score}")
        now = time.perf_counter()
        if epochs_since_best >= config.patience:
            results.ended_by = "patience"
            break
        if epoch + 1 < config.epochs and 2 * now - epoch_began > ends:
            results.ended_by = "minutes"
            break
        epoch_began = now
        optimiser.after_epoch(epochs_since_best=epochs_since_best)
    weights.restore()
    results.seconds = time.perf_counter() - start
    return log


def _learn(model: TaskModel, batches: Iterable[Sequence[Any]], optimiser: Optimiser, weights: _Weights) -> float:
    """One epoch; its mean loss, for which a GPU is waited for only at the end."""
    model.train()
    losses = []
    for batch in batches:
        with model.memory_for(batch):
            loss = model.loss(batch)
            optimiser.step(loss + model.inputs.penalty())
        weights.average()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def _batches(sizes: Sequence[int], config: TrainingConfig, epoch: int) -> list[list[int]]:
    """Positions of the examples of each batch, of like size and in an order drawn for the epoch."""
    drawn = random.Random(config.seed * 1_000_003 + epoch)
    noisy = [round(size * drawn.uniform(0.9, 1.1) + drawn.random() * 2) for size in sizes]
    batches = list(like_sizes(noisy, batch_size=config.batch_size, batch_words=config.batch_words))
    drawn.shuffle(batches)
    return batches


class _Weights:
    """What learns in a model: its running average, and the best seen."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
        self._averages = [weight.detach().clone() for weight in self._weights] if decay else []
        self._best: list[Tensor] = []
        self._decay, self._steps = decay, 0

    @torch.no_grad()
    def average(self) -> None:
        """Count the weights of a step; the first steps are forgotten soon."""
        self._steps += 1
        kept = min(self._decay, self._steps / (10 + self._steps))
        if self._averages:
            torch._foreach_lerp_(self._averages, self._weights, 1 - kept)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model has the averages for weights inside, where there are any."""
        self._swap()
        yield
        self._swap()

    def keep(self) -> None:
        """These weights are the best so far."""
        self._best = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def restore(self) -> None:
        """Give the model the best weights."""
        for weight, best in zip(self._weights, self._best, strict=True):
            weight.copy_(best)

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, average in zip(self._weights, self._averages, strict=False):
            kept = weight.detach().clone()
            weight.copy_(average)
            average.copy_(kept)


@contextmanager
def _tensor_cores(place: torch.device) -> Iterator[None]:
    """Products in TF32 inside, where a GPU has it: a head needs no more."""
    before = torch.get_float32_matmul_precision()
    if place.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
