"""Which sentences are run together: pure functions over lengths, no text and no tensors.

Arrives: the lengths of sentences. Leaves: lists of positions, one a batch. Sentences of like length share a batch, so
little is computed for padding; a batch is filled up to a number of words, so that memory does not depend on how long
the sentences happen to be. Everything here depends on lengths and positions alone, never on time or on what ran
before: the same input always falls into the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["CARRY_BATCH_SIZE", "NUM_BOUNDARIES", "batches_by_length", "batches_in_order", "token_budget", "windows"]

NUM_BOUNDARIES = 2  # every sentence is read with a word that begins it and one that ends it
CARRY_BATCH_SIZE = 64  # what AllenNLP's `elmo` command takes unless told

# On a CPU 2048 words reach 95 % of the speed of 8192 (tiny and small model, one core), with a quarter of the memory.
# The number for CUDA is an estimate, not measured yet.
BUDGETS = {"cpu": 2048, "cuda": 16384}
BUDGETS_A_WINDOW = 4
SENTENCES_A_WINDOW = 4096  # ends a window of sentences without words, which no budget would ever end

Sentence = TypeVar("Sentence", bound=Sequence)


def token_budget(device_type: str) -> int:
    """Words a batch may hold on such a device, boundaries and padding counted."""
    return BUDGETS.get(device_type, BUDGETS["cpu"])


def batches_by_length(lengths: Sequence[int], *, budget: int, batch_size: int | None = None) -> Iterator[list[int]]:
    """Positions of the sentences of each batch, longest sentences first; sentences without words are left out.

    The longest come first so that a job too big for the memory fails in its first second, not in its last.

    Arguments:
        lengths: words of each sentence.
        budget: rows times the longest row, boundaries counted, stay within it; a longer sentence runs alone.
        batch_size: sentences a batch; overrules the budget.

    Example:
        >>> list(batches_by_length([1, 9, 0, 2], budget=12))
        [[1], [3, 0]]
    """
    order = sorted((place for place, length in enumerate(lengths) if length), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        longest = lengths[order[start]] + NUM_BOUNDARIES
        count = batch_size if batch_size is not None else max(1, budget // longest)
        yield order[start : start + count]
        start += count


def batches_in_order(num_sentences: int, *, batch_size: int) -> Iterator[list[int]]:
    """Positions of the sentences of each batch in input order, sentences without words included.

    Example:
        >>> list(batches_in_order(5, batch_size=2))
        [[0, 1], [2, 3], [4]]
    """
    for start in range(0, num_sentences, batch_size):
        yield list(range(start, min(start + batch_size, num_sentences)))


def windows(
    sentences: Iterable[Sentence], *, budget: int, batch_size: int | None = None, whole_batches: int | None = None
) -> Iterator[list[Sentence]]:
    """Consecutive sentences, enough of them at a time to sort into a few full batches.

    Arguments:
        sentences: any iterable; no more than a window of it is held.
        budget: words a batch; a window holds a few times as many.
        batch_size: sentences a batch, if that was asked for; a window then holds a few batches of them.
        whole_batches: exactly this many sentences a window (the last may be shorter), whatever their lengths.
    """
    if whole_batches is not None:
        most_sentences, most_words = whole_batches, None
    elif batch_size is not None:
        most_sentences, most_words = BUDGETS_A_WINDOW * batch_size, None
    else:
        most_sentences, most_words = SENTENCES_A_WINDOW, BUDGETS_A_WINDOW * budget
    window: list[Sentence] = []
    num_words = 0
    for sentence in sentences:
        window.append(sentence)
        num_words += len(sentence) + NUM_BOUNDARIES
        if len(window) == most_sentences or (most_words is not None and num_words >= most_words):
            yield window
            window, num_words = [], 0
    if window:
        yield window
