"""Words in context: does a word mean the same in two sentences (Pilehvar and Camacho-Collados 2019)?

Arrives: two parts of WiC, sources of vectors. Leaves: for each row the accuracy on the second of two ways to say so.
*threshold*: the cosine of the word's two vectors is above a number chosen on the training part. *logistic*: a linear
classifier sees the products and the absolute differences of both vectors, number by number, and their cosine. Layers
know different things of a word, so the last row of a source has them joined, all at the same length.

Shapes: N pairs, L layers, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.embed.layers import scale_to_unit_length
from elmokit.errors import InputError
from elmokit.probe.cosines import pair_cosines
from elmokit.probe.frozen import WordSpan, each_mix
from elmokit.probe.linear import fit_by_turns
from elmokit.probe.report import Report
from elmokit.probe.sources import VectorSource
from elmokit.text.files import Line, LineReader
from elmokit.text.labelled import Problems

__all__ = ["MAJORITY", "Pair", "best_threshold", "find_part", "probe_wic", "read_wic"]

MAJORITY = "commonest answer"
STRENGTHS = (10.0, 3.0, 1.0, 0.3)  # few pairs, wide vectors: stronger than for tags
FOLDS = 5
DATA, GOLD = ".data.txt", ".gold.txt"


class Pair(NamedTuple):
    """A word, two sentences in words, its place in each, and whether it means the same."""

    word: str
    sentences: tuple[list[str], list[str]]
    places: tuple[int, int]
    is_same: bool


def read_wic(folder: str | PathLike[str], part: str, problems: Problems | None = None) -> list[Pair]:
    r"""The pairs of a part: a `.data.txt` file with the `.gold.txt` beside it.

    Arguments:
        folder: of WiC.
        part: the name of a part, such as `"dev"` for `dev/dev.data.txt` of the folder; or the path of a `.data.txt`.
        problems: what happens to pairs that cannot be used.

    Example:
        >>> Path("wic/dev").mkdir(parents=True)
        >>> _ = Path("wic/dev/dev.data.txt").write_text("bank\tN\t1-2\tA bank .\tThe other banks .\n")
        >>> _ = Path("wic/dev/dev.gold.txt").write_text("F\n")
        >>> read_wic("wic", "dev")[0].places
        (1, 2)
    """
    data, gold = find_part(folder, part)
    lines, answers = _lines(data), _lines(gold)
    if len(lines) != len(answers):
        raise InputError(f"{data}: expected as many pairs as {gold} has answers ({len(answers)}), found {len(lines)}")
    pairs: list[Pair] = []
    problems = problems or Problems()
    for line, said in zip(lines, answers, strict=True):
        with problems.within_one():
            answer = said.text().strip()
            if answer not in ("T", "F"):
                raise InputError(f"{said.place}: expected T or F, found {answer[:40]!r}")
            pairs.append(_pair(line.text(), line.place, answer == "T"))
    if not pairs:
        raise InputError(f"{data}: expected pairs of sentences, found none")
    return pairs


def find_part(folder: str | PathLike[str], part: str) -> tuple[Path, Path]:
    """Where the pairs and the answers of a part are, as `read_wic` looks for them."""
    data = Path(part) if part.endswith(DATA) else Path(folder) / part / (part + DATA)
    return data, data.with_name(data.name.removesuffix(DATA) + GOLD)


def _lines(path: Path) -> list[Line]:
    """The lines of a file, without blank ones at its end."""
    lines = list(LineReader([path]))
    while lines and not lines[-1].raw.strip():
        lines.pop()
    return lines


def _pair(text: str, place: str, is_same: bool) -> Pair:
    fields = text.split("\t")
    if len(fields) != 5:
        raise InputError(f"{place}: expected word, N or V, places, and two sentences between tabs, found {text[:60]!r}")
    sentences = (fields[3].split(), fields[4].split())
    numbers = fields[2].split("-")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise InputError(f"{place}: expected two places such as 2-4, found {fields[2][:40]!r}")
    places = (int(numbers[0]), int(numbers[1]))
    for number, sentence in zip(places, sentences, strict=True):
        if number >= len(sentence):
            raise InputError(f"{place}: word {number} of a sentence with {len(sentence)} words; they count from 0")
    return Pair(fields[0], sentences, places, is_same)


def probe_wic(
    sources: Sequence[VectorSource],
    *,
    train: Sequence[Pair],
    test: Sequence[Pair],
    seed: int = 0,
    folder: Path,
    device: str = "cpu",
) -> Report:
    """Accuracy of both ways, for each row of each source.

    Arguments:
        sources: what to probe.
        train: the pairs to learn from.
        test: the pairs to be scored on.
        seed: of the parts of the training words by which the penalty of *logistic* is chosen.
        folder: where vectors are kept.
        device: where to fit.
    """
    train_gold, test_gold = (np.array([pair.is_same for pair in part]) for part in (train, test))
    folds_N = _divide_words(train, seed)
    commonest = train_gold.mean() >= 0.5
    chance = float((test_gold == commonest).mean())
    report = Report(
        "wic",
        f"same meaning in two sentences, accuracy: {len(train):,} training and {len(test):,} test pairs",
        ["threshold", "logistic"],
        rows={MAJORITY: {"threshold": chance, "logistic": chance}},
        facts={"pairs": {"train": len(train), "test": len(test)}, "thresholds": {}},
        baseline=MAJORITY,
    )
    parts = [_sentences_and_spans(part) for part in (train, test)]
    for name, pairs in _each_row(sources, parts, folder):
        train_N, test_M = (pair_cosines(both_ND[::2], both_ND[1::2]) for both_ND in pairs)
        threshold = best_threshold(train_N, train_gold)
        features_NF, test_features = (_features(both_ND[::2], both_ND[1::2]) for both_ND in pairs)
        labels_N = train_gold.astype(np.int64)
        head = fit_by_turns(features_NF, labels_N, folds_N, num_labels=2, strengths=STRENGTHS, device=device)
        report.rows[name] = {
            "threshold": float(((test_M >= threshold) == test_gold).mean()),
            "logistic": head.accuracy(test_features, test_gold),
        }
        report.facts["thresholds"][name] = round(float(threshold), 4)
    return report


def _each_row(
    sources: Sequence[VectorSource], parts: Sequence[tuple[list[list[str]], list[WordSpan]]], folder: Path
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The rows of the table: a name, and the vectors (2N, D) of each part, those of a pair one after the other."""
    for source in sources:
        layers: list[list[np.ndarray]] = []
        for number, (_, name, pairs) in enumerate(each_mix([source], parts, folder=folder)):
            yield name, pairs
            if number < source.num_layers:  # single layers come first
                layers.append([scale_to_unit_length(vectors) for vectors in pairs])
        if len(layers) > 1:
            first, last = source.mixes[0].name, source.mixes[len(layers) - 1].name
            yield f"{first} to {last}, joined", [np.concatenate(part, axis=1) for part in zip(*layers, strict=True)]


def best_threshold(values_N: np.ndarray, gold_N: np.ndarray) -> float:
    """The value from which on "yes" is right most often; of equals the smallest.

    Example:
        >>> best_threshold(np.array([0.1, 0.4, 0.3]), np.array([False, True, True]))
        0.3
    """
    candidates = np.unique(values_N)
    positive, negative = np.sort(values_N[gold_N]), np.sort(values_N[~gold_N])
    right = len(positive) - np.searchsorted(positive, candidates) + np.searchsorted(negative, candidates)
    return float(candidates[int(np.argmax(right))])


def _divide_words(pairs: Sequence[Pair], seed: int) -> np.ndarray:
    """(N,) the fold of each pair, the same for all of a word: the test has other words too."""
    words = sorted({pair.word for pair in pairs})
    if len(words) < 2:
        raise InputError("expected training pairs of at least two words, found one: the head must be tried on another")
    order = np.random.default_rng(seed).permutation(len(words))
    fold_of = {words[place]: number % FOLDS for number, place in enumerate(order)}
    return np.array([fold_of[pair.word] for pair in pairs])


def _sentences_and_spans(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[WordSpan]]:
    sentences = [sentence for pair in pairs for sentence in pair.sentences]
    places = [place for pair in pairs for place in pair.places]
    return sentences, [WordSpan(number, place, place + 1) for number, place in enumerate(places)]


def _features(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    first_ND, second_ND = scale_to_unit_length(first_ND), scale_to_unit_length(second_ND)
    products_ND = first_ND * second_ND
    return np.concatenate([products_ND, np.abs(first_ND - second_ND), products_ND.sum(1, keepdims=True)], axis=1)
