"""Labelled spans in sequences of tags, and their F1 as CoNLL's `conlleval` counts it.

Tags arrive, in any of the usual schemes: IOB1 (B only where two spans of a kind touch), IOB2 (a span begins with B),
IOBES (its end is E, a span of one word S; `L` and `U` mean the same, and so do I and the `M` of BMES). Where there is
only one kind, tags may be without it (`B`, `I`, `O`). Spans leave as (kind, first word, last word). A sequence that
breaks the rules of its scheme still has spans: an inside tag after a span of another kind, or after none, begins one,
as conlleval has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Span", "is_iob", "is_tag", "span_scores", "spans_of", "tag_of", "to_iobes"]

MARKS = {mark: mark for mark in "BIES"} | {"L": "E", "U": "S", "M": "I"}


class Span(NamedTuple):
    """A labelled stretch of words: its kind, its first and its last word."""

    kind: str
    first: int
    last: int


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence of tags.

    Example:
        >>> spans_of(["I-PER", "I-PER", "B-PER", "O", "S-LOC"])
        [Span(kind='PER', first=0, last=1), Span(kind='PER', first=2, last=2), Span(kind='LOC', first=4, last=4)]
    """
    spans: list[Span] = []
    start: int | None = None
    before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        mark, kind = _parts(tag)
        if start is not None and _ends(before, kind_before, mark, kind):
            spans.append(Span(kind_before, start, place - 1))
            start = None
        if _begins(before, kind_before, mark, kind):
            start = place
        before, kind_before = mark, kind
    return spans


def is_iob(labels: Iterable[str]) -> bool:
    """Whether labels are tags of spans (`O`, `B-PER`, …) and not classes of words, such as parts of speech.

    Example:
        >>> is_iob(["O", "I-PER"]), is_iob(["NOUN", "O"]), is_iob(["O"])
        (True, False, False)
    """
    inside = set(labels) - {"O"}
    has_kinds = all(label[:1] in MARKS and label[1:2] == "-" for label in inside)
    return bool(inside) and (has_kinds or ("B" in inside and inside <= MARKS.keys()))


def is_tag(label: str) -> bool:
    """Whether a label is one that spans are made of: `O`, or a mark alone or with a kind.

    Example:
        >>> is_tag("O"), is_tag("B"), is_tag("B-PER"), is_tag("NOUN")
        (True, True, True, False)
    """
    return label == "O" or (label[:1] in MARKS and label[1:2] in ("", "-"))


def to_iobes(tags: Sequence[str]) -> list[str]:
    """The same spans in IOBES, which tells a model most about where they begin and end.

    Example:
        >>> to_iobes(["I-PER", "I-PER", "B-PER", "O"])
        ['B-PER', 'E-PER', 'S-PER', 'O']
    """
    result = ["O"] * len(tags)
    for kind, first, last in spans_of(tags):
        if first == last:
            result[first] = tag_of("S", kind)
        else:
            result[first], result[last] = tag_of("B", kind), tag_of("E", kind)
            result[first + 1 : last] = [tag_of("I", kind)] * (last - first - 1)
    return result


def tag_of(mark: str, kind: str) -> str:
    """`B-PER` of `B` and `PER`; a mark alone where there are no kinds."""
    return f"{mark}-{kind}" if kind else mark


def span_scores(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 of all spans together, and F1 of each kind.

    A span counts when its kind and both its ends are right. A score that would divide by nothing is 0, as conlleval's.

    Example:
        >>> span_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]])["f1"]
        0.0
    """
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = set(spans_of(gold_tags)), set(spans_of(predicted_tags))
        wanted.update(span.kind for span in gold_spans)
        found.update(span.kind for span in predicted_spans)
        right.update(span.kind for span in gold_spans & predicted_spans)
    scores = _rates(right.total(), found.total(), wanted.total())
    for kind in sorted((set(wanted) | set(found)) - {""}):
        scores[f"f1_{kind}"] = _rates(right[kind], found[kind], wanted[kind])["f1"]
    return scores


def _rates(right: int, found: int, wanted: int) -> dict[str, float]:
    precision = right / found if found else 0.0
    recall = right / wanted if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


def _parts(tag: str) -> tuple[str, str]:
    """Mark and kind of a tag; a bare `I` or `B` has the empty kind, and U, L and M are other names of S, E and I."""
    mark, _, kind = tag.partition("-")
    return (MARKS[mark], kind) if mark in MARKS else ("O", "")


def _ends(before: str, kind_before: str, mark: str, kind: str) -> bool:
    return before in ("E", "S") or mark in ("B", "S", "O") or kind != kind_before


def _begins(before: str, kind_before: str, mark: str, kind: str) -> bool:
    if mark == "O":
        return False
    return mark in ("B", "S") or before in ("E", "S", "O") or kind != kind_before
