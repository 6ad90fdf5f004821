"""The Triton kernels of the output layer, run by Triton's interpreter on a CPU, against the reference."""

import pytest
import torch

from elmokit.nn import output_layer as reference
from elmokit.nn.operations import Sample

linear_cross_entropy = pytest.importorskip(
    "elmokit.engines.loss.linear_cross_entropy", reason="Triton is not installed"
)
pytestmark = pytest.mark.usefixtures("interpreted_triton")

# float32: the order of sums. bfloat16: probabilities are rounded to 8 bits before the second matmul (and the
# interpreter cuts where a GPU rounds), outputs' gradients once more at the end.
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 1.5e-2}


@pytest.fixture
def poisoned():
    """Memory that nobody has written to yet holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def problem(num_rows, num_words, width, dtype, spread=2.0):
    random = torch.Generator().manual_seed(num_rows)
    hidden = torch.randn(num_rows, width, generator=random).to(dtype).requires_grad_()
    weight = (spread * torch.randn(num_words, width, generator=random) / width**0.5).requires_grad_()
    bias = torch.randn(num_words, generator=random).requires_grad_()
    targets = torch.randint(0, num_words, (num_rows,), generator=random)
    targets[0], targets[-1] = 0, num_words - 1
    return hidden, weight, bias, targets


def results(module, inputs, targets, sample=None):
    loss, each = module.losses(*inputs, targets, sample)
    assert not each.requires_grad
    torch.testing.assert_close(each.sum(), loss.detach())
    return loss.detach(), *torch.autograd.grad(0.37 * loss, inputs)


def assert_equal(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert (one.double() - other.double()).norm() <= tolerance * other.double().norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 1, 64), (70, 333, 64), (150, 300, 128), (33, 100, 256), (20, 70, 512)])
def test_full_softmax_equals_the_reference(sizes, dtype, poisoned):
    *inputs, targets = problem(*sizes, dtype)
    expected = results(reference, inputs, targets)
    found = results(linear_cross_entropy, inputs, targets)
    if sizes[1] == 1:
        assert all(value.abs().max() < 1e-6 for value in found)  # the only word is certain
        return
    assert_equal(found[:1], expected[:1], 1e-6)
    assert_equal(found[1:], expected[1:], TOLERANCE[dtype])
    with torch.no_grad():
        assert_equal(linear_cross_entropy.losses(*inputs, targets), reference.losses(*inputs, targets), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("corrected", [True, False])
def test_sampled_softmax_equals_the_reference(corrected, dtype, poisoned):
    *inputs, targets = problem(150, 300, 64, dtype)
    random = torch.Generator().manual_seed(1)
    negatives = torch.randperm(300, generator=random)[:90]
    targets[:40] = negatives[:40]  # many accidental hits
    own = torch.rand(150, generator=random).log() if corrected else None
    sample = Sample(negatives, torch.rand(90, generator=random).log(), own)
    expected = results(reference, inputs, targets, sample)
    found = results(linear_cross_entropy, inputs, targets, sample)
    assert_equal(found[:1], expected[:1], 1e-6)
    assert_equal(found[1:], expected[1:], TOLERANCE[dtype])


def test_a_sample_of_the_target_alone_says_nothing(poisoned):
    *inputs, targets = problem(3, 20, 64, torch.float32)
    targets[:] = 7
    sample = Sample(torch.tensor([7]), torch.zeros(1))
    loss, *gradients = results(linear_cross_entropy, inputs, targets, sample)
    assert loss == 0 and all(not gradient.any() for gradient in gradients)


def test_huge_logits_neither_overflow_nor_vanish(poisoned):
    *inputs, targets = problem(40, 150, 64, torch.float32, spread=500.0)
    expected = results(reference, inputs, targets)
    found = results(linear_cross_entropy, inputs, targets)
    assert torch.isfinite(found[2]).all()
    assert_equal(found, expected, 1e-4)


def test_only_what_learns_gets_a_gradient():
    hidden, weight, bias, targets = problem(10, 30, 64, torch.float32)
    frozen = hidden.detach()
    linear_cross_entropy.losses(frozen, weight, bias, targets)[0].backward()
    assert weight.grad is not None and frozen.grad is None
    weight.grad = None
    linear_cross_entropy.losses(hidden, weight.detach(), bias.detach(), targets)[0].backward()
    assert hidden.grad is not None and weight.grad is None


def test_no_rows_no_loss():
    _, weight, bias, targets = problem(10, 30, 64, torch.float32)
    hidden = torch.zeros(0, 64, requires_grad=True)
    loss = linear_cross_entropy.losses(hidden, weight, bias, targets[:0])[0]
    loss.backward()
    assert loss == 0 and not weight.grad.any()


def test_splits_fill_the_last_wave():
    # 320 blocks on 132 slots are 2.4 waves: three times as many parts fill 7.3 of 8, seven times 16.97 of 17.
    splits = linear_cross_entropy.splits_for(320, 800, 132)
    assert 320 * splits / (132 * -(-320 * splits // 132)) >= 0.95
    assert linear_cross_entropy.splits_for(1320, 800, 132) == 1
    assert linear_cross_entropy.splits_for(1, 3, 132) == 3  # never more parts than tiles
