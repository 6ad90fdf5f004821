import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.errors import ConfigError
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_rows_do_not_see_their_padding(kind):
    torch.manual_seed(0)
    layer = BiRecurrent(4, 3, kind=kind, num_layers=2)
    words = torch.randn(3, 6, 4)
    together = layer(words, [2, 6, 1])
    for row, length in enumerate([2, 6, 1]):
        alone = layer(words[row : row + 1, :length], [length])
        torch.testing.assert_close(together[row, :length], alone[0], atol=1e-6, rtol=1e-5)
        assert not together[row, length:].any()
    assert together.shape[2] == layer.output_dim == 6


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_equal_to_packed_rows(kind):
    """Values and gradients of torch's own bidirectional layer over packed rows."""
    torch.manual_seed(0)
    layer, lengths = BiRecurrent(4, 3, kind=kind), [2, 6, 1]
    theirs = (nn.LSTM if kind == "lstm" else nn.GRU)(4, 3, bidirectional=True, batch_first=True)
    ours = layer.layers[0]
    for name, weight in theirs.named_parameters():
        direction = ours.backwards if name.endswith("_reverse") else ours.onwards
        weight.data.copy_(getattr(direction, name.removesuffix("_reverse")))
    words, others = (torch.randn(3, 6, 4, generator=torch.manual_seed(1), requires_grad=True) for _ in range(2))
    packed = pack_padded_sequence(others, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    found = layer(words, lengths)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    upstream = torch.randn_like(expected)
    found.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(words.grad, others.grad, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(ours.backwards.weight_hh_l0.grad, theirs.weight_hh_l0_reverse.grad, atol=1e-6, rtol=1e-5)


def test_first_weights():
    lstm, gru = BiRecurrent(4, 3).layers[0], BiRecurrent(4, 3, kind="gru").layers[0]
    for direction in (lstm.onwards, lstm.backwards):
        assert direction.bias_ih_l0.tolist() == [0] * 3 + [1] * 3 + [0] * 6
    assert not gru.onwards.bias_ih_l0.any()
    for gate in (*lstm.backwards.weight_hh_l0.chunk(4), *gru.onwards.weight_hh_l0.chunk(3)):
        torch.testing.assert_close(gate @ gate.T, torch.eye(3), atol=1e-5, rtol=0)


def test_dropout_is_between_layers_only():
    torch.manual_seed(0)
    words = torch.randn(1, 3, 4)
    one, two = BiRecurrent(4, 3, dropout=0.5), BiRecurrent(4, 3, num_layers=2, dropout=0.5)
    assert torch.equal(one(words, [3]), one(words, [3]))
    assert not torch.equal(two(words, [3]), two(words, [3]))


def test_rows_without_words():
    assert BiRecurrent(4, 3)(torch.zeros(2, 2, 4), [0, 2]).shape == (2, 2, 6)


def test_dropout_drops_the_same_features_of_a_whole_row():
    torch.manual_seed(0)
    dropped = VariationalDropout(0.5)(torch.ones(8, 5, 64))
    assert (dropped == dropped[:, :1]).all()
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert not (dropped[0] == dropped[1]).all()


def test_dropout_does_nothing_outside_training():
    words = torch.randn(2, 3, 4)
    assert VariationalDropout(0.5).eval()(words) is words
    assert VariationalDropout(0.0)(words) is words
    assert "rate=0.5" in repr(VariationalDropout(0.5))


def test_settings_that_cannot_be():
    with pytest.raises(ConfigError, match="lstm or gru, not 'rnn'"):
        BiRecurrent(4, 3, kind="rnn")
    with pytest.raises(ConfigError, match="dropout is 1"):
        VariationalDropout(1)
