"""Every picture of the repository, drawn again from the numbers beside it.

    python recipes/draw_pictures.py [FOLDER]

FOLDER is where to write them, at the places they have in the repository; the repository itself if none is given.
Nothing is measured again: numbers come from `docs/results/*.json`, `benchmarks/` and the bundled model.
"""

import argparse
import contextlib
import io
import json
from pathlib import Path

import draw_curves
import draw_task_tables

from elmokit.bench.growth import draw_growth
from elmokit.cli import main as elmo
from elmokit.probe.report import Report, draw

ROOT = Path(__file__).resolve().parents[1]
PROBES = ("pos", "wsd", "wic", "similarity", "weights")
BANKS = (
    "She sat on the bank of the river and watched the boats.",
    "They walked along the grassy bank of the stream.",
    "The bank refused to lend them more money.",
    "He borrowed the money from a bank in the city.",
)
LOGS = {
    "en-small": ("2026-11-15-en-small/en-small.jsonl", "2026-11-16-en-small/continued.jsonl"),
    "full rates on (NaN at 377 M)": ("2026-11-15-en-small/diverged.jsonl",),
    "trial: cosine, dropout 0.1": ("2026-11-15-en-small/cosine.jsonl@930000",),
    "trial: linear, dropout 0.1": ("2026-11-15-en-small/linear.jsonl@930000",),
    "trial: linear, no dropout": ("2026-11-15-en-small/dropout0.jsonl@930000",),
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT)
    folder = parser.parse_args(arguments).folder
    for place in ("docs/results", "benchmarks", "src/elmokit/models/en-small"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):  # its table
        assert elmo(["compare", "bank", *BANKS, "--picture", str(folder / "docs/bank.svg")]) == 0
    for name in PROBES:
        found = json.loads((ROOT / f"docs/results/{name}.json").read_text(encoding="utf-8"))
        draw(Report.from_dict(found), folder / f"docs/results/{name}.svg", columns=found["drawn"])
    draw_task_tables.main([str(ROOT / "docs/results/tasks.json"), str(folder / "docs/results")])
    growth = json.loads((ROOT / "benchmarks/2026-11-15-cpu.json").read_text(encoding="utf-8"))
    draw_growth(growth, folder / "benchmarks/2026-11-15-cpu.svg")
    logs = [f"{name}={'+'.join(str(ROOT / 'benchmarks' / path) for path in paths)}" for name, paths in LOGS.items()]
    draw_curves.main([*logs, "-o", str(folder / "src/elmokit/models/en-small/curve.svg")])


if __name__ == "__main__":
    main()
