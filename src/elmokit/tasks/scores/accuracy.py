"""Accuracy, and for classes its companions: F1 of each class and their plain mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

__all__ = ["accuracy", "class_scores"]


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The fraction of predictions that are right.

    Example:
        >>> accuracy(["a", "b"], ["a", "c"])
        0.5
    """
    return sum(one == other for one, other in zip(gold, predicted, strict=True)) / len(gold) if gold else 0.0


def class_scores(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy, F1 of each class of the gold labels, and the mean of these (`macro_f1`).

    Example:
        >>> class_scores(["a", "a", "b"], ["a", "b", "b"])["accuracy"]
        0.6666666666666666
    """
    right = Counter(one for one, other in zip(gold, predicted, strict=True) if one == other)
    wanted, found = Counter(gold), Counter(predicted)
    by_class = {f"f1_{label}": 2 * right[label] / (wanted[label] + found[label]) for label in sorted(wanted)}
    macro = sum(by_class.values()) / len(by_class) if by_class else 0.0
    return {"accuracy": accuracy(gold, predicted), "macro_f1": macro, **by_class}
