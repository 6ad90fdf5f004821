"""Pictures of the task tables: scores without and with ELMo, how few labels are enough, and how many epochs.

    python recipes/draw_task_tables.py RESULTS.json FOLDER

RESULTS.json is what `task_tables.py` writes. Leaves in FOLDER: `six.svg`, `samples.svg` and `epochs.svg`; bars and dots
are means over seeds, whiskers their standard deviation, and a line of `epochs.svg` is a seed.
"""

import argparse
import json
import statistics
from pathlib import Path

from matplotlib.patches import Patch
from task_tables import RANDOM, SETS, SHARES, WITH, WITHOUT, scores_of, share_variant

from elmokit.pictures import BLUE, GREY, INK, YELLOW, draw_picture, label_bars

NAMES = {WITHOUT: "GloVe and characters", RANDOM: "+ untrained ELMo", WITH: "+ ELMo"}
COLOURS = {WITHOUT: GREY, RANDOM: YELLOW, WITH: BLUE}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    results = json.loads(asked.results.read_text(encoding="utf-8"))
    found = {task: results[task] for task in SETS if task in results}
    draw_six(found, asked.folder / "six.svg")
    few = [task for task in SETS if share_variant(WITH, SHARES[0]) in found.get(task, {})]
    if few:
        draw_samples(found, few, asked.folder / "samples.svg")
    draw_epochs(found, asked.folder / "epochs.svg")


def mean_and_spread(scores):
    return statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0


def draw_six(found, path):
    """A panel a task, for each has its own scale: bars begin as far below the lowest as the highest is above it."""
    columns = (len(found) + 1) // 2
    grid = {"nrows": 2, "ncols": columns, "squeeze": False}
    with draw_picture(path, width=1.75 * columns + 0.4, height=5, **grid) as (figure, panels):
        for axes in panels.flat[len(found) :]:
            axes.axis("off")
        for axes, (task, variants) in zip(panels.flat, found.items(), strict=False):
            kinds = [kind for kind in NAMES if kind in variants]
            numbers = [mean_and_spread(scores_of(variants[kind], task, "test")) for kind in kinds]
            heights, spreads = zip(*numbers, strict=True)
            bars = axes.bar(
                kinds, heights, yerr=spreads, color=[COLOURS[kind] for kind in kinds], capsize=3, ecolor=INK
            )
            label_bars(axes, bars, [f"{height:.1f}" for height in heights], padding=3)
            span = max(heights) - min(heights) or 1
            axes.set_ylim(min(heights) - span, max(map(sum, zip(heights, spreads, strict=True))) + 0.3 * span)
            axes.set_xticks([])
            axes.set_title(SETS[task].tested, fontsize=9)
            axes.tick_params(labelsize=8)
        for row in panels:
            row[0].set_ylabel("score, % (not from 0)")
        handles = [Patch(color=COLOURS[kind], label=name) for kind, name in NAMES.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def draw_samples(found, tasks, path):
    with draw_picture(path, width=4 * len(tasks), height=3, ncols=len(tasks), squeeze=False) as (_, panels):
        for axes, task in zip(panels[0], tasks, strict=True):
            for kind in (WITHOUT, WITH):
                runs = {share: found[task].get(share_variant(kind, share), []) for share in SHARES}
                points = {share: mean_and_spread(scores_of(some, task, "test")) for share, some in runs.items() if some}
                counts = [statistics.mean(run["num_train"] for run in runs[share]) for share in points]
                means, spreads = zip(*points.values(), strict=True)
                axes.errorbar(
                    counts, means, spreads, fmt="o-", ms=4, lw=1.3, capsize=3, color=COLOURS[kind], label=NAMES[kind]
                )
            axes.set(xscale="log", xlabel="sentences learned from")
            axes.set_title(SETS[task].title, fontsize=9)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.grid()
        panels[0][0].set_ylabel("F1 on the test set, %")
        panels[0][0].legend(frameon=False)


def draw_epochs(found, path):
    """Score on the development set after each epoch, from all labels."""
    columns = (len(found) + 1) // 2
    grid = {"nrows": 2, "ncols": columns, "squeeze": False}
    with draw_picture(path, width=2.1 * columns, height=4.4, **grid) as (_, panels):
        for axes in panels.flat[len(found) :]:
            axes.axis("off")
        for axes, (task, variants) in zip(panels.flat, found.items(), strict=False):
            for kind in (WITHOUT, WITH):
                histories = [run["history"] for run in variants.get(kind, [])]
                for number, history in enumerate(histories):
                    scores = [100 * score for score in history]
                    label = NAMES[kind] if number == 0 else None
                    axes.plot(range(1, len(scores) + 1), scores, color=COLOURS[kind], lw=1.1, label=label)
            axes.set_title(SETS[task].title, fontsize=9)
            axes.grid()
            lowest = min(max(run["history"]) for kind in (WITHOUT, WITH) for run in variants.get(kind, []))
            axes.set_ylim(bottom=80 * lowest)  # what comes before four fifths of the end is steep everywhere
            axes.xaxis.get_major_locator().set_params(integer=True)
        panels[0][0].legend(frameon=False, fontsize=8)
        panels[0][0].set_ylabel("score, dev, %")
        panels[-1][0].set_xlabel("epoch")


if __name__ == "__main__":
    main()
