"""Fixtures that tests of several folders share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model in the native format; treat it as read-only."""
    from elmokit import Elmo, ElmoConfig

    folder = tmp_path_factory.mktemp("models") / "my-model"
    Elmo.random(ElmoConfig.tiny()).save_pretrained(folder)
    return folder
