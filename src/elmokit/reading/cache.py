"""Word vectors that were computed before: a bounded memory of the context-free vectors, least recently used out first.

Arrives: distinct words and a function that computes the vectors of some of them. Leaves: their vectors (U, P). A word's
vector depends on its spelling alone, so remembering it is exact, and running text repeats itself enough that most
words are never convolved twice. All vectors lie in one preallocated table: no allocation per word, memory known
beforehand. Several threads may use one cache; the lock is held while the table is used, never while
computing.

Shapes: U distinct words, M missing words, P width of a direction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

__all__ = ["CACHE_WORDS", "Token", "WordCache"]

Token = str | int  # a word; or its row, in a word-input model without a vocabulary

# 205 MB for the original model, 26 MB for the tiny one, and only once so many different words have come.
CACHE_WORDS = 100_000

# A "word" longer than this is computed each time it comes: a file of one-megabyte words must not fill the memory
# with keys. No scheme in use reads this many characters.
LONGEST_KEY = 256


class WordCache:
    """A bounded, thread-safe table of word vectors.

    Arguments:
        capacity: words remembered at most; 0 remembers none.

    Example:
        >>> cache = WordCache(2)
        >>> cache.get_vectors(["a", "b"], lambda words: torch.ones(len(words), 3)).shape, len(cache)
        (torch.Size([2, 3]), 2)
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._slots: dict[Token, int] = {}
        self._words: list[Token] = []  # the word of each slot
        self._last_used = np.zeros(capacity, np.int64)  # when, counted in words that were asked for
        self._now = 0
        self._table_SP: Tensor | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def __reduce__(self) -> tuple[type[WordCache], tuple[int]]:
        """A copy starts empty: what it would remember is quickly computed and may be large."""
        return WordCache, (self.capacity,)

    def clear(self) -> None:
        """Forget every word; the table is given back too."""
        with self._lock:
            self._slots.clear()
            self._words.clear()
            self._table_SP = None

    def get_vectors(self, words: Sequence[Token], compute: Callable[[list[Token]], Tensor]) -> Tensor:
        """The vectors (U, P) of distinct words; `compute` is called once with those that are not remembered."""
        slots_U, found_HP = self._find(words)
        missing_M = np.flatnonzero(slots_U < 0)
        if found_HP is not None and not len(missing_M):
            return found_HP
        missing_words = [words[place] for place in missing_M.tolist()]
        computed_MP = compute(missing_words)
        self._store(missing_words, computed_MP)
        if found_HP is None:
            return computed_MP
        vectors_UP = computed_MP.new_empty(len(words), computed_MP.shape[1])
        vectors_UP[torch.from_numpy(np.flatnonzero(slots_U >= 0)).to(computed_MP.device)] = found_HP
        vectors_UP[torch.from_numpy(missing_M).to(computed_MP.device)] = computed_MP
        return vectors_UP

    def _find(self, words: Sequence[Token]) -> tuple[np.ndarray, Tensor | None]:
        """The slot of each word, -1 where there is none, and a copy of the vectors found, in order."""
        with self._lock:
            slots_U = np.fromiter(map(self._slots.get, words, repeat(-1)), np.int64, len(words))
            found_H = slots_U[slots_U >= 0]
            if self._table_SP is None or not len(found_H):
                return slots_U, None
            self._last_used[found_H] = self._moments(len(found_H))
            return slots_U, self._table_SP.index_select(0, torch.from_numpy(found_H).to(self._table_SP.device))

    def _store(self, words: Sequence[Token], vectors_MP: Tensor) -> None:
        if not self.capacity:
            return
        fits = [place for place, word in enumerate(words) if not isinstance(word, str) or len(word) <= LONGEST_KEY]
        with self._lock:
            kept = [place for place in fits if words[place] not in self._slots]  # unless another thread was faster
            kept = kept[-self.capacity :]
            if not kept:
                return
            if self._table_SP is None:
                # Pages of the table that no word has touched cost no memory on a CPU.
                self._table_SP = vectors_MP.new_empty(self.capacity, vectors_MP.shape[1])
            slots_K = self._free_slots(len(kept))
            for place, slot in zip(kept, slots_K.tolist(), strict=True):
                self._words[slot] = words[place]
                self._slots[words[place]] = slot
            self._last_used[slots_K] = self._moments(len(kept))
            device = vectors_MP.device
            if len(kept) < len(words):
                vectors_MP = vectors_MP[torch.tensor(kept, device=device)]
            self._table_SP.index_copy_(0, torch.from_numpy(slots_K).to(device), vectors_MP)

    def _free_slots(self, count: int) -> np.ndarray:
        """So many slots: those never used, then those of the words that were not asked for the longest."""
        first = len(self._words)
        unused_F = np.arange(first, min(first + count, self.capacity))
        self._words += [""] * len(unused_F)
        num_old = count - len(unused_F)
        if not num_old:
            return unused_F
        ages = self._last_used[:first]
        old_O = np.argpartition(ages, num_old - 1)[:num_old]
        for slot in old_O.tolist():
            del self._slots[self._words[slot]]
        return np.concatenate([unused_F, old_O])

    def _moments(self, count: int) -> np.ndarray:
        self._now += count
        return np.arange(self._now - count, self._now)
