"""Rated words in their sentences and rated sentences: the formats, and what is correlated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit import InputError
from elmokit.probe.cosines import pair_cosines
from elmokit.probe.rated.contexts import find_marked, probe_contexts, read_rated_uses
from elmokit.probe.rated.correlations import pearson, spearman
from elmokit.probe.rated.sentences import POOLINGS, probe_sentences, read_rated_sentences
from elmokit.probe.rated.words import read_rated_pairs
from elmokit.text.labelled import Problems
from elmokit.text.segmenters import RuleSegmenter

USES = [  # the word before the marked one decides: "context" of the source `spelled` knows only that
    ("the <b>dog</b> runs .", "the <b>cat</b> runs .", "9"),
    ("the <b>bank</b> lends .", "old <b>bank</b> .", "2"),
    ("We left. The <b>dog</b> ran .", "my <b>dog</b> .", "3"),
]


def write_lines(path, rows) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He sat. The old <b>bank</b> closed.", [("bank", "The old bank closed .")]),
        ("in <b> New York </b> today", [("New York", "in New York today")]),
        ("Both <strong>cup</strong> and <strong>mug</strong>.", [("cup", "Both cup and mug ."), ("mug",) * 2]),
        ("I <b>don't</b> know", [("do n't", "I do n't know")]),
        ("un<b>bank</b>like <b></b> <b> </b>", [("unbanklike", "unbanklike")]),
        ("a <i>bank</i> <b>open", []),
    ],
)
def test_marked_words_are_found_in_their_sentences(text, expected):
    found = find_marked(text, RuleSegmenter())
    assert [" ".join(use.words[use.start : use.stop]) for use in found] == [word for word, _ in expected]
    if found:
        assert " ".join(found[0].words) == expected[0][1]


def test_words_in_context_are_told_from_their_context(tmp_path, spelled):
    write_lines(tmp_path / "uses.tsv", [("first", "second", "rating"), *USES])
    pairs = read_rated_uses(tmp_path / "uses.tsv")
    assert [pair.rating for pair in pairs] == [9, 2, 3]
    assert pairs[2].uses[0].words == ["The", "dog", "ran", "."]
    report = probe_contexts([spelled], {"uses": pairs, "fewer": pairs[:2]}, folder=tmp_path)
    vectors = [spelled.layers([use.words])[0][:, use.start] for pair in pairs for use in pair.uses]
    for layer, row in enumerate(("word", "context")):
        cosines = pair_cosines(*(np.stack([v[layer] for v in vectors[side::2]]) for side in (0, 1)))
        assert report.rows[row]["uses"] == pytest.approx(spearman(cosines, np.array([9, 2, 3])))
        assert report.rows[row]["fewer"] == pytest.approx(spearman(cosines[:2], np.array([9, 2])))
    assert report.rows["context"]["fewer"] == 1


def test_scws_and_two_words_of_one_text_are_read(tmp_path):
    first, second, rating = USES[1]
    scws = ["7", "bank", "n", "bank", "n", first, second, rating, *["1.0"] * 10]
    write_lines(tmp_path / "scws.txt", [scws, scws])
    write_lines(tmp_path / "plain.tsv", [USES[1], (f"{first} {second}", rating)])
    assert read_rated_uses(tmp_path / "scws.txt")[0] == read_rated_uses(tmp_path / "plain.tsv")[0]
    together = read_rated_uses(tmp_path / "plain.tsv")[1]
    assert [use.words[use.start] for use in together.uses] == ["bank", "bank"] and together.rating == 2


@pytest.mark.parametrize("row", [("a <b>b</b>", "c", "3"), ("<b>a</b>", "<b>b</b>", "?"), ("<b>a</b>",) * 4])
def test_bad_uses_are_refused_or_left_out(row, tmp_path):
    write_lines(tmp_path / "uses.tsv", [*USES, row])
    with pytest.raises(InputError, match=r"uses.tsv:4: expected .* found "):
        read_rated_uses(tmp_path / "uses.tsv")
    problems = Problems(skips=True)
    assert len(read_rated_uses(tmp_path / "uses.tsv", problems)) == 3 and problems.num_bad == 1


SENTENCES = [("A dog runs.", "A dog barks.", "4.5"), ("A bank", "The old tree", "1"), ("It is", "It is", "5")]


@pytest.mark.parametrize(
    ("header", "order"),
    [
        (None, (0, 1, 2)),
        (["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"], (None, 0, 1, 2, None)),
        (["index", "genre", "sentence1", "sentence2", "score"], (None, None, 0, 1, 2)),
        (None, (None, None, None, None, 2, 0, 1)),
        (None, (None, None, None, None, 2, 0, 1, None, None)),
    ],
)
def test_every_format_of_rated_sentences_says_the_same(header, order, tmp_path):
    rows = [["x" if place is None else row[place] for place in order] for row in SENTENCES]
    write_lines(tmp_path / "rated.txt", [header, *rows] if header else rows)
    found = read_rated_sentences(tmp_path / "rated.txt")
    assert found[0] == (["A", "dog", "runs", "."], ["A", "dog", "barks", "."], 4.5)
    assert [pair.rating for pair in found] == [4.5, 1, 5]


def test_sentences_are_mixed_and_pooled_as_the_embedder_does(tmp_path, elmo_source):
    write_lines(tmp_path / "rated.tsv", SENTENCES)
    pairs = read_rated_sentences(tmp_path / "rated.tsv")
    report = probe_sentences([elmo_source], {"rated": pairs}, folder=tmp_path)
    assert report.columns == [f"{pooling} {kind}" for pooling in POOLINGS for kind in "ρr"]
    ratings = np.array([pair.rating for pair in pairs])
    for row, layers in (("layer 1", 1), ("average", "average")):
        for pooling in POOLINGS:
            first, second = (
                elmo_source.embedder.encode([pair[side] for pair in pairs], layers=layers, pooling=pooling)
                for side in (0, 1)
            )
            expected = pearson(pair_cosines(first, second), ratings)
            assert report.rows[row][f"{pooling} r"] == pytest.approx(expected, abs=1e-3)
    both = probe_sentences([elmo_source], {"one": pairs, "two": pairs[1:]}, folder=tmp_path)
    assert both.rows["layer 1"]["one mean ρ"] == report.rows["layer 1"]["mean ρ"]
    assert len(both.columns) == 12


@pytest.mark.parametrize("row", [("one", "two"), ("one", "two", "much"), ("", "two", "3")])
def test_bad_sentences_are_refused_or_left_out(row, tmp_path):
    write_lines(tmp_path / "rated.tsv", [*SENTENCES, row])
    with pytest.raises(InputError, match=r"rated.tsv:4: expected .* found "):
        read_rated_sentences(tmp_path / "rated.tsv")
    problems = Problems(skips=True)
    assert len(read_rated_sentences(tmp_path / "rated.tsv", problems)) == 3 and problems.num_bad == 1


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12))
def test_pearson_is_numpys(pairs):
    first, second = (np.array(part) for part in zip(*pairs, strict=True))
    found = pearson(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-9)


@pytest.mark.parametrize(
    ("read", "good", "count"),
    [
        (read_rated_pairs, b"dog cat 3\n", 2),
        (read_rated_sentences, b"A dog runs.\tA dog barks.\t4.5\n", 2),
        (read_rated_uses, b"A <b>bank</b>\tThe <b>bank</b>\t3\n", 2),
    ],
)
def test_lines_that_are_not_utf8_are_skipped_where_that_was_asked_and_blank_ones_always(read, good, count, tmp_path):
    (tmp_path / "rated.tsv").write_bytes(b"\n" + good + b"caf\xe9 \tb\t3\n" + good)
    with pytest.raises(InputError, match=r"rated.tsv:3: .*UTF-8"):
        read(tmp_path / "rated.tsv")
    problems = Problems(skips=True)
    assert len(read(tmp_path / "rated.tsv", problems)) == count and problems.num_bad == 1
