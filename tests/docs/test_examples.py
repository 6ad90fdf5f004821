"""Every example in README, docs and docstrings runs.

Each page runs from top to bottom in an empty folder, as a newcomer would run it: what it reads, `elmo sample` or an
earlier block has written. `python` and `bash` blocks run; an `output` block is what the block before it prints. A block
that cannot run here has a paragraph before it that begins with **Needs:** and says what, and is counted in `NEEDS`.
`make` targets and the extras of `pip` commands are checked, not run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import math
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from elmokit.cli import main

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(\$ |[A-Z]+=\S+ )?(bash|elmo|python3?|pip|torchrun|make) ", re.MULTILINE)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SPEED = re.compile(r"\d s\b|\bwords/s\b")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# How many blocks of each page need what the tests may not have: a GPU, a download, another program.
NEEDS = {
    "docs/first-hour.md": 1,
    "docs/how-to/explorer.md": 1,
    "docs/how-to/export.md": 5,
    "docs/how-to/flair.md": 3,
    "docs/how-to/gensim.md": 2,
    "docs/how-to/measure-speed.md": 3,
    "docs/how-to/scale-out.md": 8,
    "docs/how-to/serve.md": 4,
    "docs/how-to/spacy.md": 6,
    "docs/how-to/tasks.md": 1,
    "docs/how-to/tensorflow-checkpoints.md": 4,
    "docs/how-to/train.md": 2,
    "docs/how-to/transformers.md": 6,
    "docs/how-to/web-scale.md": 1,
    "docs/how-to/your-language.md": 3,
    "docs/results.md": 5,
}

# What a page may need and an environment may have: these blocks run where it has them.
FRAMEWORKS = {
    "Dask": "dask",
    "Flair": "flair",
    "Ray": "ray",
    "accelerate": "accelerate",
    "datasets": "datasets",
    "gensim": "gensim",
    "onnxscript": "onnxscript",
    "scikit-learn": "sklearn",
    "sentence-transformers": "sentence_transformers",
    "spaCy": "spacy",
    "transformers": "transformers",
}


def files_with(pattern: str | re.Pattern[str], paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if re.search(pattern, path.read_text(encoding="utf-8")))


PAGES = files_with(FENCED, [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = files_with("    >>> ", (ROOT / "src").rglob("*.py"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A fenced block of a page: its language, what is in it, its first line, and what the page says that it needs."""

    language: str
    code: str
    line: int
    needs: str


def blocks_of(page: Path) -> list[Block]:
    text, blocks = page.read_text(encoding="utf-8"), []
    for found in FENCED.finditer(text):
        paragraph = text[: found.start()].rstrip().rpartition("\n\n")[2]
        needs = paragraph if paragraph.startswith("**Needs:** ") else ""
        if found[1] == "output" and blocks:
            needs = blocks[-1].needs  # it is what the block before it prints
        blocks.append(Block(found[1], found[2], text.count("\n", 0, found.start(2)), needs))
    return blocks


def can_run(block: Block) -> bool:
    """Whether nothing is missing; frameworks may be installed or not."""
    frameworks = [module for name, module in FRAMEWORKS.items() if name in block.needs]
    return not block.needs or (bool(frameworks) and all(find_spec(module) is not None for module in frameworks))


def run_page(page: Path) -> int:
    """Run the blocks of a page in their order and compare what they print; how many were run or compared."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, num_done = "", 0
    for block in filter(can_run, blocks_of(page)):
        place = f"{name_of(page)}:{block.line + 1}"
        if block.language == "output":
            wrong = list(differences(block.code, printed))
            assert not wrong, "\n".join([place, *wrong, "All that was printed:", printed])
        elif block.language in ("python", "bash"):
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as stream:
                (run_python if block.language == "python" else run_shell)(block, place, namespace)
            stream.seek(0)
            printed = stream.read()
        num_done += block.language in ("python", "bash", "output")
    return num_done


def run_python(block: Block, place: str, namespace: dict[str, Any]) -> None:
    """Run a block of Python; one with `>>>` must also print what it shows."""
    if ">>> " not in block.code:
        exec(compile("\n" * block.line + block.code, place, "exec"), namespace)  # so that errors name the page's line
        return
    test = doctest.DocTestParser().get_doctest(block.code, namespace, place, place, block.line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    assert runner.run(test, out=report.append, clear_globs=False).failed == 0, "".join(report)
    namespace.update(test.globs)


def run_shell(block: Block, place: str, namespace: dict[str, Any]) -> None:
    """Run the `elmo` and `printf` lines, and check the others."""
    for line in block.code.replace("\\\n", " ").splitlines():
        command, *arguments = shlex.split(line, comments=True) or [""]
        assert command in ("elmo", "make", "pip", "printf", ""), f"{place}: this test does not know {line!r}"
        if command == "elmo":
            assert main(arguments) == 0, f"{place}: {line!r} failed"
        if command == "printf":
            subprocess.run(line, shell=True, check=True)
        if command == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        for extra in re.findall(r"(?:elmokit|\.)\[(\w+)\]", line) if command == "pip" else ():
            assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)


def differences(shown: str, printed: str) -> Iterator[str]:
    """Lines of a page that are not what was printed; fractions may differ a little, and seconds and speeds at will."""
    pairs = zip_longest(shown.rstrip().split("\n"), printed.rstrip().split("\n"), fillvalue="(no such line)")
    for line, found in pairs:
        texts = [NUMBER.sub("#", each).split() for each in (line, found)]
        numbers = zip(NUMBER.findall(line), NUMBER.findall(found), strict=False)
        if texts[0] != texts[1] or not (SPEED.search(line) or all(is_near(*pair) for pair in numbers)):
            yield f"the page has {line!r}, printed was {found!r}"


def is_near(one: str, other: str) -> bool:
    """Whether two numbers are equal, as counts must be, or fractions that another machine may round differently."""
    values = [float(number.replace(",", "")) for number in (one, other)]
    return one == other or ("." in one and math.isclose(*values, rel_tol=0.05, abs_tol=0.03))


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Path:
    """The empty folder that examples run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_page_runs(page, desk):
    runnable = [block for block in blocks_of(page) if block.language in ("python", "bash", "output")]
    assert run_page(page) == sum(map(can_run, runnable))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_hidden(page):
    text = page.read_text(encoding="utf-8")
    assert "<!--" not in text
    blocks = [block for block in blocks_of(page) if block.language != "output"]
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(blocks_of(page))
    assert sum(bool(block.needs) for block in blocks) == NEEDS.get(name_of(page), 0)
    others = [block for block in blocks if block.language not in ("python", "bash") and not block.needs]
    assert not [block.code for block in others if COMMAND.search(block.code)]


def test_what_a_page_shows_is_compared_with_what_is_printed():
    assert not list(differences("bank  0.78\n3 lines, 1.2 s", "bank 0.785\n3 lines, 9.9 s\n"))
    assert list(differences("bank  0.78", "bank  0.88"))
    assert list(differences("83 words", "84 words"))
    assert list(differences("the king 's 3 sons", "the king 's 2 sons"))
    assert list(differences("[Oslo LOC] .", "Oslo [. LOC]"))
    assert list(differences("one\ntwo", "one"))
    assert list(differences("one", "one\ntwo"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(ROOT / "src").as_posix())
def test_docstring_examples_run(source, desk):
    name = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    results = doctest.testmod(import_module(name), optionflags=OPTIONS)
    assert results.failed == 0
    assert results.attempted >= source.read_text(encoding="utf-8").count("    >>> ")


def test_whoever_reads_several_pages_in_one_folder_is_never_told_that_an_output_exists():
    """`elmo embed` replaces nothing, and results alone replace no model: so no two pages may write the same names."""
    pages = [ROOT / "README.md", ROOT / "docs/first-hour.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
    written: dict[str, Path] = {}
    for page in pages:
        for language, block in FENCED.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines() if language == "bash" else ():
                found = re.search(r"^elmo (?:embed|task train|convert) .*?-o (\S+)", line)
                name = found[1] if found else "-"
                is_kept = line.startswith("elmo embed") or "--results-only" in line
                assert name == "-" or not is_kept or name not in written, (
                    f"{page} writes {name}, as {written[name]} does"
                )
                written.setdefault(name, page)
