"""The network of coreference against plain definitions."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.network.mentions import AntecedentScores, SpanVectors, find_spans, keep_best_spans, link


def span_by_span(module, words_TD, start, end):
    """The vector of one span as Lee et al. define it, by a matrix product over first word, last word, head, width."""
    first, last, inner = module.parts.weight.chunk(3)
    biases = module.parts.bias.chunk(3)
    raw = module.head(words_TD[start : end + 1]).squeeze(-1)
    shares = (10 * torch.tanh(raw / 10)).softmax(0)
    head = shares @ words_TD[start : end + 1]
    total = words_TD[start] @ first.T + words_TD[end] @ last.T + head @ inner.T + sum(biases)
    return (total + module.width.weight[end - start]).relu()


def test_vectors_of_spans_are_those_of_the_definition():
    torch.manual_seed(0)
    module, words_TD = SpanVectors(5, 7, max_width=3, dropout=0.0), torch.randn(6, 5)
    torch.nn.init.normal_(module.parts.bias)
    vectors, scores = module(words_TD)
    for start in range(6):
        for width in range(min(3, 6 - start)):
            expected = span_by_span(module, words_TD, start, start + width)
            torch.testing.assert_close(vectors[start, width], expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(scores[start, width], module.score(expected).squeeze(-1), atol=1e-5, rtol=1e-5)
    assert scores.isfinite().all()


def test_one_word_and_steep_heads_stay_finite():
    module = SpanVectors(2, 3, max_width=4, dropout=0.0)
    vectors, _ = module(torch.full((1, 2), 1e4))
    assert vectors.shape == (1, 4, 3)
    assert vectors.isfinite().all()


def test_spans_end_in_their_sentence():
    assert find_spans([3, 1], max_width=2).tolist() == [[True, True], [True, True], [True, False], [True, False]]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 9))
def test_kept_spans_do_not_cross_and_are_the_best(seed, lengths, max_width, count):
    scores = torch.rand(sum(lengths), max_width, generator=torch.Generator().manual_seed(seed))
    is_span = find_spans(lengths, max_width)
    kept = keep_best_spans(scores, is_span, count)
    assert kept == sorted(set(kept))
    assert len(kept) <= count
    assert all(is_span[start, end - start] for start, end in kept)
    assert not any(cross(one, other) for one in kept for other in kept)
    # Greedy: what was left out crosses a better one, or came after the last place was taken.
    worst = min(scores[start, end - start].item() for start, end in kept)
    for start, width in is_span.nonzero().tolist():
        span = (start, start + width)
        if span not in kept and (len(kept) < count or scores[start, width] > worst):
            assert any(
                cross(span, other) and scores[other[0], other[1] - other[0]] > scores[start, width] for other in kept
            )


def cross(one, other):
    return one[0] < other[0] <= one[1] < other[1] or other[0] < one[0] <= other[1] < one[1]


def test_antecedents_come_before():
    torch.manual_seed(0)
    module = AntecedentScores(4, num_antecedents=3, dropout=0.0)
    scores, places = module(torch.randn(6, 4), torch.randn(6))
    assert scores.shape == places.shape == (6, 3)
    for mention in range(6):
        real = scores[mention] > -math.inf
        assert int(real.sum()) == min(3, mention)
        assert (places[mention][real] < mention).all()


def test_all_antecedents_when_there_are_few():
    """With room for all pairs, the coarse score only orders them: each pair's sum is that of the definition."""
    torch.manual_seed(1)
    module = AntecedentScores(4, num_antecedents=50, dropout=0.0)
    spans, mention_scores = torch.randn(4, 4), torch.randn(4)
    scores, places = module(spans, mention_scores)
    for i in range(4):
        for column, j in enumerate(places[i].tolist()):
            if j < i:
                pair = module.mention(spans[i]) + module.antecedent(spans[j]) + module.likeness(spans[i] * spans[j])
                fine = module.score(pair + module.distance.weight[i - j - 1])
                expected = mention_scores[i] + mention_scores[j] + module.coarse(spans[i]) @ spans[j] / 2 + fine
                torch.testing.assert_close(scores[i, column], expected.squeeze(), atol=1e-5, rtol=1e-5)


def test_one_mention_has_no_antecedent():
    scores, _ = AntecedentScores(4, num_antecedents=5, dropout=0.0)(torch.randn(1, 4), torch.randn(1))
    assert scores.tolist() == [[-math.inf]]


@pytest.mark.parametrize(("distance", "bucket"), [(1, 0), (4, 3), (5, 4), (7, 4), (8, 5), (63, 7), (64, 8), (900, 8)])
def test_distances_fall_into_buckets(distance, bucket):
    module = AntecedentScores(2, num_antecedents=1, dropout=0.0)
    assert int(torch.bucketize(torch.tensor(distance), module.starts, right=True)) == bucket


@given(st.integers(0, 10**6), st.integers(0, 12))
def test_links_make_a_partition(seed, count):
    draw = random.Random(seed)
    antecedents = [draw.choice([None, *range(mention)]) for mention in range(count)]
    clusters = link(antecedents)
    assert sorted(mention for cluster in clusters for mention in cluster) == list(range(count))
    of = {mention: number for number, cluster in enumerate(clusters) for mention in cluster}
    assert all(of[mention] == of[before] for mention, before in enumerate(antecedents) if before is not None)
    assert len(clusters) == antecedents.count(None)
