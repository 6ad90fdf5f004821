import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.embed import segments as segments_module
from elmokit.embed.rows import RowSplitter
from elmokit.embed.segments import Cutter
from elmokit.errors import InputError
from elmokit.text.characters import ByteScheme
from elmokit.text.files import Line
from elmokit.text.segmenters import RuleSegmenter

RULES = RuleSegmenter()


def lines_of(*texts):
    return [Line(number, f"in.txt:{number + 1}", text.encode()) for number, text in enumerate(texts)]


def cut(*texts, segmenter=RULES, segment_words=2**15, rows_per_batch=1, workers=1, **options):
    splitter = RowSplitter(ByteScheme(), segmenter, keeps_texts=True, **options)
    cutter = Cutter(splitter, segment_words, rows_per_batch=rows_per_batch, workers=workers)
    return list(cutter.segments(lines_of(*texts)))


def facts(segment):
    return segment.header(), segment.lines_R.tolist(), list(segment.rows()), segment.words, segment.texts


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 6), max_size=40), segment_words=st.integers(1, 20), rows_per_batch=st.integers(1, 4)
)
def test_no_line_is_lost_and_borders_depend_on_the_lines_before_alone(counts, segment_words, rows_per_batch):
    texts = ["word " * count for count in counts]
    options = {"segment_words": segment_words, "rows_per_batch": rows_per_batch}
    segments = cut(*texts, **options)
    assert [line for segment in segments for line in segment.lines_R] == list(range(len(counts)))
    assert [len(words) for segment in segments for words in segment.rows()] == counts
    assert all(len(segment.lines_R) % rows_per_batch == 0 for segment in segments[:-1])
    assert not any(segment.ended for segment in segments[:-1])
    longer = cut(*texts, *["more words"] * 5, **options)
    finished = [segment for segment in segments if not segment.ended]
    assert list(map(facts, longer[: len(finished)])) == list(map(facts, finished))


def test_a_segment_of_blank_lines_ends_too():
    assert [segment.num_lines for segment in cut(*[""] * 10, segment_words=16)] == [4, 4, 2]


def test_a_line_is_a_row_unless_it_is_split():
    text = "  One sentence. Another one here.  "
    (whole,) = cut(text, "")
    assert (whole.lines_R.tolist(), whole.texts, whole.lengths_R.tolist()) == ([0, 1], [text.strip(), ""], [7, 0])
    (split,) = cut(text, "", split=True)
    assert (split.lines_R.tolist(), split.texts) == ([0, 0, 1], ["One sentence.", "Another one here.", ""])
    assert split.num_lines == 2


def test_tokenised_lines_are_split_at_spaces_alone():
    (segment,) = cut(" do n't  split. ", segmenter=None)
    assert list(segment.rows()) == [["do", "n't", "split."]]


def test_words_that_do_not_arrive_whole_are_counted():
    (segment,) = cut("fine", "x" * 49, "a\0b ok " + "é" * 25, segmenter=None)
    assert segment.num_cut == 3


@pytest.mark.parametrize(("text", "what"), [("x" * 10**6, "longer than this model reads"), ("a\0b", "holds a NUL")])
def test_strict_refuses_them_and_names_the_line(text, what):
    with pytest.raises(InputError, match=rf"in\.txt:2: the word .*{what}") as caught:
        cut("fine", text, segmenter=None, strict=True)
    assert len(str(caught.value)) < 300


@settings(deadline=None, max_examples=30)
@given(
    texts=st.lists(st.sampled_from(["", "One. Two three!", "a b a", "one Two", "x" * 60]), min_size=1, max_size=30),
    segment_words=st.integers(1, 12),
    split=st.booleans(),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_segments_do_not_depend_on_the_blocks_in_which_lines_are_split(texts, segment_words, split, sizes):
    made = []
    for block_bytes in sizes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segments_module, "BLOCK_BYTES", block_bytes)
            made.append([facts(segment) for segment in cut(*texts, segment_words=segment_words, split=split)])
    assert made[0] == made[1]


def test_segments_do_not_depend_on_the_processes_that_split_lines(monkeypatch):
    monkeypatch.setattr(segments_module, "BLOCK_BYTES", 200)
    texts = [f"Line {number} is here. So is this." for number in range(60)]
    alone, together = (cut(*texts, segment_words=40, split=True, workers=workers) for workers in (1, 2))
    assert list(map(facts, together)) == list(map(facts, alone))
    with pytest.raises(InputError, match=r"in\.txt:61: the word .* holds a NUL"):
        cut(*texts, "a\0b", segment_words=40, strict=True, workers=2)


def test_segments_before_a_line_at_fault_are_given(monkeypatch):
    lines = [*lines_of("one two", "three four"), Line(2, "in.txt:3", b"caf\xe9")]
    segments = Cutter(RowSplitter(ByteScheme(), RULES), 2).segments(lines)
    assert [list(next(segments).rows()) for _ in range(2)] == [[["one", "two"]], [["three", "four"]]]
    with pytest.raises(InputError, match=r"in\.txt:3: expected UTF-8"):
        next(segments)
