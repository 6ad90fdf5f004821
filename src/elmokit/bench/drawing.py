"""The growth of the cost as one picture: a panel for each question, words a second upwards.

Needs matplotlib (`pip install 'elmokit[viz]'`); the tables tell the same without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.bench.growth import QUESTIONS
from elmokit.pictures import draw_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_growth"]

LOGARITHMIC = ("batch", "length", "size")
BLUE, GREY = "#1f5f99", "#666666"


def draw_growth(result: dict[str, Any], path: Path) -> None:
    """Draw the growth of a result into a file; its suffix says which kind (.svg, .png, .pdf).

    Arguments:
        result: of `measuring.measured`, with `growth`.
        path: of the picture.
    """
    growth = result["growth"]
    with draw_picture(path, width=12, height=6.4, nrows=2, ncols=3) as (figure, panels):
        for panel, (question, points) in zip(panels.flat, growth["points"].items(), strict=False):
            _draw_question(panel, question, points)
        last = figure.axes[-1]
        last.axis("off")
        last.text(0, 1, _caption(result), va="top", color=GREY)
        figure.suptitle(f"elmokit, {growth['size']} model: how the cost of a word grows", x=0.01, ha="left")


def _draw_question(panel: Axes, question: str, points: Sequence[dict[str, Any]]) -> None:
    places, rates = [point["x"] for point in points], [point["words_per_second"] for point in points]
    panel.plot(places, rates, color=BLUE, marker="o", markersize=4, linewidth=1.5)
    panel.set_xlabel(QUESTIONS[question])
    panel.set_ylabel("words/s")
    if question in LOGARITHMIC:
        panel.set_xscale("log", base=10 if question == "size" else 2)
    if question == "size":
        panel.set_yscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:,g}")
        for place, rate, name in zip(places, rates, [point["name"] for point in points], strict=True):
            is_last = place == places[-1]
            shift, side = ((-6, -10), "right") if is_last else ((5, 5), "left")
            panel.annotate(name, (place, rate), xytext=shift, textcoords="offset points", ha=side)
        panel.margins(x=0.1, y=0.15)
    else:
        panel.set_ylim(0, 1.1 * max(rates))
        panel.set_xticks(places, [f"{place:g}" for place in places])
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.minorticks_off()


def _caption(result: dict[str, Any]) -> str:
    machine, growth = result["machine"], result["growth"]
    return "\n".join(
        [
            machine["processor"],
            f"{machine['cores']} core(s), {growth['threads']} used where cores are not the question",
            f"{machine['date']}, load average {machine['load']} at the beginning",
            "float32, text to all layers, no word known beforehand",
            "32 sentences of 20 words a batch where nothing else is said",
        ]
    )
