"""Every example in README, docs and docstrings runs.

Each page runs from top to bottom in a folder with a tiny random model called `my-model`, a text `corpus.txt`, labelled
words `train.conll` and `dev.conll`, and word vectors `glove.txt`.
`elmo` and `printf` commands in shell examples run too; `make` targets are checked, and `pip` commands are not run.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from elmokit.cli import main

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(?:python|bash)$", re.MULTILINE)


def files_with(pattern: str | re.Pattern[str], paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if re.search(pattern, path.read_text(encoding="utf-8")))


PAGES = files_with(FENCED, [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = files_with("    >>> ", (ROOT / "src").rglob("*.py"))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_shell(example: Example) -> str | None:
    """Run the `elmo` and `printf` lines and check the `make` lines; what is wrong is returned, as sybil asks."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in example.parsed.splitlines():
        command, *arguments = shlex.split(line, comments=True) or [""]
        if command == "elmo" and main(arguments):
            return f"failed: {line}"
        if command == "make" and not re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE):
            return f"no such target: {line}"
        if command == "printf":
            subprocess.run(line, shell=True, check=True)
        if command not in ("elmo", "make", "pip", "printf", ""):
            return f"a command that this test does not know: {line}"
    return None


@pytest.fixture
def desk(tmp_path, monkeypatch, random_model) -> Path:
    """The folder that the pages' examples run in."""
    shutil.copytree(random_model, tmp_path / "my-model")
    (tmp_path / "corpus.txt").write_text("She sat by the river bank.\n\nThe bank lent him money.\n", encoding="utf-8")
    for name in ("train.conll", "dev.conll"):
        (tmp_path / name).write_text("Ann B-PER\nLee I-PER\nleft O\nOslo B-LOC\n\nThey O\nleft O\n", encoding="utf-8")
    (tmp_path / "glove.txt").write_text("left 0.1 0.2\noslo 0.3 0.4\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(document: Document) -> int:
    examples = list(document.examples())
    for example in examples:
        example.evaluate()
    return len(examples)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_runs(page, desk):
    shell = CodeBlockParser(language="bash", evaluator=run_shell)
    sybil = Sybil(parsers=[PythonCodeBlockParser(doctest_optionflags=OPTIONS), shell], path=str(ROOT))
    assert evaluate(sybil.parse(page)) >= len(FENCED.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(ROOT / "src").as_posix())
def test_docstring_examples_run(source, desk):
    name = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    results = doctest.testmod(import_module(name), optionflags=OPTIONS)
    assert results.failed == 0
    assert results.attempted >= source.read_text(encoding="utf-8").count("    >>> ")
