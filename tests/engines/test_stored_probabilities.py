"""The full softmax whose probabilities are stored, run by Triton's interpreter on a CPU, against float64."""

import pytest
import torch
from torch.nn import functional as F

from elmokit.engines.loss import chunked

stored_probabilities = pytest.importorskip(
    "elmokit.engines.loss.stored_probabilities", reason="Triton is not installed"
)
linear_cross_entropy = pytest.importorskip(
    "elmokit.engines.loss.linear_cross_entropy", reason="Triton is not installed"
)
pytestmark = pytest.mark.usefixtures("interpreted_triton")


@pytest.fixture(params=["one pass", "a matmul for the sums"], autouse=True)
def design(request, monkeypatch):
    """Both ways of making the table, whatever the width for which each is meant."""
    if request.param != "one pass":
        for size in stored_probabilities.TILES:
            monkeypatch.setitem(
                stored_probabilities.WIDE_TILES, size, stored_probabilities.WideTiles(32, 64, 32, 4, 2, 2)
            )
    return request.param


@pytest.fixture
def poisoned():
    """Memory that nobody has written to yet holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def problem(num_rows, num_words, width, spread=2.0, dtype=torch.float32):
    random = torch.Generator().manual_seed(num_rows)
    hidden = torch.randn(num_rows, width, generator=random).to(dtype).requires_grad_()
    weight = (spread * torch.randn(num_words, width, generator=random) / width**0.5).requires_grad_()
    bias = torch.randn(num_words, generator=random).requires_grad_()
    targets = torch.randint(0, num_words, (num_rows,), generator=random)
    targets[0], targets[-1] = 0, num_words - 1
    return hidden, weight, bias, targets


def in_float64(inputs, targets):
    """The same in float64, with the weight in the dtype of the matmuls."""
    hidden, weight, bias = (tensor.detach() for tensor in inputs)
    inputs = [tensor.double().requires_grad_() for tensor in (hidden, weight.to(hidden.dtype), bias)]
    each = F.cross_entropy(inputs[0] @ inputs[1].t() + inputs[2], targets, reduction="none")
    return each.sum().detach(), each.detach(), *torch.autograd.grad(0.37 * each.sum(), inputs)


def results(module, inputs, targets):
    loss, each = module.losses(*inputs, targets)
    assert not each.requires_grad
    return loss.detach(), each, *torch.autograd.grad(0.37 * loss, inputs)


# bfloat16: probabilities and factors of 8 bits, which the interpreter cuts where a GPU rounds.
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sizes", [(1, 3, 64), (70, 333, 64), (150, 300, 128), (65, 128, 128)])
def test_loss_and_gradients_equal_float64(sizes, dtype, poisoned):
    *inputs, targets = problem(*sizes, dtype=dtype)
    found, expected = results(stored_probabilities, inputs, targets), in_float64(inputs, targets)
    for one, other, like in zip(found, expected, results(chunked, inputs, targets), strict=True):
        assert one.dtype == like.dtype and one.shape == like.shape
        assert (one.double() - other).norm() <= TOLERANCE[dtype] * other.norm()
    assert (found[0] - expected[0]).abs() <= 1e-5 * expected[0]


def test_outputs_of_the_original_size_equal_float64(poisoned):
    *inputs, targets = problem(40, 300, 512, dtype=torch.bfloat16)
    for one, other in zip(results(stored_probabilities, inputs, targets), in_float64(inputs, targets), strict=True):
        assert (one.double() - other).norm() <= TOLERANCE[torch.bfloat16] * other.norm()


def test_two_runs_give_the_same_bits_whatever_the_parts(monkeypatch, poisoned):
    *inputs, targets = problem(70, 333, 64)
    once = results(stored_probabilities, inputs, targets)
    assert all(map(torch.equal, once, results(stored_probabilities, inputs, targets)))
    monkeypatch.setattr(stored_probabilities, "parts_of", lambda rows, words, *_: (2, 3, 128))
    for one, other in zip(once, results(stored_probabilities, inputs, targets), strict=True):
        assert (one - other).norm() <= TOLERANCE[torch.float32] * other.norm()


def test_a_certain_word_costs_nothing(poisoned):
    *inputs, targets = problem(5, 1, 64)
    assert all(value.abs().max() < 1e-6 for value in results(stored_probabilities, inputs, targets))


def test_absurd_logits_stay_finite_and_sane_losses_exact(poisoned):
    hidden, weight, bias, targets = problem(40, 150, 64, spread=500.0)
    found = results(stored_probabilities, (hidden, weight, bias), targets)
    exact = F.cross_entropy(hidden @ weight.t() + bias, targets, reduction="none").detach()
    assert all(torch.isfinite(value).all() for value in found)
    sane = exact < 65
    assert sane.any() and not sane.all()
    torch.testing.assert_close(found[1][sane], exact[sane], rtol=1e-4, atol=1e-3)
    assert (found[1][~sane] > 60).all()


def test_what_is_not_a_number_shows_in_the_loss(poisoned):
    hidden, weight, bias, targets = problem(20, 150, 64)
    weight.data[7, 3] = float("nan")
    targets[:] = 5  # the target's own logit is a number
    loss, each = stored_probabilities.losses(hidden, weight, bias, targets)
    assert loss.isnan() and each.isnan().all()


def test_it_is_taken_where_it_fits_and_not_else(monkeypatch):
    *inputs, targets = problem(10, 30, 64)
    assert not stored_probabilities.fits(inputs[0], 30)  # a CPU
    monkeypatch.setattr(stored_probabilities, "_memory", lambda device: 4 * 10 * 64 * 4)
    assert stored_probabilities.fits(inputs[0], 30)
    assert not stored_probabilities.fits(inputs[0], 65)
    assert stored_probabilities.fits(inputs[0].bfloat16(), 65)
    with monkeypatch.context() as old_torch:
        old_torch.setattr(stored_probabilities, "_has_wide_sums", lambda dtype: dtype == torch.float32)
        assert stored_probabilities.fits(inputs[0], 30) and not stored_probabilities.fits(inputs[0].bfloat16(), 30)
    found, expected = results(linear_cross_entropy, inputs, targets), results(chunked, inputs, targets)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(stored_probabilities, "MOST_OF_MEMORY", 0)
    assert not stored_probabilities.fits(inputs[0], 30)


def test_only_what_learns_gets_a_gradient():
    hidden, weight, bias, targets = problem(10, 30, 64)
    loss, _ = stored_probabilities.losses(hidden, weight.detach(), bias.detach(), targets)
    loss.backward()
    assert hidden.grad is not None and weight.grad is None
    loss, _ = stored_probabilities.losses(hidden.detach(), weight, bias.detach(), targets)
    loss.backward()
    assert weight.grad is not None and bias.grad is None
