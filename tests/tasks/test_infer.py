import json
import random

import pytest
import torch

from elmokit.errors import ConfigError, InputError
from elmokit.tasks.base import load_task
from elmokit.tasks.config import InputConfig, TrainingConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.data.snli import PairExample
from elmokit.tasks.infer import Infer, InferConfig, compare_pairs, pool_mean_and_maximum
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.train import train_model
from elmokit.text.segmenters import RuleSegmenter

COLOURS = ["red", "blue", "green", "pink"]
THINGS = ["car", "door", "hat", "cup"]


def examples(count, seed):
    """Same colour of the same thing: yes; another colour: no; another thing: unknown."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        (colour, other), (thing, another) = draw.sample(COLOURS, 2), draw.sample(THINGS, 2)
        label, said = draw.choice([("yes", (colour, thing)), ("no", (other, thing)), ("unknown", (colour, another))])
        premise, hypothesis = ["The", thing, "is", colour, "."], ["a", *said]
        made.append(PairExample(premise, hypothesis, label, source="made:1"))
    return made


def tiny_model(train, **settings):
    torch.manual_seed(0)
    config = InferConfig(**{"inputs": InputConfig(character_filters=16), "hidden": 16, "dropout": 0.0, **settings})
    return Infer.build(config, train, WordInputs(config.inputs))


def test_comparison_and_pooling_by_hand():
    assert compare_pairs(torch.tensor([[[2.0]]]), torch.tensor([[[5.0]]])).tolist() == [[[2, 5, -3, 10]]]
    words = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [8.0, 8.0]]])
    assert pool_mean_and_maximum(words, torch.tensor([[True, True, False]])).tolist() == [[2, -3, 3, -2]]


def test_company_does_not_matter():
    pairs = [*examples(2, seed=1), PairExample(["One"], ["A", "much", "longer", "sentence", "than", "that"])]
    model = tiny_model(pairs).eval()
    together = model(pairs)
    for row, pair in enumerate(pairs):
        torch.testing.assert_close(model([pair])[0], together[row], atol=1e-5, rtol=1e-4)


def test_premise_and_hypothesis_are_not_the_same():
    pairs = [PairExample(["a", "b"], ["c"], "x"), PairExample(["c"], ["a", "b"], "y")]
    scores = tiny_model(pairs).eval()(pairs)
    assert not torch.allclose(scores[0], scores[1], atol=1e-4)


def test_learns_colours(tmp_path):
    train, dev = examples(256, seed=2), examples(40, seed=3)
    model = tiny_model(train)
    config = TrainingConfig(epochs=14, patience=14, batch_size=32, learning_rate=1e-2)
    results = train_model(model, train, dev, config=config, folder=tmp_path / "infer")
    assert results.dev["accuracy"] > 0.8, results.history  # 1 of 3 by chance
    loaded = load_task(tmp_path / "infer", device="cpu")
    assert loaded.labels == ["no", "unknown", "yes"]
    assert loaded.scores(dev, loaded.predict_all(dev)) == results.dev
    typed = loaded.example_of("The hat is red.", "a hat", segmenter=RuleSegmenter())
    assert (typed.premise, typed.hypothesis) == (["The", "hat", "is", "red", "."], ["a", "hat"])
    (prediction,) = loaded.predict([typed])
    assert sum(prediction["probabilities"].values()) == pytest.approx(1, rel=1e-5)
    assert prediction["label"] == max(prediction["probabilities"], key=prediction["probabilities"].get)
    assert loaded.show(typed, prediction).startswith(prediction["label"])
    json.dumps(prediction)


@pytest.mark.parametrize("place", ["input", "output", "both"])
def test_elmo_at_every_place(place, task_elmo, tmp_path):
    inputs = InputConfig(character_filters=8, elmo="random", elmo_at=place)
    torch.manual_seed(0)
    train = examples(8, seed=4)
    model = Infer.build(InferConfig(inputs=inputs, hidden=8), train, WordInputs(inputs, elmo=task_elmo))
    before = {name: weight.clone() for name, weight in model.inputs.named_parameters() if "mix" in name}
    train_model(model, train, train, config=TrainingConfig(epochs=1, batch_size=4), layers_folder=tmp_path)
    after = dict(model.inputs.named_parameters())
    assert before
    assert all(not torch.equal(after[name], weight) for name, weight in before.items())


def test_labels_that_cannot_be_used(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tlabel\na b\tc\tyes\na\tb\t\na\tb\tperhaps\n")
    model = tiny_model(examples(20, seed=5))
    found = list(Infer.read(path, config=model.config, problems=Problems()))
    assert model.sentences(found[0]) == [["a", "b"], ["c"]]
    complaints = [model.complaint(pair) for pair in found]
    assert complaints[0] is None
    assert complaints[1] == "expected a label, found none"
    assert "the label 'perhaps' does not occur in the training examples, which have" in complaints[2]
    problems = Problems(skips=True)
    assert model.usable(found, problems) == found[:1]
    assert problems.num_bad == 2


def test_no_labels_to_learn():
    with pytest.raises(InputError, match="expected at least two labels"):
        tiny_model([PairExample(["a"], ["b"])])


@pytest.mark.parametrize(("texts", "lacks"), [((" ", "b"), "premise"), (("a", ""), "hypothesis")])
def test_typed_text_without_words(texts, lacks):
    with pytest.raises(InputError, match=f"expected a {lacks}, found no words"):
        tiny_model(examples(9, seed=6)).example_of(*texts, segmenter=RuleSegmenter())


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"dropout": 1.0}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        InferConfig(**wrong)
