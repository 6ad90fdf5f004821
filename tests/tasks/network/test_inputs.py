"""What a word is known by: each source of features, and all of them together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.errors import ConfigError, InputError
from elmokit.tasks.config import InputConfig, TaskConfig, TrainingConfig
from elmokit.tasks.layer_store import TaskElmo, open_elmo
from elmokit.tasks.network.inputs import WordInputs
from elmokit.validation import build_from

SENTENCES = [["The", "bank", "unknownword"], ["hello"]]


def inputs_for(config, sentences, *, elmo=None, vectors=None) -> WordInputs:
    inputs = WordInputs.without_words(config, elmo=elmo, vectors=vectors)
    inputs.read_vectors(sentences, vectors)
    return inputs


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "my.vec"
    path.write_text("the 1 2\nbank 3 4\nBank 5 6\nother 7 8\n", encoding="utf-8")
    return str(path)


def test_static_vectors_with_lower_case_for_want_of_better(vectors):
    inputs = inputs_for(InputConfig(vectors=vectors), SENTENCES)
    features = inputs([["The", "Bank", "BANK", "unknownword"], ["bank"]]).features_BWF
    assert features[0].tolist() == [[1, 2], [5, 6], [3, 4], [0, 0]]
    assert features[1].tolist() == [[3, 4], [0, 0], [0, 0], [0, 0]]
    assert not any(weight.requires_grad for weight in inputs.parameters())
    learning = inputs_for(InputConfig(vectors=vectors, train_vectors=True), SENTENCES)
    learning([["bank"]]).features_BWF.sum().backward()
    assert learning.vectors.weight.grad.abs().sum() == 2


def test_common_words_are_kept_for_text_that_comes_later(vectors, monkeypatch):
    assert inputs_for(InputConfig(vectors=vectors), [["other"]]).words == ["the", "bank", "Bank", "other"]
    monkeypatch.setattr("elmokit.tasks.network.inputs.COMMON_WORDS", 1)
    assert inputs_for(InputConfig(vectors=vectors), [["Other"]]).words == ["the", "other"]


def test_words_that_have_no_vector_are_not_remembered(vectors):
    inputs = inputs_for(InputConfig(vectors=vectors), SENTENCES)
    before = len(inputs._rows)
    inputs([[f"word{number}" for number in range(9)], ["THE"]])
    assert len(inputs._rows) == before


def test_static_vectors_beyond_float16_are_an_error(tmp_path):
    (tmp_path / "large.vec").write_text("the 70000 1\nbank 2 3\n", encoding="utf-8")
    config = InputConfig(vectors=str(tmp_path / "large.vec"))
    with pytest.raises(InputError, match=r"static vectors are kept in float16, .* their value 7e\+04: scale them"):
        inputs_for(config, SENTENCES)
    learning = inputs_for(replace(config, train_vectors=True), SENTENCES)  # in float32
    assert learning([["the"]]).features_BWF.tolist() == [[[70000, 1]]]


def test_layers_beyond_float16_are_an_error_without_a_store_too():
    broken = TaskElmo(Elmo.random(ElmoConfig.tiny(), num_mixes=0), "random", travels=True)
    with torch.no_grad():
        broken.elmo.encoder.projection.bias.fill_(1e6)
    inputs = WordInputs(InputConfig(elmo="random"), elmo=broken)
    with pytest.raises(InputError, match="layers of 'hello' are kept in float16, which cannot hold"):
        inputs([["hello"]])


def test_keyed_vectors_of_gensim():
    class KeyedVectors:
        index_to_key = ("bank", "the")
        vectors = np.eye(2, dtype=np.float32)

    inputs = inputs_for(InputConfig(character_filters=4), SENTENCES, vectors=KeyedVectors())
    assert inputs.dim == 2 + 4
    assert inputs([["bank"]]).features_BWF[0, 0, :2].tolist() == [1, 0]


@pytest.mark.parametrize("place", ["input", "output", "both"])
def test_elmo_where_it_is_asked_for(place, vectors, random_model):
    config = InputConfig(vectors=vectors, character_filters=8, elmo=str(random_model), elmo_at=place, elmo_dropout=0)
    inputs = inputs_for(config, SENTENCES, elmo=open_elmo(str(random_model)))
    batch = inputs(SENTENCES)
    expected = Embedder.from_pretrained(random_model).embed(SENTENCES, layers="average")
    assert batch.features_BWF.shape == (2, 3, inputs.dim)
    assert inputs.dim == 10 + 128 * (place != "output")
    assert inputs.output_dim == 128 * (place != "input")
    if place != "output":
        np.testing.assert_allclose(batch.features_BWF[0, :, 10:].detach(), expected[0], atol=2e-3)
    if place == "input":
        assert batch.output_BWE is None
        assert batch.join_elmo(torch.ones(2, 3, 5)).shape == (2, 3, 5)
    else:
        np.testing.assert_allclose(batch.output_BWE[0].detach(), expected[0], atol=2e-3)
        assert batch.join_elmo(torch.ones(2, 3, 5)).shape == (2, 3, 133)
    assert set(inputs.learned_mixes()) == {"both": {"input", "output"}}.get(place, {place})


def test_words_do_not_depend_on_their_company(vectors, random_model):
    config = InputConfig(vectors=vectors, character_filters=8, elmo=str(random_model))
    inputs = inputs_for(config, SENTENCES, elmo=open_elmo(str(random_model))).eval()
    together = inputs([*SENTENCES, []])
    alone = inputs(SENTENCES[1:])
    torch.testing.assert_close(together.features_BWF[1, :1], alone.features_BWF[0], atol=2e-3, rtol=0)
    assert together.mask_BW.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert not together.features_BWF[~together.mask_BW].any()
    assert together.lengths == [3, 1, 0]


LAYERS = [
    ("mix", [1 / 3] * 3, True),
    ("average", [1 / 3] * 3, False),
    ("top", [0, 0, 1], False),
    ("1", [0, 1, 0], False),
]


@pytest.mark.parametrize(("layers", "shares", "learns"), LAYERS)
def test_which_layers(layers, shares, learns, random_model):
    config = InputConfig(elmo=str(random_model), elmo_layers=layers, elmo_l2=0.5)
    inputs = WordInputs(config, elmo=open_elmo(str(random_model)))
    assert inputs.learned_mixes()["input"]["weights"] == pytest.approx(shares, abs=1e-6)
    assert inputs.input_mix.weights.requires_grad == learns
    with torch.no_grad():
        inputs.input_mix.weights.add_(2.0)
    assert torch.as_tensor(inputs.penalty()).item() == (0.5 * 3 * 4 if learns else 0)


def test_a_biLM_that_learns_is_part_of_the_model(random_model):
    config = InputConfig(elmo=str(random_model), tune_elmo=True)
    inputs = WordInputs(config, elmo=open_elmo(str(random_model), tunes=True))
    inputs(SENTENCES).features_BWF.sum().backward()
    assert all(weight.grad.any() for weight in inputs.tuned.bilm.parameters())
    frozen = WordInputs(InputConfig(elmo=str(random_model)), elmo=open_elmo(str(random_model)))
    assert [name for name, _ in frozen.named_parameters()] == ["input_mix.weights", "input_mix.gamma"]


WRONG = [
    ({"elmo_at": "side"}, "elmo_at is 'side'"),
    ({"elmo_layers": "middle"}, "elmo_layers is 'middle'"),
    ({"elmo_dropout": 1.0}, "elmo_dropout"),
    ({"elmo_l2": -1}, "elmo_l2"),
    ({"character_filters": -1}, "character_filters"),
    ({"character_filters": 0}, "something to know words by"),
    ({"character_filters": 0, "elmo": "x", "elmo_at": "output"}, "something to know words by"),
    ({"colour": 1}, "unknown fields \\['colour'\\]"),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_settings_that_cannot_be(values, message):
    with pytest.raises(ConfigError, match=message):
        build_from(InputConfig, {"character_filters": 8, **values}, "inputs")


def test_settings_survive_json():
    config = TaskConfig(InputConfig(character_filters=3, elmo="x", elmo_layers=2))
    assert build_from(TaskConfig, config.to_dict(), "config") == config
    assert InputConfig(character_filters=1, elmo="x", elmo_at="none").elmo is None
    with pytest.raises(ConfigError, match="should be an object"):
        build_from(TaskConfig, [], "config")


@pytest.mark.parametrize(
    "values", [{"epochs": 0}, {"share": 0}, {"schedule": "x"}, {"average": 1}, {"learning_rate": 0}, {"seed": -1}]
)
def test_trainings_that_cannot_be(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        TrainingConfig(**values)
