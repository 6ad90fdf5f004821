"""A batch: what one training step reads and predicts, packed as the engines take it.

Ids of an encoded corpus arrive from a reader; a `Batch` leaves. Each distinct word of the step stands in it once, as
its characters (or its row), and both directions point at it, so the character CNN runs once per distinct word. Shapes
are rounded up a little, so that they repeat and a compiled or captured step can be used again.

Shapes: U distinct words, C columns of a word, N packed tokens of a direction, M = 2N of both, B rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elmokit.errors import ConfigError
from elmokit.nn.packing import join_ranges
from elmokit.pretrain.corpus.encoded import BEGIN_SENTENCE, END_SENTENCE, EncodedCorpus
from elmokit.text.characters import Scheme, WordAndCharacterScheme, WordScheme

__all__ = ["Batch", "WordSpellings", "pack_batch"]

ROWS_TOGETHER = 64  # U is a multiple of this
COLUMNS_TOGETHER = 8  # so is C, unless all columns are needed
WORDS_AT_ONCE = 1 << 16
STEP_BITS = 20  # a position's key is step * 2^20 + row: different for all tokens of a batch


@dataclass(frozen=True)
class Batch:
    """What one step reads and predicts, as numpy arrays (`network.StepInputs` has them as tensors).

    The packed layout is that of `engines/README.md`: rows by falling length, first the first word of every row,
    then the second word of every row that has one, and so on. A backward row is packed as it is read, last word first.

    Attributes:
        distinct_UC: ids of the distinct words, less columns that hold padding only; past the last word come copies
            of the first.
        words_2N: for each token that the forward and the backward stack reads, its row in `distinct_UC`.
        targets_2N: the row of the vocabulary that comes next, and for the backward stack the one that comes before; a
            word outside the vocabulary is `<UNK>`.
        keys_N: a number for each (row of the global batch, step): what is drawn by it does not depend on who reads.
        batch_sizes: rows that read a token at each step.
        starts_fresh: every row begins from the zero state.
        global_tokens: N of all ranks together.
    """

    distinct_UC: np.ndarray
    words_2N: np.ndarray
    targets_2N: np.ndarray
    keys_N: np.ndarray
    batch_sizes: list[int]
    starts_fresh: bool
    global_tokens: int

    @property
    def num_rows(self) -> int:
        """B."""
        return self.batch_sizes[0] if self.batch_sizes else 0

    @property
    def num_tokens(self) -> int:
        """N: what each direction predicts, sentence ends included."""
        return sum(self.batch_sizes)


def pack_batch(
    spellings: WordSpellings,
    words: tuple[np.ndarray, np.ndarray],
    targets: tuple[np.ndarray, np.ndarray],
    batch_sizes: np.ndarray,
    row_keys_B: np.ndarray,
    *,
    starts_fresh: bool,
    global_tokens: int,
) -> Batch:
    """The batch of packed corpus ids: what (forward, backward) read, and what they are to predict.

    Arguments:
        spellings: of the words.
        words: ids that the forward and the backward stack read.
        targets: ids that they are to predict.
        batch_sizes: rows that read a token at each step.
        row_keys_B: which rows of the global batch these are.
        starts_fresh: every row begins from the zero state.
        global_tokens: N of all ranks together.
    """
    distinct_UC, rows_M = spellings.find_distinct(np.concatenate(words))
    targets_M = spellings.corpus.target_of(np.concatenate(targets)).astype(np.int64)
    sizes = batch_sizes.astype(np.int64)
    row_N = join_ranges(np.zeros_like(sizes), sizes)
    keys_N = (np.repeat(np.arange(len(sizes)), sizes) << STEP_BITS) + row_keys_B[row_N]
    return Batch(
        distinct_UC,
        rows_M.reshape(2, -1),
        targets_M.reshape(2, -1),
        keys_N,
        sizes.tolist(),
        starts_fresh,
        global_tokens,
    )


class WordSpellings:
    """The model's ids of any word of a corpus: those of the vocabulary from a table, the others spelled when they come.

    Arguments:
        corpus: whose words they are.
        scheme: of the model.
        widest_filter: width of the model's widest convolution, which decides how many columns of padding it must see.
    """

    def __init__(self, corpus: EncodedCorpus, scheme: Scheme, *, widest_filter: int = 7) -> None:
        if widest_filter < 1:
            raise ConfigError(f"the widest filter is {widest_filter}, but a convolution is 1 wide at least")
        self.corpus, self._scheme, self._widest_filter = corpus, scheme, widest_filter
        self._first_character = 1 if isinstance(scheme, WordAndCharacterScheme) else 0
        self._trims = not isinstance(scheme, WordScheme)
        self._table_VC = self._spell_vocabulary()
        self._lengths_V = self._lengths(self._table_VC)

    def find_distinct(self, ids_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The distinct words (U, C) among these ids, and the row of each id in it (N,)."""
        size = self.corpus.vocabulary_size
        outside_N = ids_N >= size
        inside = ids_N[~outside_N]
        # Sorting all ids, as np.unique does, takes five times as long as marking those that occur.
        occurs_V = np.zeros(size, bool)
        occurs_V[inside] = True
        known = occurs_V.nonzero()[0]
        places_V = np.empty(size, np.int64)
        places_V[known] = np.arange(len(known))
        rows_N = np.empty(len(ids_N), np.int64)
        rows_N[~outside_N] = places_V[inside]
        unknown, rows_N[outside_N] = np.unique(ids_N[outside_N], return_inverse=True)
        rows_N[outside_N] += len(known)
        return self._spell(known, unknown), rows_N

    def _spell(self, known: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        count = len(known) + len(unknown)
        padded = max(-(-count // ROWS_TOGETHER), 1) * ROWS_TOGETHER
        spelled_UC = np.empty((padded, self._scheme.columns), self._table_VC.dtype)
        np.take(self._table_VC, known, axis=0, out=spelled_UC[: len(known)])
        spelled_UC[len(known) : count] = self._scheme.word_ids(self.corpus.words(unknown))
        spelled_UC[count:] = spelled_UC[0] if count else self._table_VC[0]
        if not self._trims:
            return spelled_UC
        longest = max(
            int(self._lengths_V[known].max(initial=0)),
            int(self._lengths(spelled_UC[len(known) : count]).max(initial=0)),
        )
        columns = -(-(longest + self._widest_filter) // COLUMNS_TOGETHER) * COLUMNS_TOGETHER
        return np.ascontiguousarray(spelled_UC[:, : self._first_character + columns])

    def _lengths(self, ids_NC: np.ndarray) -> np.ndarray:
        """(N,) columns of each word before its padding, which is whatever run of equal ids ends its row."""
        ids_NC = ids_NC[:, self._first_character :]
        differs_NC = ids_NC != ids_NC[:, -1:]
        return np.where(differs_NC.any(axis=1), ids_NC.shape[1] - differs_NC[:, ::-1].argmax(axis=1), 0)

    def _spell_vocabulary(self) -> np.ndarray:
        vocabulary = self.corpus.vocabulary
        pieces = [
            self._scheme.word_ids(vocabulary[start : start + WORDS_AT_ONCE])
            for start in range(0, len(vocabulary), WORDS_AT_ONCE)
        ]
        dtype = np.int16 if max(int(piece.max()) for piece in pieces) < 2**15 else np.int32
        table_VC = np.concatenate([piece.astype(dtype) for piece in pieces])
        # Schemes differ in how they name the boundaries, so they are not spelled.
        table_VC[BEGIN_SENTENCE], table_VC[END_SENTENCE] = self._scheme.begin_ids, self._scheme.end_ids
        return table_VC
