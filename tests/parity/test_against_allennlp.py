"""Our vectors against those that AllenNLP 2.10.1 gave for the same files (`make_allennlp_golden.py`)."""

import json

import numpy as np
import pytest
import torch
from comparing import DATA, TOLERANCE, largest_difference, read_rows
from numpy_reference import read_bilm

import elmokit

FACTS = json.loads((DATA / "allennlp-sentences.json").read_text())
BATCHES = FACTS["batches"]
LINES = [line.split() for line in (DATA / "carried-sentences.txt").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module", params=sorted(path.name for path in DATA.glob("allennlp-*/")))
def folder(request):
    return DATA / request.param


@pytest.fixture(scope="module")
def carried(folder):
    """The top layer of each of 30 sentences, read as ten batches of three rows, and layer 0 of their words, sorted."""
    with np.load(folder / "carried.npz") as file:
        padded = [row for number in range(10) for row in file[f"top_{number}"]]
        return [top[: len(line)] for top, line in zip(padded, LINES, strict=True)], file["words"]


def rows(layers_LBWD, sentences, boundaries=2):
    return [layers_LBWD[:, row, : len(sentence) + boundaries] for row, sentence in enumerate(sentences)]


def test_the_numpy_reference_agrees(folder, golden):
    reference, state = read_bilm(folder), None
    for number, sentences in enumerate(BATCHES):
        theirs, state = reference.read(sentences, state=state, keep_boundaries=True)
        assert largest_difference(rows(golden[f"carry_{number}"], sentences), theirs) < 2e-6


def test_ids_against_allennlp(golden):
    for number, sentences in enumerate(BATCHES):
        np.testing.assert_array_equal(elmokit.word_ids(sentences).numpy(), golden[f"ids_{number}"])


def test_carry_against_allennlp(folder, golden):
    """The fifth batch holds an empty sentence: its two boundaries are read all the same, and move the row's state."""
    elmo, state = elmokit.Elmo.from_pretrained(folder, keep_boundaries=True), None
    for number, sentences in enumerate(BATCHES):
        ours, state = read_rows(elmo, sentences, state)
        assert largest_difference(ours, rows(golden[f"carry_{number}"], sentences)) < TOLERANCE


def test_without_boundaries_against_allennlp(folder, golden):
    elmo, state = elmokit.Elmo.from_pretrained(folder), None
    for sentences in BATCHES[:3]:
        ours, state = read_rows(elmo, sentences, state)
    assert largest_difference(ours, rows(golden["carry_bare_2"], sentences, boundaries=0)) < TOLERANCE


def test_zero_state_against_allennlp(folder, golden):
    ours, _ = read_rows(elmokit.Elmo.from_pretrained(folder, keep_boundaries=True), BATCHES[2])
    assert largest_difference(ours, rows(golden["zero_2"], BATCHES[2])) < TOLERANCE


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_mixes_against_allennlp(folder, golden, layer_norm, keeps):
    mixes = FACTS["mixes"]
    elmo = elmokit.Elmo.from_pretrained(
        folder, num_mixes=len(mixes), dropout=0.0, keep_boundaries=keeps, layer_norm=layer_norm
    )
    with torch.no_grad():
        for mix, (weights, gamma) in zip(elmo.mixes, mixes, strict=True):
            mix.weights.copy_(torch.tensor(weights[: len(mix.weights)]))
            mix.gamma.fill_(gamma)
        out = elmo(elmo.word_ids(BATCHES[0]))
    mask = golden[f"mask_keep_{int(keeps)}"]
    np.testing.assert_array_equal(out.mask.numpy(), mask)
    for k, mixed in enumerate(out.mixes):
        # Where no word is, AllenNLP's normalised layers hold numbers that mean nothing.
        theirs = golden[f"mix_{k}_norm_{int(layer_norm)}_keep_{int(keeps)}"][mask]
        assert np.abs(mixed.numpy()[mask] - theirs).max() < TOLERANCE


def test_embedder_against_allennlp(folder, golden):
    choices = {"all": lambda layers: layers, "top": lambda layers: layers[-1], "average": lambda layers: layers.mean(0)}
    for name, chosen in choices.items():
        embedder = elmokit.Embedder.from_pretrained(folder, state="carry")
        for number, sentences in enumerate(BATCHES):
            ours = embedder.embed(sentences, layers=name)
            theirs = [chosen(layers[:, 1:-1]) for layers in rows(golden[f"carry_{number}"], sentences)]
            assert largest_difference(ours, theirs) < TOLERANCE


def test_leading_dimensions_against_allennlp(folder, golden):
    # AllenNLP flattens them: rows of the state count through.
    elmo = elmokit.Elmo.from_pretrained(folder, keep_boundaries=True)
    ids = elmo.word_ids(BATCHES[2][:4])
    out = elmo(ids.reshape(2, 2, *ids.shape[1:]))
    ours = out.layers.detach().numpy().reshape(*golden["zero_2"][:, :4].shape)
    assert np.abs(ours - golden["zero_2"][:, :4]).max() < TOLERANCE


def test_the_numpy_reference_agrees_over_ten_batches(folder, carried):
    reference, state = read_bilm(folder), None
    for start in range(0, len(LINES), 3):
        theirs, state = reference.read(LINES[start : start + 3], state=state)
        assert largest_difference([each[-1] for each in theirs], carried[0][start : start + 3]) < 2e-6


def test_ten_carried_batches_against_allennlp(folder, carried):
    elmo, state = elmokit.Elmo.from_pretrained(folder), None
    for start in range(0, len(LINES), 3):
        ours, state = read_rows(elmo, LINES[start : start + 3], state)
        assert largest_difference([layers[-1] for layers in ours], carried[0][start : start + 3]) < TOLERANCE


def test_embedder_carries_batches_of_three_against_allennlp(folder, carried):
    embedder = elmokit.Embedder.from_pretrained(folder, state="carry")
    assert largest_difference(embedder.embed(LINES, layers="top", batch_size=3), carried[0]) < TOLERANCE


def test_layer_0_against_allennlp(folder, carried):
    words = sorted({word for line in LINES for word in line})
    elmo = elmokit.Elmo.from_pretrained(folder)
    ours = elmo.encode_words(elmo.word_ids([words])[0]).detach().numpy()
    assert np.abs(np.hstack([ours, ours]) - carried[1]).max() < TOLERANCE


@pytest.mark.parametrize("format", ["native", "allennlp"])
def test_saved_again_against_allennlp(folder, golden, format, tmp_path):
    elmokit.Elmo.from_pretrained(folder).save_pretrained(tmp_path / "saved", format=format)
    ours, _ = read_rows(elmokit.Elmo.from_pretrained(tmp_path / "saved", keep_boundaries=True), BATCHES[2])
    assert largest_difference(ours, rows(golden["zero_2"], BATCHES[2])) < TOLERANCE
    if format == "allennlp":  # what we write, an independent reader reads
        theirs, _ = read_bilm(tmp_path / "saved").read(BATCHES[2], keep_boundaries=True)
        assert largest_difference(rows(golden["zero_2"], BATCHES[2]), theirs) < 2e-6
