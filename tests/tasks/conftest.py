"""What tests of several tasks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from elmokit import Elmo, ElmoConfig
from elmokit.tasks.base import TaskModel
from elmokit.tasks.config import TrainingConfig
from elmokit.tasks.layer_store import TaskElmo
from elmokit.tasks.train import Results, train_model


@pytest.fixture(scope="session")
def task_elmo() -> TaskElmo:
    """A tiny random ELMo as a task takes it; it is frozen, so that tests can share it."""
    return TaskElmo(Elmo.random(ElmoConfig.tiny(), num_mixes=0), "random", travels=True)


@pytest.fixture(scope="session")
def train_tiny(tmp_path_factory) -> Callable[..., tuple[TaskModel, Results, Path, Sequence[Any]]]:
    """Trains a model; gives it, the results, its folder, and the examples it was scored on."""

    def train(model: TaskModel, examples: Sequence[Any], dev: Sequence[Any], **training: Any):  # noqa: ANN202
        folder = tmp_path_factory.mktemp(model.name) / "model"
        results = train_model(model, examples, dev, config=TrainingConfig(**training), folder=folder, device="cpu")
        return model, results, folder, dev

    return train
