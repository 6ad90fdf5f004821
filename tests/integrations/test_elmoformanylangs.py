"""The drop-in for ELMoForManyLangs: the old signature, and its own numbers (`tests/parity`)."""

import json
import random

import numpy as np
import pytest
from comparing import DATA, TOLERANCE, largest_difference
from numpy_reference import read_manylangs

from elmokit.errors import InputError, LayerError
from elmokit.integrations.elmoformanylangs import Embedder

BATCHES = json.loads((DATA / "manylangs-sentences.json").read_text())["batches"]
FOLDER = DATA / "manylangs-words-and-characters"


@pytest.mark.parametrize("folder", sorted(DATA.glob("manylangs-*/")), ids=lambda path: path.name)
def test_the_first_batch_against_manylangs(folder):
    with np.load(folder / "golden.npz") as file:
        expected = [file[f"zero_2_{row}"] for row in range(len(BATCHES[2]))]
    assert largest_difference(Embedder(str(folder)).sents2elmo(BATCHES[2], output_layer=-2), expected) < TOLERANCE
    average = Embedder(str(folder)).sents2elmo(BATCHES[2])
    assert largest_difference(average, [layers.mean(0) for layers in expected]) < TOLERANCE
    first = Embedder(str(folder)).sents2elmo(BATCHES[2], 1)
    assert largest_difference(first, [layers[1] for layers in expected]) < TOLERANCE


def test_state_goes_from_batch_to_batch_and_from_call_to_call():
    sents = [sentence for batch in BATCHES for sentence in batch]
    random.Random(1).shuffle(sents)
    embedder, reference, state = Embedder(FOLDER, batch_size=3), read_manylangs(FOLDER), None
    order, expected = sorted(range(len(sents)), key=lambda place: -len(sents[place])), {}
    for _ in range(2):
        for start in range(0, len(order), 3):
            places = order[start : start + 3]
            layers, state = reference.read([sents[place] for place in places], state=state)
            expected.update(zip(places, layers, strict=True))
        found = embedder.sents2elmo(sents, output_layer=-2)
        assert largest_difference(found, [expected[place] for place in range(len(sents))]) < TOLERANCE


def test_zero_state_gives_the_same_vectors_again():
    carrying, starting = Embedder(FOLDER), Embedder(FOLDER, state="zero")
    assert largest_difference(carrying.sents2elmo(BATCHES[0]), carrying.sents2elmo(BATCHES[0])) > 1e-3
    assert largest_difference(starting.sents2elmo(BATCHES[0]), starting.sents2elmo(BATCHES[0])) < 1e-6


def test_bad_input_is_named():
    embedder = Embedder(FOLDER)
    with pytest.raises(InputError, match="each a list of words, found str 'The bank'"):
        embedder.sents2elmo(["The bank"])
    with pytest.raises(LayerError, match="layer -3"):
        embedder.sents2elmo(BATCHES[0], output_layer=-3)
    assert embedder.sents2elmo([]) == []
