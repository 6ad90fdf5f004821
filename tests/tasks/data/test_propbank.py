import json

import pytest

from elmokit.errors import InputError
from elmokit.tasks.data import Problems
from elmokit.tasks.data.propbank import read_propbank

GOOD = {"words": ["Dogs", "chase", "cats"], "predicate": 1, "tags": ["B-ARG0", "B-V", "B-ARG1"]}


def written(tmp_path, *lines):
    path = tmp_path / "roles.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_lines_of_one_sentence_are_one_example(tmp_path):
    words = ["Dogs", "want", "to", "run"]
    lines = [
        {"words": words, "predicate": 1, "tags": ["B-ARG0", "B-V", "B-ARG1", "I-ARG1"], "sense": "want.01"},
        {"words": words, "predicate": 3, "tags": ["B-ARG0", "O", "O", "B-V"]},
        "",
        GOOD,
    ]
    path = written(tmp_path, *lines)
    first, second = read_propbank(path, Problems())
    assert [frame.predicate for frame in first.frames] == [1, 3]
    assert first.frames[1].tags == ("B-ARG0", "O", "O", "B-V")
    assert first.source == f"{path}:1"
    assert second.words == ("Dogs", "chase", "cats")
    assert second.source == f"{path}:4"


def test_a_sentence_that_comes_twice_is_two_examples(tmp_path):
    assert len(list(read_propbank(written(tmp_path, GOOD, GOOD), Problems()))) == 2
    ids = [GOOD | {"sent_id": "a"}, GOOD | {"sent_id": "b", "predicate": 0}]
    assert len(list(read_propbank(written(tmp_path, *ids), Problems()))) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "JSON object"),
        ("[1]", r"with words, predicate and tags, found '\[1\]'"),
        ({"tokens": ["a"], "verb_index": 0}, "with words, predicate and tags, found the fields tokens, verb_index"),
        (GOOD | {"words": "Dogs chase cats"}, "words: expected a list"),
        (GOOD | {"words": ["Dogs", "", "cats"]}, "none of them empty"),
        (GOOD | {"words": [], "tags": []}, "words: expected"),
        (GOOD | {"tags": ["O", "B-V"]}, "each of the 3 words, found 2"),
        (GOOD | {"tags": "O O O"}, "found no list"),
        (GOOD | {"predicate": 3}, "from 0 to 2, found 3"),
        (GOOD | {"predicate": True}, "found True"),
        (GOOD | {"predicate": "chase"}, "found 'chase'"),
        (GOOD | {"tags": ["ARG0", "B-V", "O"]}, "tag 0: expected O, B-ROLE or I-ROLE, found 'ARG0'"),
        (GOOD | {"tags": ["O", "B-V", "I-ARG1"]}, "tag 2 is I-ARG1 after B-V"),
    ],
)
def test_bad_lines_are_named_or_counted(tmp_path, line, message):
    path = written(tmp_path, GOOD, line)
    with pytest.raises(InputError, match=message) as caught:
        list(read_propbank(path, Problems()))
    assert f"{path}:2: " in str(caught.value)
    problems = Problems(skips=True)
    assert len(list(read_propbank(path, problems))) == 1
    assert problems.num_bad == 1


def test_an_empty_file_has_no_examples(tmp_path):
    assert list(read_propbank(written(tmp_path), Problems())) == []
