"""Spans and their scores: what conlleval counts, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.scores.accuracy import accuracy, class_scores
from elmokit.tasks.scores.spans import Span, is_iob, span_scores, spans_of, to_iobes


def test_other_names_of_the_same_marks():
    """BMES, common for Chinese, and tags of one kind that do not name it, as BioBERT's files have them."""
    spans = [Span("LOC", 0, 2), Span("LOC", 4, 4)]
    for tags in ("B-LOC M-LOC E-LOC O S-LOC", "B-LOC I-LOC L-LOC O U-LOC"):
        assert spans_of(tags.split()) == spans
        assert is_iob(tags.split())
    bare = ["B", "I", "O", "B"]
    assert is_iob(bare)
    assert not is_iob(["I", "O"])
    assert to_iobes(bare) == ["B", "E", "O", "S"]
    assert span_scores([bare], [["B", "O", "O", "B"]]) == {"f1": 0.5, "precision": 0.5, "recall": 0.5}


KINDS = st.sampled_from(["PER", "LOC", "X-Y"])


@st.composite
def span_lists(draw) -> tuple[int, list[Span]]:
    """A length and spans in it that do not overlap."""
    place, spans = 0, []
    for kind, gap, length in draw(st.lists(st.tuples(KINDS, st.integers(0, 2), st.integers(1, 4)), max_size=5)):
        spans.append(Span(kind, place + gap, place + gap + length - 1))
        place += gap + length
    return place + draw(st.integers(0, 2)), spans


def written(length: int, spans: list[Span], scheme: str) -> list[str]:
    """The tags of spans, written independently of the code that is tested."""
    tags = ["O"] * length
    for number, (kind, first, last) in enumerate(spans):
        touches = number > 0 and spans[number - 1].last == first - 1 and spans[number - 1].kind == kind
        for place in range(first, last + 1):
            mark = "I"
            if scheme == "IOB1":
                mark = "B" if place == first and touches else "I"
            elif place == first:
                mark = "S" if scheme == "IOBES" and first == last else "B"
            elif scheme == "IOBES" and place == last:
                mark = "E"
            tags[place] = f"{mark}-{kind}"
    return tags


@given(span_lists(), st.sampled_from(["IOB1", "IOB2", "IOBES"]))
def test_all_schemes_say_the_same(case, scheme):
    length, spans = case
    tags = written(length, spans, scheme)
    assert spans_of(tags) == spans
    assert to_iobes(tags) == written(length, spans, "IOBES")
    assert is_iob(tags) == bool(spans)


# What conlleval makes of sequences that no scheme allows: (tags, chunks).
BROKEN = [
    (["I-PER", "I-LOC"], [("PER", 0, 0), ("LOC", 1, 1)]),
    (["O", "I-PER", "O"], [("PER", 1, 1)]),
    (["B-PER", "I-LOC", "I-LOC"], [("PER", 0, 0), ("LOC", 1, 2)]),
    (["E-PER", "I-PER"], [("PER", 0, 0), ("PER", 1, 1)]),
    (["B-PER", "S-PER", "I-PER"], [("PER", 0, 0), ("PER", 1, 1), ("PER", 2, 2)]),
    (["E-LOC"], [("LOC", 0, 0)]),
    (["B-PER", "L-PER", "U-LOC"], [("PER", 0, 1), ("LOC", 2, 2)]),
    (["B", "I", "O"], [("", 0, 1)]),
]


@pytest.mark.parametrize(("tags", "spans"), BROKEN)
def test_broken_sequences_have_the_spans_of_conlleval(tags, spans):
    assert [tuple(span) for span in spans_of(tags)] == spans


def test_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "I-ORG", "O"]]
    scores = span_scores(gold, predicted)  # 3 wanted, 3 found, 1 right
    assert scores["precision"] == scores["recall"] == scores["f1"] == pytest.approx(1 / 3)
    assert scores["f1_PER"] == 1.0
    assert scores["f1_LOC"] == scores["f1_ORG"] == 0.0


def test_nothing_to_find_scores_nothing():
    assert span_scores([["O"]], [["O"]]) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    with pytest.raises(ValueError, match="shorter"):
        span_scores([["O"], ["O"]], [["O"]])


def test_classes_by_hand():
    scores = class_scores(["a", "a", "b", "c"], ["a", "b", "b", "b"])
    assert scores["accuracy"] == 0.5
    assert (scores["f1_a"], scores["f1_b"], scores["f1_c"]) == (pytest.approx(2 / 3), 0.5, 0.0)
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 0.5) / 3)
    assert accuracy([], []) == 0.0
