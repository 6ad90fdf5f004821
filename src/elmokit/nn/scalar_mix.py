"""Layers become one vector: gamma * sum_l s_l * layer_l with s = softmax(weights) (Peters et al. 2018, eq. 1).

An untrained mix is the plain mean: all weights start at 0, gamma at 1. A task trains them with its own loss; add
`mix.penalty(0.001)` to let the weights move, `mix.penalty(1.0)` to hold them near the mean.

Shapes: L layers, with layer 0 (so one more than the L LSTM layers of `bilm.py`), B rows, W words, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError

__all__ = ["ScalarMix"]

# Softmax turns this difference into exactly 0 in every dtype.
_NEVER = -1e4


class ScalarMix(nn.Module):
    """A learned weighted sum of layers.

    Arguments:
        num_layers: how many layers there are to mix.
        weights: the weights before the softmax, one per layer; all 0 if not given.
        gamma: the scale of the sum.
        layer_norm: normalise each layer first, with one mean and one variance over all words of the batch.
        trainable: whether weights and gamma learn.

    Example:
        >>> import torch
        >>> mix = ScalarMix(3)
        >>> mix(torch.ones(3, 1, 2, 4)).shape
        torch.Size([1, 2, 4])
        >>> [round(weight, 3) for weight in mix.layer_weights()]
        [0.333, 0.333, 0.333]
    """

    def __init__(
        self,
        num_layers: int,
        *,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        layer_norm: bool = False,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        values = [0.0] * num_layers if weights is None else list(weights)
        if len(values) != num_layers:
            raise ConfigError(f"a mix of {num_layers} layers needs as many weights, but {len(values)} came")
        self.weights = nn.Parameter(torch.tensor(values), requires_grad=trainable)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)
        self.layer_norm = layer_norm

    @classmethod
    def average(cls, num_layers: int) -> ScalarMix:
        """The plain mean of all layers, which never learns."""
        return cls(num_layers, trainable=False)

    @classmethod
    def only(cls, layer: int, num_layers: int) -> ScalarMix:
        """One layer alone, scaled by a gamma that learns; `only(num_layers - 1, num_layers)` is the top layer."""
        if not 0 <= layer < num_layers:
            raise ConfigError(f"asked for layer {layer} of {num_layers}: layers count from 0 (the character layer)")
        mix = cls(num_layers, weights=[0.0 if number == layer else _NEVER for number in range(num_layers)])
        mix.weights.requires_grad_(False)
        return mix

    def forward(self, layers_LBWD: Tensor, mask_BW: Tensor | None = None) -> Tensor:
        """The mix (B, W, D) of these layers; the mask says which words are real, for the layer norm."""
        return self.sum_layers(layers_LBWD.unbind(0), mask_BW)

    def sum_layers(self, layers: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """The mix of layers that lie in separate tensors of one shape (…, D), without stacking them.

        Arguments:
            layers: from the context-free one up, as many as the mix has weights.
            mask: (…), which words are real, for the layer norm; all of them if not given.
        """
        if self.layer_norm:
            layers = [normalise_layer(layer, mask) for layer in layers]
        factors = (self.gamma * self.weights.softmax(0)).to(layers[0].dtype).unbind()
        total = layers[0] * factors[0]
        for layer, factor in zip(layers[1:], factors[1:], strict=True):
            total.addcmul_(layer, factor)
        return total

    def layer_weights(self) -> list[float]:
        """The weight s_l of each layer: numbers that add up to 1; gamma is not in them."""
        return self.weights.detach().softmax(0).tolist()

    def penalty(self, strength: float) -> Tensor:
        """Strength * sum(weights²), to add to a task's loss; on the weights before the softmax, not on gamma."""
        return strength * self.weights.square().sum()

    def extra_repr(self) -> str:
        """What `print(model)` shows: the weights after the softmax and the scale."""
        if self.weights.is_meta:
            return f"num_layers={len(self.weights)}"
        weights = ", ".join(f"{weight:.3f}" for weight in self.layer_weights())
        return f"weights=[{weights}], gamma={self.gamma.item():.3f}, layer_norm={self.layer_norm}"


def normalise_layer(layer: Tensor, mask: Tensor | None) -> Tensor:
    """A layer (…, D) minus its mean, over its standard deviation, both over all real words and dimensions.

    Counted and summed in float32 at least: a batch has more numbers than float16 can count.
    """
    values = layer.to(torch.promote_types(layer.dtype, torch.float32))
    real = torch.ones_like(values[..., :1]) if mask is None else mask.unsqueeze(-1).to(values.dtype)
    count = real.sum() * layer.shape[-1]
    centred = values - (values * real).sum() / count
    variance = (centred * real).square().sum() / count
    return (centred / (variance + 1e-13).sqrt()).to(layer.dtype)  # AllenNLP's epsilon
