"""A model in the coordinates of its output layer predicts what it did; its vectors are the old ones, stretched."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from elmokit.config import ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import ConfigError
from elmokit.io import Checkpoint
from elmokit.model import CANONICAL_SENTENCES, Elmo
from elmokit.pretrain.basis import (
    LEAST_VARIANCE,
    MOST_TIMES,
    average_models,
    change_basis,
    level_words,
    shorten_directions,
)

SENTENCES = [["a", "river", "bank"], ["banks", "lend", "money", "to", "us"], ["x"]]


def a_model(num_words=300, **options):
    torch.manual_seed(1)
    options = {
        "num_layers": 3,
        "cell_dim": 24,
        "projection_dim": 8,
        "cell_clip": 2.0,
        "projection_clip": None,
    } | options
    config = dataclasses.replace(ElmoConfig.tiny(), lstm=LstmConfig(**options))
    elmo = Elmo.random(config)
    stretched_PP = torch.randn(config.lstm.projection_dim, config.lstm.projection_dim)
    weight = torch.randn(num_words, config.lstm.projection_dim) @ stretched_PP + 1.0
    return elmo, {"softmax.weight": weight, "softmax.bias": torch.randn(num_words)}


def layers_of(elmo, tensors):
    """All layers (L+1, N, 2P) of the sentences' words, one after another."""
    model = Elmo.from_checkpoint(Checkpoint(elmo.config, dict(tensors)))
    with torch.no_grad():
        output = model(model.word_ids(SENTENCES))
    return output.layers[:, output.mask]


def halves_of(layers_LND):
    """Forward and backward outputs, which share the output layer."""
    return torch.cat(layers_LND.double().chunk(2, dim=-1), dim=1)


def logits_of(outputs_NP, softmax):
    return outputs_NP @ softmax["softmax.weight"].double().T + softmax["softmax.bias"]


@pytest.mark.parametrize("residual", [True, False])
def test_predictions_stay_and_products_of_vectors_are_those_of_logits(residual):
    elmo, softmax = a_model(residual=residual)
    tensors = elmo.to_checkpoint().tensors
    new_tensors, new_softmax = change_basis(elmo.config.lstm, tensors, softmax)
    old, new = layers_of(elmo, tensors), layers_of(elmo, new_tensors)
    torch.testing.assert_close(new[0], old[0])  # words keep their coordinates
    assert not torch.allclose(new[1:], old[1:], rtol=0.1, atol=1e-4)
    for before, after in zip(halves_of(old[1:]), halves_of(new[1:]), strict=True):
        torch.testing.assert_close(logits_of(after, new_softmax), logits_of(before, softmax), rtol=1e-5, atol=1e-5)
    outputs = halves_of(new)[-1]
    centred_NV = logits_of(outputs, new_softmax) - softmax["softmax.bias"]
    centred_NV -= outputs @ new_softmax["softmax.weight"].double().mean(dim=0)[:, None]
    products_NN = centred_NV @ centred_NV.T
    torch.testing.assert_close(products_NN / products_NN[0, 0], outputs @ outputs.T / (outputs[0] @ outputs[0]))


def test_the_output_layer_is_the_same_all_round():
    elmo, softmax = a_model()
    _, new = change_basis(elmo.config.lstm, elmo.to_checkpoint().tensors, softmax)
    variance_PP = torch.cov(new["softmax.weight"].double().T, correction=0)
    torch.testing.assert_close(variance_PP, variance_PP[0, 0] * torch.eye(8, dtype=torch.double), atol=1e-5, rtol=0)
    assert torch.equal(new["softmax.bias"], softmax["softmax.bias"])


@pytest.mark.parametrize("num_words", [1, 3])
def test_fewer_words_than_coordinates_stretch_nothing_without_end(num_words):
    elmo, softmax = a_model(num_words=num_words)
    tensors = elmo.to_checkpoint().tensors
    new_tensors, new_softmax = change_basis(elmo.config.lstm, tensors, softmax)
    largest = max(float(new_tensors[name].abs().max() / tensors[name].abs().max()) for name in tensors)
    assert largest < 8 / LEAST_VARIANCE**0.5
    old, new = (halves_of(layers_of(elmo, part))[-1] for part in (tensors, new_tensors))
    torch.testing.assert_close(logits_of(new, new_softmax), logits_of(old, softmax), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"projection_clip": 3.0}, {"cell_dim": 8, "projection_dim": 8}], ids=["clipped", "no projection"]
)
def test_a_model_whose_coordinates_are_given_is_left_alone(options):
    elmo, softmax = a_model(**options)
    tensors = elmo.to_checkpoint().tensors
    same_tensors, same_softmax = change_basis(elmo.config.lstm, tensors, softmax)
    assert all(torch.equal(same_tensors[name], value) for name, value in tensors.items())
    assert torch.equal(same_softmax["softmax.weight"], softmax["softmax.weight"])
    same_tensors, _ = shorten_directions(elmo.to_checkpoint(), softmax, SENTENCES)
    assert all(torch.equal(same_tensors[name], value) for name, value in tensors.items())


def test_no_direction_of_the_outputs_is_much_longer_than_the_others_and_predictions_stay():
    elmo, softmax = a_model()
    checkpoint = elmo.to_checkpoint()
    # Outputs that lie mostly along one direction.
    along_P = torch.tensor([1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 0.0, 3.0])
    for name, value in checkpoint.tensors.items():
        if name.endswith("projection_weight"):
            value += value.norm(dim=1, keepdim=True) * along_P
    new_tensors, new_softmax = shorten_directions(checkpoint, softmax, SENTENCES)
    old, new = (layers_of(elmo, tensors) for tensors in (checkpoint.tensors, new_tensors))
    torch.testing.assert_close(new[0], old[0])  # words keep their coordinates
    for before, after in zip(halves_of(old[1:]), halves_of(new[1:]), strict=True):
        torch.testing.assert_close(logits_of(after, new_softmax), logits_of(before, softmax), rtol=1e-4, atol=1e-4)
    old_P, new_P = (
        torch.linalg.eigvalsh(each.T @ each) for each in (halves_of(x[1:]).flatten(0, 1) for x in (old, new))
    )
    assert old_P[-1] > 0.9 * old_P.sum()
    assert float(new_P[-1]) == pytest.approx(MOST_TIMES / len(along_P) * float(old_P.sum()), rel=1e-4)
    torch.testing.assert_close(new_P[:-1], old_P[:-1], rtol=1e-3, atol=1e-6)  # and the others stay


def test_directions_of_equal_length_are_left_alone(monkeypatch):
    elmo, softmax = a_model()
    monkeypatch.setattr("elmokit.pretrain.basis.MOST_TIMES", 8.0)  # of eight directions: none can have more
    tensors, same_softmax = shorten_directions(elmo.to_checkpoint(), softmax, SENTENCES)
    for name, value in elmo.to_checkpoint().tensors.items():
        torch.testing.assert_close(tensors[name], value)
    torch.testing.assert_close(same_softmax["softmax.weight"], softmax["softmax.weight"])


def test_words_are_levelled_and_nothing_above_them_changes():
    elmo, _ = a_model(projection_clip=1.5)  # clips of outputs do not see layer 0
    words = [f"{letter}{other}" for letter in "abcdefgh" for other in "river"]
    checkpoint = elmo.to_checkpoint()
    checkpoint.tensors["encoder.projection.bias"] += 5
    old, new = (layers_of(elmo, tensors) for tensors in (checkpoint.tensors, level_words(checkpoint, words)))
    torch.testing.assert_close(new[1:], old[1:], rtol=1e-4, atol=1e-5)
    levelled = Elmo.from_checkpoint(Checkpoint(elmo.config, level_words(checkpoint, words)))
    vectors_NP = levelled.encode_words(levelled.word_ids([[word] for word in words])[:, 0])
    torch.testing.assert_close(vectors_NP.mean(dim=0), torch.zeros(8), rtol=0, atol=1e-5)
    with torch.no_grad():
        read = levelled(levelled.word_ids([sentence.split() for sentence in CANONICAL_SENTENCES]))
    above = read.layers[1:, read.mask].norm(dim=-1).mean()
    torch.testing.assert_close(vectors_NP.norm(dim=1).mean() * 2**0.5, above, rtol=1e-4, atol=1e-5)


def test_words_of_a_table_stay_as_they_are():
    elmo = Elmo.random(ElmoConfig(None, WordConfig(12, 8), LstmConfig(1, 6, 8), projects_words=False))
    tensors = elmo.to_checkpoint().tensors
    levelled = level_words(elmo.to_checkpoint(), ["a", "b"])
    assert all(torch.equal(levelled[name], value) for name, value in tensors.items())


def in_other_coordinates(checkpoint):
    """The same predictions: outputs changed as when a model is saved, layer 0 twice as long."""
    tensors, softmax = change_basis(checkpoint.config.lstm, checkpoint.tensors, checkpoint.softmax)
    for part in ("weight", "bias"):
        tensors[f"encoder.projection.{part}"] = tensors[f"encoder.projection.{part}"] * 2
    for direction in ("forward", "backward"):
        name = f"bilm.{direction}_layers.0.input_weight"
        tensors[name] = tensors[name] / 2
    return dataclasses.replace(checkpoint, tensors=tensors, softmax=softmax)


def a_checkpoint(**options):
    elmo, softmax = a_model(**options)
    words = [f"word{number}" for number in range(len(softmax["softmax.bias"]))]
    return dataclasses.replace(elmo.to_checkpoint(), softmax=softmax, output_words=words)


def test_the_mean_with_the_same_model_in_other_coordinates_is_that_model():
    first = a_checkpoint()
    second = in_other_coordinates(first)
    assert not torch.allclose(second.softmax["softmax.weight"], first.softmax["softmax.weight"], rtol=0.1)
    tensors, softmax = average_models(first, second)
    assert tensors.keys() == first.tensors.keys()
    for name, value in {**first.tensors, **first.softmax}.items():
        torch.testing.assert_close({**tensors, **softmax}[name], value, rtol=1e-4, atol=1e-5)


def test_the_mean_lies_half_way_in_the_coordinates_of_the_first():
    first, trained_on = a_checkpoint(), a_checkpoint()
    trained_on.tensors = {name: value + 0.01 * torch.randn_like(value) for name, value in first.tensors.items()}
    tensors, _ = average_models(first, in_other_coordinates(trained_on))
    for name in tensors:
        half = (first.tensors[name] + trained_on.tensors[name]) / 2
        # A factor is fitted between the two layers 0, so it is only nearly 2.
        is_fitted = name.startswith("encoder.projection") or "layers.0.input" in name
        rtol, atol = (0.02, 1e-3) if is_fitted else (1e-4, 1e-5)
        torch.testing.assert_close(tensors[name], half, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "options", [{"projection_clip": 3.0}, {"cell_dim": 8, "projection_dim": 8}], ids=["clipped", "no projection"]
)
def test_where_coordinates_are_given_the_mean_is_that_of_the_weights(options):
    first, second = a_checkpoint(**options), a_checkpoint(**options)
    second.softmax = {name: value + 1 for name, value in first.softmax.items()}
    tensors, softmax = average_models(first, second)
    for name, value in first.tensors.items():
        torch.testing.assert_close(tensors[name], value)
    torch.testing.assert_close(softmax["softmax.weight"], first.softmax["softmax.weight"] + 0.5)


def test_models_of_another_shape_or_vocabulary_have_no_mean():
    first = a_checkpoint()
    with pytest.raises(ConfigError, match="not the same model"):
        average_models(first, a_checkpoint(num_layers=2))
    with pytest.raises(ConfigError, match="not the same vocabulary of the output layer"):
        average_models(first, a_checkpoint(num_words=20))
    with pytest.raises(ConfigError, match="an output layer of 3 words"):
        average_models(a_checkpoint(num_words=3), a_checkpoint(num_words=3))
    with pytest.raises(ConfigError, match="output layers"):
        average_models(first, dataclasses.replace(first, softmax=None))
