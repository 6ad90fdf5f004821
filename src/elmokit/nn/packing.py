"""Where each word lies when sentences are read without padding: index arithmetic, no text and no network.

Sentences lie end to end as a text, each with the boundaries that begin (`<`) and end (`>`) it. Engines want all first
words of a direction, then all second words, and so on, longest sentences first: then the rows that still read at a step
are always the first few, and nothing is computed for padding. Two sentences, "a b c" and "x":

    position       0 1 2 3 4 5 6 7
    text           < a b c > < x >

    step           0   1   2   3 4
    forward        < < a x b > c >     positions  0 5  1 6  2 7  3  4
    backward       > > c x b < a <     positions  4 7  3 6  2 5  1  0
    rows reading   2   2   2   1 1     = batch_sizes

To predict the words of a text, in training or for a score, neither direction reads the boundary that would be its last
word: that is the last word it predicts. The table above then ends one step earlier for each row.

Shapes: B rows (sentences), W steps (words the longest row reads), N words read by one direction, T positions of the
text, U distinct words, P width of a direction, K ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["NUM_BOUNDARIES", "BoundedText", "Packing", "add_boundaries", "join_directions", "join_ranges"]

NUM_BOUNDARIES = 2  # every sentence has a word that begins it and one that ends it


class BoundedText(NamedTuple):
    """Sentences with their boundaries, one after the other, and the vectors of their words.

    Arguments:
        vectors_UP: of the distinct words, boundaries among them.
        words_T: which of them stands at each position.
        starts_B: the position at which each sentence begins.
        lengths_B: words of each sentence, boundaries included.
    """

    vectors_UP: Tensor
    words_T: np.ndarray
    starts_B: np.ndarray
    lengths_B: np.ndarray


def add_boundaries(
    words_N: np.ndarray, lengths_B: np.ndarray, *, begin: int, end: int, width: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The text (T,) of these sentences with their boundaries, and the position (B,) at which each sentence begins.

    Arguments:
        words_N: the numbers of all words, sentence after sentence, without boundaries.
        lengths_B: words of each sentence, without boundaries.
        begin: the number of the boundary that begins a sentence.
        end: of the one that ends it.
        width: positions per sentence, for a padded text: at least those of the longest sentence and its boundaries. The
            positions after the end of a sentence hold `begin` and must not be read. Unless given, there are none.

    Example:
        >>> text_T, starts_B = add_boundaries(np.array([7, 8, 9]), np.array([2, 1]), begin=0, end=1)
        >>> text_T.tolist(), starts_B.tolist()
        ([0, 7, 8, 1, 0, 9, 1], [0, 4])
    """
    widths_B = lengths_B + NUM_BOUNDARIES if width is None else np.full(len(lengths_B), width)
    starts_B = widths_B.cumsum() - widths_B
    text_T = np.full(int(widths_B.sum()), begin, np.int64)
    text_T[starts_B + lengths_B + 1] = end
    text_T[join_ranges(starts_B + 1, lengths_B)] = words_N
    return text_T, starts_B


class Packing:
    """The order in which both directions read the rows of a text.

    Arguments:
        lengths_B: words of each row, boundaries included; 0 is legal.
        starts_B: the position of each row's first word.
        for_prediction: each direction reads one word less per row, not the one that would be its last. What the forward
            model has read at position p then predicts the word at p+1, what the backward model has read that at p-1.

    Attributes:
        order_B: the rows, longest first.
        batch_sizes: rows that read a word at each step.
        positions_2N: the position of each word that is read, in the order of reading; forward, then backward.

    Example:
        >>> packing = Packing(np.array([2, 3]), np.array([0, 2]))
        >>> packing.batch_sizes, packing.positions_2N.tolist()
        ([2, 2, 1], [[2, 0, 3, 1, 4], [4, 1, 3, 0, 2]])
        >>> packing = Packing(np.array([2, 3]), np.array([0, 2]), for_prediction=True)
        >>> packing.batch_sizes, packing.positions_2N.tolist()
        ([2, 1], [[2, 0, 3], [4, 1, 3]])
    """

    def __init__(self, lengths_B: np.ndarray, starts_B: np.ndarray, *, for_prediction: bool = False) -> None:
        self.order_B = np.argsort(-lengths_B, kind="stable")
        sorted_B = lengths_B[self.order_B]
        read_B = sorted_B - int(for_prediction)
        reads_WB = np.arange(read_B[0] if len(read_B) else 0)[:, None] < read_B
        step_N, row_N = reads_WB.nonzero()
        first_B = starts_B[self.order_B]
        self.batch_sizes: list[int] = reads_WB.sum(1).tolist()
        self.positions_2N = np.empty((2, len(step_N)), np.int64)
        self.positions_2N[0] = first_B[row_N] + step_N
        # A row is read backwards from its own last word, wherever the longest row ends.
        self.positions_2N[1] = (first_B + sorted_B - 1)[row_N] - step_N


def join_ranges(starts_K: np.ndarray, counts_K: np.ndarray) -> np.ndarray:
    """Ranges of numbers one after the other, each from its start on and as long as its count.

    Example:
        >>> join_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    return np.arange(int(counts_K.sum())) + np.repeat(starts_K - (counts_K.cumsum() - counts_K), counts_K)


def join_directions(outputs: Sequence[Tensor], positions_2N: Tensor, num_positions: int) -> Tensor:
    """Packed outputs (N, P) of both directions side by side at their positions (T, 2P); zero where nothing was read."""
    halves = [
        output_NP.new_zeros(num_positions, output_NP.shape[1]).index_copy(0, positions_N, output_NP)
        for output_NP, positions_N in zip(outputs, positions_2N, strict=True)
    ]
    return torch.cat(halves, dim=1)
