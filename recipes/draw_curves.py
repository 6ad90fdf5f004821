"""Perplexity by minute and by word: what the logs of training runs say, as a picture.

    python recipes/draw_curves.py NAME=LOG.jsonl[+NEXT.jsonl…] [NAME=LOG.jsonl@WORDS_PER_SECOND …] -o curves.svg

The lines are the training loss (a moving mean), as perplexity; the dots are perplexities on held-out text. Minutes are
words divided by the words per second of each line, so evaluations and stops are not in them; runs that shared a device
are drawn at the speed they have alone, if it is given. A sampled softmax has a lower loss than the held-out perplexity,
which is that of the full one. `+` is a run that continued from the model of the one before it: its words are added.
"""

import argparse
import json
import math
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "elmokit"
from matplotlib import pyplot as plt  # noqa: E402

SHARE = 0.3  # of a new line in the moving mean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG.jsonl")
    parser.add_argument("-o", "--output", required=True)
    asked = parser.parse_args()
    figure, (by_minute, by_word) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for log in asked.logs:
        name, _, place = log.partition("=")
        path, _, speed = place.partition("@")
        draw(name, read(path.split("+")), by_minute, by_word, float(speed) if speed else None)
    by_minute.set(xlabel="minutes on the device", ylabel="perplexity", yscale="log")
    by_word.set(xlabel="million words seen")
    for axes in (by_minute, by_word):
        ticks = [50, 60, 70, 80, 100, 120, 150, 200, 300, 500]
        axes.set_yticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    by_word.legend(frameon=False)
    lowest = min(min(line.get_ydata()) for line in by_minute.get_lines() if len(line.get_ydata()))
    by_minute.set_ylim(0.95 * lowest, min(500, 8 * lowest))
    figure.savefig(asked.output, metadata={"Date": None} if asked.output.endswith(".svg") else None)


def read(paths):
    lines, seen = [], 0
    for path in paths:
        found = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        lines += [{**line, "tokens": seen + line["tokens"]} for line in found]
        seen = lines[-1]["tokens"]
    return lines


def draw(name, lines, by_minute, by_word, speed):
    words, minutes, curve, dots = 0, 0.0, [], []
    mean = None
    for line in lines:
        if line["kind"] == "train":
            minutes += (line["tokens"] - words) / (speed or line["words_per_second"]) / 60
            words = line["tokens"]
            mean = line["loss"] if mean is None else (1 - SHARE) * mean + SHARE * line["loss"]
            curve.append((minutes, words / 1e6, math.exp(mean)))
        elif line["kind"] == "held-out":
            dots.append((minutes, line["tokens"] / 1e6, line["mean"]))
    for axes, column in ((by_minute, 0), (by_word, 1)):
        (drawn,) = axes.plot([point[column] for point in curve], [point[2] for point in curve], label=name, lw=1.2)
        axes.plot([dot[column] for dot in dots], [dot[2] for dot in dots], "o", color=drawn.get_color(), ms=4)


if __name__ == "__main__":
    main()
