"""Encoded corpus → batches, in two ways. Both are endless, shuffled anew each epoch, and can go on from any batch.

`SentenceReader` gives whole sentences of one length a batch, from the zero state; both directions read the same text.
`StreamReader` gives windows of consecutive text with carried state, as bilm-tf trained; the directions read different
text. `Prefetcher` prepares either's batches in the background.

Every batch follows from (seed, position) alone. With several ranks each reader plans the same *global* batches and
builds its own rows of them: rank r of n takes rows r, r + n, r + 2n, … So two ranks see what one would see, and a run
can be resumed with another number of ranks. A state is a small dictionary of numbers.

Shapes: B rows of a batch, N packed tokens, S sentences, K pieces of sentences in a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from elmokit.errors import ConfigError
from elmokit.nn.packing import Packing, add_boundaries, join_ranges
from elmokit.pretrain.batches import Batch, packed_batch
from elmokit.pretrain.corpus import BEGIN_SENTENCE, END_SENTENCE, EncodedCorpus
from elmokit.pretrain.reading import Prefetcher, Reader
from elmokit.pretrain.shuffling import BLOCK_SENTENCES, POOL_BLOCKS, SentenceQueue, Shuffling
from elmokit.text.characters import Scheme

__all__ = ["Batch", "Prefetcher", "Reader", "SentenceReader", "StreamReader"]


class SentenceReader(Reader):
    """Whole sentences, every one exactly once an epoch, from the zero state and without padding.

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
        self._plan = self._planned(0)

    def __next__(self) -> Batch[np.ndarray]:
        """The next batch: this rank's rows of it."""
        sentences_B = next(self._plan, None)
        while sentences_B is None:
            self._epoch, self._num_done = self._epoch + 1, 0
            self._plan = self._planned(self._epoch)
            sentences_B = next(self._plan, None)
        self._num_done += 1
        return self._batch(sentences_B, self._epoch)

    def one_epoch(self, epoch: int = 0) -> Iterator[Batch[np.ndarray]]:
        """The batches of one epoch and no more, for instance of held-out text; the reader itself stays where it is."""
        return (self._batch(sentences_B, epoch) for sentences_B in self._planned(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch begins."""
        return {"settings": self._own_settings(), "epoch": self._epoch, "batches": self._num_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. The epoch so far is planned again: some seconds for a billion words."""
        self._check(state, self._own_settings())
        self._epoch, self._num_done = state["epoch"], state["batches"]
        self._plan = self._planned(self._epoch)
        for _ in range(self._num_done):
            next(self._plan)

    def _own_settings(self) -> dict[str, Any]:
        shuffling = self._shuffling
        return self._settings(
            tokens_per_batch=self._tokens_per_batch,
            block_sentences=shuffling.block_sentences,
            pool_blocks=shuffling.pool_blocks,
        )

    def _planned(self, epoch: int) -> Iterator[np.ndarray]:
        """For each global batch of an epoch its sentences, longest first."""
        left_over = np.empty(0, np.int64)
        for number in range(self._shuffling.num_pools):
            # What earlier pools left over comes first, so that it is used first.
            sentences_S = np.concatenate([left_over, self._shuffling.pool(epoch, number)])
            lengths_S = self._lengths(sentences_S)
            order_S = lengths_S.argsort(kind="stable")
            sentences_S, lengths_S = sentences_S[order_S], lengths_S[order_S]
            batches, left_over = self._even_batches(sentences_S, lengths_S)
            if number == self._shuffling.num_pools - 1:
                batches += self._ragged_batches(left_over)
            for place in self._shuffling.generator(epoch, 1 + number, 0).permutation(len(batches)):
                yield batches[place]

    def _even_batches(self, sentences_S: np.ndarray, lengths_S: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Full batches of one length each, and the sentences that fill none; sentences come sorted by length."""
        batches, left_over = [], []
        starts = np.concatenate([[0], (np.diff(lengths_S) > 0).nonzero()[0] + 1, [len(lengths_S)]])
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            rows = max(self._tokens_per_batch // (int(lengths_S[start]) + 1), 1)
            full = end - (end - start) % rows
            batches += [sentences_S[first : first + rows] for first in range(start, full, rows)]
            left_over.append(sentences_S[full:end])
        return batches, np.concatenate(left_over)

    def _ragged_batches(self, sentences_S: np.ndarray) -> list[np.ndarray]:
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

    def _batch(self, sentences_B: np.ndarray, epoch: int) -> Batch[np.ndarray]:
        global_tokens = int(self._lengths(sentences_B).sum()) + len(sentences_B)
        row_keys_B = np.arange(self._rank, len(sentences_B), self._world)
        sentences_B = sentences_B[row_keys_B]
        lengths_B, starts_B = self._lengths(sentences_B), self.corpus.offsets[sentences_B]
        words_N = self.corpus.tokens[join_ranges(starts_B, lengths_B)]
        text_T, begins_B = add_boundaries(words_N, lengths_B, begin=BEGIN_SENTENCE, end=END_SENTENCE)
        # One word less than the row has: no direction reads the boundary that it predicts last.
        packing = Packing(lengths_B + 1, begins_B)
        forward_N, backward_N = packing.places_2N
        return packed_batch(
            self._spellings,
            (text_T[forward_N], text_T[backward_N + 1]),
            (text_T[forward_N + 1], text_T[backward_N]),
            np.array(packing.batch_sizes, np.int64),
            row_keys_B,
            starts_fresh=True,
            epoch=epoch,
            global_tokens=global_tokens,
        )


class StreamReader(Reader):
    """Windows of `unroll` tokens in each of `rows` rows, every row going on where it was in the window before.

    Each row is a stream of whole sentences one after the other, read and predicted as by `SentenceReader`; windows are
    filled completely, so a sentence may go on in the next window. Whichever row needs a sentence takes the next of
    one shuffled queue, as in bilm-tf. Forward and backward have a queue each, so they read different text.

    Arguments:
        corpus: what to read.
        scheme: of the model: bytes, characters or words.
        rows: B of the global batch.
        unroll: tokens of a window.
        widest_filter: width of the model's widest convolution.
        seed: of the orders.
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
        rows: int = 128,
        unroll: int = 20,
        widest_filter: int = 7,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        block_sentences: int = BLOCK_SENTENCES,
        pool_blocks: int = POOL_BLOCKS,
    ) -> None:
        super().__init__(corpus, scheme, widest_filter=widest_filter, seed=seed, rank=rank, world=world)
        if rows < world or unroll < 1:
            raise ConfigError(
                f"expected {world} rows at least, one a rank, and a token each; but {rows} × {unroll} came"
            )
        self._rows, self._unroll, self._num_done = rows, unroll, 0
        self._shufflings = [
            Shuffling(corpus.num_sentences, seed, stream, block_sentences, pool_blocks) for stream in (1, 2)
        ]
        self._streams = [_Stream(corpus, SentenceQueue(shuffling), rows) for shuffling in self._shufflings]

    def __next__(self) -> Batch[np.ndarray]:
        """The next window: this rank's rows of it."""
        row_keys_B = np.arange(self._rank, self._rows, self._world)
        epoch = self._streams[0].queue.epoch
        windows = [
            stream.window(self._unroll, self._rank, self._world, backward=bool(direction))
            for direction, stream in enumerate(self._streams)
        ]
        self._num_done += 1
        (forward_N, forward_targets_N), (backward_N, backward_targets_N) = windows
        return packed_batch(
            self._spellings,
            (forward_N, backward_N),
            (forward_targets_N, backward_targets_N),
            np.full(self._unroll, len(row_keys_B)),
            row_keys_B,
            starts_fresh=self._num_done == 1,
            epoch=epoch,
            global_tokens=self._rows * self._unroll,
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the next window begins, in every row of both directions."""
        streams = [
            {"queue": s.queue.place(), "sentences": s.sentences_B.tolist(), "offsets": s.offsets_B.tolist()}
            for s in self._streams
        ]
        return {"settings": self._own_settings(), "windows": self._num_done, "streams": streams}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._check(state, self._own_settings())
        self._num_done = state["windows"]
        for stream, shuffling, stored in zip(self._streams, self._shufflings, state["streams"], strict=True):
            stream.queue = SentenceQueue(shuffling, **stored["queue"])
            stream.sentences_B = np.array(stored["sentences"], np.int64)
            stream.offsets_B = np.array(stored["offsets"], np.int64)

    def _own_settings(self) -> dict[str, Any]:
        shuffling = self._shufflings[0]
        return self._settings(
            rows=self._rows, block_sentences=shuffling.block_sentences, pool_blocks=shuffling.pool_blocks
        )


class _Stream:
    """One direction: in each row a sentence, and how many of its n + 1 predictions are done."""

    def __init__(self, corpus: EncodedCorpus, queue: SentenceQueue, rows: int) -> None:
        self.corpus, self.queue = corpus, queue
        self.sentences_B = queue.take(rows)
        self.offsets_B = np.zeros(rows, np.int64)

    def window(self, unroll: int, rank: int, world: int, *, backward: bool) -> tuple[np.ndarray, np.ndarray]:
        """The next tokens and targets of a rank's rows, packed."""
        rows_K, columns_K, sentences_K, offsets_K, counts_K = self._pieces(unroll)
        own_K = rows_K % world == rank
        rows_K, columns_K, sentences_K = rows_K[own_K] // world, columns_K[own_K], sentences_K[own_K]
        offsets_K, counts_K = offsets_K[own_K], counts_K[own_K]
        within_N = join_ranges(np.zeros_like(counts_K), counts_K)
        num_rows = len(range(rank, len(self.sentences_B), world))
        places_N = (np.repeat(columns_K, counts_K) + within_N) * num_rows + np.repeat(rows_K, counts_K)
        sentences_N, step_N = np.repeat(sentences_K, counts_K), np.repeat(offsets_K, counts_K) + within_N
        words_N, targets_N = np.empty_like(places_N), np.empty_like(places_N)
        words_N[places_N] = self._words(sentences_N, step_N, backward=backward)
        targets_N[places_N] = self._words(sentences_N, step_N + 1, backward=backward)
        return words_N, targets_N

    def _pieces(self, unroll: int) -> list[np.ndarray]:
        """Fill a window in every row; of each piece its row, its column, its sentence, its offset and its length."""
        pieces = []
        filled_B = np.zeros(len(self.sentences_B), np.int64)
        rows = np.arange(len(filled_B))
        while len(rows):
            sentences, offsets = self.sentences_B[rows], self.offsets_B[rows]
            left = self.corpus.offsets[sentences + 1] - self.corpus.offsets[sentences] + 1 - offsets
            counts = np.minimum(left, unroll - filled_B[rows])
            pieces.append((rows, filled_B[rows], sentences, offsets, counts))
            filled_B[rows] += counts
            self.offsets_B[rows] += counts
            finished = rows[counts == left]
            self.sentences_B[finished] = self.queue.take(len(finished))
            self.offsets_B[finished] = 0
            rows = rows[filled_B[rows] < unroll]
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]

    def _words(self, sentences_N: np.ndarray, steps_N: np.ndarray, *, backward: bool) -> np.ndarray:
        """The word at each step of [<S>, w1 … wn, </S>], read from the left or from the right."""
        starts_N, ends_N = self.corpus.offsets[sentences_N], self.corpus.offsets[sentences_N + 1]
        first, last = (END_SENTENCE, BEGIN_SENTENCE) if backward else (BEGIN_SENTENCE, END_SENTENCE)
        places_N = ends_N - steps_N if backward else starts_N + steps_N - 1
        words_N = self.corpus.tokens[np.clip(places_N, starts_N, ends_N - 1)].astype(np.int64)
        words_N[steps_N == 0] = first
        words_N[steps_N == ends_N - starts_N + 1] = last
        return words_N
