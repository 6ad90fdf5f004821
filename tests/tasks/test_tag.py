"""The tagger: spans and classes, well-formed predictions, labels it never saw."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ConfigError, InputError
from elmokit.tasks.base import load_task
from elmokit.tasks.config import InputConfig, TrainingConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.data.columns import TaggedSentence
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.scores.spans import spans_of, to_iobes
from elmokit.tasks.tag import TagConfig, Tagger, _to_iob2
from elmokit.tasks.train import train_model
from elmokit.text.segmenters import RuleSegmenter

INPUTS = InputConfig(character_filters=16)
NAMES = [
    TaggedSentence(words=(a, b, "went", "to", c), labels=("I-PER", "I-PER", "O", "O", "I-LOC"))
    for a, b, c in (("Ann", "Lee", "Rome"), ("Bob", "Ray", "Oslo"), ("Eve", "Fox", "Bonn"))
] + [TaggedSentence(words=("they", "went"), labels=("O", "O"))]
PARTS = [
    TaggedSentence(words=("dogs", "bark"), labels=("NOUN", "VERB")),
    TaggedSentence(words=("go",), labels=("VERB",)),
]


def tagger(examples, **settings) -> Tagger:
    torch.manual_seed(0)
    config = TagConfig(INPUTS, hidden=12, num_layers=2, dropout=0.1, **settings)
    return Tagger.build(config, examples, WordInputs(config.inputs))


@pytest.mark.parametrize("use_crf", [True, False])
def test_it_learns_names(use_crf, tmp_path):
    model = tagger(NAMES, use_crf=use_crf)
    assert model.metric == "f1"
    assert model.labels == ["O", *(f"{mark}-{kind}" for kind in ("LOC", "PER") for mark in "BIES")]
    config = TrainingConfig(epochs=25, learning_rate=0.02, batch_size=2, schedule="constant", patience=25)
    results = train_model(model, NAMES, NAMES, config=config, folder=tmp_path / "names", device="cpu")
    assert results.dev["f1"] == 1.0
    assert model.predict(NAMES[:1]) == [["B-PER", "I-PER", "O", "O", "B-LOC"]]
    again = load_task(tmp_path / "names", device="cpu")
    example = again.example_of("Ann Lee went to Rome", segmenter=RuleSegmenter())
    assert again.show(example, again.predict([example])[0]) == "[Ann Lee PER] went to [Rome LOC]"


def test_names_without_kinds():
    names = [
        TaggedSentence(words=each.words, labels=tuple(label[:1] for label in _to_iob2(to_iobes(each.labels))))
        for each in NAMES
    ]
    model = tagger(names)
    assert (model.metric, model.labels) == ("f1", ["O", "B", "I", "E", "S"])
    assert all(model.complaint(each) is None for each in names)
    kinds = "the label 'B-PER' does not occur in the training examples, which have O, B, I, E, S"
    assert model.complaint(TaggedSentence(words=("Ann",), labels=("B-PER",))) == kinds
    assert "the label 'B' does not" in tagger(NAMES).complaint(TaggedSentence(words=("Ann",), labels=("B",)))
    config = TrainingConfig(epochs=25, learning_rate=0.02, batch_size=2, schedule="constant", patience=25)
    assert train_model(model, names, names, config=config, device="cpu").dev == {"f1": 1, "precision": 1, "recall": 1}
    assert model.predict(names[:1]) == [["B", "I", "O", "O", "B"]]
    assert model.show(names[0], ["B", "I", "O", "O", "B"]) == "[Ann Lee] went to [Rome]"


def test_it_learns_classes_of_words():
    model = tagger(PARTS)
    assert model.metric == "accuracy"
    config = TrainingConfig(epochs=30, learning_rate=0.02, schedule="constant", patience=30)
    assert train_model(model, PARTS, PARTS, config=config, device="cpu").dev == {"accuracy": 1.0}
    assert model.show(PARTS[0], ["NOUN", "VERB"]) == "dogs/NOUN bark/VERB"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_every_prediction_is_well_formed(seed, lengths):
    model = tagger(NAMES).eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.normal_(std=3.0)
    batch = [TaggedSentence(words=tuple("abcdef"[:length])) for length in lengths]
    for words, tags in zip(batch, model.predict(batch), strict=True):
        assert len(tags) == len(words.words)
        before = "O"
        for tag in tags:  # IOB2: an inside tag goes on with a span of its kind
            assert not tag.startswith("I-") or before[2:] == tag[2:]
            before = tag


def test_the_loss_is_that_of_the_whole_sequence():
    model = tagger(NAMES).eval()
    sentence = NAMES[0]
    gold = to_iobes(sentence.labels)
    logits, _ = model._logits([sentence])
    numbers = [model.labels.index(label) for label in gold]
    start, follow, end = model.crf.scores()
    score = start[numbers[0]] + end[numbers[-1]]
    score = score + sum(logits[0, place, number] for place, number in enumerate(numbers))
    score = score + sum(follow[a, b] for a, b in zip(numbers, numbers[1:], strict=False))
    total = start + logits[0, 0]
    for place in range(1, 5):
        total = torch.logsumexp(total.unsqueeze(1) + follow, 0) + logits[0, place]
    total = torch.logsumexp(total + end, 0)
    assert model.loss([sentence]).item() == pytest.approx((total - score).item(), rel=1e-4)


def test_without_a_crf_each_word_is_classified_alone():
    model = tagger(NAMES, use_crf=False).eval()
    assert model.crf is None
    logits, _ = model._logits([NAMES[0]])
    numbers = torch.tensor([model.labels.index(label) for label in to_iobes(NAMES[0].labels)])
    expected = torch.nn.functional.cross_entropy(logits[0], numbers)
    assert model.loss([NAMES[0]]).item() == pytest.approx(expected.item(), rel=1e-5)
    best = [model.labels[number] for number in logits[0].argmax(-1)]
    assert model.predict([NAMES[0]]) == [_to_iob2(best)]


def test_labels_that_were_never_seen():
    model = tagger(NAMES)
    odd = TaggedSentence(words=("x",), labels=("I-ORG",), source="dev.conll:7")
    with pytest.raises(InputError, match=r"dev\.conll:7: the label 'I-ORG' does not occur in the training"):
        model.usable([odd], Problems())
    table = TaggedSentence(words=("Who sat there ?",), labels=("person",), source="questions.tsv:1")
    with pytest.raises(InputError, match=r"questions\.tsv:1: the label 'person' does not occur in the training"):
        model.usable([table], Problems())  # it is no label of a span at all, and would pass as O
    plain = TaggedSentence(words=("Nobody", "sat"), labels=("O", "O"))
    assert model.usable([plain], Problems()) == [plain]
    problems = Problems(skips=True)
    assert model.usable([odd, NAMES[0]], problems) == [NAMES[0]]
    assert problems.num_bad == 1


def test_nothing_to_learn_and_nothing_to_read():
    with pytest.raises(InputError, match=r"found \['_'\]; their column is --set column=…"):
        tagger([TaggedSentence(words=("a", "b"), labels=("_", "_"))])
    with pytest.raises(InputError, match="expected at least two labels to tell apart, found none"):
        tagger([])
    with pytest.raises(InputError, match="no words"):
        tagger(NAMES).example_of("  ", segmenter=RuleSegmenter())
    with pytest.raises(ConfigError, match="dropout is 1"):
        TagConfig(INPUTS, dropout=1)


def test_spans_survive_our_own_scheme():
    for example in NAMES:
        assert spans_of(to_iobes(example.labels)) == spans_of(example.labels)
