"""Our vectors against those that ELMoForManyLangs 0.0.4 gave for the same folders (`make_manylangs_golden.py`)."""

import json

import pytest
from comparing import DATA, TOLERANCE, largest_difference, read_rows
from numpy_reference import read_manylangs

import elmokit

BATCHES = json.loads((DATA / "manylangs-sentences.json").read_text())["batches"]


@pytest.fixture(scope="module", params=sorted(path.name for path in DATA.glob("manylangs-*/")))
def folder(request):
    return DATA / request.param


def rows(golden, number):
    layers_LBWD, mask_BW = golden[f"carry_{number}"], golden[f"mask_{number}"]
    return [layers_LBWD[:, row, mask] for row, mask in enumerate(mask_BW)]


def test_the_numpy_reference_agrees(folder, golden):
    reference, state = read_manylangs(folder), None
    for number, sentences in enumerate(BATCHES):
        theirs, state = reference.read(sentences, state=state, keep_boundaries=True)
        assert largest_difference(rows(golden, number), theirs) < 2e-6


def test_carry_against_manylangs(folder, golden):
    elmo, state = elmokit.Elmo.from_pretrained(folder, keep_boundaries=True), None
    for number, sentences in enumerate(BATCHES):
        ours, state = read_rows(elmo, sentences, state)
        assert largest_difference(ours, rows(golden, number)) < TOLERANCE


def test_embedder_against_manylangs(folder, golden):
    ours = elmokit.Embedder.from_pretrained(folder).embed(BATCHES[2], layers="all")
    theirs = [golden[f"zero_2_{row}"] for row in range(len(BATCHES[2]))]
    assert largest_difference(ours, theirs) < TOLERANCE


def test_saved_again_against_manylangs(folder, golden, tmp_path):
    elmokit.Elmo.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    elmo = elmokit.Elmo.from_pretrained(tmp_path / "saved", keep_boundaries=True)
    ours, _ = read_rows(elmo, BATCHES[0])
    assert largest_difference(ours, rows(golden, 0)) < TOLERANCE
