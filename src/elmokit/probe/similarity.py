"""Word similarity by layer: do cosines rank pairs of words as people do?

Arrives: files of pairs with ratings (SimLex-999, MEN, WordSim-353), sources of vectors. Leaves: Spearman's correlation
for each file and row. There is no sentence here: a word's vector is that of the word alone. Pairs with a word that a
table of vectors does not have are left out for that table, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.probe.cosines import pair_cosines
from elmokit.probe.frozen import each_mix, span_every_word
from elmokit.probe.report import Report
from elmokit.probe.sources import StaticSource, VectorSource
from elmokit.text.files import LineReader
from elmokit.text.labelled import Problems

__all__ = ["RatedPair", "probe_similarity", "read_rated_pairs", "spearman"]


class RatedPair(NamedTuple):
    """Two words and how alike people find them."""

    first: str
    second: str
    rating: float


def read_rated_pairs(path: str | PathLike[str], problems: Problems | None = None) -> list[RatedPair]:
    """The pairs of a file: two words and a number per line, between blanks or tabs."""
    problems, pairs = problems or Problems(), []
    for line in LineReader([path]):
        fields = line.text().split()
        if not fields:
            continue
        try:
            first, second, rating = fields
            pair = RatedPair(first, second, float(rating))
        except ValueError:
            pair = None
        if pair is not None and math.isfinite(pair.rating):
            pairs.append(pair)
        else:
            problems.add_at(line.place, f"expected two words and a number, found {line.text()[:60]!r}")
    if len(pairs) < 2:
        raise InputError(f"{path}: expected at least two pairs of words, found {len(pairs)}")
    return pairs


def probe_similarity(
    sources: Sequence[VectorSource],
    sets: dict[str, list[RatedPair]],
    *,
    folder: Path,
) -> Report:
    """Spearman's correlation with people's ratings, for each set and each row of each source."""
    report = Report(
        "similarity",
        "similarity of words: Spearman's correlation of cosines with people's ratings",
        list(sets),
        unit="number",
        facts={"pairs": {name: len(pairs) for name, pairs in sets.items()}},
    )
    words = sorted({word for pairs in sets.values() for pair in pairs for word in (pair.first, pair.second)})
    place_of = {word: place for place, word in enumerate(words)}
    sentences = [[word] for word in words]
    parts = [(sentences, span_every_word(sentences))]
    for source, row, (vectors_ND,) in each_mix(sources, parts, folder=folder):
        numbers = report.rows.setdefault(row, {})
        for name, pairs in sets.items():
            kept = [pair for pair in pairs if _is_known(source, pair)]
            first, second = ([place_of[words[side]] for *words, _ in kept] for side in (0, 1))
            cosines_N = pair_cosines(vectors_ND[first], vectors_ND[second])
            numbers[name] = spearman(cosines_N, np.array([pair.rating for pair in kept]))
            if len(kept) < len(pairs):
                report.notes.append(f"{row} has both words of {len(kept):,} of {len(pairs):,} pairs in {name}")
    return report


def spearman(first_N: np.ndarray, second_N: np.ndarray) -> float:
    """Spearman's correlation; not a number where all values of one side are equal.

    Example:
        >>> spearman(np.array([0.1, 0.5, 0.3]), np.array([1.0, 9.0, 4.0]))
        1.0
    """
    ranks = [_ranks(np.asarray(values)) for values in (first_N, second_N)]
    centred = [values - values.mean() for values in ranks if len(values)]
    if len(centred) < 2 or not all(values.any() for values in centred):
        return float("nan")
    lengths = [float(np.sqrt(values @ values)) for values in centred]
    return round(float(centred[0] @ centred[1]) / (lengths[0] * lengths[1]), 12)


def _is_known(source: VectorSource, pair: RatedPair) -> bool:
    return not isinstance(source, StaticSource) or (source.knows(pair.first) and source.knows(pair.second))


def _ranks(values_N: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values_N, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[inverse]
