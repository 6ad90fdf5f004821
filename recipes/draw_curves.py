"""Perplexity by minute and by word: what the logs of training runs say, as a picture.

    python recipes/draw_curves.py NAME=LOG.jsonl[+NEXT.jsonl…] [NAME=LOG.jsonl@WORDS_PER_SECOND …] -o curves.svg

The lines are the training loss (a moving mean), as perplexity; the dots are perplexities on held-out text. Minutes and
words are logarithmic, so that a trial of a minute can be seen beside a run of half an hour. Minutes are words divided
by the words per second of each line, so evaluations and stops are not in them; runs that shared a device are drawn at
the speed they have alone, if it is given. A sampled softmax has a lower loss than the held-out perplexity, which is
that of the full one. `+` is a run that continued from the model of the one before it: its words are added. Where two
runs are the same, the one that is named first is seen.
"""

import argparse
import json
import math
from itertools import cycle, product
from pathlib import Path

from elmokit.pictures import BLUE, GREEN, GREY, RED, VIOLET, YELLOW, draw_picture

SHARE = 0.3  # of a new line in the moving mean
LOOKS = tuple(product(("-", "--", ":"), (BLUE, RED, YELLOW, GREEN, VIOLET, GREY)))  # one a run, then again
PERPLEXITIES = (50, 60, 70, 80, 100, 120, 150, 200, 300, 500)
PLACES = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG.jsonl")
    parser.add_argument("-o", "--output", required=True)
    asked = parser.parse_args(arguments)
    with draw_picture(asked.output, width=8.5, height=4.2, ncols=2, sharey=True) as (figure, (by_minute, by_word)):
        for log, look in reversed(list(zip(asked.logs, cycle(LOOKS), strict=False))):
            name, _, place = log.partition("=")
            path, _, speed = place.partition("@")
            draw(name, read(path.split("+")), by_minute, by_word, float(speed) if speed else None, *look)
        by_minute.set(xlabel="minutes on the device", ylabel="perplexity", yscale="log")
        by_word.set(xlabel="million words seen")
        lowest = min(min(line.get_ydata()) for line in by_minute.get_lines() if len(line.get_ydata()))
        bottom, top = 0.95 * lowest, min(500, 8 * lowest)
        for axes in (by_minute, by_word):
            shown = [x for line in axes.get_lines() for x, y in line.get_xydata() if y < top]
            axes.set_xscale("log")
            axes.set_xticks(PLACES, [f"{place:,g}" for place in PLACES])
            axes.set_yticks(PERPLEXITIES, [str(tick) for tick in PERPLEXITIES])
            axes.minorticks_off()
            axes.grid()
            axes.set(xlim=(0.8 * min(shown), 1.3 * max(shown)), ylim=(bottom, top))  # ticks move the limits
        handles, names = by_word.get_legend_handles_labels()
        figure.legend(handles[::-1], names[::-1], loc="outside upper left", ncols=3, frameon=False, fontsize=8)


def read(paths):
    lines, seen = [], 0
    for path in paths:
        found = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        lines += [{**line, "tokens": seen + line["tokens"]} for line in found]
        seen = lines[-1]["tokens"]
    return lines


def draw(name, lines, by_minute, by_word, speed, style, colour):
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
        points, perplexities = [point[column] for point in curve], [point[2] for point in curve]
        axes.plot(points, perplexities, style, label=name, lw=1.2, color=colour)
        axes.plot([dot[column] for dot in dots], [dot[2] for dot in dots], "o", color=colour, ms=4)


if __name__ == "__main__":
    main()
