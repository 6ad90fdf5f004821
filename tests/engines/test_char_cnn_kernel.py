"""The fused convolution and maximum, run by Triton's interpreter on a CPU, against `conv1d` and `amax`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from elmokit.config import CharConfig
from elmokit.nn import word_encoder
from elmokit.nn.operations import Choice
from elmokit.nn.word_encoder import CharCnn

pytestmark = pytest.mark.usefixtures("interpreted_triton")

# Relative to the norm. float32: the order of sums. bfloat16: 8 bits, which the interpreter cuts where a GPU rounds, and
# maxima so close that rounding exchanges them. float16: 11 bits.
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture
def kernel():
    from elmokit.engines.words import char_cnn

    return char_cnn


def convolve_and_pool(characters, weight, bias):
    from elmokit.engines.words import char_cnn

    return char_cnn.convolve_and_pool([characters], [weight]) + bias


def plain(characters, weight, bias):
    return F.conv1d(characters.transpose(1, 2), weight, bias).amax(dim=2)


def values_and_gradients(function, tensors, seed=0):
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    values = function(*tensors)
    upstream = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed)).to(values.dtype)
    return values, *torch.autograd.grad(values, tensors, upstream)


def assert_equal(function, tensors):
    found = values_and_gradients(function, tensors)
    expected = values_and_gradients(plain, [tensor.double() for tensor in tensors])
    tolerance = TOLERANCE[tensors[0].dtype]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == tensors[0].dtype and one.shape == other.shape
        assert (one.double() - other).norm() <= tolerance * other.norm().clamp_min(1e-3)


def draw(seed, num_words, num_columns, dim, num_channels, width, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(num_words, num_columns, dim), (num_channels, dim, width), (num_channels,)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@settings(deadline=None, max_examples=12)
@given(
    num_words=st.sampled_from([1, 15, 64, 70]),
    width=st.integers(1, 7),
    positions=st.integers(1, 6),
    dim=st.sampled_from([1, 5, 16]),
    num_channels=st.sampled_from([1, 16, 33, 150]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    seed=st.integers(0, 2**30),
)
def test_same_values_and_gradients(num_words, width, positions, dim, num_channels, dtype, seed):
    tensors = draw(seed, num_words, positions + width - 1, dim, num_channels, width, dtype)
    assert_equal(convolve_and_pool, tensors)


@pytest.mark.parametrize(("num_words", "num_columns", "num_channels", "width"), [(70, 12, 150, 5), (3, 7, 32, 7)])
def test_same_values_and_gradients_in_bfloat16(kernel, num_words, num_columns, num_channels, width):
    tensors = draw(0, num_words, num_columns, 16, num_channels, width, torch.bfloat16)
    tensors[0].mul_(torch.linspace(0.1, 3, num_columns).view(1, -1, 1))  # maxima that stand out
    assert_equal(convolve_and_pool, tensors)


def test_more_words_than_splits_times_a_block(kernel, monkeypatch):
    monkeypatch.setattr(kernel, "SPLITS", 2)
    assert_equal(convolve_and_pool, draw(1, 300, 4, 4, 16, 2))


def test_characters_that_are_a_view(kernel):
    characters, weight, bias = draw(2, 5, 8, 4, 16, 3)
    view = characters.transpose(0, 1).contiguous().transpose(0, 1)
    assert not view.is_contiguous()
    assert torch.equal(convolve_and_pool(view, weight, bias), convolve_and_pool(characters, weight, bias))


def test_ties_of_padding_give_the_table_the_same_gradient(kernel):
    # Windows of padding tie in many words; torch divides the gradient among them, the kernel gives it to the first.
    generator = torch.Generator().manual_seed(3)
    table, weight, bias = (torch.randn(shape, generator=generator) for shape in [(9, 8), (48, 8, 3), (48,)])
    ids = torch.randint(0, 8, (40, 16), generator=generator)
    ids[:, 5:] = 8

    def with_table(convolve):
        return values_and_gradients(lambda table, *filters: convolve(F.embedding(ids, table), *filters), leaves)

    leaves = [part.double() for part in (table, weight, bias)]
    expected = with_table(plain)
    leaves = [table, weight, bias]
    for one, other in zip(with_table(convolve_and_pool), expected, strict=True):
        assert (one.double() - other).norm() <= 1e-6 * other.norm()


def test_the_first_of_equal_maxima_wins(kernel):
    characters, weight = torch.ones(1, 4, 1, requires_grad=True), torch.ones(1, 1, 2)
    convolve_and_pool(characters, weight, torch.zeros(1)).sum().backward()
    assert characters.grad is not None and characters.grad.flatten().tolist() == [1, 1, 0, 0]


def test_a_nan_is_not_lost(kernel):
    characters, weight, bias = draw(4, 3, 6, 4, 16, 2)
    characters[1, 2] = float("nan")
    values = convolve_and_pool(characters, weight, bias)
    assert values[1].isnan().all() and not values[[0, 2]].isnan().any()


def test_no_words(kernel):
    found = values_and_gradients(convolve_and_pool, draw(5, 0, 6, 4, 16, 2))
    assert found[0].shape == (0, 16) and all(not gradient.any() for gradient in found[1:])


def test_operators_keep_the_promises_of_torch_library(kernel):
    characters, weight, _ = draw(6, 3, 6, 4, 16, 2)
    weight = weight.permute(2, 1, 0).contiguous()
    torch.library.opcheck(kernel.best, (characters, weight))
    best, place = kernel.best(characters, weight)
    torch.library.opcheck(kernel.best_backward, (torch.ones_like(best), characters, weight, place))


@pytest.mark.parametrize(
    ("columns", "dim", "width", "fits"),
    [
        (50, 16, 7, True),
        (50, 50, 7, False),
        (261, 16, 7, True),
        (262, 16, 7, False),
        (6, 16, 7, False),
        (7, 16, 7, True),
    ],
)
def test_shapes_for_which_it_is_made(kernel, columns, dim, width, fits):
    assert kernel.fits([torch.empty(2, columns, dim)], [torch.empty(8, dim, width)]) is fits


@pytest.mark.parametrize("dim", [16, 50])
def test_the_encoder_gives_the_same_with_it(kernel, dim, monkeypatch):
    encoder = CharCnn(CharConfig(dim=dim, filters=((1, 16), (3, 33)), num_highways=1))
    ids = torch.randint(1, 262, (5, 12), generator=torch.Generator().manual_seed(0))
    expected = encoder(ids)
    calls = []
    plain_one = kernel.best
    monkeypatch.setattr(kernel, "best", lambda *parts: calls.append(1) or plain_one(*parts))
    monkeypatch.setattr(word_encoder, "choose", lambda request: Choice("triton", "asked for"))
    torch.testing.assert_close(encoder(ids), expected, atol=1e-6, rtol=0)
    assert len(calls) == (2 if dim == 16 else 0)  # a window of 150 numbers, and what is beside it, is left to torch
