import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.tasks.data import Problems
from elmokit.tasks.data.squad import Passage, read_questions

TEXT = "The two-man crew met Dr. Lee. They didn't eat; socially, all met all."


def written(folder, questions, *, context=TEXT):
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
    return path


def question(*answers, **fields):
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": "q1", "question": "Who, then?", "answers": found, **fields}


def test_answers_map_back_to_the_text(tmp_path):
    path = written(tmp_path, [question(("Dr. Lee", 21), ("didn't", 35)), question(("met Dr. Lee. They", 17))])
    first, second = read_questions(path)
    assert first.question == ["Who", ",", "then", "?"]
    assert first.answers == ("Dr. Lee", "didn't")
    assert [first.passage.piece(span) for span in first.marked] == ["Dr. Lee", "didn't"]
    assert [second.passage.piece(span) for span in second.marked] == ["met Dr. Lee. They"]
    assert first.passage is second.passage
    assert (first.name, first.source) == ("q1", f"{path}: data[0].paragraphs[0].qas[0]")


def test_several_references_leave_each_place_once(tmp_path):
    (example,) = read_questions(written(tmp_path, [question(("crew", 12), ("crew", 12), ("two-man crew", 4))]))
    assert example.answers == ("crew", "crew", "two-man crew")
    assert example.marked == ((2, 2), (1, 2))


def test_a_part_of_a_word_becomes_the_word(tmp_path):
    (example,) = read_questions(written(tmp_path, [question(("two", 4))]))
    assert [example.passage.piece(span) for span in example.marked] == ["two-man"]
    assert example.everywhere == example.marked


def test_a_part_of_a_word_that_stands_elsewhere_alone(tmp_path):
    start = TEXT.index("ally")
    text = TEXT.replace("socially", "socially by an ally")
    (example,) = read_questions(written(tmp_path, [question(("ally", start))], context=text))
    assert example.passage.text[example.passage.starts[example.marked[0][0]] - 3 :].startswith("an ally")


def test_all_places_of_an_answer(tmp_path):
    start = TEXT.index("all met")
    (example,) = read_questions(written(tmp_path, [question(("all", start))]))
    assert [example.passage.piece(span) for span in example.everywhere] == ["all", "all"]
    assert len(example.marked) == 1


def test_no_answers_and_other_segmenters(tmp_path):
    path = written(tmp_path, [{"question": "Eat?"}], context="One. Two.")
    (example,) = read_questions(path)
    assert (example.answers, example.marked, example.name) == ((), (), "")

    class Whole:
        def __call__(self, text):
            from elmokit.text.segmenters import Word

            return [[Word(text, 0, len(text))]]

    (example,) = read_questions(path, segmenter=Whole())
    assert example.passage.sentences == [["One. Two."]]


def test_packed_files(tmp_path):
    path = written(tmp_path, [question(("crew", 12))])
    packed = tmp_path / "squad.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert next(read_questions(packed)).marked == next(read_questions(path)).marked


@given(st.text("ab .\n", min_size=1, max_size=30), st.data())
def test_spans_cover_what_they_stand_for(text, data):
    passage = Passage.of(text)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    span = passage.span_of(start, end)
    if text[start:end].strip():
        assert span is not None
        assert passage.starts[span[0]] <= start + len(text[start:end]) - len(text[start:end].lstrip())
        assert passage.ends[span[1]] >= start + len(text[start:end].rstrip())
        assert text[start:end].strip() in passage.piece(span)
    else:
        assert span is None
    for found in passage.occurrences(text[start:end]):
        assert passage.piece(found) == text[start:end]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (question(("crew", 13)), r"'crew' of question q1 is not at character 13, 'rew ' is; it stands at 12"),
        (question(("cat", -1)), r"'cat' of question q1 is not at character -1, '' is, nor anywhere else"),
        (question((" ", 3)), "an answer without words"),
        (question(is_impossible=True), "SQuAD 2.0"),
        (question(question=" "), "expected a text in `question`"),
        (question(answers={"text": ["crew"]}), "expected a list in `answers`"),
        (question(answers=["crew"]), "expected an answer"),
        (question(answers=[{"text": "crew", "answer_start": "12"}]), "expected an answer"),
    ],
)
def test_bad_questions(tmp_path, entry, message):
    path = written(tmp_path, [entry, question(("crew", 12))])
    with pytest.raises(InputError, match=message) as caught:
        list(read_questions(path))
    assert f"{path}: data[0].paragraphs[0].qas[0]: " in str(caught.value)
    problems = Problems(skips=True)
    assert len(list(read_questions(path, problems=problems))) == 1
    assert problems.num_bad == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found an empty file"),
        ('{"data":\n [}', r"squad\.json:2: expected SQuAD's JSON"),
        ("[" * 100_000, "cannot be read"),
        ("[]", r"expected a list of objects in `data`.*found \[\]"),
        ('{"data": [3]}', r"in `data`.*found \[3\]"),
        ('{"data": []}', "expected questions"),
        ('{"data": [{"paragraphs": 1}]}', r"data\[0\]: expected a list of objects in `paragraphs`"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"paragraphs\[0\]: expected a text in `context`, found None"),
        ('{"data": [{"paragraphs": [{"context": "a"}]}]}', r"paragraphs\[0\]: expected a list of objects in `qas`"),
    ],
)
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "squad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_questions(path))


def test_skipping_may_leave_nothing(tmp_path):
    path = tmp_path / "squad.json"
    path.write_text('{"data": [{"paragraphs": 1}, {"paragraphs": [{"context": ""}]}]}')
    with pytest.raises(InputError, match="expected questions"):
        list(read_questions(path, problems=Problems(skips=True)))
