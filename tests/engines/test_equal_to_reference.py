"""Every engine of the recurrence equals the reference: outputs, final states and gradients, over random problems.

float32: 1e-5, because the same numbers are summed in another order; float64 shows that nothing else differs. Half
precision is compared with the reference in float64 over the same rounded numbers: see `HALF`. The Triton engine is run
by Triton's interpreter on the CPU (`tests/conftest.py`); `benchmarks/engines_on_device.py` does the same on a GPU.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.config import LstmConfig
from elmokit.engines.recurrence import cpu, packed
from elmokit.engines.recurrence.random_problems import draw_recurrence, list_tensors, map_tensors
from elmokit.errors import EngineError
from elmokit.nn import bilm
from elmokit.nn.bilm import BiLM
from elmokit.nn.operations import Choice, Clips, find_engine

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
# Relative to the norm: outputs, gates and their gradients are rounded to 8 or 11 bits at every step, and the steps pass
# it on. The interpreter cuts where a GPU rounds, which costs another bit.
HALF = {torch.bfloat16: 5e-2, torch.float16: 6e-3}


def random_recurrence(seed, num_words, num_rows, input_dim, cell_dim, output_dim, dtype):
    shape = {"num_words": num_words, "num_rows": num_rows, "input_dim": input_dim}
    return draw_recurrence(seed, **shape, cell_dim=cell_dim, output_dim=output_dim, dtype=dtype, scale=2.0)


def cast(recurrence, dtype):
    return map_tensors(recurrence, lambda part: part.detach().to(dtype))


def results(name, recurrences, batch_sizes, clips):
    """Everything an engine hands back, in one list."""
    return [
        part
        for outputs, state in find_engine("recurrence", name)(recurrences, batch_sizes, clips)
        for part in (outputs, *state)
    ]


def gradients(name, recurrences, batch_sizes, clips):
    leaves = [part.requires_grad_() for recurrence in recurrences for part in list_tensors(recurrence)]
    loss = sum(
        (outputs * outputs.detach().cos()).sum() + state[0].sin().sum() + state[1].square().sum()
        for outputs, state in find_engine("recurrence", name)(recurrences, batch_sizes, clips)
    )
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, grads, strict=True)]


def assert_near(found, expected, tolerance):
    """Equal within a part of the norm; that of a tensor whose terms cancel is not below a fifth of the largest."""
    least = 0.2 * max(other.norm() for other in expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).norm() <= tolerance * max(other.norm(), least)


@st.composite
def problems(draw, dtypes, most_words=9, widest=6, projected=False, clips=(None, 0.1, 0.3, 3.0)):
    lengths = sorted(draw(st.lists(st.integers(0, most_words), min_size=1, max_size=6).filter(any)), reverse=True)
    batch_sizes = [sum(length > step for length in lengths) for step in range(lengths[0])]
    output_dim = draw(st.integers(1, widest))
    cell_dim = output_dim + draw(st.sampled_from([3] if projected else [0, 3]))
    shape = {"num_words": sum(lengths), "num_rows": len(lengths), "input_dim": draw(st.integers(1, 5))}
    seed = draw(st.integers(0, 2**30))
    dtype = draw(st.sampled_from(dtypes))
    shape |= {"cell_dim": cell_dim, "output_dim": output_dim, "dtype": dtype}
    recurrences = [random_recurrence(seed + k, **shape) for k in range(draw(st.sampled_from([2, 2, 1])))]
    return recurrences, batch_sizes, Clips(draw(st.sampled_from(clips)), draw(st.sampled_from(clips))), dtype


EXACT = [torch.float32, torch.float64]


@settings(deadline=None, max_examples=60)
@given(problem=problems(EXACT), block_words=st.sampled_from([1, 3, 1000]))
def test_packed_gives_the_same_outputs_and_states(problem, block_words):
    recurrences, batch_sizes, clips, dtype = problem
    with pytest.MonkeyPatch.context() as patch:
        cell_dim = recurrences[0].state.cell_BH.shape[1]
        patch.setattr(packed, "BLOCK_BYTES", block_words * 4 * cell_dim * recurrences[0].inputs_ND.element_size())
        check_outputs_and_states("packed", recurrences, batch_sizes, clips, dtype)


@settings(deadline=None, max_examples=30)
@given(problem=problems(EXACT))
def test_packed_gives_the_same_gradients(problem):
    check_gradients("packed", *problem)


@settings(deadline=None, max_examples=60)
@given(
    problem=problems([torch.float32], widest=70), block_words=st.sampled_from([1, 9, 1000]), threads=st.integers(1, 5)
)
def test_cpu_gives_the_same_outputs_and_states(cpu_kernels, problem, block_words, threads):
    recurrences, batch_sizes, clips, dtype = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "BLOCK_BYTES", block_words * 16 * recurrences[0].state.cell_BH.shape[1])
        patch.setattr(cpu, "num_threads", lambda products: threads)
        check_outputs_and_states("cpu", recurrences, batch_sizes, clips, dtype)


@pytest.fixture
def small_tiles(interpreted_triton, monkeypatch):
    """Tiles so small that even the problems here need several of them; memory that nobody has written to holds NaN."""
    from elmokit.engines.recurrence import triton

    for name in ("FORWARD_TILE", "MANY_CELLS_TILE", "PROJECT_TILE"):
        monkeypatch.setattr(triton, name, (16, 16, 16, 4, 2))
    for name in ("APART_TILE", "BACKWARD_APART_TILE"):
        monkeypatch.setattr(triton, name, (16, 16, 4))
    torch.use_deterministic_algorithms(True)
    yield triton
    torch.use_deterministic_algorithms(False)


# In which dtypes a Triton kernel multiplies by itself, and up to how many cells with gradients as well. float32 never
# does, but only in float32 can it be shown to be exact.
FUSED = [{"FUSED_DTYPES": ()}]
FUSED += [{"FUSED_DTYPES": (torch.float32,), "FUSED_CELLS": most} for most in (0, 1024)]


def take(patch, fused):
    """The Triton engine goes this way."""
    from elmokit.engines.recurrence import triton

    for name, value in fused.items():
        patch.setattr(triton, name, value)


triton_problems = problems([torch.float32], most_words=5, widest=40, projected=True)


@settings(deadline=None, max_examples=30)
@given(problem=triton_problems, fused=st.sampled_from(FUSED))
def test_triton_gives_the_same_outputs_and_states(interpreted_triton, problem, fused):
    from elmokit.engines.recurrence import triton

    with pytest.MonkeyPatch.context() as patch:
        take(patch, fused)
        patch.setattr(triton, "FORWARD_TILE", (128, 16, 16, 8, 2))
        patch.setattr(triton, "MANY_CELLS_TILE", (64, 16, 32, 8, 2))
        check_outputs_and_states("triton", *problem)


@settings(deadline=None, max_examples=25)
@given(problem=triton_problems, fused=st.sampled_from(FUSED))
def test_triton_gives_the_same_gradients(interpreted_triton, problem, fused):
    with pytest.MonkeyPatch.context() as patch:
        take(patch, fused)
        check_gradients("triton", *problem)


def check_outputs_and_states(name, recurrences, batch_sizes, clips, dtype):
    before = [part.clone() for recurrence in recurrences for part in list_tensors(recurrence)]
    expected = results("reference", recurrences, batch_sizes, clips)
    found = results(name, recurrences, batch_sizes, clips)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=TOLERANCE[dtype], rtol=0)
    after = [part for recurrence in recurrences for part in list_tensors(recurrence)]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True)), "an engine wrote to what it was handed"


def check_gradients(name, recurrences, batch_sizes, clips, dtype):
    found = gradients(name, recurrences, batch_sizes, clips)
    for one, other in zip(found, gradients("reference", recurrences, batch_sizes, clips), strict=True):
        torch.testing.assert_close(one, other, atol=TOLERANCE[dtype] * 20, rtol=TOLERANCE[dtype] * 20)


# Clips that only a few values reach: whether a value next to its bound is clipped is up to its rounding, and its
# gradient with it.
@settings(deadline=None, max_examples=12)
@given(
    problem=problems(list(HALF), most_words=5, widest=40, projected=True, clips=(None, 3.0)),
    fused_cells=st.sampled_from([0, 1024]),
)
def test_triton_in_half_precision(interpreted_triton, problem, fused_cells):
    from elmokit.engines.recurrence import triton

    recurrences, batch_sizes, clips, dtype = problem
    exact = [cast(recurrence, torch.float64) for recurrence in recurrences]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton, "FUSED_CELLS", fused_cells)
        found = results("triton", recurrences, batch_sizes, clips)
        assert all(part.dtype == dtype for part in found)
        assert_near(found, results("reference", exact, batch_sizes, clips), HALF[dtype])
        found = gradients("triton", recurrences, batch_sizes, clips)
        assert_near(found, gradients("reference", exact, batch_sizes, clips), 2 * HALF[dtype])


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("clips", [Clips(None, None), Clips(0.3, 0.1)])
def test_triton_over_several_tiles_of_rows(small_tiles, clips, fused, monkeypatch):
    take(monkeypatch, fused)
    sizes = [18, 17, 16, 1]
    recurrences = [random_recurrence(k, sum(sizes), 20, 9, 37, 21, torch.float32) for k in (0, 1)]
    check_outputs_and_states("triton", recurrences, sizes, clips, torch.float32)
    check_gradients("triton", recurrences, sizes, clips, torch.float32)


@pytest.mark.parametrize("fused", FUSED)
def test_triton_with_the_tiles_of_a_gpu(interpreted_triton, fused, monkeypatch):
    take(monkeypatch, fused)
    sizes = [130, 2]
    recurrences = [random_recurrence(k, sum(sizes), 130, 20, 70, 140, torch.float32) for k in (0, 1)]
    check_outputs_and_states("triton", recurrences, sizes, Clips(0.3, 0.1), torch.float32)
    check_gradients("triton", recurrences, sizes, Clips(0.3, 0.1), torch.float32)


@pytest.mark.parametrize("fused", FUSED)
def test_triton_gives_the_same_twice(small_tiles, fused, monkeypatch):
    take(monkeypatch, fused)
    problem = [random_recurrence(k, 27, 14, 9, 37, 21, torch.float32) for k in (0, 1)], [12, 12, 2, 1], Clips(0.3, 0.1)
    check_gradients("triton", *problem, torch.float32)
    once, again = (results("triton", *problem) + gradients("triton", *problem) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


@pytest.mark.parametrize(
    ("dtype", "cells", "keeps", "fuses"),
    [
        (torch.bfloat16, 1024, True, True),
        (torch.bfloat16, 1024, False, True),
        (torch.bfloat16, 4096, True, False),
        (torch.float16, 4096, False, True),
        (torch.float32, 64, True, False),
        (torch.float32, 4096, False, False),
    ],
)
def test_triton_multiplies_by_itself_in_half_precision(interpreted_triton, dtype, cells, keeps, fuses):
    from elmokit.engines.recurrence import triton

    assert triton._fuses(dtype, cells, keeps=keeps) == fuses


@pytest.mark.parametrize(("fused", "kernels"), list(zip(FUSED, ["gates clip", "gates", "gates project"], strict=True)))
def test_triton_without_gradients_launches_what_it_should(small_tiles, fused, kernels, monkeypatch):
    take(monkeypatch, fused)
    launched = []

    class Spy:
        def __init__(self, name):
            self.name, self.kernel = name, getattr(small_tiles, f"{name}_kernel")

        def __getitem__(self, grid):
            launched.append("gates" if self.name == "forward" else self.name)
            return self.kernel[grid]

    for name in ("forward", "project", "clip"):
        monkeypatch.setattr(small_tiles, f"{name}_kernel", Spy(name))
    problem = [random_recurrence(0, 5, 3, 4, 8, 3, torch.float32)], [3, 2], Clips(0.3, 0.1)
    check_outputs_and_states("triton", *problem, torch.float32)
    assert launched == kernels.split() * 2


@pytest.mark.parametrize("sizes", [[3], [3, 3, 3], [4, 3, 3, 1], [5, 5, 2, 2, 2], [1, 1, 1]])
def test_triton_finds_what_was_previous_outputs(interpreted_triton, sizes):
    from elmokit.engines.recurrence import triton

    starts = [sum(sizes[:step]) for step in range(len(sizes))]
    outputs_ENP = torch.arange(2.0 * sum(sizes)).view(2, -1, 1)
    hidden_EBP = -torch.arange(1.0, 15).view(2, 7, 1)
    words = [hidden_EBP[:, : sizes[0]]]
    words += [outputs_ENP[:, start : start + n] for start, n in zip(starts, sizes[1:], strict=False)]
    assert torch.equal(triton._previous_outputs(outputs_ENP, hidden_EBP, sizes), torch.cat(words, dim=1))


@pytest.mark.parametrize(("kilobytes", "tile"), [(227, "MANY_CELLS_TILE"), (99, "FORWARD_TILE")])
def test_triton_takes_a_tile_that_fits_the_gpu(interpreted_triton, kilobytes, tile, monkeypatch):
    from elmokit.engines.recurrence import triton

    monkeypatch.setattr(triton, "_shared_bytes", lambda device: 1024 * kilobytes)
    assert triton._many_cells_tile(torch.device("cuda", 0)) == getattr(triton, tile)


def test_triton_leaves_rows_without_words_alone(small_tiles):
    (recurrence,) = [random_recurrence(0, 5, 6, 4, 8, 3, torch.float32)]
    for part in list_tensors(recurrence):
        part.requires_grad_()
    ((_, state),) = find_engine("recurrence", "triton")([recurrence], [3, 2], Clips(0.3, 0.1))
    assert torch.equal(state.hidden_BP[3:], recurrence.state.hidden_BP[3:])
    assert torch.equal(state.cell_BH[3:], recurrence.state.cell_BH[3:])
    (gradient,) = torch.autograd.grad(state.cell_BH[3:].sum(), recurrence.state.cell_BH)
    assert gradient.tolist() == [[0.0] * 8] * 3 + [[1.0] * 8] * 3


def test_triton_takes_views(small_tiles):
    recurrence = random_recurrence(0, 8, 3, 6, 9, 5, torch.float32)
    turned = map_tensors(recurrence, lambda part: part.movedim(0, -1).contiguous().movedim(-1, 0))
    assert not turned.weights.recurrent_P4H.is_contiguous()
    check_outputs_and_states("triton", [turned], [3, 3, 2], Clips(3.0, 3.0), torch.float32)
    check_gradients("triton", [turned], [3, 3, 2], Clips(3.0, 3.0), torch.float32)


def test_triton_keeps_the_dtype_of_a_state(small_tiles):
    exact = random_recurrence(0, 8, 3, 6, 9, 5, torch.float32)
    half = cast(exact, torch.bfloat16)._replace(state=exact.state)
    found = results("triton", [half], [3, 3, 2], Clips(3.0, 3.0))
    assert [part.dtype for part in found] == [torch.bfloat16, torch.float32, torch.float32]
    assert_near(found, results("reference", [cast(half, torch.float64)], [3, 3, 2], Clips(3.0, 3.0)), 5e-2)
    grads = gradients("triton", [half], [3, 3, 2], Clips(3.0, 3.0))
    assert [grad.dtype for grad in grads] == [torch.bfloat16] * 5 + [torch.float32] * 2
    expected = gradients("reference", [cast(half, torch.float64)], [3, 3, 2], Clips(3.0, 3.0))
    assert_near(grads, expected, 1e-1)


def test_triton_keeps_gates_only_for_a_backward_pass(small_tiles, monkeypatch):
    recurrence = random_recurrence(0, 8, 3, 6, 9, 5, torch.float32)
    kept = []
    operator = small_tiles._lstmp

    def spy(*parts):
        kept.append([part.numel() for part in operator(*parts)[3:]])
        return operator(*parts)

    monkeypatch.setattr(small_tiles, "_lstmp", spy)
    frozen = results("triton", [recurrence], [3, 3, 2], Clips(0.3, 0.1))
    for part in list_tensors(recurrence):
        part.requires_grad_()
    with torch.no_grad():
        without = results("triton", [recurrence], [3, 3, 2], Clips(0.3, 0.1))
    found = results("triton", [recurrence], [3, 3, 2], Clips(0.3, 0.1))
    assert kept == [[0] * 4, [0] * 4, [8 * 4 * 9, 8 * 9, 8 * 9, 8 * (6 + 5)]]
    assert all(torch.equal(x, y) and torch.equal(x, z) for x, y, z in zip(found, without, frozen, strict=True))


def test_triton_finds_clipped_outputs_though_the_bound_is_rounded(small_tiles):
    # 0.7 in bfloat16 is 0.69921875: an output at its bound must not look as if it lay below.
    recurrence = cast(random_recurrence(0, 6, 3, 4, 8, 3, torch.float32), torch.bfloat16)
    weights = recurrence.weights._replace(projection_HP=torch.full((8, 3), 1e4, dtype=torch.bfloat16))
    recurrence = recurrence._replace(weights=weights, inputs_ND=recurrence.inputs_ND.requires_grad_())
    ((outputs, _),) = find_engine("recurrence", "triton")([recurrence], [3, 3], Clips(None, 0.7))
    assert outputs.abs().unique().tolist() == [0.69921875]
    (gradient,) = torch.autograd.grad(outputs.sum(), recurrence.inputs_ND)
    assert not gradient.any()


def test_triton_does_not_lose_a_nan(small_tiles):
    recurrence = random_recurrence(0, 6, 3, 4, 8, 3, torch.float32)
    recurrence.inputs_ND[1] = float("nan")
    ((outputs, state),) = find_engine("recurrence", "triton")([recurrence], [3, 3], Clips(0.3, 0.1))
    assert outputs.isnan().any(1).tolist() == [False, True, False] * 2
    assert state.cell_BH.isnan().any(1).tolist() == [False, True, False]


@pytest.mark.parametrize("fused", FUSED)
def test_triton_operators_keep_the_promises_of_torch_library(small_tiles, fused, monkeypatch):
    take(monkeypatch, fused)
    recurrences = [random_recurrence(k, 5, 4, 3, 6, 4, torch.float32) for k in (0, 1)]
    inputs, *matrices, bias, projection, hidden, cell = map(
        torch.stack, zip(*map(list_tensors, recurrences), strict=True)
    )
    stacked = [inputs, torch.cat(matrices, dim=1), bias, projection, hidden, cell]
    for keeps in (False, True):
        leaves = [part.requires_grad_(keeps) for part in stacked]
        torch.library.opcheck(small_tiles._lstmp, (*leaves, [3, 2], 0.3, 0.1, keeps))
    stacked = [part.detach() for part in stacked]
    *results, gates, cells, gated, read = small_tiles._lstmp(*stacked, [3, 2], None, 0.1, True)
    assert (read.numel() == 0) == (fused == FUSED[2])
    parts = (*results, *stacked, results[0], gates, cells, gated)
    if read.numel():
        parts = (*results, read, *stacked[1:], results[0], gates, cells, gated)
    torch.library.opcheck(small_tiles._lstmp_backward, (*parts, [3, 2], None, 0.1))


def test_a_whole_bilm_gives_the_same_through_triton(interpreted_triton, monkeypatch):
    lstm = BiLM(LstmConfig(cell_dim=40, projection_dim=12, projection_clip=0.3)).requires_grad_(False)
    words = torch.randn(4, 6, 12, generator=torch.Generator().manual_seed(0))
    expected, state = lstm(words, lengths=[6, 0, 3, 1])
    expected_after = lstm(words, lengths=[2, 6, 6, 0], state=state)
    monkeypatch.setattr(bilm, "choose", lambda request: Choice("triton", "asked for"))
    found, state = lstm(words, lengths=[6, 0, 3, 1])
    after = lstm(words, lengths=[2, 6, 6, 0], state=state)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(after[0], expected_after[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(after[1].cell, expected_after[1].cell, atol=1e-5, rtol=0)


def test_triton_refuses_float64_and_says_who_takes_it(interpreted_triton):
    with pytest.raises(EngineError, match="float32, bfloat16, float16, found torch.float64.*reference"):
        results("triton", [random_recurrence(0, 2, 1, 3, 4, 2, torch.float64)], [1, 1], Clips(None, None))


def test_clipping_is_really_reached_in_these_problems():
    recurrence = random_recurrence(0, 40, 4, 5, 7, 3, torch.float64)
    sizes = [4] * 10
    ((clipped, state),) = find_engine("recurrence", "reference")([recurrence], sizes, Clips(0.3, 0.1))
    ((free, _),) = find_engine("recurrence", "reference")([recurrence], sizes, Clips(None, None))
    assert clipped.abs().amax() == pytest.approx(0.1)
    assert state.cell_BH.abs().amax() == pytest.approx(0.3)
    assert not torch.allclose(clipped, free.clamp(-0.1, 0.1), atol=1e-3)
