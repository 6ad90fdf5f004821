"""The question of a GPU: how many words per second from ids to all layers, by model size, dtype and batch.

A device arrives; a table leaves, each line of it as soon as it is known. Everything is repeated and the median taken;
the device is waited for before each look at the clock. On a CPU the same code runs with tiny sizes, which is how the
tests rehearse it. Engines against cuDNN, and training: `benchmarks/{engines,training}_on_device.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from elmokit.bench.machine import machine_facts
from elmokit.config import ElmoConfig
from elmokit.errors import InputError
from elmokit.model import Elmo

__all__ = ["measure_on_device"]

ROWS, WORDS = (512, 1024), 20
WARM_UP = 0.3  # seconds, on a GPU
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def measure_on_device(
    device: str,
    *,
    sizes: Sequence[str],
    runs: int,
    quick: bool,
    say: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """The table for these sizes of model, ready for `report.markdown`.

    Arguments:
        device: such as `cuda`.
        sizes: presets of `ElmoConfig`.
        runs: how often each thing is timed, after a warm-up.
        quick: small batches: shows that everything works.
        say: is told about the progress.
        keep: gets the result so far after every line: a job that is killed later has lost nothing.
    """
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device is {device}, but torch finds no GPU here: use --device cpu")
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else "the CPU, as a rehearsal"
    machine = machine_facts()
    rows = (4,) if quick else ROWS
    lines: list[list[str]] = []
    header = ["", "engine", *(f"{count} × {WORDS} words, words/s" for count in rows)]
    result: dict[str, Any] = {
        "machine": {**machine, "processor": f"{name}, beside {machine['processor']}"},
        "versions": {"elmokit": _versions()},
        "command": f"elmo bench --device {device} --sizes {' '.join(sizes)} --runs {runs}" + " --quick" * quick,
        "text": "random words of 4 to 10 letters, a third of them different, as in a batch of English",
        "runs": runs,
        "threads": torch.get_num_threads(),
        "notes": [],
        "device": [{"title": "Ids to all layers", "header": header, "rows": lines}],
    }
    for line in _lines(place, sizes, rows, runs, say):
        lines.append(line)
        keep(result)
    return result


def _lines(
    device: torch.device, sizes: Sequence[str], rows: Sequence[int], runs: int, say: Callable[[str], None]
) -> Iterator[list[str]]:
    # On some virtual machines a matmul of bfloat16 on the CPU ends the process, so a rehearsal leaves it out.
    dtypes = DTYPES if device.type == "cuda" else {"float32": torch.float32}
    for size in sizes:
        elmo = Elmo.random(getattr(ElmoConfig, size)()).eval().to(device)
        for kind, dtype in dtypes.items():
            elmo = elmo.to(dtype)
            cells = []
            for count in rows:
                say(f"ids to layers: {size}, {kind}, {count} × {WORDS}")
                ids = elmo.word_ids(_random_sentences(count))

                def run(elmo: Elmo = elmo, ids: torch.Tensor = ids) -> None:
                    with torch.inference_mode():
                        elmo(ids)

                cells.append(f"{count * WORDS / _seconds(run, device, runs):,.0f}")
            yield [f"{size}, {kind}", elmo.bilm.engine.name, *cells]


def _random_sentences(count: int) -> list[list[str]]:
    draw = np.random.default_rng(0)
    words = _words(max(1, count * WORDS // 3))
    return [[words[place] for place in draw.integers(len(words), size=WORDS)] for _ in range(count)]


def _words(count: int) -> list[str]:
    """So many different words of 4 to 10 letters."""
    draw = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(letters[draw.integers(len(letters), size=draw.integers(4, 11))])] = None
    return list(found)


def _seconds(run: Callable[[], None], device: torch.device, runs: int) -> float:
    """The median after a warm-up, in which kernels are compiled and the clocks of an idle GPU rise again."""
    run()
    _wait(device)
    start = time.perf_counter()
    run()
    while device.type == "cuda" and time.perf_counter() - start < WARM_UP:
        run()
        _wait(device)
    times = []
    for _ in range(runs):
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _versions() -> dict[str, str]:
    from elmokit.version import describe_version

    found = {"elmokit": describe_version(), "torch": str(torch.__version__)}
    return {**found, "CUDA": torch.version.cuda} if torch.version.cuda else found
