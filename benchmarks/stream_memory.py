"""Memory while a long stream is embedded, and whether the order is kept.

    python benchmarks/stream_memory.py                       a million sentences
    python benchmarks/stream_memory.py --sentences 20000     a quick look

Sentences come from a generator and most words are new (they hold the sentence's number), so that the word cache is
full and turns over all the time. Resident memory is read from /proc after every 1/50 of the sentences. The run fails
if memory grows after the first fifth, or if any sentence has another length than it should; every 997th is compared
with the same sentence embedded alone.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from elmokit import CharConfig, Elmo, ElmoConfig, Embedder, LstmConfig

CONFIG = ElmoConfig(
    CharConfig(dim=4, filters=((1, 4), (3, 12)), num_highways=1), lstm=LstmConfig(cell_dim=16, projection_dim=8)
)
MOST_GROWTH_MB = 4.0


def sentence(number: int) -> list[str]:
    return [str(number), "of", "the", f"row{number % 1000}", "bank", "."][: 1 + number * 7919 % 6]


def sentences(count: int) -> Iterator[list[str]]:
    return (sentence(number) for number in range(count))


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache-words", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    elmo = Elmo.random(CONFIG)
    embedder = Embedder(elmo, cache_words=options.cache_words)
    alone = Embedder(elmo, cache_words=0)

    every = max(1, options.sentences // 50)
    samples, num_words, worst, started = [], 0, 0.0, time.perf_counter()
    count = 0
    for array in embedder.stream(sentences(options.sentences)):
        expected = sentence(count)
        if len(array) != len(expected):
            raise SystemExit(f"sentence {count} has {len(array)} vectors, not {len(expected)}: the order is lost")
        if count % 997 == 0:
            worst = max(worst, float(np.abs(array - alone.embed([expected])[0]).max()))
        num_words += len(array)
        count += 1
        if count % every == 0:
            samples.append((count, resident_mb()))
    seconds = time.perf_counter() - started

    after = [mb for at, mb in samples if at >= options.sentences // 5]
    growth = max(after) - after[0]
    speed = num_words / seconds
    print(f"{count} of {options.sentences} sentences, {num_words} words, {seconds:.0f} s, {speed:.0f} words/s")
    print(f"order kept: every length right, every 997th sentence within {worst:.1e} of itself alone")
    figure(samples)
    print(f"growth after the first fifth: {growth:.2f} MB (allowed {MOST_GROWTH_MB})")
    return 0 if count == options.sentences and worst <= 1e-5 and growth <= MOST_GROWTH_MB else 1


def figure(samples: list[tuple[int, float]]) -> None:
    """Resident memory over the stream, one row a twelfth, from 0 MB."""
    most = max(mb for _, mb in samples)
    for at, mb in samples[:: max(1, len(samples) // 12)]:
        print(f"{at:>10} {'#' * round(50 * mb / most)} {mb:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
