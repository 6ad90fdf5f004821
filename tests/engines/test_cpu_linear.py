"""Linear maps and highways of the C++ kernels against torch, and their whole numbers against exact ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from elmokit.engines.cpp import linear as cpu_linear
from elmokit.engines.cpp import packing
from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.linear import apply_highway, apply_linear
from elmokit.nn.word_encoder import Highway

pytestmark = pytest.mark.usefixtures("cpu_kernels")
ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**30),
    num_rows=st.integers(0, 30),
    width_in=st.one_of(st.integers(1, 80), st.sampled_from([512, 513, 1200])),
    width_out=st.integers(1, 140),
    has_bias=st.booleans(),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    threads=st.integers(1, 4),
)
def test_linear_equals_torch(seed, num_rows, width_in, width_out, has_bias, activation, threads):
    inputs = draw(seed, num_rows, width_in)
    weight = draw(seed + 1, width_out, width_in) * width_in**-0.5
    bias = draw(seed + 2, width_out) if has_bias else None
    expected = ACTIVATIONS[activation](F.linear(inputs, weight, bias))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_linear, "num_threads", lambda work: threads)
        found = apply_linear(inputs, weight, bias, activation=activation)
        rounded = apply_linear(inputs, weight, bias, activation=activation, precision="int8")
    torch.testing.assert_close(found, expected, atol=5e-6, rtol=0)
    torch.testing.assert_close(rounded, expected, atol=0.15, rtol=0)


@pytest.mark.parametrize("width_in", [1, 5, 67, 513])
def test_weights_that_float16_holds_are_stored_so_and_give_the_same_bits(width_in, monkeypatch):
    if not library().elmokit_reads_halves():
        pytest.skip("this processor does not convert float16")
    inputs, weight, bias = draw(0, 13, width_in), draw(1, 70, width_in).half().float(), draw(2, 70)
    weight[0, 0], weight[1, 0], weight[2, 0] = 2.0**-24, -0.0, 65504.0  # the smallest, and the largest that float16 has
    assert packing.choose_storage("float32", [weight]) == packing.Storage.HALVES
    assert packing.choose_storage("float32", [weight, bias.unsqueeze(0)]) == packing.Storage.FLOATS
    assert packing.choose_storage("float32", [weight * torch.inf]) == packing.Storage.FLOATS  # a NaN equals nothing
    found = apply_linear(inputs, weight, bias)
    monkeypatch.setattr(cpu_linear, "choose_storage", lambda *_: packing.Storage.FLOATS)
    assert torch.equal(found, apply_linear(inputs, weight.clone(), bias))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("is_half", [True, False])
def test_a_row_has_the_same_bits_alone_and_in_tiles_of_any_height(precision, is_half):
    inputs, weight = draw(0, 30, 600), draw(1, 70, 600)
    weight = weight.half().float() if is_half else weight
    alone = torch.cat([apply_linear(row[None], weight, precision=precision) for row in inputs])
    for num_rows in range(1, 31):
        found = apply_linear(inputs[:num_rows], weight, precision=precision)
        assert torch.equal(found, alone[:num_rows]), num_rows


@pytest.mark.parametrize("width_in", [1, 2, 3, 4, 5, 67, 1201])
def test_int8_sums_are_exact(width_in):
    generator = torch.Generator().manual_seed(width_in)
    rows = torch.randint(-127, 128, (13, width_in), generator=generator)
    weight = torch.randint(-127, 128, (70, width_in), generator=generator)
    rows[:, 0], weight[:, 0] = 127, -127  # the largest: every scale is then a power of two
    found = apply_linear(rows / 64, weight / 4, precision="int8")
    assert torch.equal(found, ((rows @ weight.T) / 256).float())


def test_int8_rows_of_zeros_and_rows_that_are_not_finite():
    rows = torch.zeros(4, 9)
    rows[1, 3], rows[2, 4] = float("nan"), float("inf")
    found = apply_linear(rows, draw(0, 5, 9), torch.arange(5.0), precision="int8")
    assert found[0].tolist() == found[3].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert found[1:3].isnan().all()


def test_non_linearities_are_exact_to_a_few_units():
    values = torch.cat([torch.linspace(-100, 100, 40_001), torch.linspace(-1, 1, 40_001), torch.logspace(-30, 3, 1000)])
    one = torch.ones(1, 1)
    for name in ("sigmoid", "tanh"):
        found = apply_linear(values[:, None], one, activation=name)[:, 0]
        exact = ACTIVATIONS[name](values.double())
        assert (found - exact).abs().amax() < 3e-7
        relative = ((found - exact).abs() / exact.abs().clamp_min(1e-30))[exact.abs() > 1e-30]
        assert relative.amax() < 1e-6
        ends = torch.tensor([[-torch.inf], [torch.inf], [torch.nan], [-0.0]])
        expected = ACTIVATIONS[name](ends)
        torch.testing.assert_close(apply_linear(ends, one, activation=name), expected, equal_nan=True)


@pytest.mark.parametrize("width", [1, 31, 32, 70])
def test_highway_equals_the_module(width):
    highway = Highway(width).requires_grad_(False)
    highway.gate.bias.fill_(0.0)
    inputs = draw(width, 20, width)
    pairs = [(part.weight, part.bias) for part in (highway.gate, highway.transform)]
    expected = torch.lerp(inputs, F.linear(inputs, *pairs[1]).relu(), F.linear(inputs, *pairs[0]).sigmoid())
    torch.testing.assert_close(apply_highway(inputs, *pairs), expected, atol=2e-6, rtol=0)
    torch.testing.assert_close(apply_highway(inputs, *pairs, precision="int8"), expected, atol=0.1, rtol=0)


def test_many_rows_are_taken_in_blocks_and_views_are_read():
    inputs, weight = draw(0, 300, 700).T.contiguous().T, draw(1, 700, 130).T * 0.03
    assert not inputs.is_contiguous() and not weight.is_contiguous()
    torch.testing.assert_close(apply_linear(inputs, weight), inputs @ weight.T, atol=1e-5, rtol=0)
