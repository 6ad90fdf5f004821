"""Cosine similarity: of pairs, and the nearest of many.

Shapes: N vectors, M others, D width.
"""

from __future__ import annotations

import numpy as np

from elmokit.embed.layers import scale_to_unit_length

__all__ = ["nearest", "pair_cosines"]

ROWS = 65536  # compared at once


def pair_cosines(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """(N,) cosine of each vector and its partner.

    Example:
        >>> pair_cosines(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]))
        array([1.], dtype=float32)
    """
    first_ND, second_ND = (scale_to_unit_length(np.asarray(each, np.float32)) for each in (first_ND, second_ND))
    return (first_ND * second_ND).sum(axis=-1)


def nearest(query_D: np.ndarray, others_MD: np.ndarray, *, top: int) -> list[tuple[int, float]]:
    """Places and cosines of the nearest others, the nearest first; of equals the earlier."""
    query_D = scale_to_unit_length(query_D)
    cosines_M = np.concatenate(
        [scale_to_unit_length(others_MD[start : start + ROWS]) @ query_D for start in range(0, len(others_MD), ROWS)]
    )
    order = np.argsort(-cosines_M, kind="stable")[:top]
    return [(int(place), float(cosines_M[place])) for place in order]
