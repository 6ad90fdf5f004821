"""How well cosines follow people's ratings, by their ranks (Spearman) or by their values (Pearson)."""

from __future__ import annotations

import math
from os import PathLike

import numpy as np

from elmokit.errors import InputError

__all__ = ["check_rated", "pearson", "read_rating", "spearman"]


def spearman(first_N: np.ndarray, second_N: np.ndarray) -> float:
    """Spearman's correlation; not a number where all values of one side are equal.

    Example:
        >>> spearman(np.array([0.1, 0.5, 0.3]), np.array([1.0, 9.0, 4.0]))
        1.0
    """
    return pearson(_ranks(np.asarray(first_N)), _ranks(np.asarray(second_N)))


def pearson(first_N: np.ndarray, second_N: np.ndarray) -> float:
    """Pearson's correlation; not a number where all values of one side are equal.

    Example:
        >>> pearson(np.array([1, 2, 3]), np.array([5, 3, 1]))
        -1.0
    """
    centred = [values - values.mean() for values in map(np.float64, (first_N, second_N)) if len(values)]
    if len(centred) < 2 or not all(values.any() for values in centred):
        return float("nan")
    lengths = [float(np.sqrt(values @ values)) for values in centred]
    return round(float(centred[0] @ centred[1]) / (lengths[0] * lengths[1]), 12)


def read_rating(text: str, place: str) -> float:
    """A rating as a finite number; an `InputError` that names its place if it is none."""
    try:
        rating = float(text)
    except ValueError:
        rating = math.nan
    if not math.isfinite(rating):
        raise InputError(f"{place}: expected a number as the rating, found {text[:40]!r}")
    return rating


def check_rated(path: str | PathLike[str], num_pairs: int) -> None:
    """Refuse a file in which nothing can be correlated."""
    if num_pairs < 2:
        raise InputError(f"{path}: expected at least two rated pairs, found {num_pairs}")


def _ranks(values_N: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values_N, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[inverse]
