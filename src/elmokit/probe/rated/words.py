"""Word similarity by layer: do cosines rank pairs of words as people do?

Arrives: files of pairs with ratings (SimLex-999, MEN, WordSim-353), sources of vectors. Leaves: Spearman's correlation
for each file and row. There is no sentence here: a word's vector is that of the word alone. Pairs with a word that a
table of vectors does not have are left out for that table, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.probe.cosines import pair_cosines
from elmokit.probe.frozen import each_mix, span_every_word
from elmokit.probe.rated.correlations import check_rated, read_rating, spearman
from elmokit.probe.report import Report
from elmokit.probe.sources import StaticSource, VectorSource
from elmokit.text.files import LineReader
from elmokit.text.labelled import Problems

__all__ = ["RatedPair", "probe_similarity", "read_rated_pairs"]


class RatedPair(NamedTuple):
    """Two words and how alike people find them."""

    first: str
    second: str
    rating: float


def read_rated_pairs(path: str | PathLike[str], problems: Problems | None = None) -> list[RatedPair]:
    """The pairs of a file: two words and a number per line, between blanks or tabs."""
    problems, pairs = problems or Problems(), []
    for line in LineReader([path]):
        if not line.raw.strip():
            continue
        with problems.within_one():
            fields = line.text().split()
            if len(fields) != 3:
                raise InputError(f"{line.place}: expected two words and a rating, found {line.text()[:60]!r}")
            pairs.append(RatedPair(fields[0], fields[1], read_rating(fields[2], line.place)))
    check_rated(path, len(pairs))
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


def _is_known(source: VectorSource, pair: RatedPair) -> bool:
    return not isinstance(source, StaticSource) or (source.knows(pair.first) and source.knows(pair.second))
