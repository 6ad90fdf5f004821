"""Words in context and rated pairs: readers, thresholds, ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit import InputError
from elmokit.probe.cosines import nearest, pair_cosines
from elmokit.probe.rated.correlations import spearman
from elmokit.probe.rated.words import probe_similarity, read_rated_pairs
from elmokit.probe.sources import StaticSource, VectorSource, single_layers
from elmokit.probe.wic import MAJORITY, Pair, best_threshold, probe_wic, read_wic
from elmokit.text.labelled import Problems


def test_wic_is_told_from_context_and_not_from_the_word(desk, spelled):
    train, dev = read_wic("wic", "train"), read_wic("wic", "dev")
    assert (train[1].places, train[1].sentences[1], train[1].is_same) == ((1, 1), ["old", "dog", "."], False)
    report = probe_wic([spelled], train=train, test=dev, folder=desk)
    assert report.rows[MAJORITY] == {"threshold": 0.5, "logistic": 0.5}
    assert report.rows["context"] == {"threshold": 1.0, "logistic": 1.0}
    assert report.rows["word"] == {"threshold": 0.5, "logistic": 0.5}
    assert report.facts["pairs"] == {"train": 10, "test": 10}
    with pytest.raises(InputError, match="at least two words"):
        probe_wic([spelled], train=train[:2], test=dev, folder=desk)


def test_layers_that_know_different_words_are_joined(desk):
    words = [f"word{number}" for number in range(40)]

    class Knowing(VectorSource):
        """Layer 0 sees what stands before a word of even number, layer 1 that before the others."""

        def layers(self, sentences):
            return [np.stack([np.stack([self.vector(s, layer) for _ in s]) for layer in range(2)]) for s in sentences]

        def vector(self, words, layer):
            is_seen = int(words[1].removeprefix("word")) % 2 == layer
            return np.array([1.0, is_seen * (1.0 if words[0] == "the" else -1.0)], np.float32)

    pairs = [
        Pair(w, (["the", w], ["the" if same else "old", w]), (1, 1), same) for w in words for same in (True, False)
    ]
    source = Knowing(mixes=single_layers(["layer 0", "layer 1"]), dim=2, key="knowing")
    report = probe_wic([source], train=pairs[:60], test=pairs[60:], folder=desk)
    found = {name: row["logistic"] for name, row in report.rows.items()}
    assert found == {MAJORITY: 0.5, "layer 0": 0.75, "layer 1": 0.75, "layer 0 to layer 1, joined": 1.0}


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("data", "dog\tN\t", "dog\t", "dev.data.txt:1: expected word, N or V, places"),
        ("data", "1-1", "1", "dev.data.txt:1: expected two places such as 2-4, found '1'"),
        ("data", "1-1", "1-7", "dev.data.txt:1: word 7 of a sentence with 3 words"),
        ("gold", "T", "yes", "dev.gold.txt:1: expected T or F, found 'yes'"),
        ("gold", "T\nF\n", "", "has answers (8), found 10"),
        ("gold", "T\nF\n", "T\nF\nF\n", "expected as many pairs"),
    ],
)
def test_bad_pairs_are_refused_with_their_place(name, old, new, complaint, desk):
    path = desk / "wic" / "dev" / f"dev.{name}.txt"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as problem:
        read_wic("wic", "dev")
    assert complaint in str(problem.value)


def test_bad_pairs_can_be_left_out(desk):
    path = desk / "wic" / "dev" / "dev.data.txt"
    whole = read_wic("wic", "dev")
    path.write_text(path.read_text(encoding="utf-8") + "\n \n", encoding="utf-8")
    assert read_wic("wic", "dev") == whole
    path.write_text(path.read_text(encoding="utf-8").replace("1-1", "1-7", 1), encoding="utf-8")
    problems = Problems(skips=True)
    assert read_wic("wic", "dev", problems) == whole[1:]
    (desk / "rated.txt").write_text("dog cat 5\ndog cat\ncat cow 4\n", encoding="utf-8")
    assert len(read_rated_pairs("rated.txt", problems)) == 2
    assert problems.num_bad == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1))
def test_no_threshold_is_better(pairs):
    values = np.array([value / 5 for value, _ in pairs])
    gold = np.array([same for _, same in pairs])
    chosen = best_threshold(values, gold)
    right = [((values >= candidate) == gold).mean() for candidate in values]
    assert ((values >= chosen) == gold).mean() == max(right)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12))
def test_spearman_is_pearson_of_mean_ranks(pairs):
    def ranks(values):
        return [(sum(o < v for o in values) + sum(o <= v for o in values) - 1) / 2 for v in values]

    first, second = (list(part) for part in zip(*pairs, strict=True))
    found = spearman(np.array(first), np.array(second))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(np.corrcoef(ranks(first), ranks(second))[0, 1], abs=1e-9)


def test_similarity_leaves_out_what_a_table_has_not(desk, spelled):
    pairs = [*read_rated_pairs("pairs.txt"), *read_rated_pairs("pairs.txt")[:1]]
    pairs[-1] = pairs[-1]._replace(second="gone")
    static = StaticSource("vectors.txt", words=["dog", "bank", "the", "runs"])
    report = probe_similarity([static, spelled], {"pairs": pairs}, folder=desk)
    # Cosines of the three known pairs: dog-bank 0.71, the-runs 0, bank-the 0; ratings 3.5, 1, 9.
    assert report.rows["vectors"]["pairs"] == pytest.approx(spearman(np.array([0.7, 0, 0]), np.array([3.5, 1, 9])))
    assert report.notes == ["vectors has both words of 3 of 4 pairs in pairs"]
    assert -1 <= report.rows["word"]["pairs"] <= 1
    assert np.isnan(report.rows["context"]["pairs"])  # a word alone has no context here: all cosines are equal


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("dog cat\n", "pairs.txt:1:"), ("a b nan\n", "pairs.txt:1:"), ("\ndog cat 5\n", "at least two rated pairs")],
)
def test_bad_ratings_are_refused(text, complaint, tmp_path):
    (tmp_path / "pairs.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=complaint):
        read_rated_pairs(tmp_path / "pairs.txt")


def test_nearest_is_sorted_and_zeros_are_near_nothing():
    others = np.array([[0, 1], [0, 0], [2, 0.1], [1, 1]])
    found = nearest(np.array([1.0, 0.0]), others, top=3)
    assert [place for place, _ in found] == [2, 3, 0]
    np.testing.assert_allclose(pair_cosines(others[:2], others[2:]), [0.0499376, 0], atol=1e-6)
