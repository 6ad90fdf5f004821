"""Layers become one vector: gamma * sum_l s_l * layer_l with s = softmax(weights) (Peters et al. 2018, eq. 1).

An untrained mix is the plain mean: all weights start at 0, gamma at 1. A task trains them with its own loss; add
`mix.penalty(0.001)` to let the weights move, `mix.penalty(1.0)` to hold them near the mean.

Shapes: L layers, B batch, W words, D width.
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
        weights: the weights before the softmax, one a layer; all 0 if not given.
        gamma: the scale of the sum.
        layer_norm: normalise each layer first, with one mean and one variance over all words of the batch.
        trainable: whether weights and gamma learn.

    Example:
        >>> import torch
        >>> mix = ScalarMix(3)
        >>> mix(torch.ones(3, 1, 2, 4)).shape
        torch.Size([1, 2, 4])
        >>> [round(share, 3) for share in mix.shares()]
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
        if self.layer_norm:
            layers_LBWD = normalise_layers(layers_LBWD, mask_BW)
        shares_L = self.weights.softmax(0).to(layers_LBWD.dtype)
        return self.gamma.to(layers_LBWD.dtype) * torch.tensordot(shares_L, layers_LBWD, dims=1)

    def shares(self) -> list[float]:
        """The share s_l of each layer, as numbers that add up to 1."""
        return self.weights.detach().softmax(0).tolist()

    def penalty(self, strength: float) -> Tensor:
        """Strength * sum(weights²), to add to a task's loss; on the weights before the softmax, not on gamma."""
        return strength * self.weights.square().sum()

    def extra_repr(self) -> str:
        """What `print(model)` shows: the shares and the scale."""
        if self.weights.is_meta:
            return f"num_layers={len(self.weights)}"
        shares = ", ".join(f"{share:.3f}" for share in self.shares())
        return f"shares=[{shares}], gamma={self.gamma.item():.3f}, layer_norm={self.layer_norm}"


def normalise_layers(layers_LBWD: Tensor, mask_BW: Tensor | None) -> Tensor:
    """Each layer minus its mean, over its deviation, both taken over all real words and dimensions of the batch."""
    num_layers, *_, width = layers_LBWD.shape
    if mask_BW is None:
        mask_BW = torch.ones(layers_LBWD.shape[1:-1], dtype=torch.bool, device=layers_LBWD.device)
    mask = mask_BW.unsqueeze(-1).to(layers_LBWD.dtype)
    count = mask.sum() * width
    flat = (num_layers, -1)
    mean_L = (layers_LBWD * mask).reshape(flat).sum(1) / count
    centred = layers_LBWD - mean_L.reshape(-1, *[1] * (layers_LBWD.dim() - 1))
    variance_L = (centred * mask).square().reshape(flat).sum(1) / count
    # AllenNLP's epsilon; float16 would round it to 0.
    epsilon = 1e-13 if layers_LBWD.dtype in (torch.float32, torch.float64) else 1e-4
    return centred / (variance_L + epsilon).sqrt().reshape(-1, *[1] * (layers_LBWD.dim() - 1))
