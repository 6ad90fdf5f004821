"""Files in columns: what is read, and what is said of bad ones."""

from __future__ import annotations

import bz2

import pytest

from elmokit.errors import InputError
from elmokit.tasks.data import Problems
from elmokit.tasks.data.columns import read_columns

CONLL = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP I-PER\n"
CONLLU = (
    "# sent_id = 1\n1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_\n2.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_\n\n# only a comment\n\n"
)


def test_the_columns_of_conll_2003(tmp_path):
    path = tmp_path / "eng.train"
    path.write_text(CONLL, encoding="utf-8")
    names = list(read_columns(path))
    assert [(each.words, each.labels) for each in names] == [
        (("EU", "rejects"), ("I-ORG", "O")),
        (("Peter",), ("I-PER",)),
    ]
    assert names[0].source == f"{path}:3"
    assert [each.labels for each in read_columns(path, column="2")] == [("NNP", "VBZ"), ("NNP",)]


def test_tabs_no_last_newline_and_compression(tmp_path):
    path = tmp_path / "x.conll.bz2"
    path.write_bytes(bz2.compress(b"a\tX\r\nb\tY"))
    assert next(iter(read_columns(path))).labels == ("X", "Y")


def test_a_word_may_be_an_odd_blank(tmp_path):
    path = tmp_path / "x"
    path.write_text("a\u00a0b X\n\u3000 Y\n", encoding="utf-8")
    assert next(iter(read_columns(path))).words == ("a\u00a0b", "\u3000")


def test_conllu_without_contractions_and_empty_nodes(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    (sentence,) = read_columns(path, column="upos")
    assert (sentence.words, sentence.labels) == (("do", "n't"), ("AUX", "PART"))
    assert next(iter(read_columns(path))).labels == ("AUX", "PART")
    assert next(iter(read_columns(path, column="5"))).labels == ("VBP", "RB")


def read(tmp_path, text, **options):
    path = tmp_path / "some.conll"
    path.write_text(text, encoding="utf-8")
    return [(each.words, each.labels) for each in read_columns(path, **options)]


COMMENTED = [
    "# id 5239 domain=en\nAnn _ _ B-PER\nsat _ _ O\n\n\n# id 81 domain=en\n# _ _ O\n",  # MultiCoNER
    "# source: a page\nAnn B-PER\nsat O\n\n# a comment alone\n\n# O\n1 O\n",
    "#\thttp://a.page [2009]\n1\tAnn\tO\tB-PER\n2\tsat\tO\tO\n\n#\thttp://a.page [2010]\n1\t#\tO\tO\n",  # GermEval
]


@pytest.mark.parametrize("text", COMMENTED)
def test_comments_before_sentences_are_no_words(text, tmp_path):
    first, second = read(tmp_path, text)
    assert first == (("Ann", "sat"), ("B-PER", "O"))
    assert second[0][0] == "#"


def test_documents_begin_anywhere(tmp_path):
    some = "a X\n\n-DOCSTART- -X-\n\nb Y\n\n-DOCSTART- -X-\n"
    assert read(tmp_path, some) == [(("a",), ("X",)), (("b",), ("Y",))]


def test_a_hash_is_a_word(tmp_path):
    chunks = "# # B-NP\n10 CD I-NP\n\nof IN B-PP\n# # B-NP\n\n#tag NN B-NP\n"
    assert [words for words, _ in read(tmp_path, chunks)] == [("#", "10"), ("of", "#"), ("#tag",)]


def test_words_behind_their_numbers(tmp_path):
    some = "1-2\tdu\tX\n1\tde\tADP\n2\tle\tDET\n\n1\tmot\tNOUN\n"
    assert read(tmp_path, some) == [(("de", "le"), ("ADP", "DET")), (("mot",), ("NOUN",))]
    assert read(tmp_path, "1\tmot\tNOUN\n\n" + some)[0] == (("mot",), ("NOUN",))
    assert read(tmp_path, "on IN O\n1 CD O\n\n1 CD O\n2 CD O\n")[1][0] == ("1", "2")


def test_words_with_blanks_between_tabs(tmp_path):
    assert read(tmp_path, "New York\tB-LOC\nis\tO\n") == [(("New York", "is"), ("B-LOC", "O"))]


def test_conllu_with_a_comment_of_ten_words_and_any_case(tmp_path):
    ten = "# text = a b c d e f g\n" + CONLLU
    nine = ten.replace("\t_\n", "\n").replace(" g\n", "\n")
    assert read(tmp_path, nine, column="4") == [(("do", "n't"), ("AUX", "PART"))]
    assert read(tmp_path, ten, column="UPOS") == [(("do", "n't"), ("AUX", "PART"))]


def test_a_treebank_stays_one(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(CONLLU + "1\ta\t_\tX\n2\tb\t_\tX\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.conllu:9: expected 10 columns between tabs, found 4"):
        list(read_columns(path))


BAD = [
    ("\tX\nb\tY\n", "last", ":1: expected a word and its label, found an empty column"),
    ("a\tX\nb\t\n", "last", ":2: expected a word and its label, found an empty column"),
    ("1\t\t_\tX\t_\t_\t_\t_\t_\t_\n", "upos", ":1: expected a word in the second column, found an empty one"),
    ("a X\nb\n", "last", ":2: expected 2 columns like the sentence's first line, found 1"),
    ("a\nb\n", "last", ":1: expected a word and its label in column last, found 1 column"),
    ("a X\n", "3", ":1: expected a word and its label in column 3, found 2 column"),
    ("a X\n", "upos", ":1: column 'upos' is a name of CoNLL-U"),
    ("1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n2\tb\n", "upos", ":2: expected 10 columns between tabs, found 2"),
    ("1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n", "tags", ":1: expected labels in one of.*found column 'tags'"),
]


@pytest.mark.parametrize(("text", "column", "message"), BAD)
def test_bad_lines_are_named_or_skipped(text, column, message, tmp_path):
    path = tmp_path / "bad"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        list(read_columns(path, column=column))
    problems = Problems(skips=True)
    assert list(read_columns(path, column=column, problems=problems)) == []
    assert problems.num_bad == 1
    assert str(path) in (problems.summary() or "")


def test_what_is_not_utf8(tmp_path):
    path = tmp_path / "bad"
    path.write_bytes(b"a X\n\xff Y\n\nb Z\n")
    with pytest.raises(InputError, match=r"bad:2: expected UTF-8"):
        list(read_columns(path))
    problems = Problems(skips=True)
    assert [each.words for each in read_columns(path, problems=problems)] == [("a",), ("b",)]
    assert problems.num_bad == 1
