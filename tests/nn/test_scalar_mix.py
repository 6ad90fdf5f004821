"""The weighted sum of layers: weights, scale, norm, penalty."""

import pytest
import torch

from elmokit.errors import ConfigError
from elmokit.nn.scalar_mix import ScalarMix

LAYERS = torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(0))


def test_untrained_is_the_mean():
    torch.testing.assert_close(ScalarMix(3)(LAYERS), LAYERS.mean(0))
    average = ScalarMix.average(3)
    torch.testing.assert_close(average(LAYERS), LAYERS.mean(0))
    assert not any(parameter.requires_grad for parameter in average.parameters())


def test_weights_and_gamma_follow_the_paper():
    mix = ScalarMix(3, weights=[0.5, -1.0, 2.0], gamma=0.7)
    shares = torch.tensor([0.5, -1.0, 2.0]).exp()
    shares /= shares.sum()
    expected = 0.7 * sum(share * layer for share, layer in zip(shares, LAYERS, strict=True))
    torch.testing.assert_close(mix(LAYERS), expected)
    assert mix.layer_weights() == pytest.approx(shares.tolist())
    assert "gamma=0.700" in repr(mix)


def test_one_layer_alone_with_a_gamma_that_learns():
    top = ScalarMix.only(2, 3)
    assert torch.equal(top(LAYERS), LAYERS[2])
    assert top.gamma.requires_grad and not top.weights.requires_grad
    with pytest.raises(ConfigError, match="layer 3 of 3"):
        ScalarMix.only(3, 3)


def test_layer_norm_counts_real_words_only():
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    mixed = ScalarMix(3, layer_norm=True)(LAYERS, mask)
    junk = LAYERS.clone()
    junk[:, ~mask] = 99.0
    torch.testing.assert_close(ScalarMix(3, layer_norm=True)(junk, mask)[mask], mixed[mask])
    one = ScalarMix.only(1, 3)
    one.layer_norm = True
    normed = one(LAYERS, mask)[mask]
    assert normed.mean().abs() < 1e-6
    assert normed.detach().var(unbiased=False) == pytest.approx(1.0, abs=1e-4)
    torch.testing.assert_close(one(LAYERS), one(LAYERS, torch.ones(2, 4, dtype=torch.bool)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_counts_in_float32(dtype):
    layers = torch.randn(3, 32, 20, 256, generator=torch.Generator().manual_seed(1)) * 3 + 1
    one = ScalarMix.only(1, 3)
    one.layer_norm = True
    normed = one(layers.to(dtype))
    assert normed.dtype == dtype
    assert normed.float().std().item() == pytest.approx(1.0, abs=0.01)
    torch.testing.assert_close(normed.float(), one(layers.to(dtype).float()), atol=0.01, rtol=0.01)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_layers_in_separate_tensors_give_the_same_sum_and_gradients(layer_norm):
    mix = ScalarMix(3, weights=[0.5, -1.0, 2.0], gamma=0.7, layer_norm=layer_norm)
    layers = LAYERS.clone().requires_grad_()
    summed = mix.sum_layers([layer.reshape(8, 5) for layer in layers])
    torch.testing.assert_close(summed, mix(layers).reshape(8, 5), rtol=0, atol=0)
    wanted = [layers, mix.weights, mix.gamma]
    factors = 0.7 * mix.weights.softmax(0)
    normed = layers
    if layer_norm:
        normed = torch.stack([(layer - layer.mean()) / layer.std(correction=0) for layer in layers])
    expected = mix.gamma / 0.7 * torch.einsum("l,lbwd->bwd", factors, normed)
    for found, right in zip(
        torch.autograd.grad(summed.square().sum(), wanted),
        torch.autograd.grad(expected.square().sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5)


def test_penalty_is_on_the_weights_alone_and_moves_them():
    mix = ScalarMix(3, weights=[1.0, 2.0, -2.0], gamma=5.0)
    penalty = mix.penalty(0.1)
    assert penalty.item() == pytest.approx(0.9)
    penalty.backward()
    torch.testing.assert_close(mix.weights.grad, 0.2 * mix.weights.detach())
    assert mix.gamma.grad is None


def test_the_number_of_weights_must_fit():
    with pytest.raises(ConfigError, match="3 layers.*2 came"):
        ScalarMix(3, weights=[0.0, 1.0])
