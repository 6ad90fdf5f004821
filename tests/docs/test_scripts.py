"""What the scripts of benchmarks/ and recipes/ take from elmokit is there: most of them run nowhere in the tests."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "recipes").glob("*.py")])


def missing_names(source: str) -> list[str]:
    """The modules and names of elmokit that a script imports and that do not exist."""
    missing = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            missing += [alias.name for alias in node.names if not is_module(alias.name)]
        elif isinstance(node, ast.ImportFrom) and is_ours(module := node.module or ""):
            names = [alias.name for alias in node.names]
            missing += [f"{module}.{name}" for name in names if not is_module(module) or not has_name(module, name)]
    return missing


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "elmokit"


def is_module(path: str) -> bool:
    """Whether a module is there; one of others, or that needs what is not installed here, is believed to be."""
    try:
        return not is_ours(path) or bool(import_module(path))
    except ModuleNotFoundError as problem:
        return not is_ours(problem.name or "")
    except ImportError:
        return True


def has_name(module: str, name: str) -> bool:
    """Whether a module that is there has such a name or submodule."""
    return module not in sys.modules or hasattr(sys.modules[module], name) or is_module(f"{module}.{name}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}/{script.name}")
def test_a_script_finds_what_it_imports(script):
    assert missing_names(script.read_text(encoding="utf-8")) == []


def test_a_name_that_moved_is_found_out():
    assert missing_names("from elmokit.probe.cosines import scale_to_unit, pair_cosines") == [
        "elmokit.probe.cosines.scale_to_unit"
    ]
    assert missing_names("import elmokit.nothing, no_such_library\nfrom elmokit import Embedder, bench") == [
        "elmokit.nothing"
    ]
    assert missing_names("def late():\n    from elmokit.nothing import one") == ["elmokit.nothing.one"]
