"""A model of an earlier version whose output layer is an adaptive softmax: a clear error, and its vectors load."""

import dataclasses

import pytest
import torch
from safetensors.torch import save_file

from elmokit import Embedder, io
from elmokit.errors import CheckpointError

WORDS = ["<S>", "</S>", "<UNK>", *(f"word{number}" for number in range(57))]


def test_an_adaptive_softmax_is_refused_with_what_to_do(random_model, tmp_path):
    softmax = {"softmax.weight": torch.zeros(len(WORDS), 64), "softmax.bias": torch.zeros(len(WORDS))}
    plain = dataclasses.replace(io.load(random_model), softmax=softmax, output_words=WORDS)
    io.save(plain, tmp_path / "model")
    adaptive = torch.nn.AdaptiveLogSoftmaxWithLoss(64, len(WORDS), [5, 20], head_bias=True)
    old = {f"softmax.adaptive.{name}": value.detach().clone() for name, value in adaptive.state_dict().items()}
    save_file(old, tmp_path / "model" / "softmax.safetensors")
    with pytest.raises(CheckpointError, match="adaptive softmax.*train a new one.*remove softmax.safetens"):
        io.load(tmp_path / "model", softmax=True)
    assert Embedder.from_pretrained(tmp_path / "model").embed([["word1"]])[0].shape == (1, 128)
