"""One job per output: a lock that a job holds as long as it lives.

Whoever writes an output for a while holds a lock of the system's own on a small file beside it, `OUT.elmo-lock`. The
system gives the lock back when the process ends, whichever way; no job is ever kept out by the file of a dead one. The
file says in one line who holds it and since when, and goes with the lock; a kill leaves it behind, and the next job on
the same output takes it over and removes it. Nobody who only reads asks for it.

Where a file system has no locks (some network and cloud mounts), the job says so and goes on: refusing to work there
would help nobody who runs one job at a time.
"""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from elmokit.errors import BusyError, OutputError
from elmokit.waits import WAITS

__all__ = ["lock_output"]

SUFFIX = ".elmo-lock"
HAND_OVER = 0.2  # seconds in which a job that has just ended gives its lock back
LONGEST_NOTE = 200  # bytes that are read of it
NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


@contextmanager
def lock_output(output: Path, *, waits: bool = False) -> Iterator[None]:
    """Keep every other job away from an output for the time inside; a `BusyError` if one is there already.

    Arguments:
        output: the file or folder that is written; folders above it are made if need be.
        waits: wait for the other job, for what is computed once and shared.
    """
    path = output.parent / f"{output.name}{SUFFIX}"
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    lock = FileLock(path, timeout=HAND_OVER, thread_local=False, on_acquired=_write_note)
    is_locked = True
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _acquire(lock, path, waits=waits)
        except Timeout:
            raise BusyError(
                f"{output} is being written by another job ({_read_note(path)}): wait until it has ended, stop it, or "
                "choose another name"
            ) from None
        except OSError as problem:
            if problem.errno not in NO_LOCKS:
                raise OutputError(
                    f"cannot write {output}: {path.name} cannot be made: {problem.strerror or problem}; choose another "
                    "place"
                ) from problem
            is_locked = False
            path.unlink(missing_ok=True)
            WAITS.warning(f"the disk of {output} has no locks: see to it yourself that no other job writes there")
        yield
    finally:
        if is_locked and lock.is_locked:
            with suppress(OSError):  # Windows removes no open file
                path.unlink()
            lock.release()
        for folder in made:
            with suppress(OSError):  # not empty: something was written
                folder.rmdir()


def _acquire(lock: FileLock, path: Path, *, waits: bool) -> None:
    try:
        lock.acquire()
    except Timeout:
        if not waits:
            raise
        WAITS.info(f"waiting for another job ({_read_note(path)}) …")
        lock.acquire(timeout=-1)


def _write_note(descriptor: int) -> None:
    note = f"process {os.getpid()} on {platform.node()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
    os.ftruncate(descriptor, 0)
    os.write(descriptor, note.encode("utf-8", "replace"))


def _read_note(path: Path) -> str:
    """Who holds the lock, as far as that is known: the job may have just ended, and Windows shows no locked file."""
    try:
        with path.open("rb") as file:
            note = file.read(LONGEST_NOTE).decode("utf-8", "replace").strip()
    except OSError:
        note = ""
    return note if note.startswith("process ") and note.isprintable() else "it does not say which"
