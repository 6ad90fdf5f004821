"""MUC, B³ and CEAFφ4 on published and hand-counted cases."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.scores.coref import assign, coreference_scores

PARTITIONS = st.lists(st.integers(0, 3), min_size=1, max_size=9).map(
    lambda labels: [{place for place, label in enumerate(labels) if label == one} for one in sorted(set(labels))]
)


def scores_of(gold, predicted):
    return coreference_scores([gold], [predicted])


def test_the_example_of_the_scorer_paper():
    """Pradhan et al. 2014, section 4: key {a, b, c}, {d, e, f, g}; response {a, b}, {c, d}, {f, g, h, i}."""
    scores = scores_of([set("abc"), set("defg")], [set("ab"), set("cd"), set("fghi")])
    assert scores["muc_recall"] == pytest.approx(2 / 5)
    assert scores["muc_precision"] == pytest.approx(2 / 5)
    assert scores["b3_recall"] == pytest.approx(35 / 12 / 7)
    assert scores["b3_precision"] == pytest.approx(4 / 8)
    assert scores["ceaf_recall"] == pytest.approx(1.3 / 2)
    assert scores["ceaf_precision"] == pytest.approx(1.3 / 3)
    assert scores["mentions_recall"] == pytest.approx(6 / 7)
    assert scores["mentions_precision"] == pytest.approx(6 / 8)
    mean = (scores["muc_f1"] + scores["b3_f1"] + scores["ceaf_f1"]) / 3
    assert scores["conll_f1"] == pytest.approx(mean)
    assert scores["b3_f1"] == pytest.approx(5 / 11)  # the paper's 0.46 is the F1 of a recall rounded to 0.42
    assert round(scores["ceaf_f1"], 2) == 0.52


@pytest.mark.parametrize(
    ("predicted", "muc", "b3", "ceaf"),
    [
        (["a", "bcx", "dy", "zw"], (1 / 3, 1 / 4), (10 / 18, 17 / 48), (2.2 / 3, 2.2 / 4)),  # A6
        (["a", "bcx", "dy", "z"], (1 / 3, 1 / 3), (10 / 18, 17 / 42), (2.2 / 3, 2.2 / 4)),  # A7
        (["a", "b", "c", "d", "e", "f"], (0, 0), (3 / 6, 1), None),  # A10
        (["abcdef"], (1, 3 / 5), (1, 14 / 36), None),  # A11
        (["a", "b", "d", "e", "x", "y", "z"], (0, 0), (13 / 36, 4 / 7), None),  # A12
    ],
)
def test_cases_of_the_reference_scorer(predicted, muc, b3, ceaf):
    """The key {a}, {b, c}, {d, e, f} of its own tests, with what it expects there (CEAF where it says)."""
    scores = scores_of([set("a"), set("bc"), set("def")], [set(cluster) for cluster in predicted])
    for name, expected in (("muc", muc), ("b3", b3), ("ceaf", ceaf)):
        if expected is not None:
            assert (scores[f"{name}_recall"], scores[f"{name}_precision"]) == pytest.approx(expected)


def test_everything_in_one_cluster():
    """Two pairs joined wrongly: MUC sees one link too many, B³ half of every mention's cluster."""
    scores = scores_of([set("ab"), set("cd")], [set("abcd")])
    assert scores["muc_recall"] == 1
    assert scores["muc_precision"] == pytest.approx(2 / 3)
    assert scores["b3_recall"] == 1
    assert scores["b3_precision"] == pytest.approx(1 / 2)
    assert scores["ceaf_recall"] == pytest.approx(2 * 2 / 6 / 2)
    assert scores["ceaf_precision"] == pytest.approx(2 * 2 / 6)


def test_clusters_of_one_are_seen_by_b3_and_ceaf_only():
    scores = scores_of([{"a"}, {"b"}, {"c"}], [{"a"}, {"b"}])
    assert scores["muc_f1"] == 0
    assert scores["b3_recall"] == pytest.approx(2 / 3)
    assert scores["b3_precision"] == 1
    assert scores["ceaf_recall"] == pytest.approx(2 / 3)


def test_documents_are_summed_before_dividing():
    scores = coreference_scores([[set("ab")], [set("abcd")]], [[set("ab")], []])
    assert scores["muc_recall"] == pytest.approx(1 / 4)
    assert scores["muc_precision"] == 1
    assert scores["b3_recall"] == pytest.approx(2 / 6)
    assert scores["ceaf_recall"] == pytest.approx(1 / 2)


def test_nothing_to_find_and_nothing_found():
    assert scores_of([], [])["conll_f1"] == 0


@given(PARTITIONS)
def test_gold_itself_is_perfect(clusters):
    scores = scores_of(clusters, list(reversed(clusters)))
    assert scores["b3_f1"] == pytest.approx(1)
    assert scores["ceaf_f1"] == pytest.approx(1)
    assert scores["muc_f1"] == pytest.approx(float(any(len(cluster) > 1 for cluster in clusters)))


@given(PARTITIONS, PARTITIONS)
def test_exchanging_gold_and_predicted_exchanges_precision_and_recall(gold, predicted):
    there, back = scores_of(gold, predicted), scores_of(predicted, gold)
    for name in ("muc", "b3", "ceaf", "mentions"):
        assert there[f"{name}_recall"] == pytest.approx(back[f"{name}_precision"])
        assert 0 <= there[f"{name}_f1"] <= 1 + 1e-9


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 5), st.integers(0, 5))
def test_assign_finds_the_best_of_all_pairings(seed, rows, columns):
    gains = np.random.default_rng(seed).normal(size=(rows, columns)).round(1)
    pairs = assign(gains)
    assert len(pairs) == min(rows, columns)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    wide = gains if rows <= columns else gains.T
    best = max(sum(wide[row, column] for row, column in enumerate(way)) for way in _ways(*wide.shape))
    assert sum(gains[pair] for pair in pairs) == pytest.approx(best)


def _ways(rows, columns):
    return permutations(range(columns), rows)
