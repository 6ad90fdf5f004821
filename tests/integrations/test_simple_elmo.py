"""The drop-in for simple_elmo: the old signatures, and the numbers of bilm-tf, by the reference in numpy."""

import numpy as np
import pytest
from comparing import DATA, TOLERANCE
from numpy_reference import read_bilm

from elmokit.errors import InputError
from elmokit.integrations.simple_elmo import ElmoModel

FOLDER = DATA / "allennlp-two-layers"
TEXTS = [line.split() for line in (DATA / "carried-sentences.txt").read_text(encoding="utf-8").splitlines()][:5]


@pytest.fixture(scope="module")
def model():
    model = ElmoModel()
    assert model.load(FOLDER, max_batch_size=2) == "The model is now loaded."
    return model


def read_by_reference(warmup):
    """All layers of each text as simple_elmo reads them: from zero, in batches of two, the first one twice."""
    reference, state, found = read_bilm(FOLDER), None, []
    if warmup:
        _, state = reference.read(TEXTS[:2], state=state)
    for start in range(0, len(TEXTS), 2):
        layers, state = reference.read(TEXTS[start : start + 2], state=state)
        found += layers
    return found


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_vectors_against_the_reference(model, warmup, layers):
    choose = {"average": lambda all_: all_.mean(0), "top": lambda all_: all_[-1], "all": lambda all_: all_}[layers]
    for _ in range(2):  # each call begins anew
        vectors = model.get_elmo_vectors(TEXTS, warmup=warmup, layers=layers)
    longest = max(map(len, TEXTS))
    shape = (model.n_layers, longest, model.vector_size) if layers == "all" else (longest, model.vector_size)
    assert vectors.dtype == np.float64
    assert vectors.shape == (len(TEXTS), *shape)
    for row, words, expected in zip(vectors, TEXTS, read_by_reference(warmup), strict=True):
        assert np.abs(row[..., : len(words), :] - choose(expected)).max() < TOLERANCE
        assert not row[..., len(words) :, :].any()


def test_averages_are_of_a_texts_own_words(model):
    """In simple_elmo padding counts as words, and with "all" layers are mistaken for words."""
    means = np.stack([layers.mean(1) for layers in read_by_reference(warmup=True)])
    expected = means / np.linalg.norm(means, axis=(1, 2), keepdims=True)
    found = model.get_elmo_vector_average(TEXTS, layers="all")
    assert found.shape == (len(TEXTS), model.n_layers, model.vector_size)
    assert np.abs(found - expected).max() < TOLERANCE
    top = model.get_elmo_vector_average(TEXTS, layers="top")
    assert np.abs(top - means[:, -1] / np.linalg.norm(means[:, -1], axis=1, keepdims=True)).max() < TOLERANCE


def test_zero_state_depends_on_no_other_text():
    model = ElmoModel()
    model.load(FOLDER, state="zero")
    together = model.get_elmo_vector_average(TEXTS)
    alone = np.concatenate([model.get_elmo_vector_average([text], warmup=False) for text in TEXTS])
    assert np.abs(together - alone).max() < TOLERANCE


def test_nothing_and_texts_without_words(model):
    assert model.get_elmo_vectors([]).shape == (0, 0, model.vector_size)
    assert model.get_elmo_vector_average([], layers="all").shape == (0, model.n_layers, model.vector_size)
    assert not model.get_elmo_vector_average([[]]).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: ElmoModel().get_elmo_vectors(TEXTS), "call load"),
        (lambda model: ElmoModel().load(FOLDER, full=True), "elmokit.LanguageModel"),
        (lambda model: model.get_elmo_vectors(TEXTS, session=object()), "leave it out"),
        (lambda model: model.get_elmo_vectors(TEXTS, layers="first"), "use 'average', 'top' or 'all'"),
        (lambda model: model.get_elmo_vectors(["The bank"]), "each a list of words"),
    ],
)
def test_bad_input_is_named(model, call, message):
    with pytest.raises(InputError, match=message):
        call(model)
