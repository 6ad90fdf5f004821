"""Cosine similarity: of pairs, and the nearest of many.

Shapes: N vectors, M others, D width.
"""

from __future__ import annotations

import numpy as np

__all__ = ["nearest", "pair_cosines", "scale_to_unit"]

ROWS = 65536  # compared at once


def scale_to_unit(vectors_ND: np.ndarray) -> np.ndarray:
    """The vectors at length 1; a vector of zeros stays one."""
    vectors_ND = np.asarray(vectors_ND, np.float32)
    return vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=-1, keepdims=True), 1e-12)


def pair_cosines(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """(N,) cosine of each vector and its partner.

    Example:
        >>> pair_cosines(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]))
        array([1.], dtype=float32)
    """
    return (scale_to_unit(first_ND) * scale_to_unit(second_ND)).sum(axis=-1)


def nearest(query_D: np.ndarray, others_MD: np.ndarray, *, top: int) -> list[tuple[int, float]]:
    """Places and cosines of the nearest others, the nearest first; of equals the earlier."""
    query_D = scale_to_unit(query_D)
    cosines_M = np.concatenate(
        [scale_to_unit(others_MD[start : start + ROWS]) @ query_D for start in range(0, len(others_MD), ROWS)]
    )
    order = np.argsort(-cosines_M, kind="stable")[:top]
    return [(int(place), float(cosines_M[place])) for place in order]
