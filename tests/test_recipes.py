"""Recipes that made the texts of published models do what their docstrings say, and keep doing it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

from elmokit import Elmo, ElmoConfig, LanguageModel, io

RECIPES = Path(__file__).parents[1] / "recipes"
PLAIN, TREEBANK = "Don't give John's dog 10 , 000 bones .", "Do n't give John 's dog 10,000 bones ."


@pytest.mark.parametrize(("options", "expected"), [([], [PLAIN, TREEBANK]), (["--plain-first"], [TREEBANK, PLAIN])])
def test_paragraphs_are_split_in_two_ways_by_turns(tmp_path, options, expected):
    (tmp_path / "in.txt").write_text("Don't give John's dog 10,000 bones.\n" * 4, encoding="utf-8")
    command = [sys.executable, RECIPES / "tokenise_two_ways.py", "in.txt", "out.txt", *options]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines() == expected * 2


def load_bundle():
    spec = spec_from_file_location("bundle", RECIPES / "bundle.py")
    assert spec and spec.loader
    bundle = module_from_spec(spec)
    spec.loader.exec_module(bundle)
    return bundle


def test_the_mean_of_two_models_is_bundled_and_says_so(tmp_path, monkeypatch, capsys):
    checkpoint = Elmo.random(ElmoConfig.tiny()).to_checkpoint()
    checkpoint.output_words = ["<S>", "</S>", "<UNK>", *"abcdefgh"]
    weight_VP = torch.randn(len(checkpoint.output_words), checkpoint.config.lstm.projection_dim)
    checkpoint.softmax = {"softmax.weight": weight_VP, "softmax.bias": torch.zeros(len(weight_VP))}
    checkpoint.metadata["held_out_perplexity"] = "50"
    io.save(checkpoint, tmp_path / "first")
    checkpoint.metadata["training_words"] = "26,000"
    checkpoint.softmax["softmax.bias"] = torch.arange(len(weight_VP)) / 4
    io.save(checkpoint, tmp_path / "second")
    monkeypatch.chdir(tmp_path)
    bundle = load_bundle()
    monkeypatch.setattr(sys, "argv", ["bundle.py", "first", "mean", "--average", "second"])
    bundle.main()
    mean = io.load(tmp_path / "mean", softmax=True)
    torch.testing.assert_close(mean.softmax["softmax.bias"], torch.arange(len(weight_VP)) / 8)
    assert mean.metadata["average"] == "the mean of two models, the second after 26,000 more words"
    assert "held_out_perplexity" not in mean.metadata
    checkpoint.output_words[-1] = "z"
    io.save(checkpoint, tmp_path / "other")
    monkeypatch.setattr(sys, "argv", ["bundle.py", "first", "no", "--average", "other"])
    with pytest.raises(SystemExit):
        bundle.main()
    assert "not the same vocabulary of the output layer" in capsys.readouterr().err


def test_a_model_that_is_too_sure_is_calibrated_and_expects_the_same_order(tmp_path, monkeypatch, capsys):
    words = ["<S>", "</S>", "<UNK>", *"abcdefgh"]
    config = dataclasses.replace(ElmoConfig.tiny(), lstm=dataclasses.replace(ElmoConfig.tiny().lstm, cell_clip=None))
    checkpoint = Elmo.random(config).to_checkpoint()
    torch.manual_seed(0)
    weight_VP = 0.05 * torch.randn(len(words), config.lstm.projection_dim)
    often_V = torch.tensor([1.0, 1.0, 0.05, 6.0, 3.0, 2.0, *[0.05] * 5])  # in the text below
    checkpoint.softmax = {"softmax.weight": weight_VP, "softmax.bias": often_V.log() / 0.65}
    checkpoint.output_words = words
    io.save(checkpoint, tmp_path / "sure")
    (tmp_path / "unseen.txt").write_text("a b a c a a b a b a c\n" * 8, encoding="utf-8")
    bundle = load_bundle()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bundle.py", "sure", "mild", "--calibrate", "unseen.txt"])
    bundle.main()
    sure, mild = (LanguageModel.from_pretrained(tmp_path / name) for name in ("sure", "mild"))
    ratio_V = mild.softmax.weight.norm(dim=1) / sure.softmax.weight.norm(dim=1)
    assert ((ratio_V > 0.81) & (ratio_V < 0.95)).all()  # within the rounding to int8
    lines = (tmp_path / "unseen.txt").read_text(encoding="utf-8").splitlines()
    assert mild.perplexity(lines).mean < sure.perplexity(lines).mean
    first, second = ([word for word, _ in model.predict("a b", top=3)] for model in (sure, mild))
    assert first == second
    assert "chosen on unseen.txt" in io.load(tmp_path / "mild").metadata["calibration"]
    checkpoint.softmax["softmax.bias"] *= 3
    io.save(checkpoint, tmp_path / "surer")
    monkeypatch.setattr(sys, "argv", ["bundle.py", "surer", "no", "--calibrate", "unseen.txt"])
    with pytest.raises(SystemExit):
        bundle.main()
    assert "logits times 0.8, the end of what is tried" in capsys.readouterr().err and not (tmp_path / "no").exists()
