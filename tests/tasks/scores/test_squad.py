import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.tasks.scores.squad import answer_f1, exact_match, normalise_answer, squad_scores

ANSWERS = st.lists(
    st.sampled_from(["the", "The", "a", "an", "cat", "cats", "U.S.", "é", "…", "-", "12%", "theme", ""]), max_size=6
).map(" ".join)


@pytest.mark.parametrize(
    ("answer", "reference", "matches", "f1"),
    [
        ("Denver Broncos", "the Denver Broncos.", True, 1.0),
        ("A  dog", "dog", True, 1.0),
        ("Theatre", "atre", False, 0.0),  # "the" only as a whole word
        ("the-end", "theend", True, 1.0),  # punctuation goes first, then articles
        ("24 August 1853", "August 1853", False, 0.8),
        ("New York New York", "York", False, 0.4),
        ("", "the", True, 0.0),  # nothing is left of either: equal, but no word in common
        ("4–5", "45", False, 0.0),  # only ASCII punctuation goes
    ],
)
def test_single_answers(answer, reference, matches, f1):
    assert exact_match(answer, reference) is matches
    assert answer_f1(answer, reference) == pytest.approx(f1)


def test_best_reference_counts_for_each_score_alone():
    scores = squad_scores(["gold coin"], [["silver", "gold", "a gold coin in hand"]])
    assert scores == {"exact_match": 0.0, "f1": pytest.approx(2 / 3)}


def test_mean_over_questions():
    assert squad_scores(["x", "y"], [["x"], ["z"]]) == {"exact_match": 0.5, "f1": 0.5}


@given(ANSWERS, ANSWERS)
def test_as_the_rules_are_written_down(answer, reference):
    """Precision and recall over bags of normalised words, computed the long way."""

    def bag(text):
        kept = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
        return Counter(re.sub(r"\b(?:a|an|the)\b", " ", kept).split())

    first, second = bag(answer), bag(reference)
    common = sum(min(first[word], second[word]) for word in first)
    expected = 0.0
    if common:
        precision, recall = common / sum(first.values()), common / sum(second.values())
        expected = 2 * precision * recall / (precision + recall)
    assert answer_f1(answer, reference) == pytest.approx(expected)
    assert answer_f1(answer, reference) == answer_f1(reference, answer)
    assert normalise_answer(normalise_answer(answer)) == normalise_answer(answer)


def test_what_cannot_be_scored():
    with pytest.raises(InputError, match="2 answers came for 1 questions"):
        squad_scores(["a", "b"], [["a"]])
    with pytest.raises(InputError, match="question 1 .* no reference"):
        squad_scores(["a", "b"], [["a"], []])
    with pytest.raises(InputError, match="no questions"):
        squad_scores([], [])
