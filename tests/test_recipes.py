"""Recipes that made the texts of published models do what their docstrings say, and keep doing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[1] / "recipes"
PLAIN, TREEBANK = "Don't give John's dog 10 , 000 bones .", "Do n't give John 's dog 10,000 bones ."


@pytest.mark.parametrize(("options", "expected"), [([], [PLAIN, TREEBANK]), (["--plain-first"], [TREEBANK, PLAIN])])
def test_paragraphs_are_split_in_two_ways_by_turns(tmp_path, options, expected):
    (tmp_path / "in.txt").write_text("Don't give John's dog 10,000 bones.\n" * 4, encoding="utf-8")
    command = [sys.executable, RECIPES / "tokenise_two_ways.py", "in.txt", "out.txt", *options]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines() == expected * 2
