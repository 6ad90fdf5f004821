"""Characters to word vectors: trimming, distinct words, highways, word tables."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.nn import word_encoder
from elmokit.nn.word_encoder import REFERENCE, Highway, WordEncoder, count_needed_columns, find_distinct_rows

CONFIG = ElmoConfig(
    CharConfig(dim=3, filters=((1, 2), (3, 4), (5, 6)), num_highways=2), lstm=LstmConfig(cell_dim=8, projection_dim=4)
)


def ids_of_lengths(lengths, columns=50, padding=261):
    ids = torch.full((len(lengths), columns), padding)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(1, 260, (length,))
    return ids


def encoder_of_whole_numbers():
    """Sums of whole numbers are exact in any order, so a difference is a wrong window and never rounding."""
    torch.manual_seed(0)
    encoder = WordEncoder(CONFIG).requires_grad_(False)
    for parameter in (encoder.characters.embedding, *(each.weight for each in encoder.characters.convolutions)):
        parameter.copy_(torch.randint(-9, 10, parameter.shape))
    return encoder


def untrimmed(encoder, ids):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_encoder, "count_needed_columns", lambda ids_NC, widest: ids_NC.shape[1])
        return encoder(ids)


def test_trimming_changes_nothing():
    encoder = encoder_of_whole_numbers()
    for lengths in ([3, 4], [50, 3], [44], [46, 2], [3]):
        ids = ids_of_lengths(lengths)
        assert count_needed_columns(ids, 5) == min(50, max(lengths) + 5)
        assert (encoder(ids) - untrimmed(encoder, ids)).abs().max() == 0.0


@pytest.mark.parametrize("words", [None, WordConfig(num_words=7, dim=4)])
def test_ids_may_be_trimmed_beforehand(words):
    config = replace(CONFIG, words=words)
    encoder, ids = WordEncoder(config).requires_grad_(False), ids_of_lengths([4, 9])
    if words is not None:
        ids = torch.cat([torch.tensor([[3], [7]]), ids], dim=1)
    trimmed = encoder.trim(ids)
    assert trimmed.shape == (2, 9 + 5 + (words is not None))
    assert torch.equal(encoder(trimmed, trim=False), encoder(ids))
    alone = WordEncoder(ElmoConfig(None, WordConfig(num_words=7, dim=4), CONFIG.lstm))
    assert alone.trim(ids[:, :1]).shape == (2, 1)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 3), min_size=12, max_size=12), min_size=1, max_size=4))
def test_trimming_is_exact_for_any_ids(rows):
    encoder, ids = encoder_of_whole_numbers(), torch.tensor(rows)
    assert (encoder(ids) - untrimmed(encoder, ids)).abs().max() == 0.0


def test_padding_takes_part_and_is_not_masked():
    torch.manual_seed(0)
    encoder = WordEncoder(CONFIG).requires_grad_(False)
    ids = ids_of_lengths([4])
    before = encoder(ids)
    encoder.characters.embedding[260] += 1
    assert not torch.allclose(encoder(ids), before, atol=1e-3)


def test_tanh_and_no_highways_and_no_projection():
    config = ElmoConfig(
        CharConfig(dim=3, filters=((2, 4),), activation="tanh", num_highways=0),
        lstm=LstmConfig(cell_dim=8, projection_dim=4),
        projects_words=False,
    )
    encoder = WordEncoder(config).requires_grad_(False)
    vectors = encoder(ids_of_lengths([3, 9]))
    assert vectors.shape == (2, 4) and vectors.abs().max() < 1


def test_an_unknown_activation_is_not_taken_for_tanh():
    weights = WordEncoder(CONFIG).requires_grad_(False).weights()
    with pytest.raises(KeyError, match="gelu"):
        word_encoder.encode(weights._replace(activation="gelu"), [ids_of_lengths([3, 9])])


def test_highway_is_the_formula():
    torch.manual_seed(0)
    highway = Highway(6).requires_grad_(False)
    x = torch.randn(5, 6)
    gate = torch.sigmoid(x @ highway.gate.weight.T + highway.gate.bias)
    expected = gate * torch.relu(x @ highway.transform.weight.T + highway.transform.bias) + (1 - gate) * x
    torch.testing.assert_close(REFERENCE.pass_highway(x, *highway.weights()), expected)


def test_word_table_beside_and_instead_of_characters():
    words = WordConfig(num_words=7, dim=4)
    alone = WordEncoder(ElmoConfig(None, words, LstmConfig(cell_dim=8, projection_dim=4), projects_words=False))
    ids = torch.tensor([[0], [1], [7]])
    vectors = alone(ids)
    assert not vectors[0].any()
    assert torch.equal(vectors[1:], alone.words.embedding[[0, 6]])
    both = WordEncoder(ElmoConfig(CONFIG.characters, words, CONFIG.lstm))
    mixed_ids = torch.cat([ids, ids_of_lengths([3, 4, 5])], dim=1)
    table = torch.cat([torch.zeros(1, 4), both.words.embedding])
    features = torch.cat([table[ids[:, 0]], both.characters(mixed_ids[:, 1:])], dim=1)
    torch.testing.assert_close(both(mixed_ids), both.projection(features))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), max_size=30))
def test_distinct_rows_rebuild_the_rows(rows):
    ids = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)
    distinct, numbers = find_distinct_rows(ids)
    assert torch.equal(distinct[numbers], ids)
    assert len(distinct) == len({tuple(row) for row in rows})


def test_distinct_rows_survive_a_collision(monkeypatch):
    zeros = lambda *args, **kwargs: torch.zeros(3, dtype=torch.int64)  # noqa: E731
    monkeypatch.setattr(torch, "randint", zeros)  # every factor becomes 1: rows with equal sums collide
    ids = torch.tensor([[1, 2, 3], [3, 2, 1], [1, 2, 3]])
    distinct, numbers = find_distinct_rows(ids)
    assert len(distinct) == 2 and torch.equal(distinct[numbers], ids)


def test_blocks_of_different_widths_are_one_batch():
    encoder = WordEncoder(CONFIG)
    ids = torch.randint(1, 200, (5, 50), generator=torch.Generator().manual_seed(0))
    ids[:3, 9:] = 261  # three short words
    found = encoder([ids[:3, :16], ids[3:]], trim=False)
    torch.testing.assert_close(found, encoder(ids), atol=1e-6, rtol=0)


def test_parameters_that_were_replaced_or_parametrised_are_found():
    encoder = WordEncoder(CONFIG)
    projection = encoder.projection
    projection.bias = nn.Parameter(torch.full_like(projection.bias, 2.0))
    parametrize.register_parametrization(projection, "weight", Doubled())
    weight, bias = encoder.weights().projection
    assert bias is projection.bias
    assert torch.equal(weight, 2 * projection.parametrizations.weight.original)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight
