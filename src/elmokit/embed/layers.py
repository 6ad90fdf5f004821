"""What leaves of a sentence: which layers, or a sum of them; and one vector for all its words.

Arrives: the caller's `layers=` and all layers of some words; or, for pooling, the vectors (…, W, D) of one sentence's
own words, without padding. Choices are checked before any work starts.

Shapes: W words, D model; "…" is nothing or the layers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Literal, get_args

import numpy as np
from torch import Tensor

from elmokit.errors import InputError, LayerError, suggest
from elmokit.nn.scalar_mix import ScalarMix

__all__ = [
    "NAMED_LAYERS",
    "Layers",
    "Pooling",
    "check_float16",
    "check_layers",
    "check_pooling",
    "choose_layers",
    "compute_cosines",
    "pool_words",
    "refuse_overflow",
    "scale_to_unit_length",
]

Layers = str | int
NAMED_LAYERS = ("average", "top", "all", "mix")
FLOAT16_LIMIT = 65520.0  # the least number that becomes infinite
Pooling = Literal["mean", "max", "first_last"]


def check_layers(layers: Layers, num_layers: int) -> Layers:
    """The same choice, or a `LayerError` when this model has no such layer.

    Example:
        >>> check_layers("average", 3), check_layers(2, 3)
        ('average', 2)
    """
    if isinstance(layers, str):
        if layers in NAMED_LAYERS:
            return layers
        names, near = ", ".join(f'"{name}"' for name in NAMED_LAYERS), suggest(layers, NAMED_LAYERS)
        raise LayerError(f"asked for layers={layers!r}: use {names}, or a layer number 0–{num_layers - 1}{near}")
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


def choose_layers(layers: Sequence[Tensor], choice: Layers, *, mix: ScalarMix | None) -> list[Tensor]:
    """The layers asked for, in float32: all of them, or one tensor of the same shape.

    Arguments:
        layers: every layer, from the context-free one up.
        choice: what `check_layers` let pass.
        mix: the one stored with the model, if any.
    """
    layers = [layer.float() for layer in layers]
    if choice == "all":
        return layers
    if choice == "top":
        return [layers[-1]]
    if choice == "mix" and mix is not None:
        return [mix.sum_layers(layers)]
    if choice in ("average", "mix"):
        return [reduce(operator.add, layers) / len(layers)]
    assert isinstance(choice, int)
    return [layers[choice]]


def check_pooling(pooling: str) -> None:
    """An `InputError` that lists the ways of pooling if this is none of them."""
    if pooling not in get_args(Pooling):
        raise InputError(f"asked for pooling={pooling!r}: use one of {', '.join(map(repr, get_args(Pooling)))}")


def pool_words(words_WD: np.ndarray, pooling: Pooling) -> np.ndarray:
    """The sentence's vector (…, D); zeros when it has no words.

    Example:
        >>> pool_words(np.array([[1.0, 2.0], [3.0, 4.0]]), "first_last").tolist()
        [3.0, 2.0]
    """
    if words_WD.shape[-2] == 0:
        return np.zeros((*words_WD.shape[:-2], words_WD.shape[-1]), words_WD.dtype)
    if pooling == "mean":
        return words_WD.mean(axis=-2)
    if pooling == "max":
        return words_WD.max(axis=-2)
    half = words_WD.shape[-1] // 2
    return np.concatenate([words_WD[..., -1, :half], words_WD[..., 0, half:]], axis=-1)


def scale_to_unit_length(vectors: np.ndarray) -> np.ndarray:
    """The vectors (…, D) scaled to length 1; zeros stay zeros.

    Example:
        >>> scale_to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def refuse_overflow(largest: float) -> None:
    """Refuse vectors whose largest number would be infinite in float16."""
    if largest >= FLOAT16_LIMIT:
        raise InputError(f"a vector has the value {largest:.3g}, too large for float16: use dtype float32")


def check_float16(vectors: np.ndarray, whose: str, *, advice: str) -> None:
    """Refuse vectors that are kept in float16 and have a number that it cannot hold: too large, or NaN.

    Arguments:
        vectors: of any shape.
        whose: how the message calls them, such as `"the static vectors"`.
        advice: what to do, the end of the message.
    """
    largest = float(np.abs(vectors).max(initial=0))
    if not largest < FLOAT16_LIMIT:  # NaN is not, either
        raise InputError(f"{whose} are kept in float16, which cannot hold their value {largest:.3g}: {advice}")


def compute_cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine of each row of the first with each of the second; a vector alone counts as one row.

    Example:
        >>> compute_cosines(np.array([1.0, 0.0]), np.array([[2.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])).tolist()
        [[1.0, 0.0, -1.0]]
    """
    first, second = np.atleast_2d(first), np.atleast_2d(second)
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise InputError(
            f"expected two sets of vectors of one width, found the shapes {first.shape} and {second.shape}"
        )
    return np.clip(scale_to_unit_length(first) @ scale_to_unit_length(second).T, -1, 1)
