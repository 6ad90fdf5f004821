"""Labelled sentences: tables, JSON lines, plain lines and trees."""

from __future__ import annotations

import gzip
import io
import json
import sys

import pytest

from elmokit.errors import InputError
from elmokit.tasks.classify import Classifier, ClassifyConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.data.tables import read_json_lines, read_labelled_lines, read_table
from elmokit.tasks.data.trees import read_trees, tree_phrases

TREE = "(3 (2 It) (4 (2 's) (4 (2 -LRB-) (4 great))))"


def made(tmp_path, text, name="file"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def pairs(examples):
    return [(example.label, " ".join(example.words)) for example in examples]


def test_a_table_with_and_without_a_header(tmp_path):
    plain = made(tmp_path, "pos\ta b\n\nneg\tc\n")
    assert pairs(read_table(plain)) == [("pos", "a b"), ("neg", "c")]
    named = made(tmp_path, "id\tsentence\tlabel\n1\ta b\tpos\n", "named")
    assert pairs(read_table(named)) == [("pos", "a b")]
    assert next(read_table(named)).source == f"{named}:2"


def test_a_table_that_another_program_wrote(tmp_path):
    some = made(tmp_path, '\nlabel\ttext\nvery good\t"he said ""fine"" twice"\nbad\t"Dull."\n')
    assert pairs(read_table(some)) == [("very good", 'he said "fine" twice'), ("bad", '"Dull."')]
    every = made(tmp_path, '"text"\t"label"\n"a ""b"""\t"pos"\n"c d"\t"neg"\n')
    assert pairs(read_table(every)) == [("pos", 'a "b"'), ("neg", "c d")]
    assert pairs(read_table(made(tmp_path, "question\tWho ?\nanswer\tHe .\n")))[0] == ("question", "Who ?")


UNNAMED = ["review\tlabel\ngood\tpos\n", "sentence\tsentiment\ngood\tpos\n", "gj04\t1\t\tOur friends won.\n"]


@pytest.mark.parametrize("text", UNNAMED)
def test_columns_that_nobody_names(text, tmp_path):
    with pytest.raises(
        InputError, match=r"file:1: expected a line that names the label \(label, class, category\) and"
    ):
        list(read_table(made(tmp_path, text)))


def read_any(path, *, problems=None, **config):
    return pairs(Classifier.read(path, config=ClassifyConfig(**config), problems=problems or Problems()))


CSV = """id,text,label
1,"Fine, and ""short"".",pos

2,"It goes
on.",neg
"""


def test_fields_between_commas(tmp_path):
    path = made(tmp_path, CSV, "my.CSV")
    assert read_any(path) == [("pos", 'Fine , and " short " .'), ("neg", "It goes on .")]
    assert read_any(path, words="blanks")[0] == ("pos", 'Fine, and "short".')
    sources = [each.source for each in Classifier.read(path, config=ClassifyConfig(), problems=Problems())]
    assert sources == [f"{path}:2", f"{path}:4"]


def test_fields_between_semicolons_and_a_packed_table(tmp_path):
    assert read_any(made(tmp_path, "label;text\npos;so, so\n", "german.csv")) == [("pos", "so , so")]
    packed = tmp_path / "my.csv.gz"
    packed.write_bytes(gzip.compress(CSV.encode("utf-8-sig")))
    assert len(read_any(packed)) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("review,label\ngood,pos\n", r"my\.csv:1: expected a line that names .* the text .*, found 'review, label'"),
        ("good,pos\n", r"my\.csv:1: expected a line that names the label \(label, .*found 'good, pos'"),
        ("label,text\npos,so, so\n", r"my\.csv:2: expected 2 fields, as in the first row, found 3; .*--skip-bad"),
        ('label,text\npos,fine\nneg,"dull\n', r'my\.csv:3: expected fields between commas.*"so ""fine"", he said"'),
        ("label,text\n,fine\n", r"my\.csv:2: .*an empty label"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(text, problem, tmp_path):
    with pytest.raises(InputError, match=problem):
        read_any(made(tmp_path, text, "my.csv"))


def test_bad_rows_of_a_table_are_left_out_when_asked(tmp_path):
    problems = Problems(skips=True)
    assert read_any(made(tmp_path, "label,text\npos,so, so\nneg,no\n", "my.csv"), problems=problems) == [("neg", "no")]
    assert problems.num_bad == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\npos\ta b\n", ("pos", "a b")),
        ('text,label\n"a, b",pos\n', ("pos", "a , b")),
        ('{"label": "pos", "text": "a b"}\n', ("pos", "a b")),
        (TREE + "\n", ("3", "It 's ( great")),
        ("DESC:manner How, and why ?\n", ("DESC", "How, and why ?")),
    ],
)
def test_the_format_of_standard_input_is_recognised(text, expected, monkeypatch):
    raw = io.BufferedReader(io.BytesIO(text.encode("utf-8-sig")))  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    assert read_any("-") == [expected]


def test_json_lines(tmp_path):
    path = made(tmp_path, '{"label": 1, "text": "a b"}\n\n{"class": "x", "words": ["c d", "e"]}\n')
    assert [(each.label, each.words) for each in read_json_lines(path)] == [("1", ("a", "b")), ("x", ("c d", "e"))]


def test_lines_that_begin_with_a_label(tmp_path):
    path = made(tmp_path, "DESC:manner How did it ?\n\nHUM Who ?\n")
    assert pairs(read_labelled_lines(path)) == [("DESC", "How did it ?"), ("HUM", "Who ?")]


def test_trees_and_their_phrases(tmp_path):
    path = made(tmp_path, TREE + "\n\n")
    assert pairs(read_trees(path)) == [("3", "It 's ( great")]
    phrases = pairs(read_trees(path, phrases=True))
    assert phrases[0] == ("3", "It 's ( great")
    assert sorted(phrases[1:]) == sorted(
        [("2", "It"), ("4", "'s ( great"), ("2", "'s"), ("4", "( great"), ("2", "("), ("4", "great")]
    )


def test_a_deep_tree_is_no_danger():
    depth = 5000
    text = "(1 (0 a) " * depth + "(1 end)" + ")" * depth
    assert len(tree_phrases(text)[0][1]) == depth + 1


BAD_TREES = ["", "3 It", "(3 (2 a) (4", "(3 a) b", "(3 a) (2 b)", "(3 ())", "((3 a))", "(3)", "(3 a))"]


@pytest.mark.parametrize("text", BAD_TREES)
def test_what_is_no_tree(text):
    with pytest.raises(ValueError, match="expected"):
        tree_phrases(text)


BAD = [
    (read_table, "pos a b\n", "with a tab between, found 1 field"),
    (read_table, "pos\t \n", "found an empty text"),
    (read_table, "\ta b\n", "found an empty label"),
    (read_json_lines, "[1]\n", "expected a JSON object with label and text"),
    (read_json_lines, "{'label'\n", "expected a JSON object with label and text"),
    (read_json_lines, '{"label": "x", "words": [1]}\n', "found the fields"),
    (read_json_lines, '{"text": "x"}\n', "expected label and text"),
    (read_labelled_lines, "HUM\n", "found an empty text"),
    (read_trees, "(3 (2 a)\n", "missing"),
]


@pytest.mark.parametrize(("reader", "text", "message"), BAD)
def test_bad_lines_are_named_or_skipped(reader, text, message, tmp_path):
    path = made(tmp_path, text)
    with pytest.raises(InputError, match=f"file:1: .*{message}"):
        list(reader(path))
    problems = Problems(skips=True)
    assert list(reader(path, problems=problems)) == []
    assert problems.num_bad == 1


LOOKS = [("x.txt", TREE), ("x.tsv", "pos\ta"), ("x.jsonl", '{"label": "pos", "text": "a"}'), ("x", "pos a")]


@pytest.mark.parametrize(("name", "text"), [*LOOKS, ("x", LOOKS[2][1])])
def test_the_format_is_recognised(name, text, tmp_path):
    (example,) = Classifier.read(made(tmp_path, text, name), config=ClassifyConfig(), problems=Problems())
    assert example.label in ("pos", "3")


def test_a_phrase_comes_once_a_file_and_a_sentence_as_often_as_it_stands(tmp_path):
    path = made(tmp_path, "(3 (2 a) (4 film))\n(3 (2 a) (4 film))\n(2 (2 a) (1 film))\n")
    found = pairs(read_trees(path, phrases=True))
    assert found == [("3", "a film"), ("2", "a"), ("4", "film"), ("3", "a film"), ("2", "a film"), ("1", "film")]


def test_phrases_are_learned_from_and_never_scored(tmp_path):
    path, config = made(tmp_path, TREE), ClassifyConfig(phrases=True)
    assert len(list(Classifier.read_train(path, config=config, problems=Problems()))) == 7
    assert len(list(Classifier.read(path, config=config, problems=Problems()))) == 1
    assert len(list(Classifier.read_train(path, config=ClassifyConfig(), problems=Problems()))) == 1


def test_raw_text_can_be_segmented(tmp_path):
    path = made(tmp_path, "pos\tIt isn't bad.\n")
    config = ClassifyConfig(words="segment")
    (example,) = Classifier.read(path, config=config, problems=Problems())
    assert example.words == ("It", "is", "n't", "bad", ".")


@pytest.mark.parametrize("name", ["my.tsv", "my.csv", "my.jsonl"])
@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["It isn't bad.", "Mr. Lee sat, and left", "no sign"], ("It", "is", "n't", "bad", ".")),
        (["It isn't bad . ", "So , so .", "etc."], ("It", "isn't", "bad", ".")),
        (["我喜欢。"], ("我", "喜", "欢", "。")),
        (["我们 喜欢 你 。"], ("我们", "喜欢", "你", "。")),
    ],
)
def test_how_a_text_becomes_words_is_seen_in_its_file(texts, words, name, tmp_path):
    separator = "\t" if name == "my.tsv" else ","
    rows = "".join(f'pos{separator}"{text}"\n' for text in texts)
    lines = "".join(json.dumps({"label": "pos", "text": text}) + "\n" for text in texts)
    path = made(tmp_path, lines if name == "my.jsonl" else f'"label"{separator}"text"\n{rows}', name)
    first, *others = Classifier.read(path, config=ClassifyConfig(), problems=Problems())
    assert (first.words, len(others)) == (words, len(texts) - 1)


def test_words_that_a_file_lists_are_taken_as_they_are(tmp_path):
    path = made(tmp_path, '{"label": "pos", "words": ["New York", "isn\'t", "bad."]}\n', "my.jsonl")
    (example,) = Classifier.read(path, config=ClassifyConfig(), problems=Problems())
    assert example.words == ("New York", "isn't", "bad.")
