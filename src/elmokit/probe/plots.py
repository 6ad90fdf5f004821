"""Figures of reports, drawn with matplotlib (the extra `viz`).

A `Report` arrives, a file leaves, whose suffix says in which format: bars for each row, or, for layer weights, squares
as in the paper's Figure 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.errors import MissingExtra, OutputError
from elmokit.probe.report import Report

__all__ = ["check_can_draw", "draw"]

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#30638e", "#edae49", "#77a88d", "#b5a4c9", "#a0a0a0", "#d1495b")
BASELINE_COLOUR = "#d1495b"


def check_can_draw(path: Path) -> None:
    """An error now rather than after the work, when the figure could not be drawn."""
    if path.suffix not in FORMATS:
        raise OutputError(f"{path}: expected a figure's name that ends in {', '.join(FORMATS)}")
    _figure_class()


def draw(report: Report, path: Path, *, columns: list[str] | None = None) -> None:
    """Draw a report into a file; `columns` are those to show, all if not given."""
    figure = _squares(report) if report.probe == "weights" else _bars(report, columns or report.columns)
    try:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    except OSError as problem:
        raise OutputError(f"{path}: the figure cannot be written: {problem.strerror}") from problem


def _figure_class() -> Any:  # noqa: ANN401
    try:
        from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise MissingExtra("--plot needs matplotlib: pip install 'elmokit[viz]'") from problem
    return Figure  # used directly, without pyplot, so that no window and no global state is involved


def _bars(report: Report, columns: list[str]) -> Any:  # noqa: ANN401
    """Horizontal bars, the first row of the table on top; the baseline is a line."""
    names = [name for name in report.rows if name != report.baseline]
    scale = 100 if report.unit == "share" else 1
    height = 0.8 / len(columns)
    figure = _figure_class()(figsize=(7, 1.2 + len(names) * max(0.34, 0.2 * len(columns))))
    axes = figure.add_subplot()
    for number, column in enumerate(columns):
        colour = COLOURS[number % len(COLOURS)]
        values = [scale * report.rows[name].get(column, float("nan")) for name in names]
        places = [place + (number - (len(columns) - 1) / 2) * height for place in range(len(names))]
        bars = axes.barh(places, values, height=0.92 * height, color=colour, label=column)
        labels = [report.shown(value / scale) for value in values]
        axes.bar_label(bars, labels=labels, padding=2, fontsize=8)
        if report.baseline is not None and number == 0:
            value = scale * report.rows[report.baseline][column]
            label = f"{report.baseline}: {report.shown(value / scale)}"
            axes.axvline(value, color=BASELINE_COLOUR, linestyle="--", linewidth=1, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("%" if report.unit == "share" else "correlation")
    axes.set_title(report.title, fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    if len(columns) > 1 or report.baseline is not None:
        axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _squares(report: Report) -> Any:  # noqa: ANN401
    """One panel a place of ELMo, one column a task, one row a layer, the top layer on top."""
    places = dict.fromkeys(name.rpartition(", ")[2] for name in report.rows)
    layers = report.columns[:-1]
    panels = {place: [name for name in report.rows if name.rpartition(", ")[2] == place] for place in places}
    figure = _figure_class()(figsize=(2.2 + 0.75 * len(report.rows), 1.6 + 0.5 * len(layers)))
    ratios = [len(names) for names in panels.values()]
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False, gridspec_kw={"width_ratios": ratios})[0]
    image = None
    for axes, (place, names) in zip(grid, panels.items(), strict=True):
        shares = [[report.rows[name][layer] for name in names] for layer in reversed(layers)]
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for row, numbers in enumerate(shares):
            for column, share in enumerate(numbers):
                colour = "white" if share > 0.6 else "black"
                axes.text(column, row, f"{share:.2f}", ha="center", va="center", fontsize=8, color=colour)
        tasks = [name.rpartition(", ")[0] for name in names]
        labels = [
            f"{task}\n{report.columns[-1]} = {report.rows[name][report.columns[-1]]:.2f}"
            for task, name in zip(tasks, names, strict=True)
        ]
        axes.set_xticks(range(len(names)), labels, fontsize=8)
        axes.set_yticks(range(len(layers)), list(reversed(layers)))
        axes.set_title(f"ELMo at the {place}" if place in ("input", "output") else place, fontsize=9)
    figure.colorbar(image, ax=list(grid), label="share of the layer", fraction=0.05)
    return figure
