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
    assert mix.shares() == pytest.approx(shares.tolist())
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
