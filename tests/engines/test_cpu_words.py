"""Words encoded in C++ against the reference: equal, the same bits in any company, fresh after a change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.engines import choice, why_no_library
from elmokit.nn.operations import find_engine
from elmokit.nn.word_encoder import WordEncoder

pytestmark = pytest.mark.skipif(why_no_library() is not None, reason="no C++ kernels here")

FILTERS = ((1, 3), (2, 70), (5, 64), (3, 16))


def encoder_of(filters=FILTERS, *, activation="relu", num_highways=2, columns=12, words=None):
    torch.manual_seed(1)
    characters = CharConfig(
        scheme="unicode",
        max_length=columns,
        num_symbols=20,
        dim=5,
        filters=filters,
        activation=activation,
        num_highways=num_highways,
    )
    config = ElmoConfig(characters, words, lstm=LstmConfig(cell_dim=16, projection_dim=8), projects_words=True)
    return WordEncoder(config).requires_grad_(False)


def in_torch(encoder, ids):
    """Where something is learned, torch computes."""
    encoder.requires_grad_(True)
    vectors = encoder(ids)
    encoder.requires_grad_(False)
    assert vectors.requires_grad
    return vectors.detach()


def assert_near(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@settings(deadline=None, max_examples=40)
@given(
    filters=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 140)), min_size=1, max_size=4),
    activation=st.sampled_from(["relu", "tanh"]),
    num_highways=st.integers(0, 2),
    rows=st.lists(st.lists(st.integers(0, 3) | st.integers(0, 20), min_size=12, max_size=12), min_size=1, max_size=40),
)
def test_equal_to_torch_for_any_filters_and_ids(filters, activation, num_highways, rows):
    encoder = encoder_of(filters, activation=activation, num_highways=num_highways)
    ids = torch.tensor(rows)
    assert encoder.is_batch_invariant
    assert_near(encoder(ids), in_torch(encoder, ids))


def test_an_unknown_activation_is_not_taken_for_tanh():
    weights = encoder_of().weights()._replace(activation="gelu")
    with pytest.raises(KeyError, match="gelu"):
        find_engine("words", "cpu")(weights, [torch.ones(2, 12, dtype=torch.int64)])


def test_words_and_characters_side_by_side():
    encoder = encoder_of(words=WordConfig(num_words=9, dim=6))
    ids = torch.cat([torch.randint(0, 10, (7, 1)), torch.randint(0, 21, (7, 12))], dim=1)
    assert_near(encoder(ids), in_torch(encoder, ids))


def test_the_published_sizes():
    torch.manual_seed(0)
    encoder = WordEncoder(ElmoConfig.small()).requires_grad_(False)
    ids = torch.full((20, 50), 261)
    for row, length in enumerate(range(3, 43, 2)):
        ids[row, :length] = torch.randint(1, 260, (length,))
    assert_near(encoder(ids), in_torch(encoder, ids))


def test_no_words():
    assert encoder_of()(torch.zeros(0, 12, dtype=torch.int64)).shape == (0, 8)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_word_has_the_same_bits_in_any_company(precision, num_threads):
    encoder, ids = encoder_of(), torch.randint(0, 21, (700, 12))
    encoder.precision = precision
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        together = encoder(ids)
        for some in (slice(0, 1), slice(5, 12), slice(100, 171), slice(3, 600)):
            assert torch.equal(encoder(ids[some]), together[some])
    finally:
        torch.set_num_threads(before)


def test_int8_is_near():
    encoder, ids = encoder_of(), torch.randint(0, 21, (50, 12))
    expected = encoder(ids)
    encoder.precision = "int8"
    error = (encoder(ids) - expected).norm() / expected.norm()
    assert 0 < error < 0.03


def test_a_change_of_the_weights_is_seen():
    encoder, ids = encoder_of(), torch.randint(0, 21, (5, 12))
    characters = encoder.characters
    encoder(ids)
    for weight in (
        characters.embedding,
        characters.convolutions[1].weight,
        characters.convolutions[0].bias,
        characters.highways[0].gate.weight,
        encoder.projection.bias,
    ):
        before = encoder(ids)
        weight.mul_(-2).add_(0.5)
        assert not torch.allclose(encoder(ids), before, atol=1e-3)
        assert_near(encoder(ids), in_torch(encoder, ids))


def test_tables_made_under_autocast_are_whole():
    encoder, ids = encoder_of(), torch.randint(0, 21, (5, 12))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = encoder(ids)
    assert torch.equal(encoder(ids), under)


def test_too_large_an_alphabet_is_left_to_torch(monkeypatch):
    encoder, ids = encoder_of(), torch.randint(0, 21, (5, 12))
    expected = encoder(ids)
    monkeypatch.setattr(choice, "TABLE_BYTES", 1000)
    assert not encoder.is_batch_invariant
    assert_near(encoder(ids), expected)


@pytest.mark.parametrize("wrong", [-1, 21])
def test_an_id_that_is_no_symbol_is_refused(wrong):
    with pytest.raises(IndexError, match=r"expected 0 to 20"):
        encoder_of()(torch.full((2, 12), wrong))


def test_not_a_number_stays_one():
    encoder = encoder_of(num_highways=0)
    encoder.characters.embedding[3] = float("nan")
    vectors = encoder.characters(torch.tensor([[4] + [2] * 11, [1] * 12]))
    assert vectors[0].isnan().all() and not vectors[1].isnan().any()
