"""The order in which sentences are seen: shuffled, yet computed anew at any place and read from disk in long pieces.

The number of sentences arrives; for each epoch, *pools* of sentence numbers leave. A block is a run of consecutive
sentences, a pool some blocks in random order, its sentences shuffled. So a pool's text is read from a few hundred
places of the disk instead of hundreds of thousands, and memory holds one pool whatever the size of the corpus. A pool
follows from (seed, epoch, number) alone: nothing has to be stored to resume.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from elmokit.errors import ConfigError

__all__ = ["SentenceQueue", "Shuffling"]

BLOCK_SENTENCES = 1024
POOL_BLOCKS = 256


@dataclass(frozen=True)
class Shuffling:
    """A family of orders, one per epoch.

    Attributes:
        num_sentences: how many there are.
        seed: not negative.
        stream: orders of different streams have nothing to do with each other.
        block_sentences: sentences of a block, which are read together.
        pool_blocks: blocks of a pool, which are shuffled together.
    """

    num_sentences: int
    seed: int
    stream: int = 0
    block_sentences: int = BLOCK_SENTENCES
    pool_blocks: int = POOL_BLOCKS
    _blocks: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"the seed is {self.seed}, but must not be negative")
        if min(self.block_sentences, self.pool_blocks) < 1:
            raise ConfigError("a block has a sentence at least, and a pool a block")

    @property
    def num_pools(self) -> int:
        """Pools of an epoch."""
        return -(-self.num_sentences // (self.block_sentences * self.pool_blocks))

    def pool(self, epoch: int, number: int) -> np.ndarray:
        """The sentences of one pool of an epoch, shuffled."""
        if epoch not in self._blocks:
            self._blocks.clear()
            num_blocks = -(-self.num_sentences // self.block_sentences)
            self._blocks[epoch] = self.generator(epoch, 0).permutation(num_blocks)
        blocks = self._blocks[epoch][number * self.pool_blocks : (number + 1) * self.pool_blocks]
        sentences = (blocks[:, None] * self.block_sentences + np.arange(self.block_sentences)).reshape(-1)
        return self.generator(epoch, 1 + number).permutation(sentences[sentences < self.num_sentences])

    def generator(self, *place: int) -> np.random.Generator:
        """A generator of random numbers that belongs to one place of the order."""
        return np.random.default_rng([self.seed, self.stream, *place])


class SentenceQueue:
    """The sentences of all epochs, one after the other, to be taken some at a time.

    Attributes:
        epoch: of the next sentence.
        pool: in which the next sentence is.
        taken: sentences of that pool taken before it.
    """

    def __init__(self, shuffling: Shuffling, *, epoch: int = 0, pool: int = 0, taken: int = 0) -> None:
        self.epoch, self.pool, self.taken = epoch, pool, taken
        self._shuffling = shuffling
        self._sentences = shuffling.pool(epoch, pool)

    def take(self, count: int) -> np.ndarray:
        """The next `count` sentences."""
        parts = [np.empty(0, np.int64)]
        while count:
            part = self._sentences[self.taken : self.taken + count]
            parts.append(part)
            count -= len(part)
            self.taken += len(part)
            if self.taken == len(self._sentences):
                self._open_next_pool()
        return np.concatenate(parts)

    @property
    def is_inside(self) -> bool:
        """Whether its pool exists, and holds the next sentence."""
        return self.pool < self._shuffling.num_pools and self.taken < len(self._sentences)

    def place(self) -> dict[str, int]:
        """The arguments that make a queue continue from here."""
        return {"epoch": self.epoch, "pool": self.pool, "taken": self.taken}

    def _open_next_pool(self) -> None:
        self.pool, self.taken = self.pool + 1, 0
        if self.pool == self._shuffling.num_pools:
            self.epoch, self.pool = self.epoch + 1, 0
        self._sentences = self._shuffling.pool(self.epoch, self.pool)
