"""TaskModel: what a task is, and how a trained one becomes a folder that loads anywhere.

Arrives at a task: examples of its own kind. Leaves: a loss to learn from, predictions as plain JSON values, and scores
by the field's own rules. The words of an example reach the network through `self.inputs` (see `inputs.py`), so a task
never asks whether vectors come from GloVe, ELMo, a store on disk or a biLM that learns.

A saved task is `config.json`, `extra.json` (vocabularies), `model.safetensors`, `words.txt` (of the static vectors),
and `elmo/` where the biLM has to travel along: tuned, random, or taken from a path that another machine would not have.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmokit.devices import find_device, is_out_of_memory
from elmokit.errors import CheckpointError, ConfigError, InputError
from elmokit.io import model_names
from elmokit.io.atomic import new_folder
from elmokit.io.checkpoint import check_values, compare_shapes
from elmokit.io.inside import check_entries
from elmokit.io.safe_tensors import read_safetensors, read_sizes
from elmokit.io.text_files import read_json, read_words, write_words
from elmokit.reading.batching import batch_by_length
from elmokit.tasks import find_task
from elmokit.tasks.config import InputConfig, TaskConfig, TrainingConfig
from elmokit.tasks.data import Example, Problems
from elmokit.tasks.layer_store import TaskElmo, open_elmo
from elmokit.tasks.network.inputs import WordInputs
from elmokit.validation import Bounds, build_from, check_arguments
from elmokit.waits import show_progress

if TYPE_CHECKING:
    from elmokit.text.segmenters import Segmenter

__all__ = ["FILES", "Prediction", "TaskModel", "load_task", "name_training_labels"]

FORMAT_VERSION = 1
FILES = ("config.json", "extra.json", "model.safetensors", "words.txt", "elmo", "results.json", "log.jsonl")
Prediction = Any  # what goes through JSON; each task says what its own look like
Self = TypeVar("Self", bound="TaskModel")


class TaskModel(nn.Module, ABC):
    """A model of one task.

    Arguments:
        config: its settings.
        inputs: what turns sentences into features; the model owns it.
        extra: what else the constructor of the task takes, such as its labels, as plain JSON values.
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    Config: ClassVar[type[TaskConfig]]
    training_config: ClassVar[TrainingConfig] = TrainingConfig()
    texts: ClassVar[tuple[str, ...]] = ("sentence",)

    def __init__(self, config: TaskConfig, inputs: WordInputs, **extra: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.config = config
        self.inputs = inputs
        self.extra = extra

    @classmethod
    @abstractmethod
    def read(cls, path: str | os.PathLike[str], *, config: Any, problems: Problems) -> Iterator[Any]:  # noqa: ANN401
        """The examples of a file in one of the task's formats."""

    @classmethod
    def read_train(cls, path: str | os.PathLike[str], *, config: Any, problems: Problems) -> Iterator[Any]:  # noqa: ANN401
        """The examples of a file to learn from, where a task learns from more than it is scored on."""
        return cls.read(path, config=config, problems=problems)

    @classmethod
    @abstractmethod
    def build(cls: type[Self], config: Any, examples: Sequence[Any], inputs: WordInputs) -> Self:  # noqa: ANN401
        """A fresh model, its label vocabularies taken from training examples."""

    @abstractmethod
    def sentences(self, example: Any) -> list[list[str]]:  # noqa: ANN401
        """The tokenised sentences that the example hands to `self.inputs`, exactly as it does."""

    @abstractmethod
    def loss(self, batch: Sequence[Any]) -> Tensor:
        """The mean loss of a batch of examples; calls `self.inputs(...)` for their sentences."""

    @abstractmethod
    def predict(self, batch: Sequence[Any]) -> list[Prediction]:
        """What the model says of each example, as plain JSON values; the labels of the examples are not used."""

    @abstractmethod
    def scores(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Scores of predictions by the field's own rules; early stopping looks at `metric`, higher being better."""

    @abstractmethod
    def example_of(self, *texts: str, segmenter: Segmenter) -> Example:
        """An unlabelled example of typed text, one string for each of `texts`."""

    @abstractmethod
    def show(self, example: Any, prediction: Prediction) -> str:  # noqa: ANN401
        """A prediction as a person reads it on a terminal."""

    def size(self, example: Any) -> int:  # noqa: ANN401
        """Words of an example, for batches of similar size."""
        return sum(map(len, self.sentences(example)))

    def complaint(self, example: Any) -> str | None:  # noqa: ANN401
        """Why this model can neither learn from an example nor be scored on it (an unknown label); `None` if it can."""
        return None

    def usable(self, examples: Iterable[Any], problems: Problems) -> list[Any]:
        """The examples without a complaint; the others are errors, or skipped."""
        kept = []
        for example in examples:
            complaint = self.complaint(example)
            if complaint is None:
                kept.append(example)
            else:
                problems.add_at(example.source, complaint)
        return kept

    @torch.no_grad()
    def predict_all(
        self, examples: Sequence[Any], *, batch_size: int = 64, batch_words: int = 8000, progress: bool = False
    ) -> list[Prediction]:
        """Predictions for any number of examples, in their order; `progress` shows a bar on standard error."""
        was_training = self.training
        self.eval()
        results: list[Prediction] = [None] * len(examples)
        sizes = [self.size(example) for example in examples]
        shown = {"desc": "predicting", "unit": " examples", "leave": False, "hidden": not progress}
        with show_progress(total=len(examples), **shown) as bar:
            for places in batch_by_length(sizes, budget=batch_words, batch_size=batch_size):
                batch = [examples[place] for place in places]
                with self.memory_for(batch):
                    predictions = self.predict(batch)
                for place, prediction in zip(places, predictions, strict=True):
                    results[place] = prediction
                bar.update(len(places))
        self.train(was_training)
        return results

    def evaluate(self, examples: Sequence[Any], *, progress: bool = False, **sizes: int) -> dict[str, float]:
        """Scores on labelled examples; `progress` and sizes of batches are those of `predict_all`."""
        return self.scores(examples, self.predict_all(examples, progress=progress, **sizes))

    @contextmanager
    def memory_for(self, batch: Sequence[Any]) -> Iterator[None]:
        """Where memory runs out inside, a `MemoryError` that names the largest example of the batch."""
        try:
            yield
        except (MemoryError, RuntimeError) as problem:
            if not is_out_of_memory(problem):
                raise
            largest = max(batch, key=self.size)
            raise MemoryError(
                f"{largest.source}: no memory for a batch of {len(batch)} with this example of {self.size(largest):,} "
                "words: make batches smaller (--batch-words, --batch-size), or split or leave out the example"
            ) from problem

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.inputs.device

    def save(self, folder: str | os.PathLike[str], *, results: dict[str, Any] | None = None, log: str = "") -> None:
        """Write the task as a folder that appears complete or not at all; one written by `save` may be replaced."""
        elmo = self.inputs.elmo
        settings: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "task": self.name,
            "config": self.config.to_dict(),
            "vector_dim": self.inputs.vector_dim,
            "elmo": None if elmo is None else {"copied": elmo.travels, "fingerprint": elmo.fingerprint},
        }
        with new_folder(Path(folder), replaces=FILES) as partial:
            _write_json(partial / "config.json", settings)
            _write_json(partial / "extra.json", self.extra)
            write_words(partial / "words.txt", self.inputs.words)
            save_file(_tensors_to_save(self), partial / "model.safetensors")
            shutil.copymode(partial / "config.json", partial / "model.safetensors")  # else only its owner may read it
            if elmo is not None and elmo.travels:
                elmo.elmo.save_pretrained(partial / "elmo")
            if results is not None:
                _write_json(partial / "results.json", results)
            if log:
                (partial / "log.jsonl").write_text(log, encoding="utf-8")


def load_task(
    folder: str | os.PathLike[str], *, elmo: str | None = None, device: str | torch.device | None = None
) -> TaskModel:
    """A trained task from its folder, ready to predict.

    Arguments:
        folder: as `TaskModel.save` wrote it.
        elmo: the source of its ELMo model, where it cannot be found under the name it was trained with.
        device: where to compute; a GPU if there is one.
    """
    folder = Path(folder)
    if folder.is_dir():
        check_entries(folder)
    path = folder / "config.json"
    values = read_json(path)
    if values.get("format_version") != FORMAT_VERSION or "task" not in values:
        raise CheckpointError(f"{path}: expected a task model that `elmo task train` wrote")
    try:
        settings = build_from(_Settings, values)
        kind = find_task(settings.task)
        config = build_from(kind.Config, settings.config, "config")
    except (ConfigError, InputError) as problem:
        raise CheckpointError(f"{path}: describes no task model: {problem}") from problem
    try:
        extra = check_arguments(kind.__init__, read_json(folder / "extra.json"), leaves_out=("config", "inputs"))
    except ConfigError as problem:
        raise CheckpointError(
            f"{folder}/extra.json: expected what the task {kind.name} needs: {problem}; the folder is damaged"
        ) from problem
    weights = folder / "model.safetensors"
    table = read_sizes(weights).get("inputs.vectors.weight", torch.empty(1))
    words = read_words(folder / "words.txt", num_rows=(*table.shape, 1)[0] - 1)  # its first row is of no word
    elmo_model = _open_saved_elmo(folder, settings, config.inputs, elmo)

    def build() -> TaskModel:
        vectors_VE = torch.zeros(len(words), settings.vector_dim) if settings.vector_dim else None
        inputs = WordInputs(config.inputs, words=words, vectors_VE=vectors_VE, elmo=elmo_model)
        if inputs.dim == 0:
            raise CheckpointError(
                f"{path}: vector_dim is 0, but words are known by static vectors alone; it is damaged"
            )
        return kind(config, inputs, **extra)

    try:
        with torch.device("meta"), _WithoutValues():  # nothing is allocated before the file is known to hold as much
            expected = {name: tuple(value.shape) for name, value in _list_weights(build()).items()}
        tensors = read_safetensors(weights, lambda found: compare_shapes(expected, found, weights))
        check_values(tensors, weights)
        model = build()
    except ConfigError as problem:
        raise CheckpointError(f"{path}: describes no task model: {problem}") from problem
    model.load_state_dict(tensors, strict=False)
    return model.to(find_device(device)).eval()


@dataclass(frozen=True)
class _StoredElmo:
    copied: bool
    fingerprint: str


@dataclass(frozen=True)
class _Settings:
    """What `config.json` holds."""

    format_version: int
    task: str
    config: dict[str, Any]
    vector_dim: Annotated[int, Bounds(0, 2**14)]
    elmo: _StoredElmo | None


def name_training_labels(labels: Collection[str]) -> str:
    """The training examples, as a complaint about another label names them: whoever took a wrong column sees it there.

    Example:
        >>> name_training_labels(["neg", "pos"])
        'the training examples, which have neg, pos'
    """
    shown = [label if len(label) <= 20 else f"{label[:20]}…" for label in islice(labels, 5)]
    return f"the training examples, which have {', '.join(shown)}{', …' if len(labels) > 5 else ''}"


def _open_saved_elmo(folder: Path, settings: _Settings, config: InputConfig, given: str | None) -> TaskElmo | None:
    stored = settings.elmo
    if (stored is None) != (config.elmo is None):
        raise CheckpointError(
            f"{folder}/config.json: elmo and config.inputs.elmo should both name a model or both be null; it is damaged"
        )
    if stored is None:
        return None
    source = given or _find_own_elmo(folder, config, is_copied=stored.copied)
    try:
        found = open_elmo(source, tunes=config.tune_elmo)
    except (CheckpointError, InputError) as problem:
        raise CheckpointError(
            f"{folder}: its ELMo model {source!r} cannot be loaded ({problem}); say where it is: --elmo SOURCE"
        ) from problem
    if found.fingerprint != stored.fingerprint:
        raise CheckpointError(
            f"{folder} was trained with another ELMo model than {source!r} holds (their weights differ); "
            "say where the right one is: --elmo SOURCE"
        )
    found.travels = stored.copied
    return found


def _find_own_elmo(folder: Path, config: InputConfig, *, is_copied: bool) -> str:
    """The source of a task's ELMo model that nobody has typed: its own folder, or an installed model.

    A folder from somebody else may name any path and any model of the hub: neither is opened unless the user says so.
    """
    name = str(config.elmo)
    if is_copied:
        if not (folder / "elmo").is_dir():
            raise CheckpointError(
                f"{folder}: its ELMo model, the folder elmo in it, is missing; say where it is: --elmo SOURCE"
            )
        return str(folder / "elmo")
    if name not in model_names():
        raise CheckpointError(
            f"{folder}: was trained with the ELMo model {name!r:.100}, which is not installed here; nothing is fetched "
            f"unasked: name it yourself with --elmo SOURCE, such as --elmo {name:.100}"
        )
    return name


class _WithoutValues(TorchFunctionMode):
    """Leaves out what only changes values: tensors that have none keep their shapes.

    Asked to draw random numbers for such a tensor, torch would import its compiler first, which takes a second.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        name, kwargs = function.__name__, kwargs or {}
        if name == "__invert__" or (name.endswith("_") and not name.endswith("__")):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _list_weights(model: TaskModel) -> dict[str, Tensor]:
    """All weights and buffers but the biLM's."""
    return {name: value for name, value in model.state_dict().items() if not name.startswith("inputs.tuned.")}


def _tensors_to_save(model: TaskModel) -> dict[str, Tensor]:
    """What `model.safetensors` holds; frozen vectors in half the space."""
    frozen = "inputs.vectors.weight" if not model.inputs.config.train_vectors else None
    return {
        name: (value.half() if name == frozen else value).detach().cpu().contiguous()
        for name, value in _list_weights(model).items()
    }


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
