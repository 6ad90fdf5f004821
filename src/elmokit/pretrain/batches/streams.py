"""Windows of consecutive text with carried state, as bilm-tf trained: every row of a batch is an endless stream.

Shapes: B rows of a batch, N packed tokens, K pieces of sentences in a window.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elmokit.errors import ConfigError
from elmokit.nn.packing import join_ranges
from elmokit.pretrain.batches.batch import Batch, pack_batch
from elmokit.pretrain.batches.reader import Reader
from elmokit.pretrain.batches.shuffling import BLOCK_SENTENCES, POOL_BLOCKS, SentenceQueue, Shuffling
from elmokit.pretrain.corpus.encoded import BEGIN_SENTENCE, END_SENTENCE, EncodedCorpus
from elmokit.text.characters import Scheme
from elmokit.validation import Count, build_from

__all__ = ["StreamReader"]


class StreamReader(Reader):
    """Windows of `unroll` tokens in each of `rows` rows, every row continuing where the window before ended.

    Each row is a stream of whole sentences one after the other, read and predicted as by `SentenceReader`; windows are
    filled completely, so a sentence may continue in the next window. Whichever row needs a sentence takes the next of
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
                f"expected {world} rows at least, one per rank, and a token each; but {rows} × {unroll} came"
            )
        self._rows, self._unroll, self._num_done = rows, unroll, 0
        self._shufflings = [
            Shuffling(corpus.num_sentences, seed, stream, block_sentences, pool_blocks) for stream in (1, 2)
        ]
        self._streams = [_Stream(corpus, SentenceQueue(shuffling), rows) for shuffling in self._shufflings]

    def __next__(self) -> Batch:
        """The next window: this rank's rows of it."""
        row_keys_B = np.arange(self._rank, self._rows, self._world)
        windows = [
            stream.window(self._unroll, self._rank, self._world, backward=bool(direction))
            for direction, stream in enumerate(self._streams)
        ]
        self._num_done += 1
        (forward_N, forward_targets_N), (backward_N, backward_targets_N) = windows
        return pack_batch(
            self._spellings,
            (forward_N, backward_N),
            (forward_targets_N, backward_targets_N),
            np.full(self._unroll, len(row_keys_B)),
            row_keys_B,
            starts_fresh=self._num_done == 1,
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
        """Continue from there."""
        place = build_from(_Place, state, "reader")
        self._check(place.settings, self._own_settings())
        self._num_done = place.windows
        for stream, shuffling, stored in zip(self._streams, self._shufflings, place.streams, strict=True):
            stream.continue_from(stored, shuffling)

    def _own_settings(self) -> dict[str, Any]:
        shuffling = self._shufflings[0]
        return self._settings(
            rows=self._rows, block_sentences=shuffling.block_sentences, pool_blocks=shuffling.pool_blocks
        )


@dataclass(frozen=True)
class _QueuePlace:
    epoch: Count
    pool: Count
    taken: Count


@dataclass(frozen=True)
class _StreamPlace:
    queue: _QueuePlace
    sentences: list[Count]
    offsets: list[Count]


@dataclass(frozen=True)
class _Place:
    """What a checkpoint says of where a reader was."""

    settings: dict[str, Any]
    windows: Count
    streams: tuple[_StreamPlace, _StreamPlace]


class _Stream:
    """One direction: in each row a sentence, and how many of its n + 1 predictions are done."""

    def __init__(self, corpus: EncodedCorpus, queue: SentenceQueue, rows: int) -> None:
        self.corpus, self.queue = corpus, queue
        self.sentences_B = queue.take(rows)
        self.offsets_B = np.zeros(rows, np.int64)

    def continue_from(self, place: _StreamPlace, shuffling: Shuffling) -> None:
        """Take what was stored as this stream's place, if it is one of this corpus."""
        queue, rows = SentenceQueue(shuffling, **asdict(place.queue)), len(self.sentences_B)
        sentences_B, offsets_B = (np.array(numbers, np.int64) for numbers in (place.sentences, place.offsets))
        is_sound = len(sentences_B) == len(offsets_B) == rows and queue.is_inside
        if is_sound and max(sentences_B) < self.corpus.num_sentences:
            lengths_B = self.corpus.offsets[sentences_B + 1] - self.corpus.offsets[sentences_B]
            is_sound = bool((offsets_B <= lengths_B).all())
        else:
            is_sound = False
        if not is_sound:
            raise ConfigError("reader.streams: expected places inside of this corpus, found others")
        self.queue, self.sentences_B, self.offsets_B = queue, sentences_B, offsets_B

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
