"""How the cost of elmokit grows: words per second against batch, sentence length, distinct words, cores and model size.

A size, a text and the folders of models arrive; for each question a list of points leaves. Every point is the median of
a few runs that begin without word vectors, after one run that is not counted. Where nothing else is asked, 32
sentences of 20 words go together, so the questions meet in one point. `draw_growth` makes one picture of it, with a
panel for each question; it needs matplotlib (`pip install 'elmokit[viz]'`), and the tables tell the same without it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.bench.child import Child
from elmokit.bench.plan import Plan
from elmokit.bench.texts import Text, distinct_words
from elmokit.cores import count_cores
from elmokit.pictures import BLUE, draw_picture, draw_title, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["QUESTIONS", "draw_growth", "measure_growth"]

QUESTIONS = {
    "batch": "sentences per batch",
    "length": "words per sentence",
    "distinct": "fraction of distinct words",
    "cores": "cores",
    "size": "million parameters",
}
BATCHES, LENGTHS, SHARES = (1, 2, 4, 8, 16, 32, 64, 128, 256), (5, 10, 20, 40, 80, 160), (0.05, 0.2, 0.4, 0.6, 0.8, 1.0)
ROWS, WORDS = 32, 20
WORDS_PER_POINT = 1280
REPEATS = 3
LOGARITHMIC = ("batch", "length", "size")

Say = Callable[[str], None]
Sentences = list[list[str]]


def measure_growth(plan: Plan, text: Text, folder: Callable[[str], Path], say: Say) -> dict[str, Any]:
    """Points of every question, each `{"x": …, "words_per_second": …}`; all but the last for the plan's first size."""
    size, threads = plan.sizes[0], plan.threads
    found: dict[str, Any] = {"size": size, "threads": threads, "points": {}}
    points = found["points"]
    with Child("elmokit", threads=threads) as child:
        child.ask("load", name="model", settings={"model": str(folder(size))})
        say("growth: batch size")
        points["batch"] = [_point(child, _cut(text, _rows(batch), WORDS), batch, batch) for batch in BATCHES]
        say("growth: sentence length")
        points["length"] = [_point(child, _cut(text, ROWS, length), ROWS, length) for length in LENGTHS]
        say("growth: distinct words")
        points["distinct"] = [_point(child, _repeating(text, share), ROWS, share) for share in SHARES]
    say("growth: cores")
    points["cores"] = [_on_cores(cores, folder(size), text) for cores in range(1, count_cores() + 1)]
    points["size"] = []
    for other in plan.growth_sizes:
        say(f"growth: {other}")
        with Child("elmokit", threads=threads) as child:
            child.ask("load", name="model", settings={"model": str(folder(other))})
            parameters = child.ask("config", source=str(folder(other)))["num_parameters"] / 1e6
            points["size"].append({**_point(child, _cut(text, ROWS, WORDS), ROWS, parameters), "name": other})
    return found


def _point(child: Child, sentences: Sentences, batch_size: int, x: float) -> dict[str, Any]:
    rates = []
    for number in range(REPEATS + 1):
        seconds = sum(child.ask("time", name="model", sentences=sentences, batch_size=batch_size)["seconds"])
        if number:
            rates.append(sum(map(len, sentences)) / seconds)
    return {"x": x, "words_per_second": statistics.median(rates)}


def _on_cores(cores: int, folder: Path, text: Text) -> dict[str, Any]:
    with Child("elmokit", threads=cores) as child:
        child.ask("load", name="model", settings={"model": str(folder)})
        return _point(child, _cut(text, _rows(ROWS), WORDS), ROWS, cores)


def _rows(batch_size: int) -> int:
    """Sentences that make a point worth timing, in whole batches."""
    return max(1, WORDS_PER_POINT // WORDS // batch_size) * batch_size


def _cut(text: Text, count: int, num_words: int) -> Sentences:
    return text.again().take(count, num_words=num_words)


def _repeating(text: Text, share: float) -> Sentences:
    """Sentences of which so large a share of the words is different, in no order."""
    words = distinct_words(text, round(share * WORDS_PER_POINT))
    flat = [words[place % len(words)] for place in range(WORDS_PER_POINT)]
    random.Random(0).shuffle(flat)
    return [flat[start : start + WORDS] for start in range(0, WORDS_PER_POINT, WORDS)]


def draw_growth(result: dict[str, Any], path: Path) -> None:
    """Draw the growth of a result into a file; its suffix says which kind (.svg, .png, .pdf).

    Arguments:
        result: of `measure`, with `growth`.
        path: of the picture.
    """
    growth = result["growth"]
    with draw_picture(path, width=8.5, height=5.4, nrows=2, ncols=3) as (figure, panels):
        for panel, (question, points) in zip(panels.flat, growth["points"].items(), strict=False):
            _draw_question(panel, question, points)
        last = figure.axes[-1]
        last.axis("off")
        lines = [line for fact in _caption(result) for line in wrap(fact, 2.5, size=8, indent="  ")]
        last.text(0, 1, "\n".join(lines), va="top", fontsize=8, linespacing=1.4)
        draw_title(figure, f"elmokit, {growth['size']} model: how the cost of a word grows")


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
        for place, rate, name in zip(places, rates, [point["name"] for point in points], strict=True):
            is_last = place == places[-1]
            shift, side = ((-6, -10), "right") if is_last else ((5, 5), "left")
            panel.annotate(name, (place, rate), xytext=shift, textcoords="offset points", ha=side)
        panel.margins(x=0.1, y=0.15)
    else:
        panel.set_ylim(0, 1.1 * max(rates))
        shown = places[:: 1 + len(places) // 8]  # labels of nine places would run into each other
        panel.set_xticks(shown, [f"{place:g}" for place in shown])
    panel.yaxis.set_major_formatter("{x:,g}")
    panel.grid()
    panel.minorticks_off()


def _caption(result: dict[str, Any]) -> list[str]:
    machine, growth = result["machine"], result["growth"]
    return [
        machine["processor"],
        f"{machine['cores']} core(s), {growth['threads']} used where cores are not the question",
        f"{machine['date']}, load average {machine['load']} at the beginning",
        "float32, text to all layers, no word known beforehand",
        "32 sentences of 20 words per batch where nothing else is said",
    ]
