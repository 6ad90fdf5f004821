"""Word senses: the readers, the scorer, and the nearest mean with its back-off."""

from __future__ import annotations

import numpy as np
import pytest

from elmokit import InputError
from elmokit.probe.frozen import WordSpan
from elmokit.probe.sense_data import Instance, WordNet, read_sense_texts, read_wordnet
from elmokit.probe.wsd import FIRST_SENSE, SenseMeans, f1_by_set, probe_senses
from elmokit.text.labelled import Problems

MONEY, RIVER = "bank%1:14:00::", "bank%1:17:01::"


def instance(*senses: str, lemma: str = "bank", dataset: str = "a") -> Instance:
    return Instance(dataset, WordSpan(0, 0, 1), lemma, "NOUN", senses)


def test_semcor_is_read_with_expressions_taken_apart(desk):
    text = read_sense_texts(["semcor.jsonl"])
    assert text.sentences[1] == ["river", "bank", "took", "place"]
    assert text.instances[2] == Instance(
        "semcor.jsonl", WordSpan(1, 2, 4), "take_place", "VERB", ("take_place%2:30:00::",)
    )


def test_raganato_is_read_with_its_keys(desk):
    text = read_sense_texts(["little.data.xml"])
    assert text.sentences == [["The", "bank", "took", "place", "."]]
    assert text.instances == [
        Instance("little", WordSpan(0, 1, 2), "bank", "NOUN", (MONEY,)),
        Instance("little", WordSpan(0, 2, 4), "take_place", "VERB", ("take_place%2:30:00::", "other%2:30:00::")),
    ]


def test_the_sets_of_all_are_told_apart_by_their_ids(desk):
    for suffix in (".data.xml", ".gold.key.txt"):
        text = (desk / f"little{suffix}").read_text(encoding="utf-8").replace("d000.s000.t", "first.d000.s000.t")
        (desk / f"ALL{suffix}").write_text(text, encoding="utf-8")
        (desk / f"first{suffix}").write_text(text, encoding="utf-8")
    assert {one.dataset for one in read_sense_texts(["ALL.data.xml"]).instances} == {"first"}
    both = read_sense_texts(["ALL.data.xml", "little.data.xml"])
    assert [one.span.sentence for one in both.instances] == [0, 0, 1, 1]
    with pytest.raises(InputError, match="first came before: give either ALL"):
        read_sense_texts(["ALL.data.xml", "first.data.xml"])


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("semcor.jsonl", '{"words"', "{words", "semcor.jsonl:1: expected a JSON object"),
        ("semcor.jsonl", '["old", "bank"]', '["old"]', 'semcor.jsonl:3: expected "words"'),
        ("semcor.jsonl", f'["{RIVER}"]', "[3]", "semcor.jsonl:2: expected a list of sense keys or null"),
        ("semcor.jsonl", RIVER, "bank", "semcor.jsonl:2: expected a sense key such as"),
        ("little.data.xml", "</sentence>", "", "little.data.xml:10: expected XML: mismatched tag"),
        ("little.data.xml", 'pos="NOUN"', 'pos="NN"', "little.data.xml:6: expected an instance with id, lemma and pos"),
        ("little.data.xml", "d000.s000.t001", "d9", "little.data.xml:7: little.gold.key.txt has no senses for 'd9'"),
        ("little.data.xml", '<sentence id="d000.s000">', "", "little.data.xml:5: expected <wf> inside a <sentence>"),
        ("little.data.xml", "<corpus", '<!DOCTYPE a [<!ENTITY b "c">]><corpus', "little.data.xml:2: expected no entit"),
        ("little.gold.key.txt", f" {MONEY}", "", "little.gold.key.txt:1: expected an id and sense keys"),
        ("little.gold.key.txt", MONEY, "money", "little.gold.key.txt:1: expected a sense key such as"),
        ("index.sense", " 1 2 5", " 1", "index.sense:1: expected a sense key, an offset"),
    ],
)
def test_bad_files_are_refused_with_their_place(name, old, new, complaint, desk):
    text = (desk / name).read_text(encoding="utf-8")
    assert old in text
    (desk / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as problem:
        read_sense_texts(["semcor.jsonl"])
        read_sense_texts(["little.data.xml"])
        read_wordnet("index.sense")
    assert complaint in str(problem.value)


def test_bad_senses_can_be_left_out(desk):
    """A sentence of JSON goes as a whole; an instance of XML becomes a word like any other."""
    whole = read_sense_texts(["semcor.jsonl"]), read_sense_texts(["little.data.xml"])
    for name, old, new in (("semcor.jsonl", RIVER, "bank"), ("little.data.xml", 'pos="NOUN"', 'pos="NN"')):
        path = desk / name
        path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    problems = Problems(skips=True)
    train, test = read_sense_texts(["semcor.jsonl"], problems), read_sense_texts(["little.data.xml"], problems)
    assert problems.num_bad == 2
    assert problems.first is not None and problems.first.startswith("semcor.jsonl:2: expected a sense key")
    assert len(train.sentences) == len(whole[0].sentences) - 1
    assert test.sentences == whole[1].sentences
    assert len(test.instances) == len(whole[1].instances) - 1
    assert all(instance.span.sentence < len(train.sentences) for instance in train.instances)


def test_empty_files_and_other_formats_are_refused(desk):
    for name in ("empty.jsonl", "index.empty", "little.txt"):
        (desk / name).write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="expected words with senses, found none"):
        read_sense_texts(["empty.jsonl"])
    with pytest.raises(InputError, match="expected senses of WordNet, found none"):
        read_wordnet("index.empty")
    with pytest.raises(InputError, match="expected SemCor as .jsonl"):
        read_sense_texts(["little.txt"])
    (desk / "little.gold.key.txt").unlink()
    with pytest.raises(InputError, match="found no such file"):
        read_sense_texts(["little.data.xml"])


def test_the_first_sense_has_the_lowest_number(desk):
    assert read_wordnet("index.sense").first["bank", "NOUN"] == RIVER


def test_f1_counts_an_answer_that_is_missing_against_recall_alone():
    gold = [instance(MONEY), instance(RIVER, MONEY), instance(MONEY, dataset="b"), instance(MONEY, dataset="b")]
    scores = f1_by_set(gold, [MONEY, MONEY, RIVER, None])
    precision, recall = 2 / 3, 2 / 4
    assert scores == {"a": 1.0, "b": 0.0, "ALL": pytest.approx(2 * precision * recall / (precision + recall))}
    assert list(scores)[-1] == "ALL"


def test_the_nearest_mean_decides_among_the_senses_of_the_lemma():
    train = [instance(MONEY), instance(MONEY), instance(RIVER), instance("dog%1:05:00::", lemma="dog")]
    wordnet = WordNet({MONEY: 1, RIVER: 2, "dog%1:05:00::": 1}, {})
    means = SenseMeans(train, np.array([[1, 0], [3, 2], [-1, 1], [0, -1]], np.float32), wordnet)
    assert means.nearest(instance(), np.array([1.0, 0.2])) == MONEY
    assert means.nearest(instance(), np.array([-5.0, 1.0])) == RIVER
    assert means.nearest(instance(), np.array([0.0, -1.0])) == MONEY  # the dog's mean is nearer, but no bank
    assert means.nearest(instance(lemma="cat"), np.array([1.0, 0.0])) is None


@pytest.mark.parametrize("first", [MONEY, RIVER])
@pytest.mark.parametrize("vector", [[0.3, 0.1, 0.7], [0.0, 0.0, 0.0]])  # a word's only vector; an unknown word's zeros
def test_wordnets_order_decides_between_means_that_are_equally_near(first, vector):
    wordnet = WordNet({MONEY: 1 + (first != MONEY), RIVER: 1 + (first != RIVER)}, {})
    train = [instance(MONEY), *[instance(RIVER)] * 7]  # whose mean differs from the vector in its last digits
    vectors_ND = np.tile(np.array(vector, np.float32), (8, 1))
    assert SenseMeans(train, vectors_ND, wordnet).nearest(instance(), vectors_ND[0]) == first


def test_the_probe_finds_senses_and_backs_off(desk, spelled):
    train, test, wordnet = read_sense_texts(["semcor.jsonl"]), read_sense_texts(["little.data.xml"]), None
    wordnet = read_wordnet("index.sense")
    test.instances.append(Instance("little", WordSpan(0, 0, 1), "dog", "NOUN", ("dog%1:05:00::",)))
    test.instances.sort(key=lambda one: one.span)
    report = probe_senses([spelled], train=train, test=test, wordnet=wordnet, folder=desk)
    assert report.rows[FIRST_SENSE]["ALL"] == pytest.approx(2 / 3)  # the first sense of bank is the river's
    assert report.rows["context"]["ALL"] == 1  # "The" stands before the bank that lends
    assert report.facts["instances"] == {"train": 3, "little": 3, "ALL": 3}
    assert report.facts["train_instances_left_out"] == 1
    assert report.facts["first_sense_for_unseen_lemmas"] == 1


def test_lists_of_senses_that_fit_nothing_are_refused(desk, spelled):
    train, test = read_sense_texts(["semcor.jsonl"]), read_sense_texts(["little.data.xml"])
    (desk / "other.sense").write_text("cat%1:05:00:: 1 1 0\n", encoding="utf-8")
    with pytest.raises(InputError, match="none of the training senses"):
        probe_senses([spelled], train=train, test=test, wordnet=read_wordnet("other.sense"), folder=desk)
    cats = [one._replace(lemma="cat") for one in test.instances]
    test.instances[:] = cats
    with pytest.raises(InputError, match="none of the test words"):
        probe_senses([spelled], train=train, test=test, wordnet=read_wordnet("index.sense"), folder=desk)
