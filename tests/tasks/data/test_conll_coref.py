import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.tasks.data import Problems
from elmokit.tasks.data.conll_coref import read_conll_coref


def written(tmp_path, *rows, name="doc.conll"):
    """A file: of a row "word brackets" seven columns are made, other lines stay."""
    lines = []
    for row in rows:
        word, _, brackets = row.partition(" ")
        lines.append(row if not row or row.startswith("#") else f"d\t0\t0\t{word}\t_\t_\t{brackets}")
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_documents_sentences_and_nested_mentions(tmp_path):
    rows = ["#begin document (one); part 0", "The (1|(2", "king 2)", "'s", "dog 1)", "", "It (1)", "#end document"]
    path = written(tmp_path, *rows, "", "#begin document (two); part 0", "He (1)", "hid", "himself (1)")
    one, two = read_conll_coref(path, Problems())
    assert one.sentences == (("The", "king", "'s", "dog"), ("It",))
    assert one.clusters == (((0, 1),), ((0, 3), (4, 4)))
    assert one.name == "(one); part 0"
    assert one.source == f"{path}:1"
    assert two.clusters == (((0, 0), (2, 2)),)
    assert two.source == f"{path}:10"


def test_lines_that_end_with_a_tab(tmp_path):
    path = written(tmp_path, "a (1)", "b -", "c (1)")
    path.write_text(path.read_text(encoding="utf-8").replace("\n", "\t\n"), encoding="utf-8")
    (document,) = read_conll_coref(path, Problems())
    assert document.clusters == (((0, 0), (2, 2)),)


def test_mentions_of_one_entity_may_be_nested(tmp_path):
    (document,) = read_conll_coref(written(tmp_path, "a (1|(1", "b 1)", "c 1)"), Problems())
    assert document.clusters == (((0, 1), (0, 2)),)


def test_columns_between_blanks(tmp_path):
    path = tmp_path / "blanks.conll"
    path.write_text("bc/01 0 0 She PRP (TOP* - (12)\nbc/01 0 1 ran VBD *) run -\n", encoding="utf-8")
    (document,) = read_conll_coref(path, Problems())
    assert document.sentences == (("She", "ran"),)
    assert document.clusters == (((0, 0),),)
    assert document.name == "blanks.conll"


@pytest.mark.parametrize(
    ("rows", "line", "message"),
    [
        (["a (1", "b", "", "c"], 1, r"mention \(1 does not end in its sentence"),
        (["a", "b 1)"], 2, r"mention 1\) ends here but did not begin"),
        (["a (1", "", "b 1)"], 1, "does not end"),
        (["a 1"], 1, r"expected mentions such as \(3, 3\) or \(3\), joined by \|, found '1'"),
        (["a (1)|"], 1, "expected mentions such as"),
        (["a ((1)"], 1, "expected mentions such as"),
        (["a", "b (1", "c (2", "d 1)", "e 2)"], 3, r"\(2\) of lines 3 to 5 crosses \(1\) of lines 2 to 4"),
        (["a (1)|(2)"], 1, "the same words are a mention of 1 and of 2"),
    ],
)
def test_bad_brackets_are_named_or_left_out(tmp_path, rows, line, message):
    path = written(tmp_path, *rows)
    with pytest.raises(InputError, match=message) as caught:
        list(read_conll_coref(path, Problems()))
    assert f"{path}:{line}: " in str(caught.value)
    problems = Problems(skips=True)
    (document,) = read_conll_coref(path, problems)
    assert problems.num_bad >= 1
    assert [word for sentence in document.sentences for word in sentence] == [row[0] for row in rows if row]


def test_of_crossing_mentions_the_first_is_kept(tmp_path):
    path = written(tmp_path, "a (1", "b (2", "c 1)", "d 2)")
    (document,) = read_conll_coref(path, Problems(skips=True))
    assert document.clusters == (((0, 2),),)


@pytest.mark.parametrize("bad", ["d\t0\t0\tword", "d\t0\t0\t\t_\t(1)", "d\t0\t0\tword\t(1)"])
def test_a_document_with_a_ragged_line_is_left_out_whole(tmp_path, bad):
    path = written(tmp_path, "#begin document (bad)", "a (1)", "#begin document (good)", "b (1)")
    path.write_text(path.read_text().replace("#begin document (good)", f"{bad}\n{bad}\n\n#begin document (good)"))
    with pytest.raises(InputError, match="columns") as caught:
        list(read_conll_coref(path, Problems()))
    assert f"{path}:3: " in str(caught.value)
    problems = Problems(skips=True)
    assert [document.name for document in read_conll_coref(path, problems)] == ["(good)"]
    assert problems.num_bad == 1


def test_an_empty_file_has_no_documents(tmp_path):
    assert list(read_conll_coref(written(tmp_path), Problems())) == []


def test_sentences_may_differ_in_their_columns(tmp_path):
    """CoNLL-2012 has a column more for each predicate of the sentence."""
    path = tmp_path / "wide.conll"
    path.write_text("a 0 0 She (V*) (1)\na 0 1 ran * -\n\na 0 0 He (1)\n", encoding="utf-8")
    (document,) = read_conll_coref(path, Problems())
    assert document.clusters == (((0, 0), (2, 2)),)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 2)), max_size=8))
def test_what_is_written_is_read(drawn):
    mentions = {}
    for start, end, entity in drawn:
        crosses = any(start < a <= end < b or a < start <= b < end for a, b in mentions)
        if start <= end and not crosses:
            mentions.setdefault((start, end), entity)
    rows = []
    for place in range(8):
        begins = [f"({entity}" for (a, b), entity in mentions.items() if a == place < b]
        alone = [f"({entity})" for (a, b), entity in mentions.items() if a == place == b]
        ends = [f"{entity})" for (a, b), entity in mentions.items() if a < place == b]
        rows.append(f"d 0 {place} w{place} {'|'.join(begins + alone + ends) or '-'}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "d.conll")
        path.write_text("\n".join(rows), encoding="utf-8")
        (document,) = read_conll_coref(path, Problems())
    expected = {frozenset(span for span, entity in mentions.items() if entity == one) for one in mentions.values()}
    assert {frozenset(cluster) for cluster in document.clusters} == expected
    assert document.marks_single == any(len(cluster) == 1 for cluster in expected)
