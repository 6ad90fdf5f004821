"""What the network in training does besides its layers: casting weights, gathering words, adding up both directions."""

from __future__ import annotations

import pytest
import torch

from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.network import LanguageModelNetwork, StepInputs, _cast, _GatherRows
from elmokit.pretrain.place import choose_sum_dtype
from elmokit.pretrain.train import train


def inputs_of(config, seed=0):
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 200, (6, config.model.characters.max_length), generator=random)
    words, targets = (torch.randint(0, 6, (2, 7), generator=random) for _ in range(2))
    return StepInputs([ids], words, targets, torch.arange(7), [4, 3])


@pytest.fixture
def network(tiny):
    torch.manual_seed(0)
    config = tiny()
    return LanguageModelNetwork(config.model, OutputLayer(9, 8)), inputs_of(config)


def test_the_loss_is_the_sum_of_both_directions(network):
    net, inputs = network
    total, losses_2, _ = net(inputs, net.zero_state(4))
    outputs, _ = net.predictions(inputs, net.zero_state(4))
    each = [net.softmax.full_losses(out, targets)[0] for out, targets in zip(outputs, inputs.targets_2N, strict=True)]
    assert not losses_2.requires_grad
    torch.testing.assert_close(losses_2, torch.stack(each).detach())
    torch.testing.assert_close(total, sum(each))
    ours = torch.autograd.grad(total, list(net.parameters()))
    for one, other in zip(ours, torch.autograd.grad(sum(each), list(net.parameters())), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_cast_weights_learn_like_weights_cast_one_by_one():
    weights = {"a": torch.randn(3, 4, requires_grad=True), "b": torch.randn(5), "c": torch.randn(2, requires_grad=True)}
    assert _cast(weights, torch.float32) is weights
    cast = _cast(weights, torch.bfloat16)
    assert list(cast) == list(weights)
    for name, weight in weights.items():
        assert torch.equal(cast[name], weight.to(torch.bfloat16))
    (cast["a"].square().sum() + 3 * cast["b"].sum() + cast["c"].sum()).backward()
    assert weights["b"].grad is None
    for name, upstream in (("a", 2 * cast["a"].detach()), ("c", torch.ones(2))):
        gradient = weights[name].grad
        assert gradient is not None and gradient.dtype == torch.float32
        assert torch.equal(gradient, upstream.float())


def test_a_weight_that_was_not_used_has_no_part_in_the_gradient():
    weights = {"a": torch.randn(3, requires_grad=True), "b": torch.randn(2, requires_grad=True)}
    _cast(weights, torch.bfloat16)["a"].sum().backward()
    assert weights["a"].grad is not None and (weights["b"].grad is None or not weights["b"].grad.any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_comes_to_a_frequent_word_is_summed_exactly(dtype):
    table = torch.zeros(3, 2, dtype=dtype, requires_grad=True)
    words = torch.tensor([1] * 4096 + [2])
    gathered = _GatherRows.apply(table, words)
    assert gathered.shape == (4097, 2)
    gathered.sum().backward()
    assert table.grad is not None and table.grad.dtype == dtype
    assert table.grad[:, 0].tolist() == [0, 4096, 1]  # a sum in bfloat16 would stop at 256


def test_losses_are_added_up_where_there_is_no_float64(texts, tiny, tmp_path, losses, monkeypatch):
    """Apple's GPUs: what they would be asked to add up in is used here, on a CPU."""
    train([texts[0]], tmp_path / "exact", tiny(tokens=1_000), held_out=[texts[1]], tokenised=True, workers=1)
    for module in ("stepping", "held_out"):
        rounded = choose_sum_dtype(torch.device("mps"))
        monkeypatch.setattr(f"elmokit.pretrain.{module}.choose_sum_dtype", lambda _, rounded=rounded: rounded)
    options = {"held_out": [texts[1]], "tokenised": True, "workers": 1}
    while train([texts[0]], tmp_path / "rounded", tiny(tokens=1_000), **options, minutes=0) is None:
        pass  # one step per call: the sums go through checkpoints
    exact, rounded = losses(tmp_path / "exact"), losses(tmp_path / "rounded")
    assert [line["kind"] for line in rounded] == [line["kind"] for line in exact]
    for one, other in zip(rounded, exact, strict=True):
        name = "mean" if one["kind"] == "held-out" else "loss"
        assert one[name] == pytest.approx(other[name], rel=1e-6)


def test_each_place_has_its_own_dropout(network):
    net, inputs = network
    seed = torch.tensor(3)

    def outputs_with(*dropouts: float) -> torch.Tensor:
        net.dropouts = dropouts
        return torch.cat(net.predictions(inputs, net.zero_state(4), seed)[0])

    plain, last = outputs_with(), outputs_with(0.0, 0.0, 0.5)
    kept = last != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(last[kept], 2 * plain[kept])
    assert torch.equal(outputs_with(0.0, 0.0, 0.0), plain)
    for lower in (outputs_with(0.5, 0.0, 0.0), outputs_with(0.0, 0.5, 0.0)):
        assert (lower != 0).all() and not torch.allclose(lower, plain)
