"""What every reader of labelled files shares: their lines with their numbers, and what happens to bad ones.

A path arrives at a reader; what it holds leaves. What cannot be used goes to `Problems`, which either stops with an
error that names the place, or counts it and continues (`--skip-bad`). A .csv gives rows instead of lines, because a
field in quotes may hold the end of a line.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from elmokit.errors import InputError
from elmokit.text.files import Line, LineReader

__all__ = ["Problems", "is_csv", "read_csv", "read_lines", "split_blocks"]


@dataclass
class Problems:
    """What is done about input that cannot be used.

    Arguments:
        skips: count it and continue, instead of stopping at the first.

    Example:
        >>> problems = Problems(skips=True)
        >>> problems.add("train.tsv", 3, "expected two fields, found one")
        >>> problems.summary()
        '1 bad example skipped, the first: train.tsv:3: expected two fields, found one'
    """

    skips: bool = False
    num_bad: int = field(default=0, init=False)
    first: str | None = field(default=None, init=False)

    def add(self, path: str | os.PathLike[str], line: int | None, message: str) -> None:
        """Something at this place cannot be used: an `InputError`, or one more that was skipped."""
        place = os.fspath(path) if line is None else f"{os.fspath(path)}:{line}"
        self.add_at(place, message)

    def add_at(self, place: str, message: str) -> None:
        """The same for a place that is known as text, such as `Example.source`."""
        self._count(f"{place}: {message}")

    @contextmanager
    def within_one(self) -> Iterator[None]:
        """Around the reading of one example: an `InputError` inside makes it a bad one.

        Example:
            >>> problems = Problems(skips=True)
            >>> for rating in ("7", "?"):
            ...     with problems.within_one():
            ...         if not rating.isdecimal():
            ...             raise InputError(f"expected a number, found {rating!r}")
            >>> problems.num_bad
            1
        """
        try:
            yield
        except InputError as problem:
            self._count(str(problem))

    def _count(self, text: str) -> None:
        if not self.skips:
            raise InputError(f"{text}; correct it, or leave such examples out with --skip-bad") from None
        self.num_bad += 1
        self.first = self.first or text

    def summary(self) -> str | None:
        """One line about what was skipped, `None` if nothing was."""
        if not self.num_bad:
            return None
        return f"{self.num_bad:,} bad example{'s' if self.num_bad > 1 else ''} skipped, the first: {self.first}"


def read_lines(path: str | os.PathLike[str], problems: Problems) -> Iterator[tuple[int, str]]:
    """Numbers (from 1) and texts of the lines of a file, plain or packed; `-` for standard input."""
    for line in LineReader([path]):
        text = _decode(line, problems)
        if text is not None:
            yield line.number + 1, text


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file, packed or not, says that it holds fields between commas."""
    return ".csv" in (suffix.lower() for suffix in Path(path).suffixes[-2:])


def read_csv(path: str | os.PathLike[str], problems: Problems) -> Iterator[tuple[int, list[str]]]:
    r"""Line (from 1) and fields of each row of a .csv; those between semicolons, as some spreadsheets write, too.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("my.csv").write_text('label,text\ngood,"so ""fine"", he said"\n')
        >>> list(read_csv("my.csv", Problems()))
        [(1, ['label', 'text']), (2, ['good', 'so "fine", he said'])]
    """
    lines = read_lines(path, problems)
    first = next(lines, None)
    if first is None:
        return
    last = begin = first[0]

    def texts() -> Iterator[str]:
        nonlocal last
        for number, text in chain([first], lines):
            last = number
            yield text + "\n"

    rows = csv.reader(texts(), delimiter=";" if ";" in first[1] and "," not in first[1] else ",", strict=True)
    try:
        for fields in rows:
            if any(field.strip() for field in fields):
                yield begin, fields
            begin = last + 1
    except csv.Error as problem:
        raise InputError(
            f"{os.fspath(path)}:{begin}: expected fields between commas, found a row that cannot be read ({problem}): "
            'a field with a comma or a quote in it stands in quotes, with its own quotes twice: "so ""fine"", he said"'
        ) from None


def _decode(line: Line, problems: Problems) -> str | None:
    try:
        return line.text()
    except InputError:
        if not problems.skips:
            raise
        problems.add_at(line.place, "is not UTF-8")
        return None


def split_blocks(lines: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Runs of lines between blank ones: a sentence each, in column formats.

    Example:
        >>> list(split_blocks(iter([(1, "a"), (2, ""), (3, "b"), (4, "c")])))
        [[(1, 'a')], [(3, 'b'), (4, 'c')]]
    """
    block: list[tuple[int, str]] = []
    for number, text in lines:
        if text.strip():
            block.append((number, text))
        elif block:
            yield block
            block = []
    if block:
        yield block
