import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.config import CharConfig, ElmoConfig, WordConfig
from elmokit.errors import ConfigError, InputError
from elmokit.text.characters import (
    ByteScheme,
    UnicodeScheme,
    WordAndCharacterScheme,
    WordScheme,
    make_scheme,
)

ALPHABET = ["a", "b", "é", "한", "<", "s", ">", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
ID = {symbol: number for number, symbol in enumerate(ALPHABET, start=1)}
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=70)  # lone surrogates and NUL included


def naive_bytes(word, max_length=50):
    """The byte scheme, a word at a time, from its description."""
    if word in ("<S>", "</S>"):
        inside = [256 if word == "<S>" else 257]
    else:
        inside = list(word.encode("utf-8", "ignore")[: max_length - 2])
    symbols = [258, *inside, 259]
    return [symbol + 1 for symbol in symbols + [260] * (max_length - len(symbols))]


@pytest.mark.parametrize(
    ("word", "start"),
    [
        ("hi", [259, 105, 106, 260, 261]),
        ("", [259, 260, 261]),
        ("<S>", [259, 257, 260, 261]),
        ("</S>", [259, 258, 260, 261]),
        ("<UNK>", [259, 61, 86, 79, 76, 63, 260, 261]),
        ("\0", [259, 1, 260, 261]),
        ("\ud800x\udfff", [259, 121, 260, 261]),
        ("é", [259, 0xC3 + 1, 0xA9 + 1, 260, 261]),
    ],
)
def test_bytes_of_a_word(word, start):
    ids = ByteScheme().word_ids([word])
    assert ids.dtype == np.int64
    assert ids.shape == (1, 50)
    assert ids[0].tolist() == start + [261] * (50 - len(start))


def test_bytes_cut_a_character_in_half():
    [row] = ByteScheme().word_ids(["x" * 47 + "é"])
    assert row[48] == 0xC3 + 1
    assert row[49] == 260


@settings(deadline=None, max_examples=30)
@given(st.lists(ANY_TEXT | st.sampled_from(["<S>", "</S>"]), max_size=8), st.integers(3, 60))
def test_bytes_against_the_description(words, max_length):
    ids = ByteScheme(max_length).word_ids(words)
    assert ids.shape == (len(words), max_length)
    assert ids.tolist() == [naive_bytes(word, max_length) for word in words]


def test_a_megabyte_word_is_cut():
    scheme = ByteScheme()
    words = ["x" * 1_000_000, "\ud800" * 100 + "ab", "ok"]
    ids = scheme.word_ids(words)
    assert ids.tolist() == [naive_bytes("x" * 48), naive_bytes("ab"), naive_bytes("ok")]
    assert scheme.count_cut(words) == 1


def test_boundaries_are_the_rows_of_the_marker_words():
    scheme = ByteScheme()
    np.testing.assert_array_equal(scheme.word_ids(["<S>", "</S>"]), [scheme.begin_ids, scheme.end_ids])


@pytest.mark.parametrize(("words", "cut"), [([], 0), (["a" * 48], 0), (["a" * 49, "b\0", "é" * 25, "한" * 16], 3)])
def test_words_that_are_cut_or_hold_nul_are_counted(words, cut):
    assert ByteScheme().count_cut(words) == cut


def test_unicode_follows_elmoformanylangs():
    scheme = UnicodeScheme(ALPHABET, 6, swaps_markers=True)
    pad = ID["<pad>"]
    assert scheme.word_ids(["ab", "한z", "", "abababab"]).tolist() == [
        [ID["<eow>"], 1, 2, ID["<bow>"], pad, pad],
        [ID["<eow>"], ID["한"], ID["<oov>"], ID["<bow>"], pad, pad],
        [ID["<eow>"], ID["<bow>"], pad, pad, pad, pad],
        [ID["<eow>"], 1, 2, 1, 2, ID["<bow>"]],
    ]
    assert scheme.begin_ids.tolist() == [ID["<eow>"], ID["<bos>"], ID["<bow>"], pad, pad, pad]
    assert scheme.end_ids.tolist() == [ID["<eow>"], ID["<eos>"], ID["<bow>"], pad, pad, pad]


def test_unicode_without_swapped_markers():
    scheme = UnicodeScheme(ALPHABET, 8)
    assert scheme.word_ids(["a"])[0, :3].tolist() == [ID["<bow>"], ID["a"], ID["<eow>"]]
    np.testing.assert_array_equal(scheme.word_ids(["<bos>", "<eos>"]), [scheme.begin_ids, scheme.end_ids])
    spelled = [ID["<bow>"], ID["<"], *[ID["<oov>"]] * 3, ID[">"], ID["<eow>"], ID["<pad>"]]
    assert scheme.word_ids(["<oov>"]).tolist() == [spelled], "only the boundaries are more than their letters"


@settings(deadline=None, max_examples=30)
@given(st.lists(ANY_TEXT, max_size=6))
@example(["<bos>", "<eos>"])
def test_unicode_against_the_description(words):
    scheme = UnicodeScheme(ALPHABET, 10)
    for row, word in zip(scheme.word_ids(words).tolist(), words, strict=True):
        letters = [ID.get(letter, ID["<oov>"]) for letter in word[:8]]
        letters = [ID[word]] if word in ("<bos>", "<eos>") else letters
        assert row == [ID["<bow>"], *letters, ID["<eow>"], *[ID["<pad>"]] * (8 - len(letters))]
    assert scheme.count_cut(words) == sum(len(word) > 8 or "\0" in word for word in words)


def test_word_rows():
    scheme = WordScheme(["the", "<UNK>", "</S>", "<S>", "bank"])
    assert scheme.word_ids(["bank", "the", "shore", "<S>"]).tolist() == [[5], [1], [2], [4]]
    assert (scheme.begin_ids.tolist(), scheme.end_ids.tolist()) == ([4], [3])
    assert scheme.count_cut(["\0" * 99]) == 0
    assert WordScheme(["<oov>", "<bos>", "<eos>"]).word_ids(["x"]).tolist() == [[1]]


def test_words_are_cut_before_they_are_looked_up():
    scheme = WordScheme(["<S>", "</S>", "<UNK>", "bank"], max_length=4)
    assert scheme.word_ids(["bank", "banks", "ban"]).tolist() == [[4], [4], [3]]
    assert scheme.count_cut(["bank", "banks"]) == 1


def test_whose_markers_are_the_boundaries():
    both = ["<S>", "</S>", "<bos>", "<eos>", "<oov>", "<UNK>"]
    assert (WordScheme(both).begin_ids, WordScheme(both).word_ids(["x"])) == (1, 6)
    swapped = WordScheme(both, swaps_markers=True)
    assert (swapped.begin_ids, swapped.end_ids, swapped.word_ids(["x"])) == (3, 4, 5)


def test_row_numbers_instead_of_words():
    scheme = WordScheme(None, num_words=10)
    assert scheme.word_ids([0, "9", np.int32(3)]).tolist() == [[1], [10], [4]]
    assert (scheme.begin_ids.tolist(), scheme.end_ids.tolist()) == ([1], [2])
    for wrong in (10, -1, "-1", "ten", "", 1.5, True, None, "9" * 5000, "٣"):
        with pytest.raises(InputError, match="row number, 0 to 9"):
            scheme.word_ids([wrong])


def test_a_vocabulary_without_unknown_refuses_unknown_words():
    scheme = WordScheme(["<S>", "</S>", "bank"])
    assert scheme.word_ids(["bank"]).tolist() == [[3]]
    with pytest.raises(InputError, match=r"'shore' .* no <UNK>"):
        scheme.word_ids(["bank", "shore"])


def test_word_and_characters_side_by_side():
    characters = UnicodeScheme(ALPHABET, 5, swaps_markers=True)
    scheme = WordAndCharacterScheme(WordScheme(["<bos>", "<eos>", "<oov>", "aba", "abab"], max_length=3), characters)
    words = ["aba", "abab", "b"]
    ids = scheme.word_ids(words)
    assert ids[:, 0].tolist() == [4, 4, 3], "ELMoForManyLangs cuts a word before it looks it up"
    np.testing.assert_array_equal(ids[:, 1:], characters.word_ids(words))
    assert scheme.columns == 6
    assert scheme.begin_ids.tolist() == [1, *characters.begin_ids]
    assert scheme.count_cut(words) == 1


def test_word_beside_bytes():
    scheme = WordAndCharacterScheme(WordScheme(["<S>", "</S>", "<UNK>"]), ByteScheme(10))
    assert scheme.word_ids(["<S>"]).tolist() == [scheme.begin_ids.tolist()]


def test_batches_are_padded_with_zero():
    scheme = ByteScheme()
    ids = scheme.batch_ids([["the", "bank"], [], ("hello",)])
    assert ids.shape == (3, 2, 50)
    np.testing.assert_array_equal(ids[0], scheme.word_ids(["the", "bank"]))
    np.testing.assert_array_equal(ids[2, 0], scheme.word_ids(["hello"])[0])
    assert not ids[1].any()
    assert not ids[2, 1].any()


def test_empty_batches():
    assert ByteScheme().batch_ids([]).shape == (0, 0, 50)
    assert ByteScheme().batch_ids([[], []]).shape == (2, 0, 50)
    assert WordScheme(None).batch_ids([[], [4]]).tolist() == [[[0]], [[5]]]


@pytest.mark.parametrize("scheme", [ByteScheme(), UnicodeScheme(ALPHABET, 9), WordScheme(["<S>", "</S>", "<UNK>"])])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("the bank", "one string came: 'the bank'"),
        (b"the bank", "one string came"),
        (None, "NoneType came"),
        (3.5, "float came"),
        (["ok", None], "word 1 is None of type NoneType"),
        (["ok", 3.5], "word 1 is 3.5 of type float"),
        ([b"ok"], "word 0 is b'ok' of type bytes"),
    ],
)
def test_what_is_no_list_of_words_is_refused(scheme, words, message):
    with pytest.raises(InputError, match=message):
        scheme.word_ids(words)
    with pytest.raises(InputError):
        scheme.batch_ids([words])
    if not isinstance(scheme, WordScheme):
        with pytest.raises(InputError, match=message):
            scheme.count_cut(words)


def test_a_sentence_where_sentences_belong_is_refused():
    with pytest.raises(InputError, match="a list of words, but one string came: 'the'"):
        ByteScheme().batch_ids(["the", "bank"])
    with pytest.raises(InputError, match="a list of sentences"):
        ByteScheme().batch_ids("the bank")


def test_words_may_come_from_any_iterable():
    assert ByteScheme().word_ids(np.array(["the", "bank"])).shape == (2, 50)
    assert ByteScheme().word_ids(word for word in ["the", "bank"]).shape == (2, 50)


def test_schemes_of_configs():
    unicode = CharConfig(scheme="unicode", max_length=20, num_symbols=len(ALPHABET))
    vocabulary = ["<bos>", "<eos>", "<oov>"]
    both = ElmoConfig(characters=unicode, words=WordConfig(3, 8))
    assert make_scheme(ElmoConfig(), None, None).columns == 50
    assert make_scheme(ElmoConfig(characters=unicode), ALPHABET).begin_ids[0] == ID["<bow>"]
    scheme = make_scheme(both, ALPHABET, vocabulary, swaps_markers=True)
    assert scheme.begin_ids[:2].tolist() == [1, ID["<eow>"]]
    assert scheme.columns == 21
    only_words = ElmoConfig(characters=None, words=WordConfig(3, 512), projects_words=False)
    assert make_scheme(only_words, None, vocabulary).word_ids(["<eos>"]).tolist() == [[2]]
    assert make_scheme(only_words).word_ids([2]).tolist() == [[3]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByteScheme(2), "max_length is 2"),
        (lambda: UnicodeScheme(["a", "<pad>"]), r"lacks \['<bow>'"),
        (lambda: WordScheme(["a", "b"]), "names no sentence boundaries"),
        (lambda: make_scheme(_unicode_config(13)), "needs its alphabet"),
        (lambda: make_scheme(_unicode_config(12), ALPHABET), "13 entries, but the config says 12"),
        (lambda: make_scheme(_unicode_config(13, words=True), ALPHABET), "needs its vocabulary"),
        (lambda: make_scheme(_unicode_config(13, words=True), ALPHABET, ["<S>"]), "vocabulary has 1 entries"),
    ],
)
def test_schemes_that_cannot_be(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def _unicode_config(num_symbols, words=False):
    characters = CharConfig(scheme="unicode", num_symbols=num_symbols)
    return ElmoConfig(characters=characters, words=WordConfig(7, 8) if words else None)
