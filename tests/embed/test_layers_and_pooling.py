import numpy as np
import pytest
import torch

from elmokit.embed.layers import check_layers, check_pooling, choose_layers, pool_words
from elmokit.errors import InputError, LayerError
from elmokit.nn.scalar_mix import ScalarMix

WORDS_WD = np.array([[1, 2, 3, 4], [5, 0, 7, 0]], np.float32)
LAYERS = list(torch.arange(3 * 4 * 5, dtype=torch.float32).reshape(3, 4, 5))


def test_names_and_numbers_that_exist_pass():
    assert [check_layers(layers, 3) for layers in ("average", "top", "all", "mix", 0, np.int64(2))] == [
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
        check_layers(layers, 3)


@pytest.mark.parametrize("layers", ["middle", "0", None, 1.5])
def test_what_is_no_layer_is_refused(layers):
    with pytest.raises(LayerError, match="asked for layers="):
        check_layers(layers, 3)


def test_each_choice():
    assert all(map(torch.equal, choose_layers(LAYERS, "all", mix=None), LAYERS))
    for choice, expected in (("top", LAYERS[2]), (1, LAYERS[1]), ("average", torch.stack(LAYERS).mean(0))):
        [found] = choose_layers(LAYERS, choice, mix=None)
        assert torch.equal(found, expected)


def test_a_sum_is_made_in_float32_and_leaves_its_layers_alone():
    halves = [layer.bfloat16() for layer in LAYERS]
    [found] = choose_layers(halves, "average", mix=None)
    assert found.dtype == torch.float32
    assert torch.equal(halves[0], LAYERS[0].bfloat16())
    [again] = choose_layers(LAYERS, "average", mix=None)
    assert torch.equal(LAYERS[0], again - again + torch.arange(20.0).reshape(4, 5))


def test_the_mix_is_the_stored_one_and_else_the_average():
    weights_L = torch.tensor([0.0, 1.0, -1.0])
    share_L = weights_L.softmax(0)
    expected = 2 * sum(share_L[number] * LAYERS[number] for number in range(3))
    [found] = choose_layers(LAYERS, "mix", mix=ScalarMix(3, weights=weights_L.tolist(), gamma=2.0, trainable=False))
    assert torch.allclose(found, expected)
    [found] = choose_layers(LAYERS, "mix", mix=None)
    assert torch.equal(found, torch.stack(LAYERS).mean(0))


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [3, 1, 5, 2]), ("max", [5, 2, 7, 4]), ("first_last", [5, 0, 3, 4])]
)
def test_pooling_over_words(pooling, expected):
    assert pool_words(WORDS_WD, pooling).tolist() == expected
    assert pool_words(np.stack([WORDS_WD, -WORDS_WD]), pooling).shape == (2, 4)


@pytest.mark.parametrize("pooling", ["mean", "max", "first_last"])
def test_a_sentence_without_words_pools_to_zeros(pooling):
    assert pool_words(np.zeros((0, 4), np.float32), pooling).tolist() == [0, 0, 0, 0]
    assert pool_words(np.zeros((3, 0, 4), np.float32), pooling).shape == (3, 4)


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InputError, match="'mean', 'max', 'first_last'"):
        check_pooling("median")
