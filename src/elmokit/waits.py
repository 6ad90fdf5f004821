"""What a program waits for, shown: a bar on a terminal, elsewhere a line now and then.

Lines go to the logger `elmokit.waits`, after two seconds and then twice a minute. A command shows them on standard
error; in a program of the user's own they appear where it asks for that logger's level INFO, and nowhere else.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["WAITS", "show_progress", "show_waits", "show_warnings"]

WAITS = logging.getLogger("elmokit.waits")
FIRST_LINE, NEXT_LINE = 2.0, 30.0  # seconds


def show_progress(iterable: Iterable[Any] | None = None, *, hidden: bool = False, **options: Any) -> tqdm:  # noqa: ANN401
    """A bar of tqdm that is drawn on a terminal, and is lines of the log elsewhere.

    Arguments:
        iterable: what to count, unless `update` does.
        hidden: show nothing at all.
        options: `total`, `desc`, `unit` and others, as tqdm takes them.
    """
    from tqdm import tqdm  # late: `elmo --help` needs none

    if hidden or WAITS.level > logging.INFO:
        return tqdm(iterable, disable=True, **options)
    if sys.stderr.isatty():
        return tqdm(iterable, **options)
    return tqdm(iterable, file=_Lines(), disable=not WAITS.isEnabledFor(logging.INFO), **options)


@contextmanager
def show_waits(*, is_quiet: bool) -> Iterator[None]:
    """Write what is waited for to standard error while a command runs; or, if it is quiet, nothing of it."""
    with _show_lines(WAITS, logging.ERROR if is_quiet else logging.INFO):
        yield


@contextmanager
def show_warnings(*, is_quiet: bool) -> Iterator[None]:
    """Write the warnings of all of elmokit as lines of the command that runs; or, if it is quiet, none."""
    with _show_lines(logging.getLogger("elmokit"), logging.ERROR if is_quiet else logging.WARNING):
        yield


@contextmanager
def _show_lines(logger: logging.Logger, level: int) -> Iterator[None]:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("elmo: %(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(handler)


class _Lines(io.TextIOBase):
    """Takes what tqdm would draw; logs it without the bar, if the last line was long ago."""

    def __init__(self) -> None:
        self._due = time.monotonic() + FIRST_LINE

    def write(self, text: str) -> int:
        line = re.sub(r"\|.*?\|", " ", text.replace("\r", "")).strip()
        if line and time.monotonic() >= self._due:
            WAITS.info(" ".join(line.split()))
            self._due = time.monotonic() + NEXT_LINE
        return len(text)
