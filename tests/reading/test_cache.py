from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.reading.cache import LONGEST_KEY, WordCache


def vector_of(word):
    return torch.tensor([float(len(word)), float(sum(map(ord, word))), 1.0])


class Compute:
    def __init__(self):
        self.asked = []

    def __call__(self, words):
        self.asked.append(list(words))
        return torch.stack([vector_of(word) for word in words])


def expected(words):
    return torch.stack([vector_of(word) for word in words])


@settings(deadline=None, max_examples=30)
@given(
    capacity=st.integers(0, 6),
    batches=st.lists(
        st.lists(st.text("abcd", min_size=1, max_size=2), min_size=1, max_size=8, unique=True), max_size=8
    ),
)
def test_vectors_are_exact_and_the_least_recently_used_word_leaves(capacity, batches):
    cache, compute, model = WordCache(capacity), Compute(), OrderedDict()
    for words in batches:
        compute.asked.clear()
        assert torch.equal(cache.get_vectors(words, compute), expected(words))
        missing = [word for word in words if word not in model]
        assert compute.asked == ([missing] if missing else [])
        for word in words:
            if word in model:
                model.move_to_end(word)
        for word in missing[-capacity:] if capacity else []:
            model[word] = None
            if len(model) > capacity:
                model.popitem(last=False)
        assert len(cache) == len(model) <= capacity


def test_an_endless_word_is_not_kept():
    cache, compute = WordCache(10), Compute()
    word = "x" * (LONGEST_KEY + 1)
    cache.get_vectors([word, "short"], compute)
    cache.get_vectors([word, "short"], compute)
    assert len(cache) == 1
    assert compute.asked == [[word, "short"], [word]]


def test_clear_forgets():
    cache, compute = WordCache(10), Compute()
    cache.get_vectors(["a"], compute)
    cache.clear()
    cache.get_vectors(["a"], compute)
    assert compute.asked == [["a"], ["a"]]


def test_numbers_are_words_too():
    cache = WordCache(3)
    assert cache.get_vectors([1, 2, 1000], lambda words: torch.tensor([[float(w)] for w in words])).tolist()[2] == [
        1000.0
    ]


@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_several_threads_get_exact_vectors(capacity):
    cache, wrong = WordCache(capacity), []

    def work(seed):
        for step in range(60):
            words = [f"w{(seed * 7 + step * 3 + k) % 40}" for k in range(12)]
            if not torch.equal(cache.get_vectors(words, Compute()), expected(words)):
                wrong.append(words)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong
    assert len(cache) <= capacity
