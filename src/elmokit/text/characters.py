"""Words → ids: the only file that knows which number stands for which byte, character or word.

Words (strings) arrive; `int64` arrays leave, one row per word, `scheme.columns` numbers per row. In every scheme
the id 0 means "no word" and the symbol s has the id s + 1, so a padded batch is a zero-padded array and the
model's tables need no row for padding. A model has one scheme:

    ByteScheme              the UTF-8 bytes of a word, as in every published English model: needs no vocabulary
    UnicodeScheme           characters of a learned alphabet (ELMoForManyLangs, new models)
    WordScheme              one number per word, from a vocabulary or given as numbers (word-input, id-only models)
    WordAndCharacterScheme  both, side by side (ELMoForManyLangs)

Only numpy is needed here: ids can be made in a data loader that never imports torch.

Shapes: B sentences, W words of the longest, N words in a row, C columns of a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from elmokit.config import NUM_BYTE_SYMBOLS, ElmoConfig
from elmokit.errors import ConfigError, InputError

__all__ = [
    "ByteScheme",
    "Scheme",
    "UnicodeScheme",
    "WordAndCharacterScheme",
    "WordScheme",
    "make_scheme",
]

# Symbols of the byte scheme after the 256 bytes (bilm-tf, data.py); their ids are one higher.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, NUM_BYTE_SYMBOLS)

_BYTE_MARKERS = BEGIN_WORD + 1, END_WORD + 1, PADDING + 1

# Names of sentence begin, sentence end and unknown word in a vocabulary: bilm-tf's, then ELMoForManyLangs'.
VOCABULARY_SPECIALS = (("<S>", "</S>", "<UNK>"), ("<bos>", "<eos>", "<oov>"))


class Scheme(ABC):
    """How a model numbers its words.

    Attributes:
        columns: C, numbers per word.
        begin_ids: (C,) the row of the token that opens every sentence.
        end_ids: (C,) the row of the token that closes it.
    """

    columns: int
    begin_ids: np.ndarray
    end_ids: np.ndarray

    @abstractmethod
    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """(N, C) int64 ids of N words, without sentence boundaries."""

    @abstractmethod
    def count_cut(self, words: Sequence[str]) -> int:
        """How many of the words do not arrive whole (too long, and so cut) or hold a NUL character."""

    def batch_ids(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """(B, W, C) int64 ids of B sentences of words, padded with 0 to the longest; boundaries are the model's task.

        Example:
            >>> ByteScheme().batch_ids([["the", "bank"], ["hello"], []]).shape
            (3, 2, 50)
        """
        sentences = _check_list(sentences, what="a list of sentences, each a list of words")
        rows = [_check_list(sentence) for sentence in sentences]
        lengths_B = np.array([len(row) for row in rows], dtype=np.int64)
        ids_NC = self.word_ids([word for row in rows for word in row])
        ids_BWC = np.zeros((len(rows), int(lengths_B.max(initial=0)), self.columns), dtype=np.int64)
        ids_BWC[np.arange(ids_BWC.shape[1]) < lengths_B[:, None]] = ids_NC
        return ids_BWC


class ByteScheme(Scheme):
    """The published scheme: marker, the word's UTF-8 bytes, marker, padding.

    A word keeps its first `max_length - 2` bytes, so a character of several bytes may be cut in half, as the
    published models were trained. The words `<S>` and `</S>` are the sentence boundaries (AllenNLP's reading);
    `<UNK>` has no meaning here and is spelled out.

    Arguments:
        max_length: C, columns of a word, its two markers included.

    Example:
        >>> ByteScheme(max_length=6).word_ids(["hi", "été"]).tolist()
        [[259, 105, 106, 260, 261, 261], [259, 196, 170, 117, 196, 260]]
    """

    def __init__(self, max_length: int = 50) -> None:
        self.columns = _check_length(max_length)
        self._num_bytes = self.columns - 2
        self.begin_ids = self._make_boundary(BEGIN_SENTENCE)
        self.end_ids = self._make_boundary(END_SENTENCE)

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """(N, C) int64 ids of N words."""
        words = _check_list(words)
        bytes_T, lengths_N = _encode_words(words, self._num_bytes)
        ids_NC = _add_markers(bytes_T + np.int64(1), lengths_N, self.columns, *_BYTE_MARKERS)
        _place_boundaries(ids_NC, words, {"<S>": self.begin_ids, "</S>": self.end_ids})
        return ids_NC

    def count_cut(self, words: Sequence[str]) -> int:
        """How many words are longer than `max_length - 2` bytes or hold a NUL."""
        limit, words = self._num_bytes, _check_list(words)
        try:
            text = "".join(words)
        except TypeError:
            raise _explain_bad_word(words) from None
        # A character has at most 4 bytes, so most sentences need no closer look.
        if "\0" not in text and max(map(len, words), default=0) * (1 if text.isascii() else 4) <= limit:
            return 0
        return sum("\0" in word or (4 * len(word) > limit and _count_bytes(word) > limit) for word in words)

    def _make_boundary(self, symbol: int) -> np.ndarray:
        ids_C = np.full(self.columns, PADDING + 1, dtype=np.int64)
        ids_C[:3] = np.array([BEGIN_WORD, symbol, END_WORD]) + 1
        return ids_C


class UnicodeScheme(Scheme):
    """Characters of a learned alphabet: marker, the word's characters, marker, padding.

    A word keeps its first `max_length - 2` characters; case is kept; a character outside the alphabet is
    `<oov>`. The words `<bos>` and `<eos>` are the sentence boundaries.

    Arguments:
        alphabet: symbol s is `alphabet[s]`; holds `<bos> <eos> <oov> <pad> <bow> <eow>` somewhere.
        max_length: C, columns of a word, its two markers included.
        swaps_markers: words start with `<eow>` and end with `<bow>`, as ELMoForManyLangs was trained.

    Example:
        >>> alphabet = ["a", "b", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
        >>> UnicodeScheme(alphabet, max_length=6).word_ids(["bag"]).tolist()
        [[7, 2, 1, 5, 8, 6]]
    """

    def __init__(self, alphabet: Sequence[str], max_length: int = 50, *, swaps_markers: bool = False) -> None:
        self.columns = _check_length(max_length)
        self.num_characters = self.columns - 2
        ids = {symbol: number for number, symbol in enumerate(alphabet, start=1)}
        specials = ("<bow>", "<eow>", "<oov>", "<pad>", "<bos>", "<eos>")
        missing = [special for special in specials if special not in ids]
        if missing:
            raise ConfigError(
                f"the alphabet of {len(ids)} symbols lacks {missing}: each of {list(specials)} must be in it"
            )
        self._begin, self._end, self._unknown, self._padding = (ids[special] for special in specials[:4])
        if swaps_markers:
            self._begin, self._end = self._end, self._begin
        code_points = {ord(symbol): number for symbol, number in ids.items() if len(symbol) == 1}
        # One row more than the highest character: everything above falls on it, and is unknown.
        self._ids_of_code_points = np.full(max(code_points, default=0) + 2, self._unknown, dtype=np.int64)
        self._ids_of_code_points[list(code_points)] = list(code_points.values())
        self.begin_ids = self._make_boundary(ids["<bos>"])
        self.end_ids = self._make_boundary(ids["<eos>"])

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """(N, C) int64 ids of N words."""
        words = _check_list(words)
        cut, lengths_N = _cut_words(words, self.num_characters)
        code_points_T = np.frombuffer("".join(cut).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        ids_T = self._ids_of_code_points[np.minimum(code_points_T, len(self._ids_of_code_points) - 1)]
        ids_NC = _add_markers(ids_T, lengths_N, self.columns, self._begin, self._end, self._padding)
        _place_boundaries(ids_NC, cut, {"<bos>": self.begin_ids, "<eos>": self.end_ids})
        return ids_NC

    def count_cut(self, words: Sequence[str]) -> int:
        """How many words are longer than `max_length - 2` characters or hold a NUL."""
        words = _check_list(words)
        try:
            return sum("\0" in word or len(word) > self.num_characters for word in words)
        except TypeError:
            raise _explain_bad_word(words) from None

    def _make_boundary(self, symbol_id: int) -> np.ndarray:
        ids_C = np.full(self.columns, self._padding, dtype=np.int64)
        ids_C[:3] = self._begin, symbol_id, self._end
        return ids_C


class WordScheme(Scheme):
    """One number per word: its row in the model's table, plus one.

    With a vocabulary, a word that it lacks is the unknown word. Without one (music, proteins, any ids) the
    words are row numbers themselves, as integers or decimal strings, and rows 0, 1, 2 are sentence begin,
    sentence end and unknown, as in bilm-tf's files.

    Arguments:
        vocabulary: row r is `vocabulary[r]`; names the boundaries and the unknown word as `<S> </S> <UNK>` or
            `<bos> <eos> <oov>`. `None` for row numbers.
        num_words: rows of the model's table: without a vocabulary, a number past it is refused.
        max_length: characters of a word by which it is found: a longer one is found by its beginning. `None` for all.
        swaps_markers: a vocabulary of ELMoForManyLangs: its boundaries are `<bos> <eos>` even if it holds `<S> </S>`,
            which are ordinary words there.

    Example:
        >>> WordScheme(["<S>", "</S>", "<UNK>", "bank"]).word_ids(["bank", "shore"]).tolist()
        [[4], [3]]
        >>> WordScheme(None).word_ids([7, "7"]).tolist()
        [[8], [8]]
    """

    columns = 1

    def __init__(
        self,
        vocabulary: Sequence[str] | None,
        *,
        num_words: int | None = None,
        max_length: int | None = None,
        swaps_markers: bool = False,
    ) -> None:
        self._num_words, self._max_length = num_words, max_length
        self._rows = None if vocabulary is None else {word: row for row, word in enumerate(vocabulary)}
        names = VOCABULARY_SPECIALS[::-1] if swaps_markers else VOCABULARY_SPECIALS
        begin, end, self._unknown = (0, 1, 2) if self._rows is None else _find_specials(self._rows, names)
        self.begin_ids = np.array([begin + 1], dtype=np.int64)
        self.end_ids = np.array([end + 1], dtype=np.int64)

    def word_ids(self, words: Sequence[str] | Sequence[int]) -> np.ndarray:
        """(N, 1) int64 ids of N words."""
        words = _check_list(words)
        if self._rows is None:
            rows = [self._parse_row(word) for word in words]
        elif not all(isinstance(word, str) for word in words):
            raise _explain_bad_word(words)
        else:
            rows = [self._rows.get(word[: self._max_length], self._unknown) for word in words]
            if None in rows:
                raise InputError(
                    f"the word {words[rows.index(None)]!r:.60} is not among the {len(self._rows)} of the vocabulary, "
                    "which has no <UNK> to stand for it: add <UNK> to the vocabulary, or leave such words out"
                )
        return np.array(rows, dtype=np.int64).reshape(-1, 1) + 1

    def count_cut(self, words: Sequence[str]) -> int:
        """How many words are longer than `max_length`; without one, a word of any length is one row."""
        words, limit = _check_list(words), self._max_length
        return 0 if limit is None else sum(isinstance(word, str) and len(word) > limit for word in words)

    def _parse_row(self, word: Any) -> int:  # noqa: ANN401
        row = -1
        if isinstance(word, str):
            # 18 digits fit in int64; more would be out of any table's range, and int() refuses thousands of them.
            row = int(word) if word.isascii() and word.isdigit() and len(word) <= 18 else -1
        elif isinstance(word, (int, np.integer)) and not isinstance(word, bool):
            row = int(word)
        if not 0 <= row < (self._num_words or 2**62):
            last = f"0 to {self._num_words - 1}" if self._num_words else "0 or more"
            raise InputError(f"this model has no vocabulary: a word is its row number, {last}, but {word!r:.60} came")
        return row


class WordAndCharacterScheme(Scheme):
    """A word's row and its characters side by side: column 0 is the word's id, the rest are its characters.

    Arguments:
        words: the scheme of column 0.
        characters: the scheme of the others.
    """

    def __init__(self, words: WordScheme, characters: ByteScheme | UnicodeScheme) -> None:
        self._words, self._characters = words, characters
        self.columns = 1 + characters.columns
        self.begin_ids = np.concatenate([words.begin_ids, characters.begin_ids])
        self.end_ids = np.concatenate([words.end_ids, characters.end_ids])

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """(N, C) int64 ids of N words."""
        words = _check_list(words)
        return np.concatenate([self._words.word_ids(words), self._characters.word_ids(words)], axis=1)

    def count_cut(self, words: Sequence[str]) -> int:
        """How many words the character scheme cuts, or hold a NUL."""
        return self._characters.count_cut(words)


def make_scheme(
    config: ElmoConfig,
    alphabet: Sequence[str] | None = None,
    vocabulary: Sequence[str] | None = None,
    *,
    swaps_markers: bool = False,
) -> Scheme:
    """The scheme of a model: from its config, its alphabet (Unicode characters) and its vocabulary (word input)."""
    characters = words = None
    if config.characters is not None and config.characters.scheme == "bytes":
        characters = ByteScheme(config.characters.max_length)
    elif config.characters is not None:
        if alphabet is None:
            raise ConfigError("a model of Unicode characters needs its alphabet, but none came with it")
        _check_rows("alphabet", len(alphabet), config.characters.num_symbols)
        characters = UnicodeScheme(alphabet, config.characters.max_length, swaps_markers=swaps_markers)
    if config.words is not None:
        if vocabulary is not None:
            _check_rows("vocabulary", len(vocabulary), config.words.num_words)
        elif characters is not None:
            raise ConfigError("a model of words and characters needs its vocabulary, but none came with it")
        num_words, max_length = config.words.num_words, config.words.max_length
        words = WordScheme(vocabulary, num_words=num_words, max_length=max_length, swaps_markers=swaps_markers)
    if words is not None and characters is not None:
        return WordAndCharacterScheme(words, characters)
    scheme = words if characters is None else characters
    assert scheme is not None, "ElmoConfig refuses a model without words and characters"
    return scheme


def _check_list(words: Iterable[Any], what: str = "a list of words") -> list[Any] | tuple[Any, ...]:
    """The words as a list; a bare string, which iterates over its characters, is surely a mistake."""
    if isinstance(words, (list, tuple)):
        return words
    if isinstance(words, (str, bytes)):
        raise InputError(f"expected {what}, but one string came: {words!r:.60}. Split it first: elmokit.words(text)")
    try:
        return list(words)
    except TypeError:
        raise InputError(f"expected {what}, but {type(words).__name__} came: {words!r:.60}") from None


def _explain_bad_word(words: Sequence[Any]) -> InputError:
    position, word = next((i, word) for i, word in enumerate(words) if not isinstance(word, str))
    return InputError(
        f"word {position} is {word!r:.60} of type {type(word).__name__}: expected a string. Turn it into one with str()"
    )


def _cut_words(words: Sequence[str], limit: int) -> tuple[Sequence[str], np.ndarray]:
    """The words cut to their first characters, and how many characters each has then."""
    try:
        "".join(words)  # the quickest way to see that all are strings
    except TypeError:
        raise _explain_bad_word(words) from None
    lengths_N = np.fromiter(map(len, words), np.int64, len(words))
    if lengths_N.max(initial=0) <= limit:
        return words, lengths_N
    return [word[:limit] for word in words], lengths_N.clip(max=limit)


def _encode_words(words: Sequence[str], limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 bytes of all words end to end, at most `limit` of each, and how many each has."""
    cut, lengths_N = _cut_words(words, limit)
    text = "".join(cut)
    try:
        bytes_T = np.frombuffer(text.encode(), np.uint8)
    except UnicodeEncodeError:  # lone surrogates, which vanish: what follows them moves up
        encoded = [word.encode("utf-8", "ignore")[:limit] for word in words]
        return np.frombuffer(b"".join(encoded), np.uint8), np.fromiter(map(len, encoded), np.int64, len(encoded))
    if len(bytes_T) == len(text):
        return bytes_T, lengths_N
    starts_N = np.concatenate([[0], lengths_N.cumsum()])
    # Every byte but those from 0x80 to 0xBF begins a character.
    first_bytes = np.append(np.flatnonzero((bytes_T & 0xC0) != 0x80), len(bytes_T))
    starts_N = first_bytes[starts_N]
    lengths_N = np.diff(starts_N)
    if lengths_N.max(initial=0) > limit:
        bytes_T = bytes_T[np.arange(len(bytes_T)) - starts_N[:-1].repeat(lengths_N) < limit]
    return bytes_T, lengths_N.clip(max=limit)


def _add_markers(
    ids_T: np.ndarray, lengths_N: np.ndarray, columns: int, begin: int, end: int, padding: int
) -> np.ndarray:
    """Rows (N, C) of words whose ids lie end to end: a marker before and after each, padding behind."""
    ids_NC = np.full((len(lengths_N), columns), padding, dtype=np.int64)
    rows_N = np.arange(len(lengths_N)) * columns
    ends_N = lengths_N.cumsum()
    places_T = np.arange(1, len(ids_T) + 1) + (rows_N - ends_N + lengths_N).repeat(lengths_N)
    flat = ids_NC.reshape(-1)
    flat[places_T] = ids_T
    flat[rows_N] = begin
    flat[rows_N + lengths_N + 1] = end
    return ids_NC


def _count_bytes(word: str) -> int:
    return len(word.encode("utf-8", "ignore"))


def _place_boundaries(ids_NC: np.ndarray, words: Sequence[str], rows: dict[str, np.ndarray]) -> None:
    for name, ids_C in rows.items():
        if name in words:
            ids_NC[[word == name for word in words]] = ids_C


def _find_specials(rows: dict[str, int], names: Sequence[tuple[str, str, str]]) -> tuple[int, int, int | None]:
    for begin, end, unknown in names:
        if begin in rows and end in rows:
            return rows[begin], rows[end], rows.get(unknown)
    either = " or ".join(f"{begin} {end}" for begin, end, _ in names)
    raise ConfigError(f"the vocabulary of {len(rows)} words names no sentence boundaries: expected {either} among them")


def _check_length(max_length: int) -> int:
    if max_length < 3:
        raise ConfigError(f"max_length is {max_length}: two markers and a character need 3")
    return max_length


def _check_rows(what: str, came: int, expected: int) -> None:
    if came != expected:
        raise ConfigError(f"the {what} has {came} entries, but the config says {expected}: they must be of one model")
