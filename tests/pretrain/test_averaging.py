"""The running mean of the weights: what it is, and that a resumed run has the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from elmokit.pretrain.averaging import EVERY, WeightAverage
from elmokit.pretrain.train import train


def set_to(network, value):
    nn.init.constant_(network.weight, value)


def mean_of(average, network):
    with average.applied():
        return network.weight.item()


def test_old_weights_count_exponentially_less():
    network = nn.Linear(1, 1, bias=False)
    average = WeightAverage(network, tokens=100)
    values = np.random.default_rng(0).normal(size=400)
    for value in values:
        set_to(network, value)
        average.update(words=10)
    shares = np.exp(-0.1 * np.arange(400))[::-1]
    assert mean_of(average, network) == pytest.approx((shares * values).sum() / shares.sum(), abs=1e-5)
    assert network.weight.item() == pytest.approx(values[-1])


def test_the_first_weights_are_averaged_plainly():
    network = nn.Linear(1, 1, bias=False)
    average = WeightAverage(network, tokens=10**9)
    for value in (3.0, 5.0, 10.0):
        set_to(network, value)
        average.update(words=1)
    assert mean_of(average, network) == pytest.approx(6.0)


def test_before_the_first_update_there_is_only_the_network():
    network = nn.Linear(1, 1, bias=False)
    average = WeightAverage(network, tokens=10)
    set_to(network, 2.0)
    for _ in range(EVERY - 1):
        average.count(1)
    assert mean_of(average, network) == 2.0 and average.state_dict()["means"] == []
    average.count(1)
    set_to(network, 7.0)
    assert mean_of(average, network) == 2.0


def test_weights_come_back_after_an_error():
    network = nn.Linear(1, 1, bias=False)
    average = WeightAverage(network, tokens=10)
    average.update(1)
    set_to(network, 7.0)
    with pytest.raises(ZeroDivisionError), average.applied():
        raise ZeroDivisionError
    assert network.weight.item() == 7.0


def test_a_resumed_run_has_the_same_mean(texts, tiny, tmp_path, losses):
    text, held_out = texts
    config = tiny(average_tokens=600, tokens=2_400, evaluate_every=800, hold=0.2)
    common = {"held_out": [held_out], "tokenised": True, "workers": 1}
    train([text], tmp_path / "whole", config, **common)
    train([text], tmp_path / "parts", config, **common, minutes=0)  # one step
    train([text], tmp_path / "parts", config, **common)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    plain = dataclasses.replace(config, average_tokens=0)
    train([text], tmp_path / "plain", plain, **common)
    found = [[line for line in losses(tmp_path / name) if line["kind"] == "held-out"] for name in ("whole", "plain")]
    assert found[0] != found[1]
    files = [next((tmp_path / name).glob("*.safetensors")) for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert torch.isfinite(torch.tensor([line["mean"] for line in found[0]])).all()
