"""Word vectors that were computed before: a bounded memory of the context-free vectors, least recently used out first.

Arrives: distinct words and a function that computes the vectors of some of them. Leaves: their vectors (U, P). A word's
vector depends on its spelling alone, so remembering it is exact, and running text repeats itself enough that most
words are never convolved twice. All vectors lie in one preallocated table: no allocation a word, memory known
beforehand. Several threads may use one cache; the lock is held for look-ups and updates, never while computing.

Shapes: U distinct words, M missing words, P width of a direction.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Word", "WordCache"]

Word = str | int  # an id-only model reads numbers

# A "word" longer than this is computed each time it comes: a file of one-megabyte words must not fill the memory
# with keys. No scheme in use reads this many characters.
LONGEST_KEY = 256


class WordCache:
    """A bounded, thread-safe table of word vectors.

    Arguments:
        capacity: words remembered at most; 0 remembers none.

    Example:
        >>> cache = WordCache(2)
        >>> cache.vectors(["a", "b"], lambda words: torch.ones(len(words), 3)).shape, len(cache)
        (torch.Size([2, 3]), 2)
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._slots: OrderedDict[Word, int] = OrderedDict()
        self._table_SP: Tensor | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Forget every word; the table is given back too."""
        with self._lock:
            self._slots.clear()
            self._table_SP = None

    def vectors(self, words: Sequence[Word], compute: Callable[[list[Word]], Tensor]) -> Tensor:
        """The vectors (U, P) of distinct words; `compute` is called once with those that are not remembered."""
        places, found_HP = self._find(words)
        if found_HP is not None and len(places) == len(words):
            return found_HP
        known = set(places)
        missing = [place for place in range(len(words)) if place not in known]
        missing_words = [words[place] for place in missing]
        computed_MP = compute(missing_words)
        self._store(missing_words, computed_MP)
        if found_HP is None:
            return computed_MP
        vectors_UP = computed_MP.new_empty(len(words), computed_MP.shape[1])
        vectors_UP[torch.tensor(places, device=computed_MP.device)] = found_HP
        vectors_UP[torch.tensor(missing, device=computed_MP.device)] = computed_MP
        return vectors_UP

    def _find(self, words: Sequence[Word]) -> tuple[list[int], Tensor | None]:
        """Places of the remembered words among `words`, and a copy of their vectors in that order."""
        places, slots = [], []
        with self._lock:
            for place, word in enumerate(words):
                slot = self._slots.get(word)
                if slot is not None:
                    self._slots.move_to_end(word)
                    places.append(place)
                    slots.append(slot)
            if self._table_SP is None or not places:
                return [], None
            return places, self._table_SP[torch.tensor(slots, device=self._table_SP.device)]

    def _store(self, words: Sequence[Word], vectors_MP: Tensor) -> None:
        fits = [place for place, word in enumerate(words) if not isinstance(word, str) or len(word) <= LONGEST_KEY]
        fits = fits[-self.capacity :] if self.capacity else []
        if not fits:
            return
        with self._lock:
            if self._table_SP is None:
                # Pages of the table that no word has touched cost no memory on a CPU.
                self._table_SP = vectors_MP.new_empty(self.capacity, vectors_MP.shape[1])
            kept, slots = [], []
            for place in fits:
                if words[place] in self._slots:  # another thread was faster
                    continue
                slot = len(self._slots) if len(self._slots) < self.capacity else self._slots.popitem(last=False)[1]
                self._slots[words[place]] = slot
                kept.append(place)
                slots.append(slot)
            if not kept:
                return
            device = vectors_MP.device
            self._table_SP[torch.tensor(slots, device=device)] = vectors_MP[torch.tensor(kept, device=device)]
