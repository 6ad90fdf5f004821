"""Which words a sampled softmax compares the right word with: draws on the CPU, ahead of the step that uses them.

Arrives: how often words occur (or only that they are sorted by falling frequency), and the number of a step. Leaves:
the ids of S distinct words and, for any word, the logarithm of the chance to be among them, which is what the logits
are corrected by. A draw depends on (seed, step) alone, so every rank makes the same one without talking to the
others, a resumed run repeats it, and the thread that reads the corpus can make it while the GPU is busy: nothing here
touches a device, so nothing waits for one.

Words are drawn one by one until S different ones have come, as TensorFlow's candidate samplers do; T such tries leave
a word of probability p out with (1 - p)^T, so its expected count is 1 - (1 - p)^T, at most 1. Drawing S words *with*
repeats and an expected count of S p would be simpler, but is wrong together with removed hits: the count of a frequent
word passes 1 and its own logit, as a target, is then pushed down the more the larger S is.

Shapes: V words of the vocabulary, S sampled words, N targets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.errors import ConfigError

__all__ = ["Negatives", "Sampler"]

# Tries made at once: a little more than are needed on average, but no more than this.
_MOST_AT_ONCE = 2**20
# Give up where the last wanted words are so rare that they do not come in so many tries.
_MOST_TRIES = 2**24
_UNIGRAM_POWER = 0.75  # word2vec's, between frequencies themselves (rare words never come) and none (only rare ones do)


class Negatives(NamedTuple):
    """One draw: the words, the logarithm of each word's expected count, and how many tries it took."""

    ids_S: NDArray[np.int64]
    log_expected_S: NDArray[np.float32]
    tries: int


class Sampler:
    """Draws S distinct words per step from a fixed distribution; build it by `log_uniform` or `unigram`.

    Arguments:
        probabilities_V: of each word, up to a common factor.
        num_samples: S.
        seed: of all draws.

    Example:
        >>> sampler = Sampler.log_uniform(1000, num_samples=64, seed=1)
        >>> negatives = sampler.draw(step=7)
        >>> negatives.ids_S.shape, len(set(negatives.ids_S.tolist()))
        ((64,), 64)
        >>> sampler.log_expected(np.array([0, 999]), negatives.tries).shape
        (2,)
    """

    def __init__(self, probabilities_V: NDArray[np.float64], *, num_samples: int, seed: int = 0) -> None:
        if not 1 <= num_samples <= len(probabilities_V):
            raise ConfigError(
                f"a sampled softmax over {len(probabilities_V)} words cannot compare with {num_samples}: "
                f"give a number of negatives from 1 to {len(probabilities_V)}"
            )
        self.num_samples, self.seed = num_samples, seed
        self.probabilities_V = probabilities_V / probabilities_V.sum()
        self._log_miss_V = np.log1p(-np.minimum(self.probabilities_V, 1 - 1e-12))
        self._tries_at_once = min(_MOST_AT_ONCE, int(1.05 * _count_tries(self._log_miss_V, num_samples)) + 64)
        self._keep_V, self._other_V = _build_alias_table(self.probabilities_V)

    @classmethod
    def log_uniform(cls, num_words: int, *, num_samples: int, seed: int = 0) -> Sampler:
        """The draw of bilm-tf: id r with probability log((r + 2) / (r + 1)) / log(V + 1), ids sorted by frequency."""
        ranks_V = np.arange(num_words, dtype=np.float64)
        probabilities_V = np.log1p(1 / (ranks_V + 1)) / np.log(num_words + 1)
        return cls(probabilities_V, num_samples=num_samples, seed=seed)

    @classmethod
    def unigram(cls, counts_V: ArrayLike, *, num_samples: int, seed: int = 0) -> Sampler:
        """Words in proportion to their counts to the power of 0.75; a word never counted is taken as seen once."""
        counts = np.maximum(np.asarray(counts_V, dtype=np.float64), 1.0)
        return cls(counts**_UNIGRAM_POWER, num_samples=num_samples, seed=seed)

    def draw(self, step: int) -> Negatives:
        """The words of this step."""
        ids_S, tries = self._draw_distinct(np.random.default_rng((self.seed, step, 0)))
        return Negatives(ids_S, self.log_expected(ids_S, tries), tries)

    def log_expected(self, ids: NDArray[np.integer], tries: int) -> NDArray[np.float32]:
        """Logarithm of the chance that each of these words is among the distinct words of so many tries."""
        return np.log(-np.expm1(tries * self._log_miss_V[ids])).astype(np.float32)

    def _draw_distinct(self, random: np.random.Generator) -> tuple[NDArray[np.int64], int]:
        """The first different words to come, in the order in which they came, and the tries that were needed."""
        first_try_V = np.full(len(self._keep_V), -1, dtype=np.int32)
        found: list[NDArray[np.int64]] = []
        missing, tries = self.num_samples, 0
        while tries < _MOST_TRIES:
            ids = self._draw_words(random, self._tries_at_once)
            numbers = np.arange(tries, tries + len(ids), dtype=np.int32)
            if found:  # leave out what came in earlier rounds
                is_new = first_try_V[ids] < 0
                ids, numbers = ids[is_new], numbers[is_new]
            first_try_V[ids[::-1]] = numbers[::-1]  # of several assignments to one place the last one stays
            is_first = np.flatnonzero(first_try_V[ids] == numbers)[:missing]
            found.append(ids[is_first])
            missing -= len(is_first)
            if missing == 0:
                return np.concatenate(found), int(numbers[is_first[-1]]) + 1
            tries += self._tries_at_once
        raise ConfigError(
            f"{self.num_samples} different words out of {len(self.probabilities_V)} did not come in {tries} draws: "
            "the rest is too rare. Ask for fewer negatives, or use the full softmax"
        )

    def _draw_words(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many words, with repeats; one random number per word, so that the size of a round changes nothing."""
        places = random.random(count) * len(self._keep_V)
        ids = places.astype(np.int64)
        return np.where(places - ids < self._keep_V[ids], ids, self._other_V[ids])


def _count_tries(log_miss_V: NDArray[np.float64], num_samples: int) -> float:
    """After how many tries the expected number of different words is `num_samples` (or nearly all words)."""
    wanted = min(num_samples, len(log_miss_V) - 0.5)
    low, high = 0.0, 1.0
    while high < 1e9 and -np.expm1(high * log_miss_V).sum() < wanted:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(middle * log_miss_V).sum() < wanted else (low, middle)
    return high


def _build_alias_table(probabilities_V: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walker's alias table: place v keeps v with `keep[v]`, else gives `other[v]`; a draw then reads two tables."""
    shares = (probabilities_V * len(probabilities_V)).tolist()  # plain floats: ten times faster in a loop
    other = list(range(len(shares)))
    small = [word for word, share in enumerate(shares) if share < 1]
    large = [word for word, share in enumerate(shares) if share >= 1]
    while small and large:
        poor, rich = small.pop(), large[-1]
        other[poor] = rich
        shares[rich] -= 1 - shares[poor]
        if shares[rich] < 1:
            small.append(large.pop())
    # What is left keeps its own word: its share is 1 up to rounding, and its alias is itself.
    return np.array(shares), np.array(other)
