"""Parts of speech: the reader, the control task, and what the probe reports."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit import InputError
from elmokit.probe.pos import MOST_FREQUENT, TreebankSentence, control_tags, probe_tags, read_conllu

RANGES = (
    "# text = don't go\n"
    "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tdo\tdo\tAUX\tVB\t_\t0\troot\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\tPolarity=Neg|Case=Nom\t1\tadvmod\t_\t_\n"
    "2.1\tempty\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "3\tgo\tgo\tVERB\tVB\t_\t1\txcomp\t_\t_\n"
)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("UPOS", ["AUX", "PART", "VERB"]), ("xpos", ["VB", "RB", "VB"]), ("Case", ["_", "Nom", "_"])],
)
def test_ranges_and_empty_nodes_are_no_words(tag, expected, tmp_path):
    (tmp_path / "a.conllu").write_text(RANGES, encoding="utf-8")
    assert read_conllu(tmp_path / "a.conllu", tag=tag) == [TreebankSentence(["do", "n't", "go"], expected)]


@pytest.mark.parametrize(
    ("text", "tag", "complaint"),
    [
        ("", "UPOS", "a.conllu: expected sentences in CoNLL-U, found none"),
        (RANGES, "Number", "no word has a value of Number"),
        ("The\tDT\n", "UPOS", "a.conllu:1: expected 10 columns between tabs, found 2"),
        (RANGES.replace("3\tgo", "x\tgo"), "UPOS", "a.conllu:6: expected the number of a word, found 'x'"),
        (RANGES.replace("3\tgo", "1\tgo"), "UPOS", "a.conllu:6: expected word 3 of the sentence, found the number 1"),
    ],
)
def test_bad_treebanks_are_refused_with_their_place(text, tag, complaint, tmp_path):
    (tmp_path / "a.conllu").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as problem:
        read_conllu(tmp_path / "a.conllu", tag=tag)
    assert complaint in str(problem.value)


@given(st.lists(st.text(max_size=3), min_size=1), st.integers(0, 5))
def test_control_tags_depend_on_the_word_and_the_seed_alone(words, seed):
    labels = np.arange(4)
    tags = control_tags(words, labels, seed=seed)
    assert set(tags) == set(words)
    assert set(tags.values()) <= {0, 1, 2, 3}
    assert control_tags(words[::-1], labels, seed=seed) == tags


def test_control_tags_come_as_often_as_the_real_ones():
    labels = np.array([0] * 90 + [1] * 10)
    counts = Counter(control_tags([str(number) for number in range(5000)], labels, seed=1).values())
    assert counts[1] / 5000 == pytest.approx(0.1, abs=0.02)


def test_the_probe_finds_tags_where_they_are(desk, spelled):
    train, dev, test = (read_conllu(f"{name}.conllu") for name in ("train", "dev", "test"))
    test.append(TreebankSentence(["horse"], ["NOUN"]))
    test.append(TreebankSentence(["dog"], ["X"]))
    report = probe_tags([spelled], train=train, dev=dev, test=test, folder=desk)
    word, context, trivial = (report.rows[name] for name in ("word", "context", MOST_FREQUENT))
    assert word["accuracy"] >= 40 / 42  # all but perhaps "horse", and the tag X, which training never saw
    assert trivial["accuracy"] == pytest.approx((40 + trivial["unseen words"]) / 42)
    assert word["control"] > 0.8  # twelve words in eight dimensions can almost be learned by heart
    assert word["selectivity"] == pytest.approx(word["accuracy"] - word["control"])
    assert context["accuracy"] >= 40 / 42 and context["control"] < word["control"]
    assert report.facts["words"] == {"train": 120, "dev": 44, "test": 42}
    assert report.facts["unseen_test_words"] == 1
    assert "1 test words have a tag that the training part has not" in report.notes[0]


def test_without_dev_every_tenth_training_sentence_is_held_out(desk, spelled):
    train, test = (read_conllu(f"{name}.conllu") for name in ("train", "test"))
    report = probe_tags([spelled], train=train, test=test, folder=desk)
    assert report.facts["words"] == {"train": 108, "dev": 12, "test": 40}
    with pytest.raises(InputError, match="at least two training sentences"):
        probe_tags([spelled], train=train[:1], test=test, folder=desk)
