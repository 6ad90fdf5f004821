"""Pictures of reports: bars for each row, or, for layer weights, squares as in the paper's Figure 2.

A `Report` arrives, a file leaves. Needs matplotlib (`pip install 'elmokit[viz]'`); the tables tell the same without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.pictures import drawing
from elmokit.probe.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

COLOURS = ("#1f5f99", "#edae49", "#77a88d", "#b5a4c9", "#a0a0a0")
BASELINE_COLOUR = "#d1495b"


def draw(report: Report, path: Path, *, columns: list[str] | None = None) -> None:
    """Draw a report into a file; `columns` are those to show, all if not given."""
    if report.probe == "weights":
        _draw_squares(report, path)
    else:
        columns = columns or report.columns
        height = 1 + len(report.rows) * max(0.34, 0.2 * len(columns))
        with drawing(path, width=8, height=height) as (_, axes):
            _draw_bars(axes, report, columns)


def _draw_bars(axes: Axes, report: Report, columns: list[str]) -> None:
    """Horizontal bars, the first row of the table on top; the baseline is a line."""
    names = [name for name in report.rows if name != report.baseline]
    scale = 100 if report.unit == "share" else 1
    height = 0.8 / len(columns)
    for number, column in enumerate(columns):
        values = [scale * report.rows[name].get(column, float("nan")) for name in names]
        places = [place + (number - (len(columns) - 1) / 2) * height for place in range(len(names))]
        bars = axes.barh(places, values, height=0.92 * height, color=COLOURS[number % len(COLOURS)], label=column)
        axes.bar_label(bars, labels=[report.shown(value / scale) for value in values], padding=2, fontsize=8)
    if report.baseline is not None:
        value = report.rows[report.baseline][columns[0]]
        label = f"{report.baseline}: {report.shown(value)}"
        axes.axvline(scale * value, color=BASELINE_COLOUR, linestyle="--", linewidth=1, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("%" if report.unit == "share" else "correlation")
    axes.set_title(report.title, fontsize=9, loc="left")
    if len(columns) > 1 or report.baseline is not None:
        axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_squares(report: Report, path: Path) -> None:
    """One panel a place of ELMo, one column a task, one row a layer."""
    panels: dict[str, list[str]] = {}
    for name in report.rows:
        panels.setdefault(name.rpartition(", ")[2], []).append(name)
    height = 1.1 + 0.5 * (len(report.columns) - 1)
    ratios = {"width_ratios": [len(names) for names in panels.values()]}
    grid = {"ncols": len(panels), "sharey": True, "squeeze": False, "gridspec_kw": ratios}
    with drawing(path, width=2.2 + 0.75 * len(report.rows), height=height, **grid) as (figure, squares):
        for axes, (place, names) in zip(squares[0], panels.items(), strict=True):
            _draw_panel(axes, report, names)
            axes.set_title(f"ELMo at the {place}" if place in ("input", "output") else place, fontsize=9)
        figure.colorbar(squares[0][-1].images[0], ax=list(squares[0]), label="share of the layer")


def _draw_panel(axes: Axes, report: Report, names: list[str]) -> None:
    *layers, gamma = report.columns
    layers.reverse()  # the top layer on top
    shares = [[report.rows[name][layer] for name in names] for layer in layers]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for row, numbers in enumerate(shares):
        for column, share in enumerate(numbers):
            colour = "white" if share > 0.6 else "black"
            axes.text(column, row, f"{share:.2f}", ha="center", va="center", fontsize=8, color=colour)
    tasks = [f"{name.rpartition(', ')[0]}\n{gamma} = {report.rows[name][gamma]:.2f}" for name in names]
    axes.set_xticks(range(len(names)), tasks, fontsize=8)
    axes.set_yticks(range(len(layers)), layers)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
