"""The classifier: it learns from order, pads without harm, and says how sure it is."""

from __future__ import annotations

import pytest
import torch

from elmokit.errors import ConfigError, InputError
from elmokit.tasks.classify import Classifier, ClassifyConfig, _attend_to_itself
from elmokit.tasks.config import InputConfig, TrainingConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.data.tables import LabelledSentence
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.train import train_model
from elmokit.text.segmenters import RuleSegmenter

# The class is in the order of the words, not in which words there are.
EXAMPLES = [
    LabelledSentence(words=(*["so"] * number, *pair), label=label)
    for number in range(4)
    for pair, label in ((("dog", "bites", "man"), "common"), (("man", "bites", "dog"), "news"))
]


def classifier(**settings) -> Classifier:
    torch.manual_seed(0)
    config = ClassifyConfig(InputConfig(character_filters=16), hidden=12, dropout=0.0, **settings)
    return Classifier.build(config, EXAMPLES, WordInputs(config.inputs))


@pytest.mark.parametrize("attends", [True, False])
def test_it_learns_from_order(attends):
    config = TrainingConfig(epochs=30, patience=30, learning_rate=0.02, batch_size=8, schedule="constant")
    results = train_model(classifier(attends=attends), EXAMPLES, EXAMPLES, config=config, device="cpu")
    assert results.dev["accuracy"] == 1.0
    assert results.dev["f1_news"] == 1.0


@pytest.mark.parametrize("attends", [True, False])
def test_padding_changes_nothing(attends):
    model = classifier(attends=attends).eval()
    together = model.predict([*EXAMPLES, LabelledSentence(words=())])
    for example, prediction in zip(EXAMPLES, together, strict=False):
        assert model.predict([example])[0]["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-5)
    assert all(sum(each["probabilities"].values()) == pytest.approx(1) for each in together)


def test_attention_compares_each_word_with_all_others():
    """By hand: the weights are the softmax of scaled dot products, and padding has none."""
    words = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [9.0, 9.0]]])
    found = _attend_to_itself(words, torch.tensor([[True, True, False]]))
    like, unlike = torch.tensor([4 / 2**0.5, 0.0]).softmax(0).tolist()
    assert found[0, 0].tolist() == pytest.approx([2 * like, 2 * unlike])
    assert found[0, 1].tolist() == pytest.approx([2 * unlike, 2 * like])
    assert classifier(attends=False).integrator is None  # the biLSTM over what was found


def test_what_it_shows():
    model = classifier()
    example = model.example_of("Man bites dog.", segmenter=RuleSegmenter())
    assert example.words == ("Man", "bites", "dog", ".")
    shown = model.show(example, {"label": "news", "probabilities": {"news": 0.75, "common": 0.25}})
    assert shown == "news\t0.750\tMan bites dog ."
    with pytest.raises(InputError, match="no words"):
        model.example_of("", segmenter=RuleSegmenter())


def test_classes_that_cannot_be():
    with pytest.raises(InputError, match="at least two classes"):
        Classifier.build(ClassifyConfig(), EXAMPLES[:1], WordInputs(InputConfig(character_filters=4)))
    odd = LabelledSentence(words=("x",), label="odd", source="dev:3")
    with pytest.raises(InputError, match=r"dev:3: the label 'odd' does not occur"):
        classifier().usable([odd], Problems())
    for wrong in ({"format": "xml"}, {"words": "letters"}, {"hidden": 0}, {"dropout": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ClassifyConfig(**wrong)
