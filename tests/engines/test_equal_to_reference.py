"""Every engine equals `reference.py`: outputs, final states and gradients, over random shapes, lengths and clips.

float32: 1e-5, because the same products are summed in another order. float64 shows that nothing else differs.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import EngineError
from elmokit.nn.engines import Clips, LayerState, LstmpWeights, Recurrence, best_for, engine_named, packed

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
ENGINES = ["packed"]


def random_recurrence(seed, num_words, num_rows, input_dim, cell_dim, output_dim, dtype):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape, scale=1.0):
        return torch.randn(*shape, generator=generator, dtype=dtype) * scale

    projection = None if cell_dim == output_dim else draw(cell_dim, output_dim, scale=cell_dim**-0.5 * 2)
    weights = LstmpWeights(
        draw(input_dim, 4 * cell_dim, scale=input_dim**-0.5 * 2),
        draw(output_dim, 4 * cell_dim, scale=output_dim**-0.5 * 2),
        draw(4 * cell_dim),
        projection,
    )
    state = LayerState(draw(num_rows, output_dim), draw(num_rows, cell_dim))
    return Recurrence(draw(num_words, input_dim), weights, state)


def tensors_of(recurrence):
    parts = (recurrence.inputs_ND, *recurrence.weights, *recurrence.state)
    return [part for part in parts if part is not None]


@st.composite
def problems(draw):
    lengths = sorted(draw(st.lists(st.integers(0, 9), min_size=1, max_size=6)), reverse=True)
    batch_sizes = [sum(length > step for length in lengths) for step in range(lengths[0])]
    output_dim = draw(st.integers(1, 6))
    cell_dim = draw(st.sampled_from([output_dim, output_dim + 3]))
    clips = Clips(draw(st.sampled_from([None, 0.3, 3.0])), draw(st.sampled_from([None, 0.1, 3.0])))
    shape = {"num_words": sum(lengths), "num_rows": len(lengths), "input_dim": draw(st.integers(1, 5))}
    seed = draw(st.integers(0, 2**30))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    shape |= {"cell_dim": cell_dim, "output_dim": output_dim, "dtype": dtype}
    return [random_recurrence(seed + k, **shape) for k in (0, 1)], batch_sizes, clips, dtype


@pytest.mark.parametrize("name", ENGINES)
@settings(deadline=None, max_examples=60)
@given(problem=problems(), block_words=st.sampled_from([1, 3, 1000]))
def test_same_outputs_and_states(name, problem, block_words):
    recurrences, batch_sizes, clips, dtype = problem
    before = [part.clone() for recurrence in recurrences for part in tensors_of(recurrence)]
    expected = engine_named("reference")(recurrences, batch_sizes, clips)
    with pytest.MonkeyPatch.context() as patch:
        cell_dim = recurrences[0].state.cell_BH.shape[1]
        patch.setattr(packed, "BLOCK_BYTES", block_words * 4 * cell_dim * recurrences[0].inputs_ND.element_size())
        found = engine_named(name)(recurrences, batch_sizes, clips)
    assert len(found) == len(expected)
    for (outputs, state), (expected_outputs, expected_state) in zip(found, expected, strict=True):
        torch.testing.assert_close(outputs, expected_outputs, atol=TOLERANCE[dtype], rtol=0)
        for part, expected_part in zip(state, expected_state, strict=True):
            torch.testing.assert_close(part, expected_part, atol=TOLERANCE[dtype], rtol=0)
    after = [part for recurrence in recurrences for part in tensors_of(recurrence)]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True)), "an engine wrote to what it was handed"


@pytest.mark.parametrize("name", ENGINES)
@settings(deadline=None, max_examples=30)
@given(problem=problems())
def test_same_gradients(name, problem):
    recurrences, batch_sizes, clips, dtype = problem

    def gradients(engine):
        leaves = [part.requires_grad_() for recurrence in recurrences for part in tensors_of(recurrence)]
        results = engine_named(engine)(recurrences, batch_sizes, clips)
        loss = sum(
            (outputs * outputs.detach().cos()).sum() + state[0].sin().sum() + state[1].square().sum()
            for outputs, state in results
        )
        grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, grads, strict=True)]

    for found, expected in zip(gradients(name), gradients("reference"), strict=True):
        torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype] * 20, rtol=TOLERANCE[dtype] * 20)


def test_clipping_is_really_reached_in_these_problems():
    recurrence = random_recurrence(0, 40, 4, 5, 7, 3, torch.float64)
    sizes = [4] * 10
    ((clipped, state),) = engine_named("reference")([recurrence], sizes, Clips(0.3, 0.1))
    ((free, _),) = engine_named("reference")([recurrence], sizes, Clips(None, None))
    assert clipped.abs().amax() == pytest.approx(0.1)
    assert state.cell_BH.abs().amax() == pytest.approx(0.3)
    assert not torch.allclose(clipped, free.clamp(-0.1, 0.1), atol=1e-3)


def test_the_choice_is_a_pure_function_and_says_why():
    choice = best_for(torch.device("cpu"), torch.float32, Clips(3.0, 3.0))
    assert choice == best_for(torch.device("cpu"), torch.float32, Clips(3.0, 3.0))
    assert str(choice) == "engine=packed (float32 on cpu)"
    assert best_for(torch.device("cpu"), torch.bfloat16, Clips(3.0, 3.0)).name == "reference"


def test_an_unknown_engine_is_named_with_the_known_ones():
    with pytest.raises(EngineError, match="'warp'.*packed.*reference"):
        engine_named("warp")
