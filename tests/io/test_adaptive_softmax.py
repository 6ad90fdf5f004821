"""An adaptive output layer beside a model: stored, loaded, checked, and refused where a format has no room for it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from elmokit import LanguageModel, io
from elmokit.cli import main
from elmokit.errors import CheckpointError, OutputError
from elmokit.nn.softmax import AdaptiveSoftmax, output_layer_of

WORDS = ["<S>", "</S>", "<UNK>", *(f"word{number}" for number in range(57))]


@pytest.fixture
def checkpoint(random_model) -> io.Checkpoint:
    softmax = AdaptiveSoftmax(len(WORDS), 64).state_dict(prefix="softmax.")
    return dataclasses.replace(io.load(random_model), softmax=dict(softmax), output_words=WORDS)


def test_it_is_stored_and_predicts_the_same(checkpoint, tmp_path, capsys):
    io.save(checkpoint, tmp_path / "model")
    loaded = io.load(tmp_path / "model", softmax=True)
    assert loaded.softmax is not None and checkpoint.softmax is not None
    assert loaded.softmax.keys() == checkpoint.softmax.keys()
    assert io.num_output_words(loaded.softmax) == len(WORDS)
    hidden_NP = torch.randn(3, 64)
    before = output_layer_of({n.removeprefix("softmax."): value for n, value in checkpoint.softmax.items()})
    model = LanguageModel.from_pretrained(tmp_path / "model")
    assert isinstance(model.softmax, AdaptiveSoftmax)
    assert torch.equal(model.softmax.log_probs(hidden_NP), before.log_probs(hidden_NP))
    assert len(model.predict(["word1"], top=3)) == 3
    assert main(["info", str(tmp_path / "model")]) == 0
    assert "60 words" in capsys.readouterr().out


def test_a_list_or_a_shape_that_does_not_fit_is_refused(checkpoint):
    with pytest.raises(CheckpointError, match="59 entries"):
        dataclasses.replace(checkpoint, output_words=WORDS[:-1]).check("here")
    softmax = {**checkpoint.softmax, "softmax.adaptive.tail.1.0.weight": torch.zeros(3, 64)}
    with pytest.raises(CheckpointError, match="softmax should have the shapes"):
        dataclasses.replace(checkpoint, softmax=softmax).check("here")
    del softmax["softmax.adaptive.head.bias"]
    with pytest.raises(CheckpointError, match="softmax should have the shapes"):
        dataclasses.replace(checkpoint, softmax=softmax).check("here")


def test_formats_without_room_for_it_say_so(checkpoint, tmp_path):
    with pytest.raises(OutputError, match="no adaptive softmax"):
        io.save(checkpoint, tmp_path / "model", format="allennlp")
    with pytest.raises(OutputError, match="not stored as int8"):
        io.save(checkpoint, tmp_path / "model", softmax_dtype="int8")
