import numpy as np
import pytest
import torch

from elmokit.embed.layers import checked_layers, chosen_layers
from elmokit.errors import LayerError

LAYERS = list(torch.arange(3 * 4 * 5, dtype=torch.float32).reshape(3, 4, 5))


def test_names_and_numbers_that_exist_pass():
    assert [checked_layers(layers, 3) for layers in ("average", "top", "all", "mix", 0, np.int64(2))] == [
        "average",
        "top",
        "all",
        "mix",
        0,
        2,
    ]


@pytest.mark.parametrize("layers", [3, -1, True, 99])
def test_a_layer_the_model_lacks_is_refused(layers):
    with pytest.raises(LayerError, match=r"this model has layers 0–2 \(0 is the character CNN\)"):
        checked_layers(layers, 3)


@pytest.mark.parametrize("layers", ["middle", "0", None, 1.5])
def test_what_is_no_layer_is_refused(layers):
    with pytest.raises(LayerError, match="asked for layers="):
        checked_layers(layers, 3)


def test_each_choice():
    assert all(map(torch.equal, chosen_layers(LAYERS, "all", mix=None), LAYERS))
    for choice, expected in (("top", LAYERS[2]), (1, LAYERS[1]), ("average", torch.stack(LAYERS).mean(0))):
        [found] = chosen_layers(LAYERS, choice, mix=None)
        assert torch.equal(found, expected)


def test_a_sum_is_made_in_float32_and_leaves_its_layers_alone():
    halves = [layer.bfloat16() for layer in LAYERS]
    [found] = chosen_layers(halves, "average", mix=None)
    assert found.dtype == torch.float32
    assert torch.equal(halves[0], LAYERS[0].bfloat16())
    [again] = chosen_layers(LAYERS, "average", mix=None)
    assert torch.equal(LAYERS[0], again - again + torch.arange(20.0).reshape(4, 5))


def test_the_mix_is_the_stored_one_and_else_the_average():
    weights_L, gamma = torch.tensor([0.0, 1.0, -1.0]), torch.tensor(2.0)
    share_L = weights_L.softmax(0)
    expected = 2 * sum(share_L[number] * LAYERS[number] for number in range(3))
    [found] = chosen_layers(LAYERS, "mix", mix=(weights_L, gamma))
    assert torch.allclose(found, expected)
    [found] = chosen_layers(LAYERS, "mix", mix=None)
    assert torch.equal(found, torch.stack(LAYERS).mean(0))
