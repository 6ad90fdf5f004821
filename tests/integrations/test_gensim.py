"""Tables for gensim; the tests with gensim itself need it installed, which the extra `test` does not do."""

import sys

import numpy as np
import pytest
from comparing import DATA

from elmokit import Embedder
from elmokit.errors import InputError, MissingExtra
from elmokit.integrations.gensim import _average_uses, make_usage_table, make_word_table
from elmokit.text.word_vectors import read_vectors

SENTENCES = ["The bank by the river.", ["the", "bank"], "", "A river runs by the bank."]


@pytest.fixture(scope="module")
def embedder():
    return Embedder(DATA / "allennlp-two-layers")


@pytest.fixture
def gensim():
    return pytest.importorskip("gensim", reason="gensim is not installed: pip install 'elmokit[gensim]'")


def mean_of_uses(embedder, word, layers):
    documents = embedder.read(SENTENCES, layers=layers)
    uses = [vector for each in documents for name, vector in zip(each.words, each.vectors, strict=True) if name == word]
    return np.mean(uses, axis=0), len(uses)


@pytest.mark.parametrize("layers", ["average", "top", 1])
def test_uses_are_averaged(embedder, layers):
    counts, means = _average_uses(embedder, iter(SENTENCES), layers)
    assert set(counts) == set(means)
    for word in ("bank", "river", "the", "The"):
        expected, count = mean_of_uses(embedder, word, layers)
        assert counts[word] == count
        np.testing.assert_allclose(means[word], expected, atol=1e-6)


def test_a_table_of_uses(embedder, gensim):
    table = make_usage_table(embedder, SENTENCES, min_count=2)
    assert isinstance(table, gensim.models.KeyedVectors)
    assert table.index_to_key == ["bank", "the", "by", "river", "."]
    assert table.get_vecattr("bank", "count") == 3
    assert "runs" not in table and "runs" in make_usage_table(embedder, SENTENCES)
    np.testing.assert_allclose(table["river"], mean_of_uses(embedder, "river", "average")[0], atol=1e-6)
    assert len(make_usage_table(embedder, [])) == 0


def test_a_table_of_words(embedder, gensim):
    table = make_word_table(embedder, ["bank", "river", "bank", "naïve"])
    assert table.index_to_key == ["bank", "river", "naïve"]
    layer_0 = embedder.embed([["river"]], layers=0)[0][0]
    np.testing.assert_allclose(np.tile(table["river"], 2), layer_0, atol=1e-6)
    assert table.most_similar("bank", topn=1)[0][0] in ("river", "naïve")


def test_what_gensim_saves_is_read(embedder, gensim, tmp_path):
    table = make_word_table(embedder, ["bank", "river", "naïve"])
    table.save_word2vec_format(str(tmp_path / "words.vec"))
    for source in (tmp_path / "words.vec", table):
        found = read_vectors(source)
        assert found.words == table.index_to_key
        np.testing.assert_allclose(found.table_VE, table.vectors, atol=1e-6)


def test_bad_input_is_named(embedder):
    with pytest.raises(InputError, match="found the string 'bank'"):
        make_word_table(embedder, "bank")
    with pytest.raises(InputError, match="one vector per word"):
        make_usage_table(embedder, SENTENCES, layers="all")
    with pytest.raises(InputError, match="sentence 0: .* found int"):
        make_usage_table(embedder, [3])


def test_without_gensim_the_command_is_named(embedder, monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    monkeypatch.setitem(sys.modules, "gensim", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[gensim\]'"):
        make_word_table(embedder, ["bank"])
