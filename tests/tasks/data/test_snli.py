import json
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.tasks.data import Problems
from elmokit.tasks.data.snli import PairExample, read_pairs

SICK = (
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    "6\tA boy doesn't run\tNobody runs\t3.3\tNEUTRAL\r\n"
)


def written(folder, text, name="pairs.tsv"):
    path = Path(folder) / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_sick_has_its_names_and_capital_labels(tmp_path):
    path = written(tmp_path, SICK)
    assert list(read_pairs(path)) == [
        PairExample(["A", "boy", "does", "n't", "run"], ["Nobody", "runs"], "neutral", source=f"{path}:2")
    ]


def test_quotes_that_a_program_wrote_are_undone_and_others_kept(tmp_path):
    lines = ['"Shop ""A"" is open."\tx\tneutral', '"Hi" is what he "said"\tx\tneutral', '"Stop!"\tx\tneutral']
    path = written(tmp_path, "\n".join(["sentence1\tsentence2\tgold_label", *lines]))
    assert [" ".join(pair.premise) for pair in read_pairs(path)] == [
        'Shop " A " is open .',
        '" Hi " is what he " said "',
        '" Stop ! "',
    ]


def test_a_table_with_quotes_around_everything(tmp_path):
    path = written(tmp_path, '"premise"\t"hypothesis"\t"label"\n"a ""b"""\t"c"\t"yes"\n')
    (pair,) = read_pairs(path)
    assert (pair.premise, pair.hypothesis, pair.label) == (["a", '"', "b", '"'], ["c"], "yes")


def test_snli_json_lines(tmp_path):
    rows = [
        {"gold_label": "entailment", "sentence1": "It rains.", "sentence2": "Rain.", "annotator_labels": ["x"]},
        {"gold_label": "-", "sentence1": "It rains.", "sentence2": "Rain."},
        {"label": 1, "premise": "Hi", "hypothesis": "Ho"},
    ]
    path = written(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n", "snli.jsonl")
    assert [(pair.premise, pair.label, pair.source) for pair in read_pairs(path)] == [
        (["It", "rains", "."], "entailment", f"{path}:1"),
        (["Hi"], "1", f"{path}:3"),
    ]


def test_a_field_goes_by_its_first_name(tmp_path):
    path = written(tmp_path, '{"text": "no", "sentence1": "yes", "label": "b", "gold_label": "a", "sentence2": "c"}')
    assert list(read_pairs(path)) == [PairExample(["yes"], ["c"], "a", source=f"{path}:1")]


@pytest.mark.parametrize(
    ("text", "label"), [("a b\tc\tyes", "yes"), ("a b\tc", None), ("Sentence1\tHYPO\na b\tc", None)]
)
def test_tables_without_names_or_labels(tmp_path, text, label):
    (pair,) = read_pairs(written(tmp_path, text))
    assert (pair.premise, pair.hypothesis, pair.label) == (["a", "b"], ["c"], label)


@pytest.mark.parametrize("asked", ["s1.dev", "s2.dev", "labels.dev"])
def test_parallel_files_are_split_at_blanks_only(tmp_path, asked):
    written(tmp_path, "Do n't ! !\nx \n\n", "s1.dev")
    written(tmp_path, "don't\ny\n\n", "s2.dev")
    written(tmp_path, "Neutral\n-\n \n", "labels.dev")
    assert list(read_pairs(tmp_path / asked)) == [
        PairExample(["Do", "n't", "!", "!"], ["don't"], "neutral", source=f"{tmp_path / 's1.dev'}:1")
    ]


def test_parallel_files_stay_parallel_when_a_line_is_no_text(tmp_path):
    (tmp_path / "s1.x").write_bytes(b"one\n\xff\nthree\n")
    written(tmp_path, "1\n2\n3\n", "s2.x")
    written(tmp_path, "a\nb\nc\n", "labels.x")
    problems = Problems(skips=True)
    assert [(pair.premise, pair.label) for pair in read_pairs(tmp_path / "s1.x", problems=problems)] == [
        (["one"], "a"),
        (["three"], "c"),
    ]
    assert problems.num_bad == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found an empty file"),
        ("\n \n", "found an empty file"),
        ("text_a\ttext_b\tlabel\na\tb\tyes\n", r"pairs\.tsv:1: expected a line that names the fields"),
        ("id\ta\tb\tc\n", r"pairs\.tsv:1: expected a line that names the fields"),
        ("sentence1\tsentence2\tlabel\na\tb\n", r"pairs\.tsv:2: expected 3 fields between tabs, found 2"),
        ("sentence1\tsentence2\tlabel\n \tb\tyes\n", r"pairs\.tsv:2: expected a premise, found an empty one"),
        ('{"sentence1": "a", "label": "b"}', r"pairs\.tsv:1: expected a hypothesis, found none"),
        ('{"sentence1": "a"\n', r"pairs\.tsv:1: expected a JSON object with two sentences"),
        (
            '{"sentence1": "a", "sentence2": "b"}\n[1]',
            r"pairs\.tsv:2: expected a JSON object with .*, found '\[1\]'",
        ),
    ],
)
def test_bad_files(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        list(read_pairs(written(tmp_path, text)))


def test_bad_pairs_are_counted_when_asked_to_skip(tmp_path):
    text = "sentence1\tsentence2\tlabel\na\tb\na\tb\tyes\n\tb\tyes\n"
    problems = Problems(skips=True)
    assert len(list(read_pairs(written(tmp_path, text), problems=problems))) == 1
    assert problems.num_bad == 2
    broken = written(tmp_path, '{"a\n7\n{"premise": "a", "hypothesis": "b"}', "x.jsonl")
    with pytest.raises(InputError, match="expected a JSON object"):
        list(read_pairs(broken))
    assert len(list(read_pairs(broken, problems=problems))) == 1
    assert problems.num_bad == 4


def test_missing_and_unequal_parallel_files(tmp_path):
    written(tmp_path, "a\n", "s1.dev")
    with pytest.raises(InputError, match=r"s2\.dev is not there"):
        list(read_pairs(tmp_path / "s1.dev"))
    written(tmp_path, "a\nb\n", "s2.dev")
    written(tmp_path, "a\n", "labels.dev")
    with pytest.raises(InputError, match="found 1, 2, 1"):
        list(read_pairs(tmp_path / "s1.dev"))
    for name in ("s1.no", "s2.no", "labels.no"):
        written(tmp_path, "", name)
    with pytest.raises(InputError, match="expected premises"):
        list(read_pairs(tmp_path / "s1.no"))


def test_pairs_between_commas(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text('id,premise,hypothesis,label\n1,"It rains, again.",It is dry.,Contradiction\n')
    (pair,) = read_pairs(path)
    assert (pair.premise, pair.label) == (["It", "rains", ",", "again", "."], "contradiction")
    path.write_text("It rains.,It is dry.,contradiction\n")
    with pytest.raises(InputError, match=r"pairs\.csv:1: expected a line that names the fields"):
        list(read_pairs(path))
