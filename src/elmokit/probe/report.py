"""What a probe found: rows and columns of numbers, as a table, as JSON, and as a picture.

Pictures need matplotlib (`pip install 'elmokit[viz]'`): bars for each row or, for layer weights, squares as in the
paper's Figure 2.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.errors import OutputError
from elmokit.io.atomic import replace_text
from elmokit.pictures import (
    COLOURS,
    RED,
    draw_heat,
    draw_heat_key,
    draw_legend,
    draw_picture,
    draw_title,
    label_bars,
)
from elmokit.version import describe_version

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Report", "draw", "find_versions", "write_json"]

PACKAGES = ("torch", "numpy")


@dataclass
class Report:
    """A table with what one needs to know about it.

    Arguments:
        probe: its name, as on the command line.
        title: one line.
        columns: names of the numbers.
        rows: for each name of a row its numbers by column; a number may be missing.
        unit: whether numbers are fractions, shown as percentages, or shown as they are.
        notes: lines to print below the table.
        facts: everything else that belongs into the JSON: counts, settings.
        baseline: the row that others are measured against, drawn as a line.
    """

    probe: str
    title: str
    columns: list[str]
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    unit: Literal["fraction", "number"] = "fraction"
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
                f"{self.show_number(numbers.get(column)):>{width}}"
                for column, width in zip(self.columns, widths, strict=True)
            )
            yield f"{name:{name_width}}" + "".join(cells)
        if self.notes:
            yield ""
            yield from self.notes

    def show_number(self, number: float | None) -> str:
        """A number as the table shows it."""
        if number is None or math.isnan(number):
            return "–"
        return f"{100 * number:.1f}" if self.unit == "fraction" else f"{number:.3f}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for `write_json`; a number that is none is null."""
        rows = [
            {"name": name, **{key: None if math.isnan(number) else round(number, 6) for key, number in numbers.items()}}
            for name, numbers in self.rows.items()
        ]
        table = {"columns": self.columns, "unit": self.unit, "baseline": self.baseline, "rows": rows}
        return {"probe": self.probe, "title": self.title, **self.facts, **table, "notes": self.notes}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """The table of what `to_dict` has written, to be drawn again."""
        rows = {
            row["name"]: {
                key: float("nan") if number is None else number for key, number in row.items() if key != "name"
            }
            for row in values["rows"]
        }
        shared = {name: values[name] for name in ("probe", "title", "columns", "unit", "notes", "baseline")}
        return cls(rows=rows, **shared)


def find_versions() -> dict[str, str]:
    """What ran: Python and the packages whose versions can move a number."""
    others = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "elmokit": describe_version(), **others}


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object; the file appears complete or not at all."""
    try:
        replace_text(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from problem


def draw(report: Report, path: Path, *, columns: list[str] | None = None) -> None:
    """Draw a report into a file; `columns` are those to show, all if not given."""
    if report.probe == "weights":
        _draw_squares(report, path)
    else:
        columns = columns or report.columns
        height = 1.1 + len(report.rows) * max(0.34, 0.2 * len(columns))
        with draw_picture(path, width=7, height=height) as (figure, axes):
            draw_title(figure, report.title)
            _draw_bars(axes, report, columns)


def _draw_bars(axes: Axes, report: Report, columns: list[str]) -> None:
    """Horizontal bars, the first row of the table on top; the baseline is a line."""
    names = [name for name in report.rows if name != report.baseline]
    scale = 100 if report.unit == "fraction" else 1
    height = 0.8 / len(columns)
    for number, column in enumerate(columns):
        values = [scale * report.rows[name].get(column, float("nan")) for name in names]
        places = [place + (number - (len(columns) - 1) / 2) * height for place in range(len(names))]
        bars = axes.barh(places, values, height=0.92 * height, color=COLOURS[number % len(COLOURS)], label=column)
        label_bars(axes, bars, [report.show_number(value / scale) for value in values], padding=3)
    if report.baseline is not None:
        value = report.rows[report.baseline][columns[0]]
        label = f"{report.baseline}: {report.show_number(value)}"
        axes.axvline(scale * value, color=RED, linestyle="--", linewidth=1, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.set_xlabel("%" if report.unit == "fraction" else "correlation")
    if len(columns) > 1 or report.baseline is not None:
        draw_legend(axes, columns=3)


def _draw_squares(report: Report, path: Path) -> None:
    """One panel per place of ELMo, one column per task, one row per layer."""
    panels: dict[str, list[str]] = {}
    for name in report.rows:
        panels.setdefault(name.rpartition(", ")[2], []).append(name)
    height = 1.1 + 0.5 * (len(report.columns) - 1)
    ratios = {"width_ratios": [len(names) for names in panels.values()]}
    grid = {"ncols": len(panels), "sharey": True, "squeeze": False, "gridspec_kw": ratios}
    with draw_picture(path, width=2.2 + 0.75 * len(report.rows), height=height, **grid) as (figure, squares):
        for axes, (place, names) in zip(squares[0], panels.items(), strict=True):
            _draw_panel(axes, report, names)
            axes.set_title(f"ELMo at the {place}" if place in ("input", "output") else place, fontsize=9)
        draw_heat_key(figure, list(squares[0]), "weight of the layer")


def _draw_panel(axes: Axes, report: Report, names: list[str]) -> None:
    *layers, gamma = report.columns
    layers.reverse()  # the top layer on top
    draw_heat(axes, [[report.rows[name][layer] for name in names] for layer in layers])
    tasks = [f"{name.rpartition(', ')[0]}\n{gamma} = {report.rows[name][gamma]:.2f}" for name in names]
    axes.set_xticks(range(len(names)), tasks, fontsize=8)
    axes.set_yticks(range(len(layers)), layers)
