"""Bias with relu, and highways, run by Triton's interpreter on a CPU, against plain torch."""

import pytest
import torch

from elmokit.config import CharConfig
from elmokit.nn import word_encoder
from elmokit.nn.operations import Choice, find_engine
from elmokit.nn.word_encoder import CharCnn

kernel = pytest.importorskip("elmokit.engines.words.highway", reason="Triton is not installed")
pytestmark = pytest.mark.usefixtures("interpreted_triton")

# Relative to the norm. float32: the order of sums. bfloat16: 8 bits, which the interpreter cuts where a GPU rounds.
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2e-2}
SHAPES = [(1, 5), (33, 128), (700, 130)]


def rectified(features, bias):
    return (features + bias).relu()


def passed(features, gate, gate_bias, transform, transform_bias):
    linear = torch.nn.functional.linear
    return torch.lerp(
        features, linear(features, transform, transform_bias).relu(), linear(features, gate, gate_bias).sigmoid()
    )


def fused(features, gate, gate_bias, transform, transform_bias):
    return kernel.highway(features, (gate, gate_bias), (transform, transform_bias))


def draw(num_words, width, num_matrices, dtype):
    random = torch.Generator().manual_seed(num_words)
    shapes = [(num_words, width)] + num_matrices * [(width, width), (width,)] + (num_matrices == 0) * [(width,)]
    sizes = [1.0] + num_matrices * [width**-0.5, 1.0] + [1.0]
    return [(size * torch.randn(shape, generator=random)).to(dtype) for shape, size in zip(shapes, sizes, strict=False)]


def assert_equal(function, plain, tensors):
    results = []
    for how, inputs in ((function, tensors), (plain, [tensor.double() for tensor in tensors])):
        inputs = [tensor.detach().requires_grad_() for tensor in inputs]
        values = how(*inputs)
        upstream = torch.randn(values.shape, generator=torch.Generator().manual_seed(1)).to(values.dtype)
        results.append((values, *torch.autograd.grad(values, inputs, upstream)))
    for found, expected in zip(*results, strict=True):
        assert found.dtype == tensors[0].dtype and found.shape == expected.shape
        assert (found.double() - expected).norm() <= TOLERANCE[tensors[0].dtype] * expected.norm()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_and_relu(shape, dtype):
    assert_equal(kernel.add_and_rectify, rectified, draw(*shape, 0, dtype))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_highways(shape, dtype):
    assert_equal(fused, passed, draw(*shape, 2, dtype))


def test_what_is_not_a_number_stays_so():
    features, bias = draw(3, 5, 0, torch.float32)
    features[1, 2] = float("nan")
    assert kernel.add_and_rectify(features, bias).isnan().nonzero().tolist() == [[1, 2]]
    inputs = draw(3, 5, 2, torch.float32)
    inputs[0][1, 2] = float("nan")
    assert fused(*inputs)[1].isnan().all()


def test_they_are_operators_as_torch_wants_them():
    features, bias = (tensor.requires_grad_() for tensor in draw(4, 6, 0, torch.float32))
    torch.library.opcheck(kernel._rectified, (features, bias))
    torch.library.opcheck(kernel._rectified_backward, (torch.ones(4, 6), features.detach()))
    inputs = [tensor.requires_grad_() for tensor in draw(4, 6, 2, torch.float32)]
    torch.library.opcheck(kernel._highway, tuple(inputs))
    features, gate, _, transform, _ = (tensor.detach() for tensor in inputs)
    torch.library.opcheck(kernel._highway_backward, (features, features, gate, transform, features, features))


def test_an_unknown_activation_is_not_taken_for_tanh():
    weights = CharCnn(CharConfig(filters=((1, 16),), num_highways=0)).weights()._replace(activation="gelu")
    with pytest.raises(AssertionError, match="gelu"):
        find_engine("words", "triton")(weights, [torch.ones(2, 9, dtype=torch.int64)])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_encoder_learns_the_same_with_them(activation, monkeypatch):
    encoder = CharCnn(CharConfig(filters=((1, 16), (3, 33)), num_highways=2, activation=activation))
    random = torch.Generator().manual_seed(0)
    blocks = [torch.randint(1, 262, (rows, width), generator=random) for rows, width in ((5, 9), (3, 12))]

    def learned():
        features = encoder(blocks, trim=False)
        return features, *torch.autograd.grad(features.square().sum(), list(encoder.parameters()))

    expected = learned()
    monkeypatch.setattr(word_encoder, "choose", lambda request: Choice("triton", "asked for"))
    for one, other in zip(learned(), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
