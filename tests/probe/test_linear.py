"""The linear probe: what can be separated is, what cannot is not, and the penalty is chosen on held-out labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from elmokit.probe.linear import fit, fit_by_turns


def blobs(count: int, *, seed: int, gap: float):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    centres = np.eye(3, 5) * gap
    return (centres[labels] + random.standard_normal((count, 5))).astype(np.float32), labels


def test_separable_labels_are_found():
    train, labels = blobs(300, seed=0, gap=20)
    test, gold = blobs(100, seed=1, gap=20)
    probe = fit(train, labels, num_labels=3, dev_vectors=test, dev_labels=gold)
    assert probe.accuracy(test, gold) == 1


def test_noise_stays_at_chance():
    train, labels = blobs(600, seed=0, gap=0)
    test, gold = blobs(600, seed=1, gap=0)
    probe = fit(train, labels, num_labels=3, dev_vectors=test, dev_labels=gold)
    assert probe.accuracy(test, gold) == pytest.approx(1 / 3, abs=0.08)


def test_the_fit_is_the_minimum():
    """At the minimum the gradient of the penalised loss is zero: an independent check of the optimiser."""
    train, labels = blobs(200, seed=0, gap=2)
    probe = fit(train, labels, num_labels=3, dev_vectors=train, dev_labels=labels, strengths=[1e-2])
    weight, bias = probe.weight_DK.clone().requires_grad_(), probe.bias_K.clone().requires_grad_()
    scaled = (torch.from_numpy(train) - probe.mean_D) / probe.scale_D
    loss = F.cross_entropy(scaled @ weight + bias, torch.from_numpy(labels)) + 1e-2 / 2 * weight.square().sum()
    loss.backward()
    assert weight.grad is not None and bias.grad is not None
    assert max(weight.grad.abs().max(), bias.grad.abs().max()) < 1e-3


def test_scale_and_offset_of_a_feature_do_not_matter():
    train, labels = blobs(200, seed=0, gap=2)
    test, gold = blobs(200, seed=1, gap=2)
    plain = fit(train, labels, num_labels=3, dev_vectors=test, dev_labels=gold)
    moved = fit(train * 100 + 7, labels, num_labels=3, dev_vectors=test * 100 + 7, dev_labels=gold)
    assert (plain.predict(test) == moved.predict(test * 100 + 7)).mean() > 0.98


def test_a_strong_penalty_wins_where_few_examples_are_wide():
    random = np.random.default_rng(0)
    train, test = (random.standard_normal((size, 100)).astype(np.float32) for size in (60, 500))
    labels, gold = (part[:, 0] + 0.5 * random.standard_normal(len(part)) > 0 for part in (train, test))
    probe = fit(train, labels.astype(int), num_labels=2, dev_vectors=test, dev_labels=gold, strengths=[1, 1e-1, 1e-5])
    assert probe.strength > 1e-5


def test_a_constant_feature_and_an_unknown_label_do_no_harm():
    train = np.concatenate([np.eye(4), np.ones((4, 1))], axis=1).astype(np.float32)
    probe = fit(train, np.array([0, 0, 1, 1]), num_labels=2, dev_vectors=train, dev_labels=np.array([0, 0, 1, -1]))
    assert probe.accuracy(train, np.array([0, 0, 1, -1])) == 0.75
    assert np.isnan(probe.accuracy(train[:0], np.array([], int)))
    assert probe.predict(train[:0]).shape == (0,)


def test_few_labels_are_held_out_by_turns_and_then_all_are_learned():
    random = np.random.default_rng(0)
    train = random.standard_normal((90, 100)).astype(np.float32)
    labels = (train[:, 0] + 0.5 * random.standard_normal(90) > 0).astype(np.int64)
    folds, strengths = np.arange(90) % 3, [3.0, 1e-1, 1e-5]
    probe = fit_by_turns(train, labels, folds, num_labels=2, strengths=strengths)
    right = {}
    for strength in strengths:
        parts = [
            fit(
                train[folds != fold],
                labels[folds != fold],
                num_labels=2,
                dev_vectors=train[folds == fold],
                dev_labels=labels[folds == fold],
                strengths=[strength],
            ).accuracy(train[folds == fold], labels[folds == fold])
            for fold in range(3)
        ]
        right[strength] = sum(parts)
    assert right[probe.strength] == max(right.values()) > min(right.values())
    # Thirty iterations from another start end a little apart.
    alone = fit(train, labels, num_labels=2, dev_vectors=train, dev_labels=labels, strengths=[probe.strength])
    torch.testing.assert_close(probe.weight_DK, alone.weight_DK, rtol=0, atol=2e-2)
