"""Rated words in their sentences: do cosines follow how alike people find two words where they stand?

Arrives: files of texts with two marked words and a rating (SCWS, CoSimLex, Usim and the like), sources of vectors.
Leaves: Spearman's correlation for each file and row. A text may have several sentences: ELMo reads the one in which the
word stands. A word that the segmenter splits, and an expression, is the mean of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.probe.cosines import pair_cosines
from elmokit.probe.frozen import WordSpan, each_mix
from elmokit.probe.rated.correlations import check_rated, read_rating, spearman
from elmokit.probe.report import Report
from elmokit.probe.sources import VectorSource
from elmokit.text.files import LineReader
from elmokit.text.labelled import Problems
from elmokit.text.segmenters import RuleSegmenter, Segmenter

__all__ = ["MarkedWord", "RatedUses", "find_marked", "probe_contexts", "read_rated_uses"]

MARK = re.compile(r"<(b|strong)>(.*?)</\1>", re.DOTALL)
# SCWS: number, word, kind, word, kind, text, text, mean rating, the ratings of ten people.
SCWS_COLUMNS, SCWS_TEXTS, SCWS_RATING = 18, slice(5, 7), 7


class MarkedWord(NamedTuple):
    """Words `start` to `stop` (left out) of a sentence in words."""

    words: list[str]
    start: int
    stop: int


class RatedUses(NamedTuple):
    """Two words in their sentences and how alike people find them."""

    uses: tuple[MarkedWord, MarkedWord]
    rating: float


def find_marked(text: str, segmenter: Segmenter) -> list[MarkedWord]:
    """The words between `<b>` and `</b>`, or `<strong>` and `</strong>`, each in its sentence.

    Example:
        >>> find_marked("We left. The <b>bank</b> was closed.", RuleSegmenter())
        [MarkedWord(words=['The', 'bank', 'was', 'closed', '.'], start=1, stop=2)]
    """
    plain, spans, end = "", [], 0
    for found in MARK.finditer(text):
        plain += text[end : found.start()]
        spans.append((len(plain), len(plain) + len(found[2])))
        plain += found[2]
        end = found.end()
    plain += text[end:]
    sentences = segmenter(plain)
    marked = []
    for start, stop in spans:
        for sentence in sentences:
            inside = [place for place, word in enumerate(sentence) if word.start < stop and word.end > start]
            if inside:
                marked.append(MarkedWord([word.text for word in sentence], inside[0], inside[-1] + 1))
                break
    return marked


def read_rated_uses(path: str | PathLike[str], problems: Problems | None = None) -> list[RatedUses]:
    r"""The pairs of a file: on each line two marked words, in one text or in two, and a rating, between tabs.

    The lines of SCWS's `ratings.txt` are read as they are. A first line without marked words is taken for a header.

    Example:
        >>> _ = Path("uses.tsv").write_text("A <b>bank</b> lends .\tThe river <b>bank</b> .\t1.5\n" * 2)
        >>> read_rated_uses("uses.tsv")[0].uses[1].start
        2
    """
    problems, pairs, segmenter = problems or Problems(), [], RuleSegmenter()
    for line in LineReader([path]):
        if not line.raw.strip() or (line.number == 0 and b"</" not in line.raw):
            continue
        with problems.within_one():
            fields = line.text().split("\t")
            if len(fields) == SCWS_COLUMNS:
                *texts, rating = *fields[SCWS_TEXTS], fields[SCWS_RATING]
            else:
                *texts, rating = fields
            uses = [use for text in texts for use in find_marked(text, segmenter)]
            if len(texts) not in (1, 2) or len(uses) != 2:
                raise InputError(
                    f"{line.place}: expected one or two texts with two marked words in all (<b>word</b>) and a rating, "
                    f"between tabs; found {len(texts)} text(s) with {len(uses)} marked word(s)"
                )
            pairs.append(RatedUses((uses[0], uses[1]), read_rating(rating, line.place)))
    check_rated(path, len(pairs))
    return pairs


def probe_contexts(sources: Sequence[VectorSource], sets: dict[str, list[RatedUses]], *, folder: Path) -> Report:
    """Spearman's correlation with people's ratings, for each set and each row of each source."""
    report = Report(
        "contexts",
        "words in their sentences: Spearman's correlation of cosines with people's ratings",
        list(sets),
        unit="number",
        facts={"pairs": {name: len(pairs) for name, pairs in sets.items()}},
    )
    uses = [use for pairs in sets.values() for pair in pairs for use in pair.uses]
    sentences = [use.words for use in uses]
    spans = [WordSpan(number, use.start, use.stop) for number, use in enumerate(uses)]
    for _, row, (vectors_ND,) in each_mix(sources, [(sentences, spans)], folder=folder):
        cosines_N = pair_cosines(vectors_ND[::2], vectors_ND[1::2])
        start, numbers = 0, report.rows.setdefault(row, {})
        for name, pairs in sets.items():
            ratings_N = np.array([pair.rating for pair in pairs])
            numbers[name] = spearman(cosines_N[start : start + len(pairs)], ratings_N)
            start += len(pairs)
    return report
