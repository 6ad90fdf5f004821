"""A file, or a folder, that appears complete or not at all: the only place that knows how.

A destination arrives; the writer is handed a temporary name beside it. Once the writer is done, what it wrote is
flushed to the disk and takes the destination's name by a rename, and the rename is flushed too. Any failure removes
the temporary and leaves what was there before; so does a kill, apart from the temporary itself. A folder that is
replaced steps aside first: a kill just then leaves it beside its place, and `sweep_partial` puts it back.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from elmokit.errors import OutputError
from elmokit.outputs import check_plain

__all__ = ["explain_failure", "flush_to_disk", "new_folder", "replace_file", "replace_text", "sweep_partial"]


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A name to write a file under, which replaces `path` at the end.

    Example:
        >>> with replace_file(Path("note.txt")) as temporary:
        ...     _ = temporary.write_text("all of it")
        >>> Path("note.txt").read_text()
        'all of it'
    """
    check_plain(path)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        yield temporary
        flush_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Write a small file of text, which replaces the one before at once."""
    with replace_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


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
        for path in filter(Path.is_file, partial.rglob("*")):
            flush_to_disk(path)
        _take_place(partial, dest)
    except BaseException as problem:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in reversed(made):
            if not any(parent.iterdir()):
                parent.rmdir()
        if isinstance(problem, (OSError, SafetensorError)) and not isinstance(problem, OutputError):
            hint = " (free some space)" if getattr(problem, "errno", None) == errno.ENOSPC else ""
            reason = explain_failure(problem) + hint
            raise OutputError(f"{dest}: cannot be written: {reason}; nothing was left there") from problem
        raise
    flush_to_disk(dest.parent)


def sweep_partial(dest: Path) -> None:
    """Remove what killed writers of a folder left beside it, and put back what one of them had moved aside.

    Only for the one who holds the lock of the job: to others a writer at work looks like a killed one.
    """
    pattern = f".{glob.escape(dest.name)}.{'[0-9a-f]' * 8}"
    moved = sorted(dest.parent.glob(f"{pattern}.old"), key=lambda path: path.stat().st_mtime)
    if moved and not os.path.lexists(dest):
        moved.pop().rename(dest)  # the last one
    for stale in [*moved, *dest.parent.glob(f"{pattern}.partial")]:
        shutil.rmtree(stale, ignore_errors=True)


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk, where the system can do that."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explain_failure(problem: BaseException) -> str:
    """Why something could not be written, in one line: h5py, safetensors and torch each have their own way to say."""
    if isinstance(problem, OSError) and problem.errno is not None:
        return os.strerror(problem.errno)
    return " ".join(str(problem).split())[:200]


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


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
