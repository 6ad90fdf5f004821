"""Which sentences are run together: pure functions over lengths, no text and no tensors.

Arrives: the lengths of sentences. Leaves: lists of positions, one per batch. Sentences of similar length share a batch,
which is filled up to a number of words, so that memory does not depend on how long the sentences happen to be.
Everything here depends on lengths and positions alone, never on time or on what ran before: the same input always falls
into the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from elmokit.nn.packing import NUM_BOUNDARIES

__all__ = ["BATCHES_PER_WINDOW", "CARRY_BATCH_SIZE", "batch_by_length", "choose_budget", "split_into_windows"]

CARRY_BATCH_SIZE = 64  # what AllenNLP's `elmo` command takes unless told

# On a CPU 2048 words reach 95 % of the speed of 8192 (tiny and small model, one core), with a quarter of the memory.
# On a GPU launches cost as much for 512 rows as for 1024 (an H200); the number is an estimate.
TOKEN_BUDGETS = {"cpu": 2048, "cuda": 32768}
BATCHES_PER_WINDOW = 4
SENTENCES_PER_WINDOW = 4096  # ends a window of sentences without words, which no budget would ever end

Words = TypeVar("Words", bound=Sequence)


def choose_budget(device_type: str) -> int:
    """Words that a batch may hold on such a device, boundaries and padding counted."""
    return TOKEN_BUDGETS.get(device_type, TOKEN_BUDGETS["cpu"])


def batch_by_length(
    lengths: Sequence[int] | np.ndarray, *, budget: int | None = None, batch_size: int | None = None
) -> Iterator[list[int]]:
    """Positions of the sentences of each batch, longest sentences first.

    The longest come first so that a job too big for the memory fails in its first second, not in its last.

    Arguments:
        lengths: of each sentence.
        budget: rows times the longest row stay within it; a longer sentence runs alone.
        batch_size: sentences per batch at most.

    Example:
        >>> list(batch_by_length([1, 9, 3, 2], budget=9))
        [[1], [2, 3, 0]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(order):
        count = len(order) if batch_size is None else batch_size
        if budget is not None:
            count = min(count, budget // max(1, int(lengths[order[start]])))
        yield order[start : start + max(1, count)]
        start += max(1, count)


def split_into_windows(
    sentences: Iterable[Words], *, budget: int, batch_size: int | None = None, num_batches: int = BATCHES_PER_WINDOW
) -> Iterator[list[Words]]:
    """Consecutive sentences, enough of them at a time to sort into a few full batches.

    Arguments:
        sentences: any iterable; no more than a window of it is held.
        budget: words per batch.
        batch_size: sentences per batch, instead of the budget.
        num_batches: batches per window.
    """
    most_sentences = SENTENCES_PER_WINDOW if batch_size is None else num_batches * batch_size
    most_words = num_batches * budget if batch_size is None else None
    window: list[Words] = []
    num_words = 0
    for sentence in sentences:
        window.append(sentence)
        num_words += len(sentence) + NUM_BOUNDARIES
        if len(window) == most_sentences or (most_words is not None and num_words >= most_words):
            yield window
            window, num_words = [], 0
    if window:
        yield window
