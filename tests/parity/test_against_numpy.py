"""Our vectors against the numpy reference over random configurations, files of both families, and all state modes."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from comparing import TOLERANCE, largest_difference, read_rows
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy_reference import read_bilm, read_manylangs
from random_models import write_bilm, write_manylangs

import elmokit
from elmokit.model import CANONICAL_SENTENCES

WORDS = ("the", "bank", "river", "Übermut", "銀行", "🏦", "<S>", "<bos>", "w" * 60, "é" * 30, "", "\u3000", "a\0b", ".")
# Networks with larger random weights and no clips are chaotic: they blow the rounding of float32 up by a factor of 10⁵
# over the canonical sentences (and still agree to 1e-8 when run in float64). Trained ones are not.
GAIN = 0.8

words = st.sampled_from(WORDS) | st.text(max_size=6)
sentences = st.lists(words, max_size=6)
batches = st.lists(st.lists(sentences, min_size=1, max_size=4), min_size=2, max_size=3)
clips = st.sampled_from([(None, None), (3.0, 3.0), (0.2, 0.1), (0.3, None), (None, 0.2)])
filters = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4)
common = {
    "layers": st.integers(1, 3),
    "highways": st.integers(0, 3),
    "filters": filters,
    "char_dim": st.integers(1, 5),
    "activation": st.sampled_from(["relu", "tanh"]),
    "columns": st.sampled_from([8, 50]),
    "clips": clips,
    "dims": st.sampled_from([(12, 6), (5, 7), (9, 3)]),
    "seed": st.integers(0, 2**32 - 1),
}
bilm_models = st.fixed_dictionaries(
    {
        **common,
        "dims": st.sampled_from([(12, 6), (5, 7), (6, 6), (9, 3)]),
        "residual": st.booleans(),
        "n_characters": st.sampled_from([261, 262]),
    }
)
manylangs_models = st.fixed_dictionaries({**common, "word_dim": st.sampled_from([0, 4])})
# Without shrinking: a model is written and read each time, and any example that fails can be run by itself.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
quick = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)


def write(writer, folder, options):
    options = dict(options)
    (options["cell_clip"], options["proj_clip"]), (options["dim"], options["projection_dim"]) = (
        options.pop("clips"),
        options.pop("dims"),
    )
    return writer(Path(folder), np.random.default_rng(options.pop("seed")), gain=GAIN, **options)


def check(folder, reference, batches, mode, keep_boundaries):
    """The batches one after the other, through ours and through the reference."""
    elmo = elmokit.Elmo.from_pretrained(folder, keep_boundaries=keep_boundaries)
    our_state = their_state = canonical = None
    if mode == "canonical":
        for sentence in CANONICAL_SENTENCES:
            _, canonical = reference.read([sentence.split()], state=canonical)
        assert np.abs(elmo.canonical_state.hidden.numpy() - canonical.hidden).max() < TOLERANCE
        assert np.abs(elmo.canonical_state.cell.numpy() - canonical.cell).max() < TOLERANCE
    for batch in batches:
        if mode == "zero":
            our_state = their_state = None
        elif mode == "canonical":
            our_state = elmo.canonical_state.repeat(len(batch))
            their_state = type(canonical)(
                canonical.hidden.repeat(len(batch), axis=2), canonical.cell.repeat(len(batch), axis=2)
            )
        ours, our_state = read_rows(elmo, batch, our_state)
        theirs, their_state = reference.read(batch, state=their_state, keep_boundaries=keep_boundaries)
        assert largest_difference(ours, theirs) < TOLERANCE
        assert np.abs(our_state.hidden.numpy() - their_state.hidden).max() < TOLERANCE
        assert np.abs(our_state.cell.numpy() - their_state.cell).max() < TOLERANCE


@quick
@given(bilm_models, batches, st.sampled_from(["zero", "carry", "canonical"]), st.booleans())
def test_bilm_files_against_numpy(options, batches, mode, keep_boundaries):
    with tempfile.TemporaryDirectory() as folder:
        write(write_bilm, folder, options)
        check(folder, read_bilm(Path(folder)), batches, mode, keep_boundaries)


@quick
@given(manylangs_models, batches, st.sampled_from(["zero", "carry", "canonical"]), st.booleans())
def test_manylangs_files_against_numpy(options, batches, mode, keep_boundaries):
    with tempfile.TemporaryDirectory() as folder:
        write(write_manylangs, folder, options)
        check(folder, read_manylangs(Path(folder)), batches, mode, keep_boundaries)


@pytest.mark.parametrize("residual", [False, True])
def test_word_input_files_against_numpy(tmp_path, residual):
    vocabulary = ["bank", "</S>", "the", "<UNK>", "<S>", "river"]
    write_bilm(tmp_path, np.random.default_rng(5), words=vocabulary, residual=residual)
    batches = [[["the", "river", "bank"], ["unheard", "of"]], [["<S>", "bank"]], [["river"], ["the"], ["bank"]]]
    check(tmp_path, read_bilm(tmp_path), batches, "carry", True)


def test_no_projection_anywhere_against_numpy(tmp_path):
    """Features as wide as the output, and the output as wide as the cell: neither matrix is in the file.

    TensorFlow's cell clips its output only where it projects, so the second clip does nothing here.
    """
    write_bilm(
        tmp_path, np.random.default_rng(6), dim=6, projection_dim=6, filters=((1, 2), (3, 4)), proj_clip=0.05, layers=3
    )
    check(tmp_path, read_bilm(tmp_path), [[["the", "bank"], ["x"]], [["river"]]], "carry", True)


def test_rows_of_length_0_keep_their_state_against_numpy(tmp_path):
    write_bilm(tmp_path, np.random.default_rng(7))
    elmo, reference = elmokit.Elmo.from_pretrained(tmp_path), read_bilm(tmp_path)
    _, state = read_rows(elmo, [["the", "bank"], ["river"], ["a"]])
    _, their_state = reference.read([["the", "bank"], ["river"], ["a"]])
    theirs, their_state = reference.read([["x"], None, ["y", "z"]], state=their_state, keep_boundaries=True)
    begin, end = (elmo.encode_words(ids.unsqueeze(0)) for ids in elmo.boundary_ids)
    x, y, z = elmo.encode_words(elmo.word_ids([["x", "y", "z"]])[0]).unsqueeze(1)
    nothing = torch.zeros(4, begin.shape[1])
    words = torch.stack([torch.cat([begin, x, end, nothing[:1]]), nothing, torch.cat([begin, y, z, end])])
    layers, state = elmo.bilm(words, lengths=[3, 0, 4], state=state)
    for row, length in enumerate([3, 0, 4]):
        assert np.abs(layers[:, row, :length].detach().numpy() - theirs[row]).max(initial=0) < TOLERANCE
        assert not layers[:, row, length:].any()
    assert np.abs(state.hidden.detach().numpy() - their_state.hidden).max() < TOLERANCE
    assert np.abs(state.cell.detach().numpy() - their_state.cell).max() < TOLERANCE
