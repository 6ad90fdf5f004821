"""What a program waits for, shown: a bar on a terminal, elsewhere a line every few seconds.

Lines go to the logger `elmokit.waits`. A command shows them on standard error, also while no step is done; in a program
of the user's own they appear where it asks for that logger's level INFO, and nowhere else.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["WAITS", "show_progress", "show_waits", "show_warnings"]

WAITS = logging.getLogger("elmokit.waits")
FIRST_LINE, NEXT_LINE = 2.0, 10.0  # seconds
LOOK_EVERY = 0.5

_bars: list[tuple[ReferenceType[tqdm], _Lines]] = []  # those that are lines, the innermost last


def show_progress(
    iterable: Iterable[Any] | None = None,
    *,
    hidden: bool = False,
    as_lines: bool = False,
    **options: Any,  # noqa: ANN401
) -> tqdm:
    """A bar of tqdm that is drawn on a terminal, and is lines of the log elsewhere.

    Arguments:
        iterable: what to count, unless `update` does.
        hidden: show nothing at all.
        as_lines: lines on a terminal, too.
        options: `total`, `desc`, `unit` and others, as tqdm takes them.
    """
    from tqdm import tqdm  # late: `elmo --help` needs none

    if hidden or WAITS.level > logging.INFO:
        return tqdm(iterable, disable=True, **options)
    if sys.stderr.isatty() and not as_lines:
        return tqdm(iterable, **options)
    lines = _Lines()
    bar = tqdm(iterable, file=lines, disable=not WAITS.isEnabledFor(logging.INFO), **options)
    _bars[:] = [*_open_bars(), (ref(bar), lines)]
    return bar


@contextmanager
def show_waits(*, is_quiet: bool) -> Iterator[None]:
    """Write what is waited for to standard error while a command runs; or, if it is quiet, nothing of it."""
    with _show_lines(WAITS, logging.ERROR if is_quiet else logging.INFO) as handler:
        if is_quiet or sys.stderr.isatty():
            yield
            return
        has_ended = threading.Event()
        speaker = threading.Thread(target=_fill_silence, args=(handler, has_ended), name="elmokit-waits", daemon=True)
        speaker.start()
        try:
            yield
        finally:
            has_ended.set()
            speaker.join()


@contextmanager
def show_warnings(*, is_quiet: bool) -> Iterator[None]:
    """Write the warnings of all of elmokit as lines of the command that runs; or, if it is quiet, none."""
    with _show_lines(logging.getLogger("elmokit"), logging.ERROR if is_quiet else logging.WARNING):
        yield


@contextmanager
def _show_lines(logger: logging.Logger, level: int) -> Iterator[_TimedHandler]:
    handler = _TimedHandler()
    handler.setFormatter(logging.Formatter("elmo: %(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(handler)


class _TimedHandler(logging.StreamHandler):
    """Writes to standard error and knows when it did so last; at first, when the command began."""

    def __init__(self) -> None:
        super().__init__()
        self.began = self.wrote = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        self.wrote = time.monotonic()
        super().emit(record)


def _fill_silence(handler: _TimedHandler, has_ended: threading.Event) -> None:
    """Say how far the innermost bar is when no step has moved it for long, or how long there has been no bar."""
    while not has_ended.wait(LOOK_EVERY):
        now = time.monotonic()
        if now - handler.wrote < NEXT_LINE:
            continue
        for find_bar, lines in reversed(_open_bars()):
            if (bar := find_bar()) is not None:
                lines.tell(str(bar))
                break
        else:
            WAITS.info(f"at work for {now - handler.began:.0f} s")


def _open_bars() -> list[tuple[ReferenceType[tqdm], _Lines]]:
    # Closing a bar disables it.
    return [(find_bar, lines) for find_bar, lines in _bars if (bar := find_bar()) is not None and not bar.disable]


class _Lines(io.TextIOBase):
    """Takes what tqdm would draw; logs it without the bar, if the last line was long ago."""

    def __init__(self) -> None:
        self._due = time.monotonic() + FIRST_LINE

    def write(self, text: str) -> int:
        if text.strip() and time.monotonic() >= self._due:
            self.tell(text)
        return len(text)

    def tell(self, text: str) -> None:
        """Log it now."""
        WAITS.info(" ".join(re.sub(r"\|.*?\|", " ", text.replace("\r", "")).split()))
        self._due = time.monotonic() + NEXT_LINE
