"""Sentences for measuring: each once, of the length asked for."""

from __future__ import annotations

import bz2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.bench.texts import distinct_words, read_text, sample_text
from elmokit.errors import InputError

SAMPLED = sample_text(30)


def test_no_sentence_is_handed_out_twice(tmp_path):
    lines = [f"Sentence number {number} is here ." for number in range(40)]
    (tmp_path / "text.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    text = read_text(tmp_path / "text.bz2")
    taken = [tuple(words) for count in (3, 30, 7) for words in text.take(count)]
    assert len(set(taken)) == 40
    assert taken[:3] != [tuple(line.split()) for line in lines[:3]]  # shuffled
    assert [tuple(words) for words in text.again().take(40)] == taken
    with pytest.raises(InputError, match="all its 40 sentences were used; give a longer --text"):
        text.take(1)


def test_headings_and_lists_are_left_out(tmp_path):
    (tmp_path / "text").write_text("Heading\n\n" + "word " * 101 + "\nThis one stays .\n", encoding="utf-8")
    assert read_text(tmp_path / "text").sentences == [["This", "one", "stays", "."]]


@given(st.integers(1, 6), st.integers(1, 50))
def test_sentences_are_cut_to_the_length_asked_for(count, num_words):
    text = SAMPLED.again()
    found = text.take(count, num_words=num_words)
    assert [len(words) for words in found] == [num_words] * count
    flat = [word for sentence in text.sentences for word in sentence]
    assert [word for words in found for word in words] == flat[: count * num_words]


def test_sample_text_is_the_same_every_time_and_says_what_it_is():
    assert sample_text(20).sentences == sample_text(20).sentences
    assert "Zipf" in sample_text(20).description
    counts = [word for sentence in sample_text(500).sentences for word in sentence]
    assert counts.count("the") > counts.count("table") > 0


def test_words_run_out_and_are_joined():
    text = sample_text(3)
    own = {word for sentence in text.sentences for word in sentence}
    found = distinct_words(text, len(own) + 50)
    assert len(set(found)) == len(own) + 50
    assert own <= set(found)
