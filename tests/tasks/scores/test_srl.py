"""The rules of srl-eval.pl on cases small enough to count by hand."""

import pytest

from elmokit.tasks.scores.srl import arguments, role_scores


def test_continuation_joins_the_nearest_argument_before_it():
    tags = ["B-ARG1", "O", "B-ARG1", "B-V", "B-C-ARG1"]
    assert arguments(tags) == [("ARG1", ((0, 0),)), ("ARG1", ((2, 2), (4, 4))), ("V", ((3, 3),))]


def test_continuation_without_a_head_is_an_argument_itself():
    assert arguments(["B-V", "B-C-ARG2", "I-C-ARG2", "B-C-ARG2"]) == [("V", ((0, 0),)), ("ARG2", ((1, 2), (3, 3)))]


def test_a_discontinuous_argument_is_right_only_as_a_whole():
    gold = [["B-ARG1", "B-V", "B-C-ARG1"]]
    assert role_scores(gold, [["B-ARG1", "B-V", "O"]])["f1"] == 0
    # Its head by a new argument in place of its continuation: one wanted, two found, none right.
    assert role_scores(gold, [["B-ARG1", "B-V", "B-ARG1"]]) == {"precision": 0, "recall": 0, "f1": 0, "perfect": 0}
    assert role_scores(gold, gold)["f1"] == 1


def test_the_predicate_is_not_counted_and_references_are():
    gold = [["B-R-ARG0", "B-V", "I-V", "B-ARG1"]]
    predicted = [["B-R-ARG0", "B-V", "O", "B-ARG0"]]
    assert role_scores(gold, predicted) == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "perfect": 0}


def test_reference_and_argument_are_different_roles():
    assert role_scores([["B-R-ARG0", "B-V"]], [["B-ARG0", "B-V"]])["f1"] == 0


def test_spans_must_agree_at_both_ends():
    assert role_scores([["B-V", "B-ARG1", "I-ARG1"]], [["B-V", "B-ARG1", "O"]])["f1"] == 0
    assert role_scores([["B-V", "B-ARG1", "I-ARG1"]], [["B-V", "B-ARG1", "B-ARG1"]])["f1"] == 0


def test_sums_run_over_all_predicates():
    gold = [["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "B-ARGM-TMP"], ["B-ARG0", "O", "B-V"]]
    predicted = [["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "O"], ["O", "B-ARG1", "B-V"]]
    scores = role_scores(gold, predicted)
    assert scores["precision"] == pytest.approx(2 / 3)
    assert scores["recall"] == pytest.approx(2 / 4)
    assert scores["f1"] == pytest.approx(4 / 7)
    assert scores["perfect"] == 0


def test_without_arguments_nothing_is_right_but_every_predicate_is_perfect():
    assert role_scores([["B-V"]], [["B-V"]]) == {"precision": 0, "recall": 0, "f1": 0, "perfect": 1}
    assert role_scores([], []) == {"precision": 0, "recall": 0, "f1": 0, "perfect": 0}


def test_as_many_predictions_as_predicates():
    with pytest.raises(ValueError, match="shorter"):
        role_scores([["B-V"]], [])
