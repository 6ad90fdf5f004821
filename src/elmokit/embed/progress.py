"""How far a whole-file job has come: what its `progress` callback receives after every batch.

Arrives: the segments of a job as they begin and end. Leaves: `Progress` values, with speed and time left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from elmokit.embed.segments import Segment
from elmokit.text.files import LineReader

__all__ = ["JobClock", "Progress"]


@dataclass(frozen=True)
class Progress:
    """A moment of a job.

    Arguments:
        lines: lines done, those of an earlier run included.
        words: words embedded in this run.
        bytes_done: bytes of the input done, those of an earlier run included; compressed files count compressed.
        bytes_total: bytes of the whole input, `None` when it is not known (standard input).
        bytes_before: bytes that an earlier run had done already.
        seconds: time since this run began to embed.

    Example:
        >>> Progress(lines=2, words=50, bytes_done=300, bytes_total=900, bytes_before=0, seconds=2.0).seconds_left
        4.0
    """

    lines: int
    words: int
    bytes_done: int
    bytes_total: int | None
    bytes_before: int
    seconds: float

    @property
    def words_per_second(self) -> float:
        """Speed of this run."""
        return self.words / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time left at the speed of this run; `None` while nothing is known."""
        done = self.bytes_done - self.bytes_before
        if self.bytes_total is None or done <= 0:
            return None
        return max(0, self.bytes_total - self.bytes_done) * self.seconds / done


class JobClock:
    """Counts lines, words and bytes of a job.

    Arguments:
        reader: knows how many bytes of the input were read.
        num_lines: lines that an earlier run has done; the reader stands behind them.
        report: called with every `Progress`, if given.
    """

    def __init__(self, reader: LineReader, *, num_lines: int, report: Callable[[Progress], None] | None) -> None:
        self._reader, self._report = reader, report
        self._lines, self._words = num_lines, 0
        self._bytes_before = self._bytes_done = self._bytes_read = reader.bytes_done
        self._segment: Segment | None = None
        self._started = time.monotonic()

    def begin(self, segment: Segment) -> None:
        """A segment has been read and is about to be embedded."""
        self._segment, self._bytes_read = segment, segment.bytes_read

    def advance(self, fraction: float) -> None:
        """This fraction of the segment is embedded."""
        if self._report is not None and self._segment is not None:
            self._report(
                Progress(
                    lines=self._lines + int(fraction * self._segment.num_lines),
                    words=self._words + int(fraction * self._segment.num_words),
                    bytes_done=self._bytes_done + int(fraction * (self._bytes_read - self._bytes_done)),
                    bytes_total=self._reader.bytes_total,
                    bytes_before=self._bytes_before,
                    seconds=time.monotonic() - self._started,
                )
            )

    def end(self) -> None:
        """The segment is embedded."""
        assert self._segment is not None, "a segment ends that did not begin"
        self.advance(1.0)
        self._lines += self._segment.num_lines
        self._words += self._segment.num_words
        self._bytes_done = self._bytes_read
