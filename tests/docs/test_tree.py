"""The README's tree is the table of contents: every source file stands in it, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def paths_of_the_tree() -> list[Path]:
    """The paths that the tree draws; a line names one or more files, then, after a wider gap, explains them."""
    tree = README.split("## The tree", 1)[1].split("```")[1]
    paths, folders = [], {0: Path()}
    for drawing, entry in re.findall(r"^([│ ]*)[├└]── (.*)$", tree, re.MULTILINE):
        depth = len(drawing) // 4
        names = re.split(r" {2,}", entry)[0].split()
        paths += [folders[depth] / name for name in names]
        folders[depth + 1] = folders[depth] / names[0]
    return paths


def test_every_source_file_stands_in_the_tree():
    drawn = {path.as_posix().rstrip("/") for path in paths_of_the_tree()}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.py")}
    missing = {source for source in sources if not source.endswith("__init__.py")} - drawn
    assert not missing


def test_everything_in_the_tree_exists():
    for path in paths_of_the_tree():
        assert (ROOT / path).exists(), f"README's tree names {path}, which does not exist"


def test_links_of_the_documentation_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_every_page_is_in_the_index():
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md") if "_build" not in page.parts}
    listed = (docs / "index.md").read_text(encoding="utf-8").split()
    assert pages - {"index"} <= set(listed)
