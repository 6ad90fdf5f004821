import numpy as np
import pytest
import torch

from elmokit.embed.layers import checked_layers, chosen_layers
from elmokit.errors import LayerError

LAYERS_LBWD = torch.arange(3 * 2 * 4 * 5, dtype=torch.float32).reshape(3, 2, 4, 5)


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
    assert torch.equal(chosen_layers(LAYERS_LBWD, "all", mix=None), LAYERS_LBWD.transpose(0, 1))
    assert torch.equal(chosen_layers(LAYERS_LBWD, "top", mix=None), LAYERS_LBWD[2])
    assert torch.equal(chosen_layers(LAYERS_LBWD, 1, mix=None), LAYERS_LBWD[1])
    assert torch.equal(chosen_layers(LAYERS_LBWD, "average", mix=None), LAYERS_LBWD.mean(0))


def test_the_mix_is_the_stored_one_and_else_the_average():
    weights_L, gamma = torch.tensor([0.0, 1.0, -1.0]), torch.tensor(2.0)
    share_L = weights_L.softmax(0)
    expected = 2 * sum(share_L[number] * LAYERS_LBWD[number] for number in range(3))
    assert torch.allclose(chosen_layers(LAYERS_LBWD, "mix", mix=(weights_L, gamma)), expected)
    assert torch.equal(chosen_layers(LAYERS_LBWD, "mix", mix=None), LAYERS_LBWD.mean(0))
