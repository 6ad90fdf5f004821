"""The two stacks: directions, residual, padding, state."""

import pytest
import torch

from elmokit.config import LstmConfig
from elmokit.nn.bilm import BiLM, BilmState

CONFIG = LstmConfig(num_layers=3, cell_dim=10, projection_dim=4)


@pytest.fixture
def bilm():
    torch.manual_seed(0)
    return BiLM(CONFIG).requires_grad_(False)


def test_padding_and_company_do_not_matter(bilm):
    words = torch.randn(3, 7, 4)
    layers, state = bilm(words, lengths=[7, 3, 5])
    for row, length in enumerate([7, 3, 5]):
        alone, alone_state = bilm(words[row : row + 1, :length], lengths=[length])
        torch.testing.assert_close(layers[:, row : row + 1, :length], alone, atol=1e-6, rtol=0)
        torch.testing.assert_close(state.cell[:, :, row], alone_state.cell[:, :, 0], atol=1e-6, rtol=0)
        assert not layers[1:, row, length:].any()


def test_backward_is_forward_on_the_reversed_sentence():
    torch.manual_seed(1)
    bilm = BiLM(CONFIG).requires_grad_(False)
    bilm.backward_layers.load_state_dict(bilm.forward_layers.state_dict())
    words = torch.randn(2, 6, 4)
    layers, _ = bilm(words, lengths=[6, 4])
    for row, length in enumerate([6, 4]):
        reversed_layers, _ = bilm(words[row : row + 1, :length].flip(1), lengths=[length])
        torch.testing.assert_close(layers[:, row, :length, 4:], reversed_layers[:, 0, :, :4].flip(1), atol=1e-6, rtol=0)


def test_directions_are_independent(bilm):
    words = torch.randn(1, 6, 4)
    layers, _ = bilm(words, lengths=[6])
    changed = words.clone()
    changed[0, 3] += 1
    after, _ = bilm(changed, lengths=[6])
    same = (layers == after).all(dim=-1)
    forward_same = (layers[..., :4] == after[..., :4]).all(-1)[:, 0]
    backward_same = (layers[..., 4:] == after[..., 4:]).all(-1)[:, 0]
    assert forward_same[1:, :3].all() and not forward_same[1:, 3:].any()
    assert backward_same[1:, 4:].all() and not backward_same[1:, :4].any()
    assert not same[0, 0, 3]


def test_residual_adds_the_input_outside_the_recurrence():
    torch.manual_seed(2)
    with_residual = BiLM(LstmConfig(num_layers=2, cell_dim=8, projection_dim=3)).requires_grad_(False)
    without = BiLM(LstmConfig(num_layers=2, cell_dim=8, projection_dim=3, residual=False)).requires_grad_(False)
    without.load_state_dict(with_residual.state_dict())
    words = torch.randn(2, 5, 3)
    layers, state = with_residual(words, lengths=[5, 5])
    plain, plain_state = without(words, lengths=[5, 5])
    torch.testing.assert_close(layers[1], plain[1])
    torch.testing.assert_close(layers[2], plain[2] + plain[1])
    torch.testing.assert_close(state.hidden, plain_state.hidden)


def test_state_continues_a_sentence_cut_in_two(bilm):
    words = torch.randn(1, 8, 4)
    whole, _ = bilm(words, lengths=[8])
    _, state = bilm(words[:, :3], lengths=[3])
    rest, _ = bilm(words[:, 3:], lengths=[5], state=state)
    torch.testing.assert_close(rest[1:2, ..., :4], whole[1:2, :, 3:, :4], atol=1e-6, rtol=0)


def test_a_row_without_words_keeps_its_state(bilm):
    start = BilmState(torch.randn(3, 2, 3, 4), torch.randn(3, 2, 3, 10))
    layers, state = bilm(torch.randn(3, 4, 4), lengths=[2, 0, 4], state=start)
    assert torch.equal(state.hidden[:, :, 1], start.hidden[:, :, 1])
    assert torch.equal(state.cell[:, :, 1], start.cell[:, :, 1])
    assert not layers[1:, 1].any()
    assert not torch.equal(state.cell[:, :, 0], start.cell[:, :, 0])


def test_an_empty_batch_and_empty_sentences_have_shapes(bilm):
    assert bilm(torch.randn(0, 4, 4), lengths=[])[0].shape == (4, 0, 4, 8)
    layers, state = bilm(torch.randn(2, 0, 4), lengths=[0, 0])
    assert layers.shape == (4, 2, 0, 8)
    assert not state.cell.any()


def test_state_rows_grow_with_zeros_and_repeat():
    state = BilmState(torch.ones(1, 2, 2, 3), torch.ones(1, 2, 2, 5))
    grown = state.resize(4)
    assert grown.hidden.shape == (1, 2, 4, 3) and grown.cell[:, :, 2:].abs().sum() == 0
    assert state.resize(1).cell.shape == (1, 2, 1, 5)
    assert state.resize(1).repeat(7).num_rows == 7


def test_gradients_reach_every_weight_and_the_state():
    torch.manual_seed(3)
    bilm = BiLM(CONFIG)
    start = BilmState(torch.randn(3, 2, 2, 4, requires_grad=True), torch.randn(3, 2, 2, 10, requires_grad=True))
    layers, _ = bilm(torch.randn(2, 5, 4), lengths=[5, 2], state=start)
    layers.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in bilm.parameters())
    assert start.hidden.grad is not None and start.cell.grad is not None
