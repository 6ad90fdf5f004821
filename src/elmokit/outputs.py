"""Where a result may be written: what can be refused is refused before any work is done.

A name arrives; an `OutputError` leaves, or nothing. Results take their names by a rename, which would put a file in the
place of whatever had the name before. So only a plain file is ever replaced.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from elmokit.errors import OutputError

__all__ = ["check_output", "check_plain"]

KINDS = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def check_output(path: Path) -> None:
    """Refuse a file that could not be written, or that a result must not replace."""
    check_plain(path)
    if not os.path.isdir(path.parent):  # unlike `Path.is_dir`, False for a name that nothing can have
        problem = f"the folder {path.parent} does not exist; name a file in a folder that exists"
        raise OutputError(f"cannot write {path}: {problem}")
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        raise OutputError(f"cannot write {path}: Permission denied; choose another place")


def check_plain(path: Path) -> None:
    """Refuse a name that a folder, a device, a pipe or a link to one has: a result never takes their place."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):  # nothing there, or nothing that could be
        return
    if kind != stat.S_IFREG:
        what = KINDS.get(kind, "no plain file")
        raise OutputError(f"cannot write {path}: {path} is {what}, which a result never replaces; choose another name")
