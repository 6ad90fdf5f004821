"""When a run stops before its end: its time is over, or somebody asks it to, by Ctrl-C or SIGTERM.

The step under way is finished first, so that the checkpoint is one that an undisturbed run passes, too. Who asks a
second time does not wait for it. Signals reach the main thread alone, and several processes must stop at one step:
there only the time is watched, and a signal ends a process at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from elmokit.errors import ConfigError

__all__ = ["Stop"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
HEARD = b"\nelmo: stops after this step, with a checkpoint; a second time: at once\n"


class Stop:
    """Whether a run should stop.

    Arguments:
        minutes: that it may take; `None` for no limit.
        is_quiet: whether nothing is said when somebody asks.
    """

    def __init__(self, minutes: float | None = None, *, is_quiet: bool = False) -> None:
        if minutes is not None and not minutes >= 0:
            raise ConfigError(f"minutes is {minutes}: expected a number of 0 or more, or none for no limit")
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._asked: int | None = None
        self._is_quiet = is_quiet

    @property
    def is_due(self) -> bool:
        """Whether to stop now."""
        return self._asked is not None or (self.deadline is not None and time.monotonic() > self.deadline)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Note the first signal instead of ending; signals that were ignored before, as under nohup, still are."""
        is_main = threading.current_thread() is threading.main_thread()
        heard = [number for number in SIGNALS if is_main and signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def pass_on(self) -> None:
        """Give the signal that was noted to whoever would have had it, after `listen` has ended."""
        if self._asked is not None:
            signal.raise_signal(self._asked)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self._asked is not None:
            raise KeyboardInterrupt
        self._asked = number
        if not self._is_quiet:
            os.write(2, HEARD)  # a handler may not write through a buffer that it has interrupted
