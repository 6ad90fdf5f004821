"""The int8 engine against a slow emulation of the same rounding, and how near it stays to float32."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.engines import Clips, LayerState, LstmpWeights, Recurrence, cpu, engine_named
from elmokit.errors import EngineError

pytestmark = pytest.mark.usefixtures("cpu_kernels")


def random_recurrence(seed, num_words, num_rows, input_dim, cell_dim, output_dim):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator) * shape[0] ** -0.5

    projection = None if cell_dim == output_dim else draw(cell_dim, output_dim)
    weights = LstmpWeights(
        draw(input_dim, 4 * cell_dim), draw(output_dim, 4 * cell_dim), draw(4 * cell_dim), projection
    )
    state = LayerState(draw(num_rows, output_dim), draw(num_rows, cell_dim))
    return Recurrence(draw(num_words, input_dim) * input_dim**0.5, weights, state)


def rounded(values, dim):
    """Whole numbers within ±127 and the scale that takes them back, one along `dim`; in float32, as the engine."""
    largest = values.abs().amax(dim, keepdim=True)
    factor = torch.where(largest > 0, 127 / largest, 0.0)
    return (values * factor).round().double(), (largest / 127).double()


def product(rows, weight):
    """rows @ weight with both rounded, in float64: sums of whole numbers are exact."""
    (whole_rows, row_scales), (whole_columns, column_scales) = rounded(rows, 1), rounded(weight, 0)
    return (whole_rows @ whole_columns * row_scales * column_scales).float()


def emulated(recurrence, batch_sizes, clips):
    weights, (hidden, cell) = recurrence.weights, recurrence.state
    outputs = []
    for inputs in recurrence.inputs_ND.split(list(batch_sizes)):
        n = len(inputs)
        gates = product(inputs, weights.input_D4H) + weights.bias_4H + product(hidden[:n], weights.recurrent_P4H)
        i, j, f, o = gates.chunk(4, dim=1)
        cell = f.sigmoid() * cell[:n] + i.sigmoid() * j.tanh()
        cell = cell if clips.cell is None else cell.clamp(-clips.cell, clips.cell)
        hidden = o.sigmoid() * cell.tanh()
        if weights.projection_HP is not None:
            hidden = product(hidden, weights.projection_HP)
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
        patch.setattr(cpu, "num_threads", lambda products: threads)
        ((found, _),) = engine_named("int8")([recurrence], batch_sizes, clips)
    expected = emulated(recurrence, batch_sizes, clips)
    scale = expected.abs().amax() + 1e-3
    assert (found - expected).abs().amax() < 0.03 * scale
    assert (found - expected).abs().median() < 1e-5


def test_near_float32_over_many_steps():
    recurrence = random_recurrence(0, 30 * 16, 16, 64, 256, 64)
    ((found, state),) = engine_named("int8")([recurrence], [16] * 30, Clips(3.0, 3.0))
    ((exact, exact_state),) = engine_named("reference")([recurrence], [16] * 30, Clips(3.0, 3.0))
    assert (found - exact).norm() < 0.02 * exact.norm()
    assert (state.cell_BH - exact_state.cell_BH).norm() < 0.02 * exact_state.cell_BH.norm()
    cosines = torch.cosine_similarity(found, exact, dim=1)
    assert cosines.min() > 0.998


def test_gradients_and_missing_kernels_are_refused(monkeypatch):
    recurrence = random_recurrence(0, 4, 2, 5, 8, 3)
    recurrence.weights.bias_4H.requires_grad_()
    with pytest.raises(EngineError, match="no gradients .torch.no_grad"):
        engine_named("int8")([recurrence], [2, 2], Clips(None, None))
    with torch.no_grad():
        ((found, _),) = engine_named("int8")([recurrence], [2, 2], Clips(None, None))
    assert found.shape == (4, 3)
    ((nothing, _),) = engine_named("int8")([recurrence._replace(inputs_ND=torch.empty(0, 5))], [], Clips(None, None))
    assert nothing.shape == (0, 3)
