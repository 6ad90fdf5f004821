"""Which layers leave: all of them, one of them, or a sum of them.

Arrives: the caller's `layers=` and all layers (L, B, W, D) of a batch. Leaves: one tensor with the batch first, either
(B, W, D) or, for `"all"`, (B, L, W, D). The choice is checked before any work starts.

Shapes: L layers, B batch, W words, D model.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from elmokit.errors import LayerError

__all__ = ["NAMED_LAYERS", "Layers", "checked_layers", "chosen_layers"]

Layers = str | int
NAMED_LAYERS = ("average", "top", "all", "mix")


def checked_layers(layers: Layers, num_layers: int) -> Layers:
    """The same choice, or a `LayerError` when this model has no such layer.

    Example:
        >>> checked_layers("average", 3), checked_layers(2, 3)
        ('average', 2)
    """
    if isinstance(layers, str):
        if layers in NAMED_LAYERS:
            return layers
        names = ", ".join(f'"{name}"' for name in NAMED_LAYERS)
        raise LayerError(f"asked for layers={layers!r}: use {names}, or a layer number 0–{num_layers - 1}")
    try:
        number = operator.index(layers)
    except TypeError:
        raise LayerError(f"asked for layers={layers!r}: expected a name or a layer number") from None
    if isinstance(layers, bool) or not 0 <= number < num_layers:
        raise LayerError(
            f"asked for layer {layers}, but this model has layers 0–{num_layers - 1} (0 is the character CNN). "
            'Use layers="mix" for the weighted sum.'
        )
    return number


def chosen_layers(layers_LBWD: Tensor, layers: Layers, *, mix: tuple[Tensor, Tensor] | None) -> Tensor:
    """The layers asked for, batch first; `mix` is the model's stored one (pre-softmax weights and gamma), if any."""
    if layers == "all":
        return layers_LBWD.transpose(0, 1)
    if layers == "top":
        return layers_LBWD[-1]
    if layers == "mix" and mix is not None:
        weights_L, gamma = (part.to(layers_LBWD) for part in mix)
        share_L = weights_L.softmax(0)
        return gamma * torch.einsum("l,lbwd->bwd", share_L, layers_LBWD)
    if layers in ("average", "mix"):
        return layers_LBWD.mean(0)
    assert isinstance(layers, int)
    return layers_LBWD[layers]
