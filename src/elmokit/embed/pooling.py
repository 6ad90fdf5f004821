"""One vector a sentence out of its word vectors.

Arrives: the vectors (…, W, D) of one sentence, its own words and no padding. Leaves: one vector (…, D). Pooling before
padding exists cannot go wrong the way averages over padded batches do.

Shapes: W words, D model; "…" is nothing or the layers.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from elmokit.errors import InputError

__all__ = ["Pooling", "checked_pooling", "pooled"]

Pooling = Literal["mean", "max", "first_last"]


def checked_pooling(pooling: str) -> str:
    """The same name, or an `InputError` that lists the ones there are."""
    if pooling not in get_args(Pooling):
        raise InputError(f"asked for pooling={pooling!r}: use one of {', '.join(map(repr, get_args(Pooling)))}")
    return pooling


def pooled(words_WD: np.ndarray, pooling: Pooling) -> np.ndarray:
    """The sentence's vector (…, D); zeros when it has no words.

    Example:
        >>> pooled(np.array([[1.0, 2.0], [3.0, 4.0]]), "first_last").tolist()
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
