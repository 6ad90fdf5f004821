"""The wheel, built from the sdist, installed outside the checkout and run there without the network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """`python -m build` makes the sdist from the checkout and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    assert len(list(folder.glob("*.tar.gz"))) == 1
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    unwanted = {".pyc", ".pyo"}
    sources = (path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in unwanted)
    assert names == {path.relative_to(ROOT / "src").as_posix() for path in sources}
    assert "elmokit/py.typed" in names


def test_the_installed_wheel_runs_outside_the_checkout(wheel, tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    code = (
        "import elmokit; from elmokit.cli import main;"
        f"assert elmokit.__file__.startswith({str(target)!r}), elmokit.__file__;"
        "elmokit.Elmo.random(elmokit.ElmoConfig.tiny()).save_pretrained('my-model');"
        "raise SystemExit(main(['compare', 'bank', 'A bank .', 'The bank .', '--model', 'my-model', '--quiet']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(target), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0
    assert "1 and 2" in done.stdout
    card = (tmp_path / "my-model" / "README.md").read_text(encoding="utf-8")
    assert "645,904" in card
