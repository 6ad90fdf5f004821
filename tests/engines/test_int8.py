"""The int8 engine against a slow emulation of the same rounding, and how near it stays to float32."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.config import LstmConfig
from elmokit.engines.recurrence import cpu
from elmokit.engines.recurrence.random_problems import draw_recurrence
from elmokit.errors import EngineError
from elmokit.nn.bilm import BiLM
from elmokit.nn.operations import Clips, find_engine

pytestmark = pytest.mark.usefixtures("cpu_kernels")


def random_recurrence(seed, num_words, num_rows, input_dim, cell_dim, output_dim):
    shape = {"num_words": num_words, "num_rows": num_rows, "input_dim": input_dim}
    return draw_recurrence(seed, **shape, cell_dim=cell_dim, output_dim=output_dim)


def rounded(values, dim):
    """Whole numbers within ±127 and the scale that takes them back, one along `dim`; in float32, as the engine."""
    largest = values.abs().amax(dim, keepdim=True)
    factor = torch.where(largest > 0, 127 / largest, 0.0)
    return (values * factor).round().double(), (largest / 127).double()


def multiply(rows, weight):
    """rows @ weight with both rounded, in float64: sums of whole numbers are exact."""
    (whole_rows, row_scales), (whole_columns, column_scales) = rounded(rows, 1), rounded(weight, 0)
    return (whole_rows @ whole_columns * row_scales * column_scales).float()


def emulated(recurrence, batch_sizes, clips):
    weights, (hidden, cell) = recurrence.weights, recurrence.state
    outputs = []
    for inputs in recurrence.inputs_ND.split(list(batch_sizes)):
        n = len(inputs)
        gates = multiply(inputs, weights.input_D4H) + weights.bias_4H + multiply(hidden[:n], weights.recurrent_P4H)
        i, j, f, o = gates.chunk(4, dim=1)
        cell = f.sigmoid() * cell[:n] + i.sigmoid() * j.tanh()
        cell = cell if clips.cell is None else cell.clamp(-clips.cell, clips.cell)
        hidden = o.sigmoid() * cell.tanh()
        if weights.projection_HP is not None:
            hidden = multiply(hidden, weights.projection_HP)
            hidden = hidden if clips.projection is None else hidden.clamp(-clips.projection, clips.projection)
        outputs.append(hidden)
    return torch.cat(outputs)


# A value that lies between two whole numbers may be rounded the other way after a difference of 1e-7, which then is a
# difference of one whole number: rare, and small beside all others.
@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**30),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=9),
    dims=st.tuples(*[st.integers(1, 70)] * 2),
    projects=st.booleans(),
    clips=st.sampled_from([Clips(None, None), Clips(0.3, 0.1)]),
    threads=st.integers(1, 4),
)
@example(  # in float64 a weight lies on the other side of the middle of two whole numbers
    seed=4582, lengths=[2], dims=(4, 41), projects=True, clips=Clips(None, None), threads=1
)
def test_equal_to_its_emulation(seed, lengths, dims, projects, clips, threads):
    batch_sizes = [sum(length > step for length in lengths) for step in range(max(lengths))]
    input_dim, output_dim = dims
    recurrence = random_recurrence(seed, sum(lengths), len(lengths), input_dim, output_dim + 3 * projects, output_dim)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "num_threads", lambda work: threads)
        ((found, _),) = find_engine("recurrence", "int8")([recurrence], batch_sizes, clips)
    expected = emulated(recurrence, batch_sizes, clips)
    scale = expected.abs().amax() + 1e-3
    assert (found - expected).abs().amax() < 0.03 * scale
    assert (found - expected).abs().median() < 1e-5


def test_near_float32_over_many_steps():
    recurrence = random_recurrence(0, 30 * 16, 16, 64, 256, 64)
    ((found, state),) = find_engine("recurrence", "int8")([recurrence], [16] * 30, Clips(3.0, 3.0))
    ((exact, exact_state),) = find_engine("recurrence", "reference")([recurrence], [16] * 30, Clips(3.0, 3.0))
    assert (found - exact).norm() < 0.02 * exact.norm()
    assert (state.cell_BH - exact_state.cell_BH).norm() < 0.02 * exact_state.cell_BH.norm()
    cosines = torch.cosine_similarity(found, exact, dim=1)
    assert cosines.min() > 0.998


def test_gradients_are_refused():
    bilm = BiLM(LstmConfig(cell_dim=8, projection_dim=3))
    bilm.precision = "int8"
    words = torch.randn(2, 3, 3)
    with pytest.raises(EngineError, match="no gradients .use torch.no_grad"):
        bilm(words, lengths=[3, 2])
    with torch.no_grad():
        assert bilm(words, lengths=[3, 2])[0].shape == (3, 2, 3, 6)
        assert bilm(words[:, :0], lengths=[0, 0])[0].shape == (3, 2, 0, 6)
