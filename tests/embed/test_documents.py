"""Words and places come back with the vectors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import elmokit
from elmokit.config import ElmoConfig, LstmConfig, WordConfig
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.model import Elmo
from elmokit.text.segmenters import Word

TEXTS = ["Mr. Lee can't swim.  It rained!\nNaïve 😀 e\u0301tude", "", "One", " \n ", "北京很大。はい。"]


@pytest.mark.parametrize("layers", ["average", "all", 1])
def test_words_stand_at_their_places_and_have_the_vectors_of_their_sentence(elmo, layers):
    embedder = Embedder(elmo)
    documents = embedder.read(TEXTS, layers=layers)
    assert [document.text for document in documents] == TEXTS
    for document in documents:
        assert [document.text[start:end] for start, end in document.spans] == document.words
        sentences = [document.words[start:end] for start, end in document.sentences]
        assert all(sentences) and sum(sentences, []) == document.words
        assert document.vectors.shape[-2:] == (len(document.words), 12) and document.vectors.dtype == np.float32
        for (start, end), alone in zip(document.sentences, embedder.embed(sentences, layers=layers), strict=True):
            np.testing.assert_allclose(document.vectors[..., start:end, :], alone, atol=1e-5)
    assert documents[0].words[:5] == ["Mr.", "Lee", "ca", "n't", "swim"]
    assert [len(document.sentences) for document in documents] == [3, 0, 1, 0, 2]
    assert documents[1].vectors.shape == ((3, 0, 12) if layers == "all" else (0, 12))


def test_a_single_text_is_one_document(elmo):
    document = Embedder(elmo).read("It rained. We left.")
    assert isinstance(document, elmokit.Document)
    assert document.spans[3] == (11, 13) and document.sentences == [(0, 3), (3, 6)]
    assert repr(document).startswith("Document(text='It rained. We left.', words=['It', 'rained', '.'")
    again = pickle.loads(pickle.dumps(document))
    assert again.words == document.words and np.array_equal(again.vectors, document.vectors)


def test_a_list_of_words_is_one_sentence_without_places(elmo):
    embedder = Embedder(elmo)
    document, empty = embedder.read([["No.", "Not", "split."], []])
    assert (document.text, document.spans, document.sentences) == (None, None, [(0, 3)])
    np.testing.assert_allclose(document.vectors, embedder.embed([["No.", "Not", "split."]])[0], atol=1e-5)
    assert (empty.words, empty.sentences, empty.vectors.shape) == ([], [], (0, 12))


def test_row_numbers_are_words_of_a_model_of_rows():
    lstm = LstmConfig(cell_dim=6, projection_dim=4)
    embedder = Embedder(Elmo.random(ElmoConfig(None, lstm=lstm, words=WordConfig(num_words=9, dim=4))))
    assert embedder.read([[1, 2]])[0].words == [1, 2]


def test_a_segmenter_of_ones_own_places_the_words(elmo):
    embedder = Embedder(elmo, segmenter=lambda text: [[Word(c, n, n + 1)] for n, c in enumerate(text)])
    document = embedder.read("ab")
    assert (document.words, document.spans, document.sentences) == (["a", "b"], [(0, 1), (1, 2)], [(0, 1), (1, 2)])


def test_a_sentence_without_words_is_none(elmo):
    embedder = Embedder(elmo, segmenter=lambda text: [[Word(word, 0, 1) for word in text.split()], []])
    assert (embedder.read("").sentences, embedder.read("a").sentences) == ([], [(0, 1)])


def test_texts_may_be_any_iterable_and_progress_is_shown(elmo, capsys):
    assert len(Embedder(elmo).read((text for text in TEXTS), progress=True)) == len(TEXTS)
    assert "6/6" in capsys.readouterr().err  # sentences
    assert Embedder(elmo).read([]) == []


@pytest.mark.parametrize(
    ("texts", "message"), [(None, "found None"), ({"a": 1}, "pass its values"), ([7], "text 0: .* found int 7")]
)
def test_what_is_no_text_is_refused(elmo, texts, message):
    with pytest.raises(InputError, match=message):
        Embedder(elmo).read(texts)
