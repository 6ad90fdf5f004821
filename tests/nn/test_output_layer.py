"""Output layers: equal to plain torch, chunked, and sampled without bias."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import elmokit.engines  # noqa: F401 (the loss is that of the engine a CPU takes)
from elmokit.engines.loss import chunked
from elmokit.errors import ConfigError
from elmokit.nn import output_layer as reference
from elmokit.nn.operations import Sample
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.batches.sampling import Sampler

SAMPLERS = {
    "log_uniform": lambda size, num_words=40: Sampler.log_uniform(num_words, num_samples=size),
    "unigram": lambda size, num_words=40: Sampler.unigram(zipf(num_words), num_samples=size),
}


def zipf(num_words):
    return 1000 / np.arange(1, num_words + 1) ** 1.1


def random_problem(num_rows, num_words, width, dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(num_rows, width, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
    softmax = OutputLayer(num_words, width)
    with torch.no_grad():
        softmax.weight.copy_(torch.randn(num_words, width, generator=random) * 1.5 / math.sqrt(width))
        softmax.bias.copy_(torch.randn(num_words, generator=random))
    targets = torch.randint(0, num_words, (num_rows,), generator=random)
    return hidden, softmax, targets


def gradients_of(loss, *tensors):
    return torch.autograd.grad(loss, tensors)


def relative(found, expected):
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


@pytest.mark.parametrize("engine", [chunked, reference])
@pytest.mark.parametrize("sampled", [False, True])
def test_gradients_are_right_in_float64(engine, sampled, monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 8 * 11 * 4)  # four rows a chunk, the last one incomplete
    hidden, softmax, targets = random_problem(10, 11, 5, torch.float64)
    inputs = (
        hidden,
        softmax.weight.detach().double().requires_grad_(),
        softmax.bias.detach().double().requires_grad_(),
    )
    negatives = torch.tensor([1, 4, 7, 3])
    sample = Sample(negatives, torch.rand(4).log(), torch.rand(10).log()) if sampled else None
    assert torch.autograd.gradcheck(lambda *tensors: engine.losses(*tensors, targets, sample)[0], inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("corrected", [False, True])
def test_chunks_give_the_loss_and_gradients_of_the_reference(dtype, sampled, corrected, monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 4 * 30 * 7)
    hidden, softmax, targets = random_problem(25, 30, 8, dtype)
    negatives = torch.randperm(30, generator=torch.Generator().manual_seed(1))[:9]
    own = torch.rand(25).log() if corrected else None
    sample = Sample(negatives, torch.rand(9).log(), own) if sampled else None
    leaves = (hidden, softmax.weight, softmax.bias)
    found, expected = (engine.losses(*leaves, targets, sample) for engine in (chunked, reference))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    tolerance = 2**-8 if dtype == torch.bfloat16 else 1e-5
    for one, other in zip(gradients_of(found[0], *leaves), gradients_of(expected[0], *leaves), strict=True):
        assert one.dtype == other.dtype and relative(one, other) < tolerance
    with torch.no_grad():
        each = chunked.losses(*leaves, targets, sample)[1]
    torch.testing.assert_close(each, expected[1], atol=1e-5, rtol=1e-5)


def test_full_loss_equals_plain_torch(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 4 * 501 * 100)
    hidden, softmax, targets = random_problem(257, 501, 32)
    learned = (hidden, softmax.weight, softmax.bias)
    found, expected = softmax.full_losses(hidden, targets)[0], _plain(softmax, hidden, targets).sum()
    assert found.dtype == torch.float32 and relative(found, expected) < 1e-6
    for one, other in zip(gradients_of(3 * found, *learned), gradients_of(3 * expected, *learned), strict=True):
        assert relative(one, other) < 1e-5
    torch.testing.assert_close(softmax.token_losses(hidden, targets), _plain(softmax, hidden, targets))
    assert not softmax.token_losses(hidden, targets).requires_grad


def _plain(softmax, hidden, targets):
    return F.cross_entropy(F.linear(hidden, softmax.weight, softmax.bias), targets, reduction="none")


def test_only_what_learns_gets_a_gradient():
    hidden, softmax, targets = random_problem(6, 9, 4)
    softmax.requires_grad_(False)
    softmax.full_losses(hidden, targets)[0].backward()
    assert hidden.grad is not None and softmax.weight.grad is None
    with torch.no_grad():
        assert not softmax.full_losses(hidden, targets)[0].requires_grad


class LargestTensor(TorchDispatchMode):
    """Remembers how many numbers the largest tensor made inside has."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = result if isinstance(result, list | tuple) else [result]
        self.size = max([self.size, *[tensor.numel() for tensor in made if isinstance(tensor, torch.Tensor)]])
        return result


@pytest.mark.parametrize("sampled", [False, True])
def test_logits_are_never_whole_in_memory(sampled, monkeypatch):
    num_rows, num_words, width = 400, 1000, 8
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 4 * num_words * 10)
    monkeypatch.setattr(chunked, "TILE_ROWS", 10)
    hidden, softmax, targets = random_problem(num_rows, num_words, width)
    with LargestTensor() as largest:
        if sampled:
            negatives = torch.arange(num_words)
            loss = softmax.sampled_losses(hidden, targets, negatives, torch.zeros(num_words))[0]
        else:
            loss = softmax.full_losses(hidden, targets)[0]
        loss.backward()
        softmax.token_losses(hidden, targets)
    assert largest.size == num_words * 10  # a chunk of ten rows; all logits would be 40 times as many


def test_bfloat16_outputs_with_float32_weights():
    hidden, softmax, targets = random_problem(64, 300, 32, torch.bfloat16)
    rounded = OutputLayer(300, 32)
    with torch.no_grad():
        rounded.weight.copy_(softmax.weight.bfloat16())
        rounded.bias.copy_(softmax.bias)
    exact = hidden.detach().float().requires_grad_()
    found, expected = softmax.full_losses(hidden, targets)[0], rounded.full_losses(exact, targets)[0]
    assert found.dtype == torch.float32 and relative(found, expected) < 1e-6
    found.backward()
    expected.backward()
    assert hidden.grad.dtype == torch.bfloat16 and softmax.weight.grad.dtype == torch.float32
    assert relative(hidden.grad, exact.grad) < 2**-8  # rounded once, at the end
    assert relative(softmax.weight.grad, rounded.weight.grad) < 1e-6
    torch.testing.assert_close(softmax.log_probs(hidden), rounded.log_probs(exact))


def test_bfloat16_weights_give_float32_log_probabilities():
    hidden, softmax, targets = random_problem(64, 300, 32)
    half, hidden = copy.deepcopy(softmax).bfloat16(), hidden.detach().bfloat16()
    found = half.log_probs(hidden)
    assert found.dtype == torch.float32
    expected = F.log_softmax(hidden.float() @ half.weight.float().t() + half.bias.float(), dim=1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(-found.gather(1, targets[:, None])[:, 0], half.token_losses(hidden, targets))


def test_loading_draws_nothing(monkeypatch):
    _, softmax, _ = random_problem(1, 12, 4)
    monkeypatch.setattr(torch.nn.init, "normal_", None)  # on meta tensors torch would import its compiler for it
    assert OutputLayer.from_weights(softmax.state_dict()).weight.equal(softmax.weight)


def test_sampled_loss_by_hand():
    hidden, softmax, targets = random_problem(5, 12, 4)
    negatives, expected_counts = torch.tensor([3, 8, 1]), torch.tensor([0.9, 0.2, 0.5])
    targets[0], targets[1] = 3, 8  # two accidental hits
    own = torch.linspace(0.1, 0.9, 5)
    logits = F.linear(hidden, softmax.weight, softmax.bias)
    for corrected in (True, False):
        by_hand = 0.0
        for row, target in enumerate(targets.tolist()):
            target_logit = logits[row, target] - (own[row].log() if corrected else 0)
            others = [
                logits[row, word] - math.log(count)
                for word, count in zip(negatives.tolist(), expected_counts.tolist(), strict=True)
                if word != target
            ]
            by_hand = by_hand - target_logit + torch.stack([target_logit, *others]).logsumexp(0)
        found = softmax.sampled_losses(
            hidden, targets, negatives, expected_counts.log(), own.log() if corrected else None
        )[0]
        torch.testing.assert_close(found, by_hand)
        learned = (hidden, softmax.weight, softmax.bias)
        found_grads = gradients_of(found, *learned)
        for one, other in zip(found_grads, gradients_of(by_hand, *learned), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
        logits = F.linear(hidden, softmax.weight, softmax.bias)


def test_a_sample_of_the_target_alone_says_nothing():
    hidden, softmax, _ = random_problem(2, 5, 4)
    targets = torch.tensor([3, 3])
    assert softmax.sampled_losses(hidden, targets, torch.tensor([3]), torch.zeros(1))[0].item() == 0


def test_all_words_sampled_for_sure_is_the_full_softmax():
    hidden, softmax, targets = random_problem(20, 30, 8)
    sampled = softmax.sampled_losses(hidden, targets, torch.randperm(30), torch.zeros(30), torch.zeros(20))[0]
    torch.testing.assert_close(sampled, softmax.full_losses(hidden, targets)[0])


@pytest.mark.parametrize("name", SAMPLERS)
def test_expected_counts_are_how_often_words_are_drawn(name):
    sampler = SAMPLERS[name](12)
    draws = [sampler.draw(step) for step in range(3000)]
    drawn_V = np.bincount(np.concatenate([draw.ids_S for draw in draws]), minlength=40) / len(draws)
    tries = round(np.mean([draw.tries for draw in draws]))
    expected_V = np.exp(sampler.log_expected(np.arange(40), tries))
    # Stopping at the twelfth word makes the formula an approximation, here within a few percent of a count.
    assert np.abs(drawn_V - expected_V).max() < 0.04
    assert all(len(set(draw.ids_S.tolist())) == 12 for draw in draws[:50])


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("corrected_targets", [False, True])
def test_mean_sampled_gradient_comes_near_the_full_one(name, corrected_targets):
    hidden, softmax, targets = random_problem(64, 400, 6)
    learned = (hidden, softmax.weight, softmax.bias)
    full = gradients_of(softmax.full_losses(hidden, targets)[0], *learned)

    def distance(size, correction=1.0, draws=60):
        """Of the mean gradient of the outputs, for which all words count, from the full one."""
        sampler = SAMPLERS[name](size, num_words=400)
        mean = torch.zeros_like(full[0])
        for step in range(draws):
            draw = sampler.draw(step)
            own = torch.from_numpy(sampler.log_expected(targets.numpy(), draw.tries)) if corrected_targets else None
            negatives, expected = torch.from_numpy(draw.ids_S), torch.from_numpy(draw.log_expected_S)
            loss = softmax.sampled_losses(hidden, targets, negatives, correction * expected, own)[0]
            mean += gradients_of(loss, *learned)[0] / draws
        return relative(mean, full[0])

    middle = distance(160)
    assert distance(40) < 0.2 and middle < 0.05 and distance(360) < 0.02
    assert distance(160, correction=0.0) > 2 * middle  # what leaving out the correction would do


@pytest.mark.parametrize("name", ["log_uniform", "unigram"])
def test_the_right_distribution_is_where_the_corrected_loss_rests(name):
    # bilm-tf's loss: with the targets corrected too, its gradient over targets and draws vanishes exactly where the
    # model's probabilities are the true ones, even with few words drawn.
    logits = torch.randn(40, generator=torch.Generator().manual_seed(3))
    softmax = OutputLayer(40, 4)
    with torch.no_grad():
        softmax.bias.copy_(logits)
    targets, hidden = torch.arange(40), torch.zeros(40, 4)
    probability_V = logits.softmax(0)
    sampler = SAMPLERS[name](8)
    mean = {True: torch.zeros(40), False: torch.zeros(40)}
    for step in range(800):
        draw = sampler.draw(step)
        own = torch.from_numpy(sampler.log_expected(targets.numpy(), draw.tries))
        negatives, expected = torch.from_numpy(draw.ids_S), torch.from_numpy(draw.log_expected_S)
        for corrected in mean:
            # Rows weighted by how often their target comes: by a logit for each row alone, from its own loss.
            bias = softmax.bias.detach().requires_grad_()
            z_VS = bias[negatives] - expected
            own_V = bias - own if corrected else bias
            hits = targets.unsqueeze(1) == negatives
            total_V = torch.logaddexp(z_VS.expand(40, -1).masked_fill(hits, -torch.inf).logsumexp(1), own_V)
            (gradient,) = torch.autograd.grad((probability_V * (total_V - own_V)).sum(), bias)
            mean[corrected] += gradient / 800
            if step == 0:
                ours = softmax.sampled_losses(hidden, targets, negatives, expected, own if corrected else None)[0]
                torch.testing.assert_close(ours, (total_V - own_V).sum())
    assert mean[True].abs().max() < 0.006
    assert mean[True].abs().max() < mean[False].abs().max()


def test_draws_follow_from_seed_and_step():
    sampler = Sampler.log_uniform(1000, num_samples=50, seed=5)
    draw = sampler.draw(7)
    again = Sampler.log_uniform(1000, num_samples=50, seed=5).draw(7)
    assert np.array_equal(draw.ids_S, again.ids_S) and draw.tries == again.tries
    assert draw.ids_S.dtype == np.int64 and draw.log_expected_S.dtype == np.float32
    others = [sampler.draw(8), Sampler.log_uniform(1000, num_samples=50, seed=6).draw(7)]
    assert all(not np.array_equal(draw.ids_S, other.ids_S) for other in others)


def test_log_uniform_is_bilm_tfs_formula():
    sampler = Sampler.log_uniform(100, num_samples=10)
    probability = math.log(7 / 6) / math.log(101)
    assert sampler.probabilities_V[5] == pytest.approx(probability)
    assert sampler.log_expected(np.array([5]), 25)[0] == pytest.approx(math.log(1 - (1 - probability) ** 25), rel=1e-6)


def test_unigram_follows_the_counts():
    sampler = Sampler.unigram([0, 1, 16], num_samples=1)
    assert sampler.probabilities_V == pytest.approx(np.array([1, 1, 8]) / 10)  # 16 to the power of 0.75
    drawn = np.bincount([sampler.draw(step).ids_S[0] for step in range(2000)], minlength=3) / 2000
    assert np.abs(drawn - np.array([1, 1, 8]) / 10).max() < 0.04


def test_every_word_can_be_drawn_but_not_more():
    assert sorted(Sampler.log_uniform(20, num_samples=20).draw(0).ids_S) == list(range(20))
    with pytest.raises(ConfigError, match="from 1 to 20"):
        Sampler.log_uniform(20, num_samples=21)
    with pytest.raises(ConfigError, match="too rare"):
        Sampler(np.array([1.0, 1e-12]), num_samples=2).draw(0)


def test_output_layer_starts_at_the_frequencies():
    softmax = OutputLayer(4, 8, counts_V=torch.tensor([6, 3, 1, 0]))
    torch.testing.assert_close(softmax.bias.exp(), torch.tensor([6, 3, 1, 1]) / 11)
    assert set(softmax.state_dict()) == {"weight", "bias"}
    assert OutputLayer(3, 2).bias.tolist() == [0, 0, 0]
    with pytest.raises(ConfigError, match="4 words needs as many counts"):
        OutputLayer(4, 8, counts_V=torch.ones(3))


def test_log_probs_are_those_of_the_loss():
    hidden, softmax, targets = random_problem(300, 40, 6)
    log_probs = softmax.log_probs(hidden)
    assert log_probs.shape == (300, 40) and not log_probs.requires_grad
    torch.testing.assert_close(-log_probs.gather(1, targets[:, None])[:, 0], softmax.token_losses(hidden, targets))
    assert "num_words=40" in repr(softmax)
