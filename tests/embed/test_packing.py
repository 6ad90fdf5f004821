import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmokit.embed.packing import Packing


@given(st.lists(st.integers(1, 12), min_size=1, max_size=9))
def test_each_direction_reads_each_row_in_its_order(lengths):
    packing = Packing(np.array(lengths))
    assert packing.order_B.tolist() == sorted(range(len(lengths)), key=lambda row: -lengths[row])
    assert packing.batch_sizes == [sum(length > step for length in lengths) for step in range(max(lengths))]
    rows = [[start + place for place in range(length)] for start, length in zip(packing.starts_B, lengths, strict=True)]
    assert sum(rows, []) == list(range(sum(lengths)))
    read_forward, read_backward = [[] for _ in lengths], [[] for _ in lengths]
    words = zip(packing.forward_N.tolist(), packing.backward_N.tolist(), strict=True)
    for size in packing.batch_sizes:
        for row in packing.order_B[:size].tolist():
            forward, backward = next(words)
            read_forward[row].append(forward)
            read_backward[row].append(backward)
    assert read_forward == rows
    assert read_backward == [row[::-1] for row in rows]
