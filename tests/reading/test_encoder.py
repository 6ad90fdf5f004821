"""Sentences to a text with boundaries: each distinct word once, in whatever order the encoder takes them."""

import numpy as np
import pytest
import torch

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.errors import InputError
from elmokit.model import Elmo
from elmokit.nn.word_encoder import WordEncoder
from elmokit.reading.encoder import TextEncoder, split_sentence
from elmokit.text.segmenters import RuleSegmenter

SENTENCES = [["the", "bank", "of", "the", "river"], [], ["a-long-word", "a"]]


@pytest.fixture
def elmo():
    characters = CharConfig(dim=4, filters=((1, 4), (2, 8)), num_highways=1)
    return Elmo.random(ElmoConfig(characters, lstm=LstmConfig(cell_dim=12, projection_dim=6))).eval()


@pytest.mark.parametrize("is_batch_invariant", [True, False])
@pytest.mark.parametrize("cache_words", [0, 2, 100])
def test_each_place_has_the_vector_of_its_word(elmo, is_batch_invariant, cache_words, monkeypatch):
    monkeypatch.setattr(WordEncoder, "is_batch_invariant", is_batch_invariant)
    encoder = TextEncoder(elmo, cache_words=cache_words)
    begin, end = (elmo.encode_words(ids.unsqueeze(0)) for ids in elmo.boundary_ids)
    for _ in range(2):  # with an empty cache, then with a filled one
        text = encoder.encode(SENTENCES)
        assert len(text.vectors_UP) == 2 + 6
        for start, length, words in zip(text.starts_B, text.lengths_B, SENTENCES, strict=True):
            expected = [elmo.encode_words(elmo.word_ids([[word]])[0]) for word in words]
            found = text.vectors_UP[torch.from_numpy(text.words_T[start : start + length])]
            torch.testing.assert_close(found, torch.cat([begin, *expected, end]), atol=1e-6, rtol=0)


def test_strings_are_split_and_lists_are_checked():
    segmenter = RuleSegmenter()
    assert split_sentence("Two sentences. One list.", segmenter, name="it") == [
        "Two",
        "sentences",
        ".",
        "One",
        "list",
        ".",
    ]
    assert split_sentence(["not split.", ""], segmenter, name="it") == ["not split.", ""]
    assert split_sentence([3, np.int64(4), "5"], segmenter, name="it", takes_rows=True) == [3, 4, "5"]
    with pytest.raises(InputError, match="line 7: expected a string or a list of words, found dict {}"):
        split_sentence({}, segmenter, name="line 7")
    with pytest.raises(InputError, match="it has the word 3 of type int: expected strings"):
        split_sentence([3], segmenter, name="it")


@pytest.mark.parametrize("dtype", [object, str])
def test_an_array_of_words_is_a_list_of_words(dtype):
    words = split_sentence(np.array(["not split.", "here"], dtype), RuleSegmenter(), name="it")
    assert words == ["not split.", "here"] and [type(word) for word in words] == [str, str]
    with pytest.raises(InputError, match="it has the word 3.0 of type float: expected strings"):
        split_sentence(np.array([3.0]), RuleSegmenter(), name="it")
    with pytest.raises(InputError, match="it: expected a string or a list of words, found ndarray array"):
        split_sentence(np.array([["a", "b"]]), RuleSegmenter(), name="it")


def test_the_missing_value_of_a_table_is_called_so():
    for missing in (float("nan"), np.float64("nan")):
        with pytest.raises(InputError, match=r"row 2: .* found a missing value \(NaN\): drop it first"):
            split_sentence(missing, RuleSegmenter(), name="row 2")


def test_text_in_a_script_the_model_has_not_learned_is_said_once(caplog):
    elmo = Elmo.random(ElmoConfig.tiny())
    elmo.scripts = ("Latin",)
    encoder = TextEncoder(elmo)
    foreign = ["나는", "오늘", "아침에", "학교에", "가서", "친구를", "만나고", "점심을", "같이", "먹었다", "."]
    encoder.encode([["Seoul", "is", "서울", "😀"]])
    assert not caplog.records
    for _ in range(3):
        encoder.encode([foreign])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "written in the script Hangul, but the model was trained on Latin" in caplog.text


def test_a_model_that_does_not_know_its_scripts_says_nothing(caplog):
    TextEncoder(Elmo.random(ElmoConfig.tiny())).encode([[f"가{chr(0xAC00 + number)}" for number in range(99)]])
    assert not caplog.records


def test_the_scripts_are_saved_with_the_model(tmp_path):
    elmo = Elmo.random(ElmoConfig.tiny())
    elmo.scripts = ("Hangul", "Latin")
    elmo.save_pretrained(tmp_path / "model")
    assert Elmo.from_pretrained(tmp_path / "model").scripts == ("Hangul", "Latin")
    assert Elmo.from_pretrained("en-small").scripts == ("Latin",)
