import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.embed.segments import Cutter
from elmokit.errors import InputError
from elmokit.text.characters import ByteScheme
from elmokit.text.files import Line
from elmokit.text.segmenters import RuleSegmenter


def lines_of(*texts):
    return [Line(number, f"in.txt:{number + 1}", text.encode()) for number, text in enumerate(texts)]


def cut(*texts, **options):
    return list(Cutter(ByteScheme(), **{"segmenter": RuleSegmenter(), **options}).segments(lines_of(*texts)))


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 6), max_size=40), segment_words=st.integers(1, 20), rows_per_batch=st.integers(1, 4)
)
def test_no_line_is_lost_and_borders_depend_on_the_lines_before_alone(counts, segment_words, rows_per_batch):
    texts = ["word " * count for count in counts]
    options = {"segment_words": segment_words, "rows_per_batch": rows_per_batch}
    segments = cut(*texts, **options)
    assert [row.line for segment in segments for row in segment.rows] == list(range(len(counts)))
    assert [len(row.words) for segment in segments for row in segment.rows] == counts
    assert all(len(segment.rows) % rows_per_batch == 0 for segment in segments[:-1])
    assert not any(segment.ended for segment in segments[:-1])
    longer = cut(*texts, *["more words"] * 5, **options)
    finished = [segment for segment in segments if not segment.ended]
    assert longer[: len(finished)] == finished


def test_a_segment_of_blank_lines_ends_too():
    assert [segment.num_lines for segment in cut(*[""] * 10, segment_words=16)] == [4, 4, 2]


def test_a_line_is_a_row_unless_it_is_split():
    text = "  One sentence. Another one here.  "
    (whole,) = cut(text, "")
    assert [(row.line, row.text, len(row.words)) for row in whole.rows] == [(0, text.strip(), 7), (1, "", 0)]
    (split,) = cut(text, "", split=True)
    assert [(row.line, row.text) for row in split.rows] == [(0, "One sentence."), (0, "Another one here."), (1, "")]
    assert split.num_lines == 2


def test_tokenised_lines_are_split_at_spaces_alone():
    (segment,) = cut(" do n't  split. ", segmenter=None)
    assert segment.rows[0].words == ["do", "n't", "split."]


def test_words_that_do_not_arrive_whole_are_counted():
    (segment,) = cut("fine", "x" * 49, "a\0b ok " + "é" * 25, segmenter=None)
    assert segment.num_cut == 3


@pytest.mark.parametrize(("text", "what"), [("x" * 10**6, "longer than this model reads"), ("a\0b", "holds a NUL")])
def test_strict_refuses_them_and_names_the_line(text, what):
    with pytest.raises(InputError, match=rf"in\.txt:2: the word .*{what}") as caught:
        cut("fine", text, segmenter=None, strict=True)
    assert len(str(caught.value)) < 300
