"""The bundled model: it is there, small, says what it is made of, and knows what its card says it knows."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from elmokit import Embedder, LanguageModel
from elmokit.cli import main
from elmokit.io import load, model_names, packages

FOLDER = packages.BUNDLED / "en-small"
HOMOGRAPHS = Path(__file__).parent / "data" / "homographs.json"
LIMIT = 44e6


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder.from_pretrained("en-small", device="cpu")


def test_it_comes_with_the_package_and_is_small():
    assert "en-small" in model_names()
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= LIMIT


def test_it_brings_all_that_can_be_asked_for():
    checkpoint = load("en-small", softmax=True)
    assert checkpoint.config.dim == 256
    assert {"mix.weights", "mix.gamma", "canonical.hidden", "canonical.cell"} <= set(checkpoint.tensors)
    assert 100_000 <= len(checkpoint.softmax["softmax.weight"]) <= 120_000
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(words in card for words in ("CC BY-SA", "Project Gutenberg", "elmo train", "curve.svg", "## Limits"))


@pytest.mark.parametrize(("layers", "least"), [("top", 0.80), ("average", 0.79)])
def test_like_senses_are_nearer(embedder, layers, least):
    right = total = 0
    for word, senses in json.loads(HOMOGRAPHS.read_text(encoding="utf-8")).items():
        both = [_vectors(embedder, word, sentences, layers) for sentences in senses]
        for own_3D, other_3D in (both, both[::-1]):
            for anchor, same in itertools.permutations(range(len(own_3D)), 2):
                near = own_3D[anchor] @ own_3D[same]
                right += int((near > other_3D @ own_3D[anchor]).sum())
                total += len(other_3D)
    assert total == 14 * 36
    assert right / total >= least  # the card says 82.1 % and 81.5 %; chance is 50 %


def _vectors(embedder, word, sentences, layers):
    words = [sentence.split() for sentence in sentences]
    layers = embedder.embed(words, layers=layers)
    places = [[other.lower() for other in sentence].index(word) for sentence in words]
    vectors_3D = np.stack([layer_WD[place] for layer_WD, place in zip(layers, places, strict=True)])
    return vectors_3D / np.linalg.norm(vectors_3D, axis=1, keepdims=True)


def test_the_demo_is_convincing(capsys):
    sentences = [
        "She sat on the bank of the river and watched the boats.",
        "They walked along the grassy bank of the stream.",
        "The bank refused to lend them more money.",
        "He borrowed the money from a bank in the city.",
    ]
    assert main(["compare", "bank", *sentences]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " and " in line and line[0].isdigit()]
    alike = {(row[0], row[2]): float(row[5]) for row in rows}  # by layer 2
    across = max(value for pair, value in alike.items() if pair not in (("1", "2"), ("3", "4")))
    assert min(alike["1", "2"], alike["3", "4"]) > across + 0.05


def test_it_predicts_english():
    model = LanguageModel.from_pretrained("en-small", device="cpu")
    assert model.predict("The president of the United")[0][0] == "States"
    sentence = "The town lies on the river and has a population of about two thousand people ."
    assert model.perplexity([sentence]).mean < 60
    assert model.perplexity([" ".join(reversed(sentence.split()))]).mean > 500
