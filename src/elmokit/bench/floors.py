"""The arithmetic of a model: what a word costs at least, from its sizes alone, and how fast a machine can be then.

A config and rates of the machine (`measure_rates`) arrive; words per second leave that no program which does this work
can pass. Two bounds hold: every matmul must be computed, and the recurrent weights must be read once per step, for all
sentences of the batch together; the lower one counts. Computing each distinct word once, or leaving out columns that
no character needs, is less work than counted here: a program that does may pass "everything computed".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.config import ElmoConfig

if TYPE_CHECKING:
    import torch

__all__ = ["Work", "compute_floors", "count_work", "measure_rates"]

BYTES = {"float32": 4, "int8": 1}
SECONDS = 0.3  # for which each rate is measured
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (128, 512, 16384), (512, 512, 16384))


class Work(NamedTuple):
    """What one word costs: operations (a multiplication and an addition are two) and weights read per step.

    Arguments:
        encoder: operations of the characters, at all columns, and their projection.
        lstm: operations of both stacks.
        step_weights: recurrent and projection weights of all layers and directions, which each step reads.
    """

    encoder: int
    lstm: int
    step_weights: int


def count_work(config: ElmoConfig) -> Work:
    """The work of one word.

    Example:
        >>> work = count_work(ElmoConfig.original())
        >>> round(work.lstm / 1e6), round(work.encoder / 1e6)
        (151, 53)
    """
    characters, lstm = config.characters, config.lstm
    encoder = 0
    if characters is not None:
        columns, width = characters.max_length, characters.num_features
        encoder += sum(2 * (columns - w + 1) * w * characters.dim * k for w, k in characters.filters)
        encoder += characters.num_highways * 2 * 2 * width * width
    if config.projects_words:
        encoder += 2 * config.num_word_features * lstm.projection_dim
    inputs = lstm.projection_dim * 4 * lstm.cell_dim
    recurrent = inputs + (lstm.cell_dim * lstm.projection_dim if lstm.has_projection else 0)
    stacks = 2 * lstm.num_layers
    return Work(encoder, stacks * 2 * (inputs + recurrent), stacks * recurrent)


def compute_floors(config: ElmoConfig, rates: dict[str, Any], batch_size: int) -> dict[str, float]:
    """Words per second at best, by what is computed, for batches of so many sentences.

    Arguments:
        config: the model.
        rates: of `measure_rates`, with the bytes of this model's `step_weights` in float32 and int8 among those read.
        batch_size: sentences that share a step.
    """
    work, found = count_work(config), {}
    for precision, size in BYTES.items():
        rate = rates[precision]
        read = rates["read"].get(str(work.step_weights * size))
        if rate is None or read is None:
            continue
        reading = batch_size * read / (work.step_weights * size)
        found[f"{precision}, everything computed"] = min(rate / (work.encoder + work.lstm), reading)
        found[f"{precision}, words known"] = min(rate / work.lstm, reading)
    return found


def measure_rates(read_bytes: Sequence[int], *, seconds: float = SECONDS) -> dict[str, Any]:
    """Operations per second in float32 and int8 (`None` if torch cannot), and bytes read per second by size.

    Each is the best of many repeats, because a floor is what nothing can be faster than. The matmuls are torch's, large
    and of the shape that a batch of sentences makes.

    Arguments:
        read_bytes: sizes of memory that is read again and again; what fits into a cache is read faster.
        seconds: how long each rate is measured.

    Example:
        >>> sorted(measure_rates([4096], seconds=0.001))
        ['float32', 'int8', 'read']
    """
    import torch

    with torch.no_grad():
        int8 = None
        with contextlib.suppress(RuntimeError):  # not every build of torch multiplies int8 on a CPU
            int8 = max(_matmul_rate(shape, torch.int8, seconds) for shape in SHAPES)
        return {
            "float32": max(_matmul_rate(shape, torch.float32, seconds) for shape in SHAPES),
            "int8": int8,
            "read": {str(size): _read_rate(size, seconds) for size in read_bytes},
        }


def _matmul_rate(shape: tuple[int, int, int], dtype: torch.dtype, seconds: float) -> float:
    import torch

    rows, inner, columns = shape
    left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
    multiply = torch.ops.aten._int_mm if dtype == torch.int8 else torch.mm
    return 2 * rows * inner * columns / _shortest(lambda: multiply(left, right), seconds)


def _read_rate(size: int, seconds: float) -> float:
    import torch

    numbers = torch.ones(size // 4)
    return size / _shortest(lambda: numbers.sum(), seconds)


def _shortest(run: Callable[[], object], seconds: float) -> float:
    run()
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until or best == float("inf"):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
