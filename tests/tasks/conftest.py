"""What tests of several tasks share."""

from __future__ import annotations

import pytest

from elmokit import Elmo, ElmoConfig
from elmokit.tasks.layer_store import TaskElmo


@pytest.fixture(scope="session")
def task_elmo() -> TaskElmo:
    """A tiny random ELMo as a task takes it; it is frozen, so that tests can share it."""
    return TaskElmo(Elmo.random(ElmoConfig.tiny(), num_mixes=0), "random", travels=True)
