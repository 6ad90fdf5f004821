import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.embed.batching import NUM_BOUNDARIES, batches_by_length, batches_in_order, token_budget, windows

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, budget=st.integers(1, 100), batch_size=st.none() | st.integers(1, 9))
def test_every_sentence_with_words_is_in_one_batch(lengths, budget, batch_size):
    batches = list(batches_by_length(lengths, budget=budget, batch_size=batch_size))
    assert sorted(place for batch in batches for place in batch) == [p for p, length in enumerate(lengths) if length]
    for batch in batches:
        assert batch_size is None or len(batch) <= batch_size
        assert batch_size or len(batch) == 1 or len(batch) * (max(lengths[p] for p in batch) + NUM_BOUNDARIES) <= budget


def test_longest_sentences_come_first_and_equal_ones_keep_their_order():
    assert list(batches_by_length([2, 5, 2, 5], budget=14)) == [[1, 3], [0, 2]]


@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, budget=st.integers(1, 50), batch_size=st.none() | st.integers(1, 9))
def test_windows_keep_everything_in_order(lengths, budget, batch_size):
    sentences = [[str(place)] * length for place, length in enumerate(lengths)]
    assert [s for window in windows(sentences, budget=budget, batch_size=batch_size) for s in window] == sentences


def test_windows_of_whole_batches_have_that_size():
    assert [len(window) for window in windows([["a"]] * 10, budget=3, whole_batches=4)] == [4, 4, 2]


def test_windows_read_no_further_than_they_must():
    taken = []
    sentences = (taken.append(place) or ["word"] for place in range(10**9))
    next(windows(sentences, budget=30))
    assert len(taken) < 100


def test_windows_of_sentences_without_words_end_too():
    assert len(next(windows(([] for _ in range(10**9)), budget=10**9))) < 10**5


def test_batches_in_order():
    assert list(batches_in_order(3, batch_size=2)) == [[0, 1], [2]]
    assert list(batches_in_order(0, batch_size=2)) == []


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_every_device_has_a_budget(device):
    assert token_budget(device) >= 1024
