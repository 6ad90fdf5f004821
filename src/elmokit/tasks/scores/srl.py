"""Semantic roles scored as in CoNLL-2005 and 2012: spans must agree exactly, in place and in role.

BIO tags of one predicate arrive, gold and predicted; precision, recall and F1 over all arguments leave. The rules are
those of the shared task's own program:

- a span `C-X` continues the nearest argument X before it: both are one argument, right only as a whole; where no X came
  before, it is an X itself;
- `R-X` is a role like any other;
- the predicate `V` (with `C-V`) is given, so it is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from elmokit.tasks.scores.spans import spans_of

__all__ = ["Argument", "arguments", "role_scores"]

NOT_COUNTED = "V"

Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A role and its spans, each (first word, last word)."""


def arguments(tags: Sequence[str]) -> list[Argument]:
    """The arguments that BIO tags mark, continuations joined, the predicate among them.

    Example:
        >>> arguments(["B-ARG1", "B-V", "B-C-ARG1", "I-C-ARG1", "O"])
        [('ARG1', ((0, 0), (2, 3))), ('V', ((1, 1),))]
    """
    found: list[tuple[str, list[tuple[int, int]]]] = []
    latest: dict[str, list[tuple[int, int]]] = {}
    for role, start, end in spans_of(tags):
        name = role.removeprefix("C-")
        if role.startswith("C-") and name in latest:
            latest[name].append((start, end))
        else:
            latest[name] = [(start, end)]
            found.append((name, latest[name]))
    return [(name, tuple(spans)) for name, spans in found]


def role_scores(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 of all arguments, and how many predicates have all of theirs right; from 0 to 1.

    Arguments:
        gold: BIO tags, one sequence per predicate.
        predicted: as many, in the same order.

    Example:
        >>> role_scores([["B-ARG0", "B-V", "B-ARG1"]], [["B-ARG0", "B-V", "B-ARG2"]])["f1"]
        0.5
    """
    right = num_gold = num_predicted = perfect = total = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        wanted, found = _count_arguments(gold_tags), _count_arguments(predicted_tags)
        right += (wanted & found).total()
        num_gold += wanted.total()
        num_predicted += found.total()
        perfect += wanted == found
        total += 1
    precision = right / num_predicted if num_predicted else 0.0
    recall = right / num_gold if num_gold else 0.0
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * right / (num_gold + num_predicted) if num_gold + num_predicted else 0.0,
        "perfect": perfect / total if total else 0.0,
    }


def _count_arguments(tags: Sequence[str]) -> Counter[Argument]:
    return Counter(argument for argument in arguments(tags) if argument[0] != NOT_COUNTED)
