import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.reading.batching import (
    TOKEN_BUDGETS,
    batch_by_length,
    choose_budget,
    split_into_windows,
)

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, budget=st.none() | st.integers(1, 100), batch_size=st.none() | st.integers(1, 9))
def test_every_sentence_is_in_one_batch_within_its_limits(lengths, budget, batch_size):
    batches = list(batch_by_length(lengths, budget=budget, batch_size=batch_size))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch_size is None or len(batch) <= batch_size
        assert budget is None or len(batch) == 1 or len(batch) * max(lengths[p] for p in batch) <= budget


def test_longest_sentences_come_first_and_equal_ones_keep_their_order():
    assert list(batch_by_length([4, 7, 4, 7], budget=14)) == [[1, 3], [0, 2]]


@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, budget=st.integers(1, 50), batch_size=st.none() | st.integers(1, 9))
def test_windows_keep_everything_in_order(lengths, budget, batch_size):
    sentences = [[str(place)] * length for place, length in enumerate(lengths)]
    assert [
        s for window in split_into_windows(sentences, budget=budget, batch_size=batch_size) for s in window
    ] == sentences


def test_windows_of_whole_batches_have_that_size():
    assert [len(window) for window in split_into_windows([["a"]] * 10, budget=3, batch_size=4, num_batches=1)] == [
        4,
        4,
        2,
    ]


def test_windows_read_no_further_than_they_must():
    taken = []
    sentences = (taken.append(place) or ["word"] for place in range(10**9))
    next(split_into_windows(sentences, budget=30))
    assert len(taken) < 100


def test_windows_of_sentences_without_words_end_too():
    assert len(next(split_into_windows(([] for _ in range(10**9)), budget=10**9))) < 10**5


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_a_device_nobody_measured_gets_the_smallest_budget(device):
    assert choose_budget(device) == (TOKEN_BUDGETS["cuda"] if device == "cuda" else min(TOKEN_BUDGETS.values()))


@pytest.mark.parametrize("device", TOKEN_BUDGETS)
def test_a_budget_holds_a_batch_of_ordinary_sentences(device):
    """At least a few dozen rows run together, or the recurrence would spend its time on single rows."""
    (batch, *_) = batch_by_length([30] * 1000, budget=choose_budget(device))
    assert len(batch) >= 64
