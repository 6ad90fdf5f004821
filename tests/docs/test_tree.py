"""What the pages say of files is true: trees, paths and links name what exists, and the full tree every source file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "elmokit"


def paths_of_the_tree(page: str) -> list[Path]:
    """The paths that a page's tree draws; a line names one or more files, then, after a wider gap, explains them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    tree = next(block for block in text.split("```")[1::2] if block.startswith("\nelmokit/"))
    paths, folders = [], {0: Path()}
    for drawing, entry in re.findall(r"^([│ ]*)[├└]── (.*)$", tree, re.MULTILINE):
        depth = len(drawing) // 4
        names = re.split(r" {2,}", entry)[0].split()
        paths += [folders[depth] / name for name in names]
        folders[depth + 1] = folders[depth] / names[0]
    return paths


def test_every_source_file_stands_in_the_tree():
    drawn = {path.as_posix().rstrip("/") for path in paths_of_the_tree("ARCHITECTURE.md")}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.py")}
    missing = {source for source in sources if not source.endswith("__init__.py")} - drawn
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_everything_in_a_tree_exists(page):
    paths = paths_of_the_tree(page)
    assert len(paths) > 15
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_a_page_mentions_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    mentioned = re.findall(r"`([\w/.-]+(?:\.py|\.cpp|\.md|\.sh|/))`", text)
    assert mentioned
    assert not [name for name in mentioned if not ((ROOT / name).exists() or (PACKAGE / name).exists())]


def test_the_one_way_rule_is_the_one_that_is_checked():
    layers = re.search(r"^layers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    groups = re.findall(r'"(.*?)"', layers[1].replace("elmokit.", "").replace(" |", ","))
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert " → ".join(reversed(groups)) in " ".join(page.split())


def test_links_of_the_documentation_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert len(links) > 20
    assert not [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()]


def test_every_page_is_in_the_index():
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md") if "_build" not in page.parts}
    listed = (docs / "index.md").read_text(encoding="utf-8").split()
    assert pages - {"index"} <= set(listed)
