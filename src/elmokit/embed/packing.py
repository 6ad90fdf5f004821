"""Sentences end to end, and the orders in which both language models read them: numpy only, no text and no tensors.

Arrives: the number of words of each sentence, boundaries counted. Leaves: which of the words, laid end to end, each
direction reads when. Rows are sorted by falling length and read step by step, first words of all rows, then second
words, …, so nothing is computed for padding (see `engines/README.md`).

Shapes: B rows, S steps, N words of all rows together.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Packing"]


class Packing:
    """Where each word of a batch lies.

    Arguments:
        lengths_B: words of each row, boundaries counted; 1 or more each.

    Attributes:
        starts_B: where each row starts when all lie end to end.
        order_B: the rows, longest first.
        batch_sizes: rows that read a word at each step.
        forward_N, backward_N: for each word in the order of reading, its place end to end.

    Example:
        >>> packing = Packing(np.array([2, 3]))
        >>> packing.batch_sizes, packing.forward_N.tolist(), packing.backward_N.tolist()
        ([2, 2, 1], [2, 0, 3, 1, 4], [4, 1, 3, 0, 2])
    """

    def __init__(self, lengths_B: np.ndarray) -> None:
        self.starts_B = lengths_B.cumsum() - lengths_B
        self.order_B = np.argsort(-lengths_B, kind="stable")
        sorted_B = lengths_B[self.order_B]
        steps_S = np.arange(sorted_B[0])
        sizes_S = len(sorted_B) - np.searchsorted(sorted_B[::-1], steps_S, side="right")
        step_N = steps_S.repeat(sizes_S)
        row_N = np.arange(len(step_N)) - (sizes_S.cumsum() - sizes_S).repeat(sizes_S)
        start_N = self.starts_B[self.order_B][row_N]
        self.batch_sizes: list[int] = sizes_S.tolist()
        self.forward_N = start_N + step_N
        # A row is read backwards from its own last word.
        self.backward_N = start_N + sorted_B[row_N] - 1 - step_N
