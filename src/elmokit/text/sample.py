"""Sample files: a story and small labelled files of our own writing, so that every command has something to read.

A folder arrives; the files of `sample_files` are in it afterwards. README and the how-to pages run on them, in tests.
"""

from __future__ import annotations

import shutil
from os import PathLike
from pathlib import Path

from elmokit.errors import InputError, OutputError

__all__ = ["sample"]

FILES = Path(__file__).parent / "sample_files"


def sample(folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the sample files into a folder, which is made if there is none; its README.md says what each is.

    Files that are there already and the same are left as they are, so a second call changes nothing.

    Arguments:
        folder: where to.
        overwrite: also replace files of these names that have been changed.

    Example:
        >>> folder = sample("sample")
        >>> (folder / "story.txt").read_text(encoding="utf-8")[:48]
        'The town of Harrow Bay lies where a small river '
    """
    folder = Path(folder)
    sources = {folder / source.relative_to(FILES): source for source in sorted(FILES.rglob("*")) if source.is_file()}
    changed = [path for path, source in sources.items() if path.exists() and not _is_same(path, source)]
    if changed and not overwrite:
        raise InputError(
            f"{changed[0]} exists and is not the sample file of this name: choose another folder, or replace it with "
            "--overwrite (overwrite=True)"
        )
    for path, source in sources.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path in changed:
                shutil.copyfile(source, path)
        except OSError as problem:
            raise OutputError(f"cannot write {path}: {problem.strerror}; choose another folder") from problem
    return folder


def _is_same(path: Path, source: Path) -> bool:
    return path.is_file() and path.read_bytes() == source.read_bytes()
