"""Which elmokit this is: its version, and the commit of the checkout it runs from.

Results of tasks, probes, training and benchmarks name both; files of vectors (`elmo embed`) name the version alone.

An installed package knows its version. Run from a checkout that is not installed, `pyproject.toml` says it, and the
commit is read from git's files, without running git. A copy of a checkout that has no `.git`, for instance on a
machine that only computes, is told its commit by the environment variable `ELMOKIT_COMMIT`.
"""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

__all__ = ["describe_version", "find_commit", "find_version"]

CHECKOUT = Path(__file__).resolve().parents[2]  # of src/elmokit/version.py, if it lies in one
COMMIT_LETTERS = 10


def describe_version() -> str:
    """The version and the commit, if there is one: `"0.1.0 (1a2b3c4d5e)"`."""
    commit = find_commit()
    return find_version() + (f" ({commit})" if commit else "")


def find_version(checkout: Path = CHECKOUT) -> str:
    """The version of the installed package, or of the checkout."""
    try:
        return metadata.version("elmokit")
    except metadata.PackageNotFoundError:
        found = re.search(r'^version = "(.+)"', _read(checkout / "pyproject.toml"), re.MULTILINE)
        return found[1] if found else "unknown"


def find_commit(checkout: Path = CHECKOUT) -> str | None:
    """The commit that the checkout is at, shortened; `None` where there is no checkout. Changes do not show."""
    given = os.environ.get("ELMOKIT_COMMIT")
    if given:
        return given[:COMMIT_LETTERS]
    if not _read(checkout / "pyproject.toml"):
        return None  # installed: the folder above may be anybody's checkout
    git = checkout / ".git"
    if git.is_file():  # a worktree: its own folder holds HEAD, and names the folder that holds the branches
        git = checkout / _read(git).removeprefix("gitdir:").strip()
    head = _read(git / "HEAD").strip()
    if head.startswith("ref:"):
        branch = head.removeprefix("ref:").strip()
        common = git / (_read(git / "commondir").strip() or ".")
        packed = re.search(rf"^([0-9a-f]+) {re.escape(branch)}$", _read(common / "packed-refs"), re.MULTILINE)
        head = _read(git / branch).strip() or _read(common / branch).strip() or (packed[1] if packed else "")
    return head[:COMMIT_LETTERS] or None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
