"""Texts with boundaries, and the order in which both directions read them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.nn.packing import Packing, add_boundaries, join_directions

LENGTHS = st.lists(st.integers(0, 12), max_size=9)


@given(lengths=LENGTHS, padding=st.none() | st.integers(0, 3))
def test_sentences_stand_between_their_boundaries(lengths, padding):
    words = list(range(10, 10 + sum(lengths)))
    width = None if padding is None else max(lengths, default=0) + 2 + padding
    text, starts = add_boundaries(np.array(words, np.int64), np.array(lengths, np.int64), begin=0, end=1, width=width)
    assert len(text) == sum(width or length + 2 for length in lengths)
    for start, length in zip(starts.tolist(), lengths, strict=True):
        assert text[start : start + length + 2].tolist() == [0, *words[:length], 1]
        words = words[length:]


@given(lengths=LENGTHS, gap=st.integers(0, 3), unread=st.integers(0, 1))
def test_each_direction_reads_each_row_in_its_order(lengths, gap, unread):
    lengths = [length + unread for length in lengths]  # a row that is predicted has a word to predict
    starts = np.cumsum([0, *(length + gap for length in lengths)])[:-1]
    packing = Packing(np.array(lengths, np.int64), starts, for_prediction=bool(unread))
    assert packing.order_B.tolist() == sorted(range(len(lengths)), key=lambda row: -lengths[row])
    steps = range(max(lengths, default=unread) - unread)
    assert packing.batch_sizes == [sum(length - unread > step for length in lengths) for step in steps]
    rows = [[start + offset for offset in range(length)] for start, length in zip(starts, lengths, strict=True)]
    read_forward, read_backward = [[] for _ in lengths], [[] for _ in lengths]
    words = zip(*packing.positions_2N.tolist(), strict=True)
    for size in packing.batch_sizes:
        for row in packing.order_B[:size].tolist():
            forward, backward = next(words)
            read_forward[row].append(forward)
            read_backward[row].append(backward)
    assert read_forward == [row[: len(row) - unread] for row in rows]
    assert read_backward == [row[unread:][::-1] for row in rows]


def test_both_directions_come_back_to_their_positions():
    packing = Packing(np.array([1, 3]), np.array([0, 2]))
    outputs = [torch.from_numpy(positions).float().unsqueeze(1) + 1 for positions in packing.positions_2N]
    joined = join_directions(outputs, torch.from_numpy(packing.positions_2N), 6)
    assert joined.tolist() == [[1, 1], [0, 0], [3, 3], [4, 4], [5, 5], [0, 0]]
