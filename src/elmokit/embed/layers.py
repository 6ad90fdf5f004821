"""Which layers leave: all of them, one of them, or a sum of them.

Arrives: the caller's `layers=` and all layers of some words. Leaves: one tensor or, for `"all"`, one a layer. The
choice is checked before any work starts.

Shapes: L layers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

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


def chosen_layers(layers: Sequence[Tensor], choice: Layers, *, mix: tuple[Tensor, Tensor] | None) -> list[Tensor]:
    """The layers asked for, in float32: all of them, or one tensor of the same shape.

    Arguments:
        layers: every layer, from the context-free one up.
        choice: what `checked_layers` let pass.
        mix: the model's stored one (pre-softmax weights and gamma), if any.
    """
    layers = [layer.float() for layer in layers]
    if choice == "all":
        return layers
    if choice == "top":
        return [layers[-1]]
    if choice == "mix" and mix is not None:
        weights_L, gamma = mix
        shares = (gamma * weights_L.softmax(0)).tolist()
        return [_weighted(layers, shares)]
    if choice in ("average", "mix"):
        return [_weighted(layers, [1.0] * len(layers)).div_(len(layers))]
    assert isinstance(choice, int)
    return [layers[choice]]


def _weighted(layers: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    total = layers[0] * shares[0]
    for layer, share in zip(layers[1:], shares[1:], strict=True):
        total.add_(layer, alpha=share)
    return total
