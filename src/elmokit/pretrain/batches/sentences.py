"""Whole sentences from the zero state, one length per batch: how most people use the vectors, and the fastest to train.

Shapes: B rows of a batch, N packed tokens, S sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from elmokit.errors import ConfigError
from elmokit.nn.packing import NUM_BOUNDARIES, Packing, add_boundaries, join_ranges
from elmokit.pretrain.batches.batch import Batch, pack_batch
from elmokit.pretrain.batches.reader import Reader
from elmokit.pretrain.batches.shuffling import BLOCK_SENTENCES, POOL_BLOCKS, Shuffling
from elmokit.pretrain.corpus.encoded import BEGIN_SENTENCE, END_SENTENCE, EncodedCorpus
from elmokit.text.characters import Scheme
from elmokit.validation import Count, build_from

__all__ = ["SentenceReader"]


@dataclass(frozen=True)
class _Place:
    """What a checkpoint says of where a reader was."""

    settings: dict[str, Any]
    epoch: Count
    batches: Count


class SentenceReader(Reader):
    """Whole sentences, every one exactly once per epoch, from the zero state and without padding.

    A sentence of n words is read as [<S>, w1 … wn] forward, predicting [w1 … wn, </S>], and as [</S>, wn … w1]
    backward, predicting [wn … w1, <S>]. The rows of a batch have one length, but for the sentences of rare lengths that
    are left over at the end of an epoch: those share batches with their neighbours in length.

    Arguments:
        corpus: what to read.
        scheme: of the model: bytes, characters or words.
        tokens_per_batch: about how many predictions of one direction a global batch holds.
        widest_filter: width of the model's widest convolution.
        seed: of the order.
        rank: which part of each batch this process takes,
        world: of how many.
        block_sentences: consecutive sentences that stay together on disk; see `shuffling.py`.
        pool_blocks: blocks that are shuffled together.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        scheme: Scheme,
        *,
        tokens_per_batch: int = 20_480,
        widest_filter: int = 7,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        block_sentences: int = BLOCK_SENTENCES,
        pool_blocks: int = POOL_BLOCKS,
    ) -> None:
        super().__init__(corpus, scheme, widest_filter=widest_filter, seed=seed, rank=rank, world=world)
        if tokens_per_batch < 1:
            raise ConfigError(f"tokens_per_batch is {tokens_per_batch}, but must be at least 1")
        self._tokens_per_batch = tokens_per_batch
        self._shuffling = Shuffling(
            corpus.num_sentences, seed, block_sentences=block_sentences, pool_blocks=pool_blocks
        )
        self._epoch, self._num_done = 0, 0
        self._plan = self._plan_epoch(0)

    def __next__(self) -> Batch:
        """The next batch: this rank's rows of it."""
        sentences_B = next(self._plan, None)
        while sentences_B is None:
            self._epoch, self._num_done = self._epoch + 1, 0
            self._plan = self._plan_epoch(self._epoch)
            sentences_B = next(self._plan, None)
        self._num_done += 1
        return self._batch(sentences_B)

    def one_epoch(self, epoch: int = 0) -> Iterator[Batch]:
        """The batches of one epoch and no more, for instance of held-out text; the reader itself stays where it is."""
        return (self._batch(sentences_B) for sentences_B in self._plan_epoch(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch begins."""
        return {"settings": self._own_settings(), "epoch": self._epoch, "batches": self._num_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there. The epoch so far is planned again: some seconds for a billion words."""
        place = build_from(_Place, state, "reader")
        self._check(place.settings, self._own_settings())
        self._epoch, self._num_done = place.epoch, place.batches
        self._plan = self._plan_epoch(self._epoch)
        if sum(1 for _ in islice(self._plan, self._num_done)) < self._num_done:
            raise ConfigError(f"reader.batches is {self._num_done:,}: expected no more than an epoch has")

    def _own_settings(self) -> dict[str, Any]:
        shuffling = self._shuffling
        return self._settings(
            tokens_per_batch=self._tokens_per_batch,
            block_sentences=shuffling.block_sentences,
            pool_blocks=shuffling.pool_blocks,
        )

    def _plan_epoch(self, epoch: int) -> Iterator[np.ndarray]:
        """For each global batch of an epoch its sentences, longest first."""
        left_over = np.empty(0, np.int64)
        for number in range(self._shuffling.num_pools):
            # What earlier pools left over comes first, so that it is used first.
            sentences_S = np.concatenate([left_over, self._shuffling.pool(epoch, number)])
            lengths_S = self._lengths(sentences_S)
            order_S = lengths_S.argsort(kind="stable")
            sentences_S, lengths_S = sentences_S[order_S], lengths_S[order_S]
            batches, left_over = self._cut_even(sentences_S, lengths_S)
            if number == self._shuffling.num_pools - 1:
                batches += self._cut_ragged(left_over)
            for place in self._shuffling.generator(epoch, 1 + number, 0).permutation(len(batches)):
                yield batches[place]

    def _cut_even(self, sentences_S: np.ndarray, lengths_S: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Full batches of one length each, and the sentences that fill none; sentences come sorted by length."""
        batches, left_over = [], []
        starts = np.concatenate([[0], (np.diff(lengths_S) > 0).nonzero()[0] + 1, [len(lengths_S)]])
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            rows = max(self._tokens_per_batch // (int(lengths_S[start]) + 1), 1)
            full = end - (end - start) % rows
            batches += [sentences_S[first : first + rows] for first in range(start, full, rows)]
            left_over.append(sentences_S[full:end])
        return batches, np.concatenate(left_over)

    def _cut_ragged(self, sentences_S: np.ndarray) -> list[np.ndarray]:
        """Batches of sentences of neighbouring lengths; the sentences come sorted by length."""
        sentences_S = sentences_S[::-1]
        ends_S = (self._lengths(sentences_S) + 1).cumsum()
        batches, start, used = [], 0, 0
        while start < len(sentences_S):
            end = max(int(np.searchsorted(ends_S, used + self._tokens_per_batch, side="right")), start + 1)
            batches.append(sentences_S[start:end])
            start, used = end, int(ends_S[end - 1])
        return batches

    def _lengths(self, sentences_S: np.ndarray) -> np.ndarray:
        return self.corpus.offsets[sentences_S + 1] - self.corpus.offsets[sentences_S]

    def _batch(self, sentences_B: np.ndarray) -> Batch:
        global_tokens = int(self._lengths(sentences_B).sum()) + len(sentences_B)
        row_keys_B = np.arange(self._rank, len(sentences_B), self._world)
        sentences_B = sentences_B[row_keys_B]
        lengths_B, starts_B = self._lengths(sentences_B), self.corpus.offsets[sentences_B]
        words_N = self.corpus.tokens[join_ranges(starts_B, lengths_B)]
        text_T, begins_B = add_boundaries(words_N, lengths_B, begin=BEGIN_SENTENCE, end=END_SENTENCE)
        packing = Packing(lengths_B + NUM_BOUNDARIES, begins_B, for_prediction=True)
        forward_N, backward_N = packing.positions_2N
        return pack_batch(
            self._spellings,
            (text_T[forward_N], text_T[backward_N]),
            (text_T[forward_N + 1], text_T[backward_N - 1]),
            np.array(packing.batch_sizes, np.int64),
            row_keys_B,
            starts_fresh=True,
            global_tokens=global_tokens,
        )
