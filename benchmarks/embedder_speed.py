"""How long `Embedder.embed` takes: words that are in its cache, words that are not, and one sentence alone, likewise.

    python benchmarks/embedder_speed.py                  the bundled model on a CPU
    python benchmarks/embedder_speed.py --model SOURCE

Sentences have 3 to 40 words, half of the words from 50 frequent ones, half from 4,000; the one sentence has 20. Every
time is the best of several, in one process. Compare two versions by running both in turn on the same machine; where
others compute beside you, the time of all cores says more than the clock.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from elmokit import Embedder


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=6)
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
    print(f"{sum(map(len, text)):,} words in {len(text)} sentences; milliseconds, best of {given.repeats} and more")
    for name, (repeats, run) in runs.items():
        elapsed, of_cores = best_of(repeats, run)
        print(f"{name:14} {elapsed * 1e3:8.2f}   time of all cores {of_cores * 1e3:8.2f}")


def best_of(repeats: int, run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the fastest of several runs: on the clock, and of all cores together."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    clock, cores = zip(*times, strict=True)
    return min(clock), min(cores)


if __name__ == "__main__":
    main()
