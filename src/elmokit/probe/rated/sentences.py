"""Rated pairs of sentences: do cosines of pooled vectors follow how alike people find two sentences?

Arrives: files of sentence pairs with ratings (SICK, the STS Benchmark), sources of vectors. Leaves: for each file, row
and way of pooling the correlations of Spearman and of Pearson.

Shapes: L layers, M mixes of them, W words, K ways of pooling, D width, N pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from elmokit.embed.layers import Pooling, pool_words
from elmokit.errors import InputError
from elmokit.probe.cosines import pair_cosines
from elmokit.probe.frozen import each_mix, span_every_word
from elmokit.probe.rated.correlations import check_rated, pearson, read_rating, spearman
from elmokit.probe.report import Report
from elmokit.probe.sources import VectorSource, single_layers
from elmokit.text.files import LineReader
from elmokit.text.labelled import Problems
from elmokit.text.segmenters import words

__all__ = ["POOLINGS", "PooledSource", "RatedSentences", "name_columns", "probe_sentences", "read_rated_sentences"]

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
HEADERS = (
    ("sentence_A", "sentence_B", "relatedness_score"),  # SICK
    ("sentence1", "sentence2", "score"),  # the STS Benchmark as GLUE has it
)
PLAIN = (0, 1, 2)
STS_BENCHMARK = (5, 6, 4)  # its own files have no header: genre, file, year, number, score, two sentences, …


class RatedSentences(NamedTuple):
    """Two sentences in words and how alike people find them."""

    first: list[str]
    second: list[str]
    rating: float


def read_rated_sentences(path: str | PathLike[str], problems: Problems | None = None) -> list[RatedSentences]:
    r"""The pairs of a file: two sentences and a rating per line, between tabs.

    Files with the header of SICK or of GLUE's STS-B, and the STS Benchmark's own, are read as they are.

    Example:
        >>> _ = Path("rated.tsv").write_text("A dog runs.\tA cat sits.\t2.5\n" * 2)
        >>> read_rated_sentences("rated.tsv")[0].first
        ['A', 'dog', 'runs', '.']
    """
    problems, pairs, columns = problems or Problems(), [], None
    for line in LineReader([path]):
        if not line.raw.strip():
            continue
        with problems.within_one():
            fields = line.text().rstrip("\r\n").split("\t")
            if columns is None:
                columns, is_header = _find_columns(fields)
                if is_header:
                    continue
            if len(fields) <= max(columns):
                raise InputError(
                    f"{line.place}: expected two sentences and a rating between tabs, found {line.text()[:60]!r}"
                )
            first, second, rating = (fields[column] for column in columns)
            pair = RatedSentences(words(first), words(second), read_rating(rating, line.place))
            if not (pair.first and pair.second):
                raise InputError(f"{line.place}: expected two sentences with words, found one without")
            pairs.append(pair)
    check_rated(path, len(pairs))
    return pairs


def probe_sentences(sources: Sequence[VectorSource], sets: dict[str, list[RatedSentences]], *, folder: Path) -> Report:
    """Correlations with people's ratings, for each set, each way of pooling, and each row of each source."""
    report = Report(
        "sentences",
        f"similarity of sentences ({', '.join(sets)}): correlation of cosines with people's ratings, by pooling",
        name_columns(list(sets)),
        unit="number",
        notes=["ρ is Spearman's correlation, r Pearson's"],
        facts={"pairs": {name: len(pairs) for name, pairs in sets.items()}},
    )
    sentences = [sentence for pairs in sets.values() for pair in pairs for sentence in (pair.first, pair.second)]
    spans = span_every_word([POOLINGS] * len(sentences))
    pooled = [PooledSource(source) for source in sources]
    for _, row, (vectors_ND,) in each_mix(pooled, [(sentences, spans)], folder=folder):
        vectors_N2KD = vectors_ND.reshape(-1, 2, len(POOLINGS), vectors_ND.shape[-1])
        cosines_KN = pair_cosines(vectors_N2KD[:, 0], vectors_N2KD[:, 1]).T
        start, numbers = 0, []
        for pairs in sets.values():
            ratings_N = np.array([pair.rating for pair in pairs])
            for cosines_N in cosines_KN[:, start : start + len(pairs)]:
                numbers += [spearman(cosines_N, ratings_N), pearson(cosines_N, ratings_N)]
            start += len(pairs)
        report.rows[row] = dict(zip(report.columns, numbers, strict=True))
    return report


def name_columns(sets: Sequence[str], kinds: str = "ρr") -> list[str]:
    """The columns of the table: for each set and way of pooling Spearman's ρ and Pearson's r, or one of them.

    Example:
        >>> name_columns(["SICK"], "ρ")
        ['mean ρ', 'max ρ', 'first_last ρ']
    """
    prefixes = [f"{name} " if len(sets) > 1 else "" for name in sets]
    return [f"{prefix}{pooling} {kind}" for prefix in prefixes for pooling in POOLINGS for kind in kinds]


class PooledSource(VectorSource):
    """Another source's mixes, with one vector per sentence and way of pooling in place of one per word.

    Layers are mixed first and pooled then, as `Embedder.encode` does: the maximum of a sum is no sum of maxima.
    """

    def __init__(self, source: VectorSource) -> None:
        self._source = source
        self._factors_ML = np.array([mix.factors for mix in source.mixes], np.float32)
        key = f"{source.key}, pooled: {' '.join(POOLINGS)} of {self._factors_ML.tolist()}"
        super().__init__(mixes=single_layers([mix.name for mix in source.mixes]), dim=source.dim, key=key)

    def layers(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """(M, K, D) per sentence."""
        mixed = (np.tensordot(self._factors_ML, layers_LWD, 1) for layers_LWD in self._source.layers(sentences))
        return [np.stack([pool_words(mixes_MWD, pooling) for pooling in POOLINGS], axis=1) for mixes_MWD in mixed]


def _find_columns(fields: Sequence[str]) -> tuple[tuple[int, int, int], bool]:
    """Where the sentences and the rating stand, by the first line; and whether that is a header."""
    for first, second, rating in HEADERS:
        if {first, second, rating} <= set(fields):
            return (fields.index(first), fields.index(second), fields.index(rating)), True
    return (PLAIN if len(fields) == len(PLAIN) else STS_BENCHMARK), False
