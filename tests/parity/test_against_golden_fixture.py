"""An extra for those who have AllenNLP's own test fixture beside the checkout: a model that others made.

`test_against_allennlp.py` holds the same facts – ten batches of three rows with carried state, layer 0 of single
words – for models of our own that everyone has.
"""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from comparing import TOLERANCE, largest_difference, read_rows
from numpy_reference import read_bilm

import elmokit

FIXTURE = Path(__file__).parents[2].parent / "shared" / "fixtures" / "allennlp-elmo"

pytestmark = pytest.mark.skipif(
    not FIXTURE.is_dir(),
    reason="AllenNLP's fixture is not in this repository; test_against_allennlp.py asserts the same without it",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The model alone: in the set it lies among hdf5 files that are not weights."""
    folder = tmp_path_factory.mktemp("golden")
    for name in ("options.json", "lm_weights.hdf5"):
        (folder / name).write_bytes((FIXTURE / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def batches():
    """Ten batches of three rows, and the top layer (words, 2P) of each sentence."""
    lists = json.loads((FIXTURE / "sentences.json").read_text())
    files = [h5py.File(FIXTURE / f"lm_embeddings_{row}.hdf5") for row in range(3)]
    pairs = []
    for number in range(10):
        sentences = [lists[row][number].split() for row in range(3)]
        tops = [np.concatenate(list(np.asarray(files[row][str(number)])), axis=-1) for row in range(3)]
        pairs.append((sentences, tops))
    for file in files:
        file.close()
    return pairs


@pytest.fixture(scope="module")
def known_words():
    with h5py.File(FIXTURE / "elmo_token_embeddings.hdf5") as file:
        return (FIXTURE / "vocab_test.txt").read_text().split(), np.asarray(file["embedding"])


def test_the_numpy_reference_agrees(folder, batches, known_words):
    reference, state = read_bilm(folder), None
    for sentences, tops in batches:
        layers, state = reference.read(sentences, state=state)
        assert largest_difference([each[-1] for each in layers], tops) < 2e-6
    words, vectors = known_words
    assert np.abs(np.stack([reference.word(word) for word in words]) - vectors).max() < 2e-6


def test_carry_against_the_golden_set(folder, batches):
    elmo, state = elmokit.Elmo.from_pretrained(folder), None
    for sentences, tops in batches:
        ours, state = read_rows(elmo, sentences, state)
        assert largest_difference([layers[-1] for layers in ours], tops) < TOLERANCE


def test_embedder_against_the_golden_set(folder, batches):
    embedder = elmokit.Embedder.from_pretrained(folder, state="carry")
    everything = [sentence for sentences, _ in batches for sentence in sentences]
    ours = embedder.embed(everything, layers="top", batch_size=3)
    assert largest_difference(ours, [top for _, tops in batches for top in tops]) < TOLERANCE


def test_layer_0_against_the_golden_set(folder, known_words):
    elmo = elmokit.Elmo.from_pretrained(folder)
    words, vectors = known_words
    ours = elmo.encode_words(elmo.word_ids([words])[0]).detach().numpy()
    assert np.abs(ours - vectors).max() < TOLERANCE
