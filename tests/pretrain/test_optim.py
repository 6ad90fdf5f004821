"""Optimisers: constants, equality of batched and single updates, clipping, exact resumption."""

import copy
import dataclasses
import io
import math

import pytest
import torch
from torch import nn

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.errors import CheckpointError
from elmokit.nn.bilm import BiLM
from elmokit.nn.output_layer import OutputLayer
from elmokit.nn.word_encoder import WordEncoder
from elmokit.pretrain.optim import muon
from elmokit.pretrain.optim.muon import Muon, newton_schulz, share_shapes
from elmokit.pretrain.optim.optimiser import Optimiser, clip_factor
from elmokit.pretrain.recipes import TrainConfig, recipe_named

CONFIG = ElmoConfig(
    CharConfig(filters=((1, 4), (2, 6), (3, 8)), num_highways=1),
    lstm=LstmConfig(num_layers=2, cell_dim=24, projection_dim=8),
)


class Network(nn.Module):
    """Everything that a real network trains."""

    def __init__(self, softmax=None):
        super().__init__()
        self.encoder = WordEncoder(CONFIG)
        self.bilm = BiLM(CONFIG.lstm)
        self.softmax = softmax or OutputLayer(12, 8)

    def loss(self, step=0):
        random = torch.Generator().manual_seed(step)
        ids = torch.randint(1, 262, (6, 10), generator=random)
        words = self.encoder(ids).view(2, 3, 8)
        layers, _ = self.bilm(words, lengths=[3, 3])
        targets = torch.randint(0, 12, (6,), generator=random)
        return sum(self.softmax.full_losses(half, targets)[0] for half in layers[-1].view(6, 16).split(8, dim=1))


def network(seed=0, softmax=None):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Network(softmax)


def train(trained, optimizer, steps, start=0):
    losses = []
    for step in range(start, start + steps):
        loss = trained.loss(step)
        loss.backward()
        optimizer.step(min(1, (step + 1) / 2) * (1 - step / 20))
        trained.zero_grad()
        losses.append(loss.item())
    return losses


def singular_values(matrix):
    return torch.linalg.svdvals(matrix)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 64), (1, 50, 60)])
def test_newton_schulz_makes_matrices_nearly_orthogonal(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = newton_schulz(matrices)
    values = singular_values(found)
    assert values.max() < 1.25
    # The smallest of a square matrix may be too near zero for five steps; the bulk is not.
    assert values.median() > 0.65 and (values > 0.5).float().mean() > 0.9
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    cosine = (found * (left @ right)).sum() / found.norm() / (left @ right).norm()
    assert cosine > 0.95


def test_padding_with_zeros_changes_nothing():
    matrix = torch.randn(1, 5, 9)
    padded = nn.functional.pad(matrix, (0, 4, 0, 3))
    torch.testing.assert_close(newton_schulz(padded)[:, :5, :9], newton_schulz(matrix))
    assert not newton_schulz(padded)[:, 5:].any()


def test_small_shapes_share_a_larger_one():
    shapes = [(16, 32), (48, 64), (112, 1024), *[(128, 1024)] * 36, (128, 2048), (2048, 2048)]
    assert share_shapes(shapes) == {
        (16, 32): (128, 1024),
        (48, 64): (128, 1024),
        (112, 1024): (128, 1024),
        (128, 1024): (128, 1024),  # 36 of them: padding would double the work
        (128, 2048): (128, 2048),
        (2048, 2048): (2048, 2048),  # too large to be padded to
    }


def test_batched_updates_equal_single_ones():
    trained = network()
    optimizer = Optimiser(trained, TrainConfig(clip_norm=1e9, weight_decay=0.1))
    before = {name: p.detach().clone() for name, p in trained.named_parameters()}
    momentum: dict[str, torch.Tensor] = {}
    for step in range(3):
        trained.loss(step).backward()
        gradients = {name: p.grad.clone() for name, p in trained.named_parameters()}
        optimizer.step(0.5)
        trained.zero_grad()
        lr = TrainConfig().muon_learning_rate * 0.5
        for name in _matrix_names(trained):
            momentum[name] = 0.95 * momentum.get(name, 0) + 0.05 * gradients[name]
            update = 0.05 * gradients[name] + 0.95 * momentum[name]
            parts = 4 if name.endswith(("input_weight", "recurrent_weight")) else 1
            moved = []
            for part in update.flatten(1).chunk(parts, dim=1):
                flat = part if part.shape[0] <= part.shape[1] else part.t()
                single = newton_schulz(flat.unsqueeze(0))[0] * 0.2 * math.sqrt(max(part.shape))
                moved.append(single if part.shape[0] <= part.shape[1] else single.t())
            expected = before[name] * (1 - lr * 0.1) - lr * torch.cat(moved, dim=1).view_as(update)
            torch.testing.assert_close(dict(trained.named_parameters())[name], expected, atol=1e-6, rtol=1e-5)
            before[name] = dict(trained.named_parameters())[name].detach().clone()


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # numpy's, where a gradient is infinite
@pytest.mark.usefixtures("interpreted_triton")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_kernels_of_a_gpu_move_matrices_as_torchs_operations_do(decay, monkeypatch):
    plain, fused = network(), network()
    optimizers = [Optimiser(each, TrainConfig(clip_norm=0.5, weight_decay=decay)) for each in (plain, fused)]
    monkeypatch.setattr(muon, "GPU_DTYPE", torch.float32)
    for step in range(4):
        for trained, optimizer, reason in zip((plain, fused), optimizers, ("none here", None), strict=True):
            trained.loss(step).backward()
            if step == 2:
                trained.bilm.forward_layers[0].input_weight.grad[1, 2] = math.inf
            monkeypatch.setattr(muon, "why_no_triton", lambda device, dtype, reason=reason: reason)
            optimizer.step(0.5)
            trained.zero_grad()
        for one, other in zip(plain.parameters(), fused.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    assert [optimizer.skipped.item() for optimizer in optimizers] == [1, 1]
    states = [optimizer.state_dict()["muon"]["state"] for optimizer in optimizers]
    for one, other in zip(states[0].values(), states[1].values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def _matrix_names(trained):
    kinds = ("projection.weight", "gate.weight", "transform.weight", "input_weight", "recurrent_weight")
    return [
        name
        for name, _ in trained.named_parameters()
        if name.endswith((*kinds, "projection_weight")) or ("convolutions" in name and name.endswith("weight"))
    ]


def test_muon_takes_the_matrices_and_adamw_the_rest():
    trained = network()
    state = Optimiser(trained, TrainConfig()).state_dict()
    assert sorted(state["muon"]["names"]) == sorted(_matrix_names(trained))
    rest = [name for name, _ in trained.named_parameters() if name not in _matrix_names(trained)]
    assert sorted(state["rest"]["names"]) == sorted(rest)
    assert "encoder.characters.embedding" in rest and any(name.startswith("softmax") for name in rest)


def test_rest_moves_as_torchs_adamw_does():
    trained, plain = network(), network()
    optimizer = Optimiser(trained, TrainConfig(optimiser="adamw", learning_rate=0.01, clip_norm=1.0))
    expected = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
    for step in range(3):
        trained.loss(step).backward()
        optimizer.step()
        trained.zero_grad()
        plain.loss(step).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        expected.step()
        expected.zero_grad()
    for one, other in zip(trained.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_weight_decay_is_for_matrices_only():
    trained = network()
    before = {name: p.detach().clone() for name, p in trained.named_parameters()}
    optimizer = Optimiser(trained, TrainConfig(optimiser="adamw", learning_rate=0.1, weight_decay=0.5))
    for p in trained.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in trained.named_parameters():
        torch.testing.assert_close(p, before[name] * (0.95 if name in _matrix_names(trained) else 1.0))


def test_adagrad_has_bilm_tfs_constants():
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    holder = nn.Module()
    holder.weight = weight
    optimizer = Optimiser(holder, recipe_named("bilm_tf"))
    values, sums = torch.tensor([1.0, -2.0]), torch.ones(2)  # the sum of squares starts at 1
    for gradient in (torch.tensor([0.01, 0.02]), torch.tensor([3.0, -4.0])):
        weight.grad = gradient.clone()
        norm = optimizer.step()
        scaled = 20 * gradient  # the loss is multiplied by 20, then the norm is clipped at 10
        assert norm.item() == pytest.approx(scaled.norm().item(), rel=1e-6)
        scaled *= min(1, 10 / scaled.norm().item())
        sums += scaled**2
        values -= 0.2 * scaled / sums.sqrt()
        torch.testing.assert_close(weight.data, values, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bound", [0.5, 1e9])
def test_clipping_equals_torchs(bound):
    tensors = [torch.randn(size, generator=torch.Generator().manual_seed(size)) for size in (3, 50, 7)]
    others = [nn.Parameter(torch.zeros_like(tensor)) for tensor in tensors]
    for parameter, tensor in zip(others, tensors, strict=True):
        parameter.grad = tensor.clone()
    expected_norm = nn.utils.clip_grad_norm_(others, bound)
    norm, factor = clip_factor(tensors, bound)
    torch.testing.assert_close(norm, expected_norm)
    for tensor, parameter in zip(tensors, others, strict=True):
        torch.testing.assert_close(tensor * factor, parameter.grad)


def test_clipping_without_a_bound_or_gradients():
    assert clip_factor([torch.tensor([3.0, 4.0])], math.inf, scale=2.0) == (10, 2)
    assert clip_factor([], 1.0) == (0, 1)


@pytest.mark.parametrize("kind", ["muon", "adamw", "adagrad"])
def test_a_resumed_run_is_identical(kind):
    config = recipe_named("bilm_tf") if kind == "adagrad" else TrainConfig(optimiser=kind)
    trained = network()
    optimizer = Optimiser(trained, config)
    train(trained, optimizer, 4)
    kept = io.BytesIO()
    torch.save({"weights": trained.state_dict(), "optimiser": optimizer.state_dict()}, kept)
    uninterrupted = train(trained, optimizer, 4, start=4)

    kept.seek(0)
    saved = torch.load(kept, weights_only=True)
    resumed = network(seed=1)
    resumed.load_state_dict(saved["weights"])
    again = Optimiser(resumed, config)
    again.load_state_dict(saved["optimiser"])
    assert train(resumed, again, 4, start=4) == uninterrupted
    for one, other in zip(trained.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("kind", ["muon", "adamw", "adagrad"])
def test_gradients_that_are_not_finite_move_nothing(kind, value):
    decay = 0.0 if kind == "adagrad" else 0.1
    config = dataclasses.replace(
        recipe_named("bilm_tf") if kind == "adagrad" else TrainConfig(optimiser=kind), weight_decay=decay
    )
    spoilt, plain = network(), network()
    optimizers = [Optimiser(each, config) for each in (spoilt, plain)]
    for trained, optimizer in zip((spoilt, plain), optimizers, strict=True):
        train(trained, optimizer, 3)
    spoilt.loss(3).backward()
    spoilt.encoder.characters.highways[0].gate.weight.grad[2, 3] = value
    assert not optimizers[0].step().isfinite()
    spoilt.zero_grad()
    assert optimizers[0].skipped == 1 and optimizers[1].skipped == 0
    after = [train(each, optimizer, 3, start=3) for each, optimizer in zip((spoilt, plain), optimizers, strict=True)]
    assert after[0] == after[1]
    for one, other in zip(spoilt.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)


def test_state_of_another_run_is_refused():
    trained = network()
    state = Optimiser(trained, TrainConfig()).state_dict()
    with pytest.raises(CheckpointError, match="'muon', this run by 'adamw'"):
        Optimiser(trained, TrainConfig(optimiser="adamw")).load_state_dict(state)
    other = network(softmax=torch.nn.Linear(8, 12, bias=False))
    with pytest.raises(CheckpointError, match="other parameters"):
        Optimiser(other, TrainConfig()).load_state_dict(state)


def test_states_are_found_by_the_names_of_their_parameters():
    trained, again = network(), network()
    optimizer, other = (Optimiser(each, TrainConfig()) for each in (trained, again))
    train(trained, optimizer, 2)
    state = copy.deepcopy(optimizer.state_dict())
    for saved in (state["muon"], state["rest"]):  # as a version that sorts parameters otherwise would save it
        last = len(saved["names"]) - 1
        saved["names"] = saved["names"][::-1]
        saved["state"] = {last - number: values for number, values in saved["state"].items()}
    again.load_state_dict(trained.state_dict())
    other.load_state_dict(state)
    assert train(trained, optimizer, 3, start=2) == train(again, other, 3, start=2)


def test_muon_without_gradients_does_nothing():
    weight = nn.Parameter(torch.ones(2, 2))
    Muon([{"params": [weight]}]).step()
    assert torch.equal(weight, torch.ones(2, 2))


def test_the_work_of_a_step_is_what_its_matmuls_need():
    tall, gates = torch.nn.Parameter(torch.zeros(8, 4)), torch.nn.Parameter(torch.zeros(4, 16))
    muon = Muon([{"params": [tall], "parts": 1}, {"params": [gates], "parts": 4}], steps=3)
    # 4 × 8: X Xᵀ and its product with X take 2·4·4·8 each, the square of 4 × 4 takes 2·4³; then four gates of 4 × 4.
    assert muon.flops == 3 * (2 * 2 * 4 * 4 * 8 + 2 * 4**3) + 4 * 3 * 3 * 2 * 4**3
