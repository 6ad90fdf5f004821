"""The dropout kernel draws the mask of `pretrain/network.py`, bit for bit, and its gradient drops the same places."""

import pytest
import torch

from elmokit.pretrain import network

pytestmark = pytest.mark.usefixtures("interpreted_triton")


@pytest.mark.parametrize("keys_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("num_words", "width"), [(1, 5), (37, 24), (300, 16)])
def test_same_mask_and_gradient(num_words, width, keys_dtype):
    from elmokit.pretrain.dropout_kernel import keyed_dropout

    values = torch.randn(num_words, width, requires_grad=True)
    keys, seed = (torch.arange(num_words) * 7_654_321 + 3).to(keys_dtype), torch.tensor((77 << 32) + 12345)
    expected = network.keyed_dropout(values, keys, seed=seed, place=5, rate=0.3)
    found = keyed_dropout(values, keys, seed, 5, int(0.3 * 2**24), 1 / 0.7)
    assert torch.equal(found, expected)
    upstream = torch.randn_like(found)
    gradients = [torch.autograd.grad(result, values, upstream)[0] for result in (found, expected)]
    assert torch.equal(*gradients)
