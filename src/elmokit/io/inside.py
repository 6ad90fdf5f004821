"""Names inside a folder stay inside it: what a model, a task or a job names is a plain file of its own folder.

A folder that somebody else made may hold a link to a file of yours, a pipe that never ends, or a setting that names
`/etc/passwd`. None of them is opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from elmokit.errors import CheckpointError

__all__ = ["check_entries", "find_inside"]


def check_entries(folder: Path) -> None:
    """Refuse a folder in which something is a link to elsewhere, a pipe or a device.

    The cache of the hub's client keeps the files of a snapshot in a folder beside it and links to them: these links
    are followed.
    """
    root = Path(os.path.realpath(folder))
    roots = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.is_symlink() or entry.is_dir() or entry.is_file()):
                raise CheckpointError(f"{entry.path}: expected a file, found a pipe or a device; refused")
            if entry.is_symlink():
                _check_link(Path(entry.path), roots)


def _check_link(path: Path, roots: list[Path]) -> None:
    target = Path(os.path.realpath(path))
    if not any(target.is_relative_to(root) for root in roots):
        raise CheckpointError(
            f"{path} is a link to {target}, outside of its folder; refused: if that is meant, put a copy there"
        )
    kind = stat.S_IFMT(target.stat().st_mode) if target.exists() else stat.S_IFREG
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise CheckpointError(f"{path} is a link to a pipe or a device, expected a file; refused")


def find_inside(folder: Path, name: str) -> Path | None:
    """The plain file of this name in the folder or below it; `None` where there is none, or where it leads outside."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        return None
    try:
        path = folder.joinpath(*parts)
        is_inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
        return path if is_inside and path.is_file() else None
    except (OSError, ValueError):  # a name that no system takes
        return None
