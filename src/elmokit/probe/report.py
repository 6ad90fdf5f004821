"""What a probe found: rows and columns of numbers, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from elmokit.errors import OutputError
from elmokit.io.atomic import replace_text

__all__ = ["Report", "check_writable", "versions", "write_json"]

PACKAGES = ("elmokit", "torch", "numpy")


@dataclass
class Report:
    """A table with what one needs to know about it.

    Arguments:
        probe: its name, as on the command line.
        title: one line.
        columns: names of the numbers.
        rows: for each name of a row its numbers by column; a number may be missing.
        unit: whether numbers are shares, shown as percentages, or shown as they are.
        notes: lines to print below the table.
        facts: everything else that belongs into the JSON: counts, settings.
        baseline: the row that others are measured against, drawn as a line.
    """

    probe: str
    title: str
    columns: list[str]
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    unit: Literal["share", "number"] = "share"
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    baseline: str | None = None

    def lines(self) -> Iterator[str]:
        """The table as text."""
        name_width = max(len(name) for name in (*self.rows, "")) + 2
        widths = [max(len(column), 6) + 2 for column in self.columns]
        yield self.title
        yield ""
        yield " " * name_width + "".join(f"{name:>{width}}" for name, width in zip(self.columns, widths, strict=True))
        for name, numbers in self.rows.items():
            cells = (
                f"{self.shown(numbers.get(column)):>{width}}"
                for column, width in zip(self.columns, widths, strict=True)
            )
            yield f"{name:{name_width}}" + "".join(cells)
        if self.notes:
            yield ""
            yield from self.notes

    def shown(self, number: float | None) -> str:
        """A number as the table shows it."""
        if number is None or math.isnan(number):
            return "–"
        return f"{100 * number:.1f}" if self.unit == "share" else f"{number:.3f}"

    def facts_for_json(self) -> dict[str, Any]:
        """Everything, ready for `write_json`; a number that is none is null."""
        rows = [
            {"name": name, **{key: None if math.isnan(number) else round(number, 6) for key, number in numbers.items()}}
            for name, numbers in self.rows.items()
        ]
        return {"probe": self.probe, "title": self.title, **self.facts, "rows": rows, "notes": self.notes}


def versions() -> dict[str, str]:
    """What ran: Python and the packages whose versions can move a number."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def check_writable(path: Path) -> None:
    """An `OutputError` now rather than after the work, when a file could not be written there."""
    if path.is_dir() or not path.parent.is_dir():
        raise OutputError(f"{path}: expected the name of a file in a folder that exists")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object; the file appears complete or not at all."""
    try:
        replace_text(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from problem
