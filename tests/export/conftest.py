"""Exported models, and their runner as a module of its own."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from elmokit.export.bundling import bundle_runner
from elmokit.export.rules import describe_rules


def load_module(folder: Path) -> ModuleType:
    """The module `run_elmo.py` of a folder."""
    spec = importlib.util.spec_from_file_location(f"run_elmo_{abs(hash(folder))}", folder / "run_elmo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def load_runner() -> Callable[[Path], ModuleType]:
    return load_module


@pytest.fixture(scope="session")
def bundled(tmp_path_factory) -> Path:
    """A folder with the runner and the rules of its segmenter: what needs no ONNX."""
    folder = tmp_path_factory.mktemp("runner")
    (folder / "run_elmo.py").write_text(bundle_runner(), encoding="utf-8")
    (folder / "segmenter.json").write_text(json.dumps(describe_rules()), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def runner(bundled) -> ModuleType:
    return load_module(bundled)
