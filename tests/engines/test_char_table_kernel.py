"""The table of characters with a faster backward pass, run by Triton's interpreter on a CPU, against torch's."""

import pytest
import torch
from torch.nn import functional as F

from elmokit.config import CharConfig
from elmokit.nn import word_encoder
from elmokit.nn.operations import Choice
from elmokit.nn.word_encoder import CharCnn

char_table = pytest.importorskip("elmokit.engines.words.char_table", reason="Triton is not installed")
pytestmark = pytest.mark.usefixtures("interpreted_triton")


def gradient(function, ids, table):
    table = table.detach().requires_grad_()
    vectors = function(ids, table)
    upstream = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1)).to(vectors.dtype)
    (found,) = torch.autograd.grad(vectors, table, upstream)
    return vectors.detach(), found


@pytest.mark.parametrize(
    ("shape", "symbols", "dim"), [((7, 9), 20, 16), ((300, 5), 263, 16), ((1, 1), 3, 5), ((0, 4), 8, 16)]
)
def test_same_vectors_and_gradients_as_torch(shape, symbols, dim, monkeypatch):
    monkeypatch.setattr(char_table, "PROGRAMS", 4)
    generator = torch.Generator().manual_seed(0)
    ids, table = torch.randint(0, symbols, shape, generator=generator), torch.randn(symbols, dim, generator=generator)
    ids[..., shape[1] // 2 :] = symbols - 1  # padding
    found, expected = gradient(char_table.look_up, ids, table), gradient(F.embedding, ids, table)
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)


def test_sums_are_float32_whatever_the_vectors_are():
    ids, table = torch.zeros(4096, dtype=torch.int64), torch.zeros(2, 16, dtype=torch.bfloat16, requires_grad=True)
    char_table.look_up(ids, table).sum().backward()
    assert table.grad is not None and table.grad[0].tolist() == [4096.0] * 16  # bfloat16 alone would stop at 256


def test_wide_vectors_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(char_table._LookUp, "apply", None)
    table = torch.randn(4, 100, requires_grad=True)
    assert torch.equal(char_table.look_up(torch.tensor([1, 3]), table), table[[1, 3]])


def test_the_encoder_learns_the_same_with_it(monkeypatch):
    encoder = CharCnn(CharConfig(filters=((1, 16),), num_highways=0))
    ids = torch.randint(1, 262, (5, 12), generator=torch.Generator().manual_seed(0))
    (expected,) = torch.autograd.grad(encoder(ids).square().sum(), encoder.embedding)
    monkeypatch.setattr(word_encoder, "choose", lambda request: Choice("triton", "asked for"))
    (found,) = torch.autograd.grad(encoder(ids).square().sum(), encoder.embedding)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
