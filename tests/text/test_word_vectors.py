"""The two text formats of word vectors, and what is wrong with files that only look like them."""

from __future__ import annotations

import bz2
import gzip
from types import SimpleNamespace

import numpy as np
import pytest

from elmokit.errors import CheckpointError
from elmokit.text.word_vectors import read_vectors, read_width

GLOVE = "the 0.5 -1 2e-05\nbank 1.5 2 3\n. . . 7 8 9\nat name@domain.com 4 5 6\n\u00a0 1 1 1\nthe 9 9 9\n"


def written(path, text):
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.gz", "glove.txt.bz2"])
def test_glove_text(tmp_path, name):
    path = written(tmp_path / name, GLOVE)
    vectors = read_vectors(path)
    assert vectors.words == ["the", "bank", ". . .", "at name@domain.com", "\u00a0"]  # the first wins
    np.testing.assert_array_equal(vectors.table_VE[:2], np.array([[0.5, -1, 2e-5], [1.5, 2, 3]], np.float32))
    assert vectors.table_VE.dtype == np.float32
    assert vectors.width == read_width(path) == 3


@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_word2vec_text(tmp_path, end):
    path = written(tmp_path / "w2v.txt", end.join(["3 2", "</s> 0.5 1", "7 2 3", "bank 4 5", ""]))
    vectors = read_vectors(path)
    assert vectors.words == ["</s>", "7", "bank"]
    np.testing.assert_array_equal(vectors.table_VE, [[0.5, 1], [2, 3], [4, 5]])
    assert read_width(path) == 2


@pytest.mark.parametrize("text", ["\ufeffthe 1 2\n", "\ufeff1 2\nthe 1 2\n"])
def test_a_byte_order_mark_is_no_part_of_a_word(tmp_path, text):
    assert read_vectors(written(tmp_path / "v.txt", text)).words == ["the"]


def test_only_the_words_asked_for(tmp_path):
    vectors = read_vectors(written(tmp_path / "v.txt", GLOVE), only=["bank", ". . .", "absent"])
    assert vectors.words == ["bank", ". . ."]
    nothing = read_vectors(tmp_path / "v.txt", only=[])
    assert nothing.words == []
    assert nothing.table_VE.shape == (0, 3)


def test_gensim_keyed_vectors():
    keyed = SimpleNamespace(index_to_key=["a", "b"], vectors=np.arange(6.0).reshape(2, 3))
    vectors = read_vectors(keyed, only={"b"})
    assert vectors.words == ["b"]
    np.testing.assert_array_equal(vectors.table_VE, [[3, 4, 5]])
    assert read_width(keyed) == 3
    with pytest.raises(CheckpointError, match="KeyedVectors, found dict"):
        read_vectors({"a": [1]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1.0 2.0\nb 1.0\n", r"v\.txt:2: expected a word and 2 numbers, found b'b 1\.0'"),
        ("a 1.0 2.0\n\nb 1.0 2.0 3.0\n", r"v\.txt:3: expected a word and 2 numbers"),
        ("a 1.0 2.0\nb 1.0 x\n", r"v\.txt:2: expected a word and 2 numbers"),
        ("a 1.0 2.0\nb 1.0 nan\n", r"v\.txt:2: expected"),
        ("a 1.0 2.0\n 1.0 2.0\n", r"v\.txt:2: expected"),
        ("2 3\n\x00\x01\x02\n", r"v\.txt:2: expected a word and 3 numbers.*binary word2vec"),
        ("3 2\na 1 2\nb 1 2\n", r"promises 3 words, found 2"),
        ("2 0\n", r"v\.txt:1: the header says"),
        ("just words\n", r"v\.txt:1: expected a word and its numbers, found b'just words'"),
        ("", "found none"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, text, message):
    with pytest.raises(CheckpointError, match=message):
        read_vectors(written(tmp_path / "v.txt", text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_vectors(tmp_path / "absent.txt")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(GLOVE.encode())[:-9])
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_vectors(tmp_path / "cut.gz")
    with pytest.raises(CheckpointError, match="as text with gensim"):
        read_vectors(tmp_path / "v.bin")
    (tmp_path / "latin.txt").write_bytes(b"\xe9t\xe9 1.0 2.0\n")
    with pytest.raises(CheckpointError, match="UTF-8"):
        read_vectors(tmp_path / "latin.txt")
