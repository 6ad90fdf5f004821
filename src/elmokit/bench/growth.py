"""How the cost of elmokit grows: words a second against batch, sentence length, distinct words, cores and model size.

A size, a text and the folders of models arrive; for each question a list of points leaves. Every point is the median of
a few runs that begin without word vectors, after one run that is not counted. Where nothing else is asked, 32
sentences of 20 words go together, so the questions meet in one point.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elmokit.bench.child import Child
from elmokit.bench.plan import Plan
from elmokit.bench.texts import Text, distinct_words
from elmokit.devices import count_cores

__all__ = ["QUESTIONS", "measured_growth"]

QUESTIONS = {
    "batch": "sentences a batch",
    "length": "words a sentence",
    "distinct": "share of distinct words",
    "cores": "cores",
    "size": "million parameters",
}
BATCHES, LENGTHS, SHARES = (1, 2, 4, 8, 16, 32, 64, 128, 256), (5, 10, 20, 40, 80, 160), (0.05, 0.2, 0.4, 0.6, 0.8, 1.0)
ROWS, WORDS = 32, 20
WORDS_A_POINT = 1280
REPEATS = 3

Say = Callable[[str], None]
Sentences = list[list[str]]


def measured_growth(plan: Plan, text: Text, folder: Callable[[str], Path], say: Say) -> dict[str, Any]:
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
    return max(1, WORDS_A_POINT // WORDS // batch_size) * batch_size


def _cut(text: Text, count: int, num_words: int) -> Sentences:
    return text.again().take(count, num_words=num_words)


def _repeating(text: Text, share: float) -> Sentences:
    """Sentences of which so large a share of the words is different, in no order."""
    words = distinct_words(text, round(share * WORDS_A_POINT))
    flat = [words[place % len(words)] for place in range(WORDS_A_POINT)]
    random.Random(0).shuffle(flat)
    return [flat[start : start + WORDS] for start in range(0, WORDS_A_POINT, WORDS)]
