"""A folder, or a small file of text, that appears complete or not at all.

A destination arrives; a temporary sibling folder is handed to the writer, and takes the destination's name once
the writer is done and its files have reached the disk. Any failure removes it and leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from elmokit.errors import OutputError

__all__ = ["new_folder", "replace_text"]


@contextmanager
def new_folder(dest: Path, *, replaces: Collection[str] | None = None) -> Iterator[Path]:
    """A folder to write into that becomes `dest` at the end.

    Arguments:
        dest: must not exist, or be an empty folder.
        replaces: names of files; a folder at `dest` that holds these and no others may be replaced.
    """
    _check_free(dest, replaces)
    made: list[Path] = []
    partial = dest.parent / f".{dest.name}.{secrets.token_hex(4)}.partial"
    try:
        for parent in reversed([dest.parent, *dest.parent.parents]):
            if not parent.exists():
                parent.mkdir()
                made.append(parent)
        partial.mkdir()
        yield partial
        _flush(partial)
        _take_place(partial, dest)
    except BaseException as problem:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in reversed(made):
            if not any(parent.iterdir()):
                parent.rmdir()
        if isinstance(problem, (OSError, SafetensorError)) and not isinstance(problem, OutputError):
            raise OutputError(f"{dest}: cannot be written: {_reason(problem)}; nothing was left there") from problem
        raise


def replace_text(path: Path, text: str) -> None:
    """Write a small file at once: whoever is killed meanwhile, or finds the disk full, leaves the one before it."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _check_free(dest: Path, replaces: Collection[str] | None) -> None:
    if not os.path.lexists(dest):
        return
    if dest.is_symlink() or not dest.is_dir():
        raise OutputError(f"{dest}: expected a folder or nothing, found a file or link; choose another place")
    held = sorted(entry.name for entry in dest.iterdir())
    if not held:
        return
    if replaces is None:
        raise OutputError(f"{dest}: expected an empty or a new folder, found {_few(held)} in it; choose another place")
    foreign = [name for name in held if name not in replaces]
    if foreign:
        raise OutputError(f"{dest}: only a model's own files may be replaced, found {_few(foreign)}; move them first")


def _flush(folder: Path) -> None:
    for path in filter(Path.is_file, folder.rglob("*")):
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _take_place(partial: Path, dest: Path) -> None:
    if not dest.exists():
        partial.rename(dest)
        return
    old = partial.with_suffix(".old")
    dest.rename(old)
    try:
        partial.rename(dest)
    except BaseException:
        old.rename(dest)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _reason(problem: BaseException) -> str:
    if isinstance(problem, OSError) and problem.errno is not None:
        hint = " (free some space)" if problem.errno == errno.ENOSPC else ""
        return os.strerror(problem.errno) + hint
    return " ".join(str(problem).split())


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
