"""What a step reads, made ready by the thread that reads the corpus: the main thread only copies one piece of memory.

A batch and the number of its step arrive; a `Prepared` leaves. Shapes of recorded steps must repeat, so `Layout` puts
the distinct words of a batch into blocks of fixed size, by length: short words are spared the columns of long ones.
`join_arrays` and `split_memory` are the two ends of the copy: arrays to bytes, and bytes to tensors of the same shapes.

Shapes: N packed words, U distinct words, C columns of ids; 2 stands for forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.pretrain.batches.batch import Batch

__all__ = ["Layout", "Prepared", "join_arrays", "split_memory"]

COLUMNS = (16, 24, 32)  # widths of the blocks, beside that of all columns
FEWEST = 0.02  # fraction of the distinct words that is worth a block of its own
ALIGNED = 16  # bytes

_TENSORS = {"int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "float32": torch.float32}


class Prepared(NamedTuple):
    """A batch, ready for its step.

    Attributes:
        batch: as the reader gave it.
        number: of the step, from which everything random follows.
        negatives: what a sampled softmax compares with: ids, and logarithms of expected counts of these (S) and of the
            targets (2, N); nothing for a full softmax.
        nearby: what it predicts besides: the targets (2, K), and its negatives with the logarithms of their expected
            counts (S); nothing where it predicts the next word alone.
        arrays: what a recorded step of this shape reads, or `None` if the batch does not fit one.
        memory: the bytes of these arrays.
    """

    batch: Batch
    number: int
    negatives: list[np.ndarray]
    nearby: list[np.ndarray]
    arrays: list[np.ndarray] | None = None
    memory: Tensor | None = None


@dataclass(frozen=True)
class Layout:
    """How the distinct words of a batch are laid out in blocks of fixed size.

    Arguments:
        blocks: rows and columns of each, by rising columns; the last is as wide as the widest word may be.
        padding_id: what follows a word's last character.
        widest_filter: width of the model's widest convolution, which must see so much padding after a word.
    """

    blocks: tuple[tuple[int, int], ...]
    padding_id: int
    widest_filter: int

    @classmethod
    def fit(cls, batches: Iterable[Batch], *, columns: int, padding_id: int, widest_filter: int) -> Layout:
        """The layout that batches like these fit, with a little room to spare."""
        widths = [width for width in COLUMNS if widest_filter < width < columns] + [columns]
        empty = cls(tuple((0, width) for width in widths), padding_id, widest_filter)
        most_K = np.zeros(len(widths), np.int64)
        for batch in batches:
            most_K = np.maximum(most_K, np.bincount(empty.block_of_U(batch.distinct_UC), minlength=len(widths)))
        blocks, waiting = [], 0
        for width, most in zip(widths, most_K.tolist(), strict=True):
            waiting += most
            if waiting > FEWEST * most_K.sum() or width == columns:
                blocks.append((_round_up(1.03 * waiting + 32, 64), width))
                waiting = 0
        return cls(tuple(blocks), padding_id, widest_filter)

    def block_of_U(self, distinct_UC: np.ndarray) -> np.ndarray:
        """(U,) the narrowest block that a word fits, with its window of padding."""
        number_U = np.zeros(len(distinct_UC), np.int64)
        for _, width in self.blocks[:-1]:
            if width < distinct_UC.shape[1]:
                number_U += distinct_UC[:, width - self.widest_filter] != self.padding_id
        return number_U

    def lay_out(self, batch: Batch) -> list[np.ndarray] | None:
        """The blocks, the words and targets (2, N) that point at them, and the keys; `None` if they do not fit."""
        distinct_UC = batch.distinct_UC
        order_U = self.block_of_U(distinct_UC).argsort(kind="stable")
        counts = np.bincount(self.block_of_U(distinct_UC), minlength=len(self.blocks)).tolist()
        rows_U = np.empty(len(distinct_UC), np.int32)
        blocks, start, first_row, waiting = [], 0, 0, 0
        for (rows, width), count in zip(self.blocks, counts, strict=True):
            waiting += count
            number = min(waiting, rows)  # what finds no room moves on to the next, wider block
            members = order_U[start : start + number]
            block_UC = np.full((rows, width), self.padding_id, distinct_UC.dtype)
            block_UC[:number, : distinct_UC.shape[1]] = distinct_UC[members, :width]
            rows_U[members] = np.arange(first_row, first_row + number, dtype=np.int32)
            blocks.append(block_UC)
            start, first_row, waiting = start + number, first_row + rows, waiting - number
        if waiting:
            return None
        return [*blocks, rows_U[batch.words_2N], batch.targets_2N.astype(np.int32), batch.keys_N]


def join_arrays(arrays: Sequence[np.ndarray]) -> Tensor:
    """The bytes of these arrays one after the other."""
    ends = _ends(arrays)
    memory = np.empty(ends[-1] if ends else 0, np.uint8)
    for array, end in zip(arrays, ends, strict=True):
        start = end - _align(array.nbytes)
        memory[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return torch.from_numpy(memory)


def split_memory(memory: Tensor, like: Sequence[np.ndarray]) -> list[Tensor]:
    """The tensors in such bytes, of the dtypes and shapes of these arrays; they are not copied."""
    starts = [end - _align(array.nbytes) for array, end in zip(like, _ends(like), strict=True)]
    return [
        memory[start : start + array.nbytes].view(_TENSORS[array.dtype.name]).view(array.shape)
        for array, start in zip(like, starts, strict=True)
    ]


def _ends(arrays: Sequence[np.ndarray]) -> list[int]:
    return np.cumsum([_align(array.nbytes) for array in arrays], dtype=np.int64).tolist()


def _align(num_bytes: int) -> int:
    return _round_up(num_bytes, ALIGNED)


def _round_up(value: float, multiple: int) -> int:
    return -(-int(value) // multiple) * multiple
