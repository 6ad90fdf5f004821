"""Batches of an encoded corpus: nothing lost, nothing twice, shifted as it should be, and the same from any start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ConfigError
from elmokit.nn.word_encoder import count_needed_columns
from elmokit.pretrain.batches.batch import Batch
from elmokit.pretrain.batches.reader import Prefetcher
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.batches.streams import StreamReader
from elmokit.pretrain.corpus.counting import build_alphabet
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.network import StepInputs
from elmokit.text.characters import (
    ByteScheme,
    Scheme,
    UnicodeScheme,
    WordAndCharacterScheme,
    WordScheme,
)

BEGIN, END, UNKNOWN = "<S>", "</S>", "<UNK>"


def make_corpus(folder: Path, sentences: Iterable[list[str]], **options) -> EncodedCorpus:
    (folder / "text.txt").write_text("".join(" ".join(sentence) + "\n" for sentence in sentences))
    return encode_corpus(folder / "text.txt", folder / "corpus", tokenised=True, progress=False, **options)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> EncodedCorpus:
    """500 sentences of 1 to 30 words, no two alike; a tenth of the words are outside the vocabulary."""
    rng = np.random.default_rng(0)
    sentences = [
        [f"s{number}", *(f"w{word}" for word in rng.zipf(1.3, rng.integers(0, 30)) % 300)] for number in range(500)
    ]
    return make_corpus(tmp_path_factory.mktemp("corpus"), sentences, vocabulary_size=120)


def sentence_reader(corpus: EncodedCorpus, **options) -> SentenceReader:
    options = {"tokens_per_batch": 200, "block_sentences": 16, "pool_blocks": 8, **options}
    return SentenceReader(corpus, WordScheme(corpus.vocabulary), **options)


def stream_reader(corpus: EncodedCorpus, **options) -> StreamReader:
    options = {"rows": 12, "unroll": 7, "block_sentences": 16, "pool_blocks": 8, **options}
    return StreamReader(corpus, WordScheme(corpus.vocabulary), **options)


READERS = pytest.mark.parametrize("make", [sentence_reader, stream_reader])


class Bytes(ByteScheme):
    """The byte scheme, read backwards: what it was given, to see what a batch holds."""

    @staticmethod
    def spelled(ids_C: np.ndarray) -> str:
        if ids_C[1] in (257, 258):
            return BEGIN if ids_C[1] == 257 else END
        return bytes(int(number) - 1 for number in ids_C if number <= 256).decode()


def rows_of(batch: Batch, words_N: np.ndarray) -> list[list[int]]:
    """Packed values as one list per row."""
    rows: list[list[int]] = [[] for _ in range(batch.num_rows)]
    values = iter(words_N.tolist())
    for size in batch.batch_sizes:
        for row in range(size):
            rows[row].append(next(values))
    return rows


def read_words(batch: Batch, corpus: EncodedCorpus) -> tuple[list[list[str]], ...]:
    """Words that forward and backward read, then rows of targets as words."""
    spelled = [Bytes.spelled(ids_C) for ids_C in batch.distinct_UC]
    words = [[[spelled[i] for i in row] for row in rows_of(batch, words_N)] for words_N in batch.words_2N]
    targets = [
        [[corpus.vocabulary[i] for i in row] for row in rows_of(batch, targets_N)] for targets_N in batch.targets_2N
    ]
    return (*words, *targets)


def assert_equal(one: Batch, other: Batch) -> None:
    for name in ("distinct_UC", "words_2N", "targets_2N"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(one.keys_N, other.keys_N)
    assert one.batch_sizes == other.batch_sizes
    assert (one.starts_fresh, one.global_tokens) == (other.starts_fresh, other.global_tokens)


def row_keys_of(batch: Batch) -> list[int]:
    """Which rows of the global batch these are: the keys of their first step."""
    return batch.keys_N[: batch.num_rows].tolist()


# Sentences


def test_a_sentence_exactly(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [["the", "rare", "cat"], ["the", "cat"]], vocabulary_size=5)
    assert corpus.vocabulary == ["<S>", "</S>", "<UNK>", "cat", "the"]
    (batch,) = SentenceReader(corpus, Bytes()).one_epoch()
    assert batch.batch_sizes == [2, 2, 2, 1]
    forward, backward, forward_targets, backward_targets = read_words(batch, corpus)
    assert forward == [[BEGIN, "the", "rare", "cat"], [BEGIN, "the", "cat"]]
    assert forward_targets == [["the", UNKNOWN, "cat", END], ["the", "cat", END]]
    assert backward == [[END, "cat", "rare", "the"], [END, "cat", "the"]]
    assert backward_targets == [["cat", UNKNOWN, "the", BEGIN], ["cat", "the", BEGIN]]
    assert (batch.num_rows, batch.num_tokens, batch.global_tokens) == (2, 7, 7)
    assert batch.starts_fresh
    assert row_keys_of(batch) == [0, 1]


def test_batches_of_one_length_about_as_large_as_asked(corpus: EncodedCorpus) -> None:
    batches = list(sentence_reader(corpus).one_epoch())
    ragged = [batch for batch in batches if batch.batch_sizes[0] != batch.batch_sizes[-1]]
    for batch in batches:
        assert batch.num_tokens <= 200
        assert batch.batch_sizes == sorted(batch.batch_sizes, reverse=True)
        if batch.batch_sizes[0] == batch.batch_sizes[-1] and batch.num_rows < 200 // len(batch.batch_sizes):
            ragged.append(batch)
    assert sum(batch.num_tokens for batch in batches) == sentence_reader(corpus).tokens_per_epoch
    assert 0 < len(ragged) < len(batches) / 2


def test_order_depends_on_seed_and_epoch_only(corpus: EncodedCorpus) -> None:
    def sentences(**options) -> list[list[int]]:
        epoch = options.pop("epoch", 0)
        return [batch.targets_2N[0].tolist() for batch in sentence_reader(corpus, **options).one_epoch(epoch)]

    assert sentences() == sentences()
    assert sentences() != sentences(seed=1)
    assert sentences() != sentences(epoch=1)


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=80),
    tokens=st.integers(1, 60),
    block=st.integers(1, 10),
    pool=st.integers(1, 4),
    world=st.integers(1, 3),
    epoch=st.integers(0, 2),
)
def test_every_sentence_once_an_epoch(tmp_path_factory, lengths, tokens, block, pool, world, epoch) -> None:
    """As read by all ranks together, in both directions, with every target one step ahead."""
    sentences = [[f"{number}", *"abcdefghijkl"[: length - 1]] for number, length in enumerate(lengths)]
    corpus = make_corpus(tmp_path_factory.mktemp("random"), sentences)
    seen: Counter[tuple[str, ...]] = Counter()
    for rank in range(world):
        reader = SentenceReader(
            corpus, Bytes(), tokens_per_batch=tokens, block_sentences=block, pool_blocks=pool, rank=rank, world=world
        )
        for batch in reader.one_epoch(epoch):
            for rows in zip(*read_words(batch, corpus), strict=True):
                forward, backward, forward_targets, backward_targets = rows
                assert [*forward, END] == [BEGIN, *forward_targets]
                assert [*backward, BEGIN] == [END, *backward_targets]
                assert forward[1:] == backward[:0:-1]
                seen[tuple(forward[1:])] += 1
    assert seen == Counter(map(tuple, sentences))


def test_epochs_follow_each_other(corpus: EncodedCorpus) -> None:
    reader = sentence_reader(corpus)
    per_epoch = [list(sentence_reader(corpus).one_epoch(epoch)) for epoch in (0, 1)]
    for batch, expected in zip(reader, [*per_epoch[0], *per_epoch[1]], strict=False):
        assert_equal(batch, expected)
    next(reader)
    assert reader.state_dict()["epoch"] == 2


# Streams


def stream_rows(reader: StreamReader, corpus: EncodedCorpus, windows: int) -> tuple[list[list[str]], ...]:
    """What each row reads and predicts over several windows, joined."""
    joined = tuple([[] for _ in range(12)] for _ in range(4))
    for number, batch in enumerate(islice(reader, windows)):
        assert batch.batch_sizes == [12] * 7  # filled completely
        assert batch.starts_fresh == (number == 0)
        assert row_keys_of(batch) == list(range(12))
        for whole, part in zip(joined, read_words(batch, corpus), strict=True):
            for row, words in zip(whole, part, strict=True):
                row += words
    return joined


def split_at(words: list[str], boundary: str) -> list[tuple[str, ...]]:
    starts = [place for place, word in enumerate(words) if word == boundary]
    assert starts[0] == 0
    return [tuple(words[start + 1 : end]) for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]


def test_rows_go_on_from_window_to_window(corpus: EncodedCorpus) -> None:
    reader = StreamReader(corpus, Bytes(), rows=12, unroll=7, block_sentences=16, pool_blocks=8)
    forward, backward, forward_targets, backward_targets = stream_rows(reader, corpus, windows=150)
    known, sentences = set(corpus.vocabulary), {tuple(corpus.sentence(n)) for n in range(corpus.num_sentences)}
    for reads, targets, first, last, order in (
        (forward, forward_targets, BEGIN, END, 1),
        (backward, backward_targets, END, BEGIN, -1),
    ):
        for row, row_targets in zip(reads, targets, strict=True):
            *whole, cut = [words[::order] for words in split_at(row, first)]
            assert sentences.issuperset(whole)
            assert any(sentence[::order][: len(cut)] == cut[::order] for sentence in sentences)
            # A target is the word that is read next, or the other boundary where a sentence begins next.
            expected = [last if word == first else word if word in known else UNKNOWN for word in row[1:]]
            assert row_targets[:-1] == expected


def test_directions_are_different_shufflings_of_all_sentences(corpus: EncodedCorpus) -> None:
    reader = StreamReader(corpus, Bytes(), rows=12, unroll=7, block_sentences=16, pool_blocks=8)
    forward, backward, _, _ = stream_rows(reader, corpus, windows=150)  # somewhat more than an epoch
    first = [[words[0] for words in split_at(row, BEGIN)[:-1]] for row in forward]
    second = [[words[-1] for words in split_at(row, END)[:-1]] for row in backward]
    assert first != second
    every = {f"s{number}" for number in range(500)}
    for rows in (first, second):
        assert every.issubset(name for row in rows for name in row)


def test_a_corpus_smaller_than_the_rows(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [["a", "b"], ["c"]])
    reader = StreamReader(corpus, Bytes(), rows=5, unroll=9)
    forward = read_words(next(reader), corpus)[0]
    assert [len(row) for row in forward] == [9] * 5
    assert all(row[0] == BEGIN for row in forward)


# Position


@READERS
def test_resume_at_any_batch(corpus: EncodedCorpus, make) -> None:
    reader = make(corpus)
    states, batches = [], []
    for _ in range(130):  # past the end of an epoch
        states.append(reader.state_dict())
        batches.append(next(reader))
    assert sum(batch.global_tokens for batch in batches) > reader.tokens_per_epoch
    for start in (0, 1, 57, 128):
        resumed = make(corpus)
        resumed.load_state_dict(states[start])
        for batch, expected in zip(resumed, batches[start:], strict=False):
            assert_equal(batch, expected)


@READERS
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_batch_of_one(corpus: EncodedCorpus, make, world: int) -> None:
    ranks = [make(corpus, rank=rank, world=world) for rank in range(world)]
    for whole, *parts in islice(zip(make(corpus), *ranks, strict=True), 60):
        assert sum(part.num_tokens for part in parts) == whole.num_tokens
        assert {part.global_tokens for part in parts} == {whole.num_tokens}
        assert sorted(key for part in parts for key in row_keys_of(part)) == row_keys_of(whole)
        together = {}
        for batch in (whole, *parts):
            columns = (*batch.distinct_UC[batch.words_2N, 0], *batch.targets_2N)
            found = dict(zip(batch.keys_N.tolist(), zip(*columns, strict=True), strict=True))
            assert len(found) == batch.num_tokens  # no key twice
            if batch is whole:
                expected = found
            else:
                assert not together.keys() & found.keys()
                together |= found
        assert together == expected


@READERS
def test_resume_with_another_number_of_ranks(corpus: EncodedCorpus, make) -> None:
    two = [make(corpus, rank=rank, world=2) for rank in (0, 1)]
    for _ in range(20):
        for reader in two:
            next(reader)
    assert two[0].state_dict() == two[1].state_dict()
    alone, three = make(corpus), make(corpus, rank=1, world=3)
    alone.load_state_dict(two[0].state_dict())
    three.load_state_dict(two[0].state_dict())
    expected = list(islice(make(corpus), 25))[20:]
    for batch, part, whole in zip(alone, three, expected, strict=False):
        assert_equal(batch, whole)
        assert row_keys_of(part) == row_keys_of(whole)[1::3]


def test_a_rank_without_rows(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [["a", "b"]])
    (batch,) = SentenceReader(corpus, ByteScheme(), rank=1, world=2).one_epoch()
    assert (batch.num_rows, batch.num_tokens, batch.global_tokens, batch.batch_sizes) == (0, 0, 3, [])
    assert len(batch.distinct_UC) == 64


@READERS
def test_state_is_small_and_plain(corpus: EncodedCorpus, make) -> None:
    reader = make(corpus)
    next(reader)
    assert len(str(reader.state_dict())) < 1000


@READERS
def test_a_state_of_other_data_is_refused(corpus: EncodedCorpus, make) -> None:
    with pytest.raises(ConfigError, match="seed was 1 and is 0 now"):
        make(corpus).load_state_dict(make(corpus, seed=1).state_dict())
    with pytest.raises(ConfigError, match="corpus was 'other' and is"):
        state = make(corpus).state_dict()
        make(corpus).load_state_dict({**state, "settings": {**state["settings"], "corpus": "other"}})


def test_settings_that_make_no_sense(corpus: EncodedCorpus) -> None:
    for name, value in (("rank", 1), ("rank", -1), ("tokens_per_batch", 0), ("seed", -1), ("widest.filter", 0)):
        with pytest.raises(ConfigError, match=name):
            sentence_reader(corpus, **{name.replace(".", "_"): value})
    for options in ({"rows": 1, "world": 2}, {"unroll": 0}):
        with pytest.raises(ConfigError, match="rows at least, one per rank, and a token each"):
            stream_reader(corpus, **options)
    with pytest.raises(ConfigError, match="pool"):
        stream_reader(corpus, pool_blocks=0)


# Distinct words


def schemes(corpus: EncodedCorpus) -> list[Scheme]:
    alphabet = build_alphabet(zip(corpus.vocabulary, corpus.counts_V, strict=True), max_symbols=12)
    words = WordScheme(corpus.vocabulary)
    unicode = UnicodeScheme(alphabet, max_length=14)
    return [ByteScheme(50), ByteScheme(12), unicode, words, WordAndCharacterScheme(words, unicode)]


@pytest.mark.parametrize("number", range(5))
def test_ids_of_every_scheme(corpus: EncodedCorpus, number: int) -> None:
    scheme = schemes(corpus)[number]
    names = [Bytes(), scheme]
    for spelled, batch in islice(
        zip(*(SentenceReader(corpus, s, tokens_per_batch=300) for s in names), strict=True), 20
    ):
        rows = [Bytes.spelled(ids_C) for ids_C in spelled.distinct_UC]
        assert len(rows) % 64 == 0
        assert len(set(rows)) > len(rows) - 64
        columns = batch.distinct_UC.shape[1]
        for name, ids_C in zip(rows, batch.distinct_UC, strict=True):
            boundary = {BEGIN: scheme.begin_ids, END: scheme.end_ids}.get(name)
            expected_C = scheme.word_ids([name])[0] if boundary is None else boundary
            np.testing.assert_array_equal(ids_C, expected_C[:columns])
    if number == 3:
        known = corpus.vocabulary.index("w1")
        assert known + 1 in batch.distinct_UC


def test_columns_are_trimmed_to_what_the_convolutions_need(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, [["a"], ["b" * 9], ["c" * 47]])
    found = {}
    for batch in SentenceReader(corpus, ByteScheme(), tokens_per_batch=1, widest_filter=7).one_epoch():
        needed = count_needed_columns(torch.from_numpy(ByteScheme().word_ids(corpus.words(batch.targets_2N[0, :1]))), 7)
        found[len(corpus.words(batch.targets_2N[0, :1])[0])] = (needed, batch.distinct_UC.shape)
        assert batch.distinct_UC.dtype == np.int16
    assert found == {1: (10, (64, 16)), 9: (18, (64, 24)), 47: (50, (64, 50))}


def test_batch_as_tensors(corpus: EncodedCorpus) -> None:
    batch = next(sentence_reader(corpus))
    moved = StepInputs.of(batch, torch.device("cpu"))
    tensors = {"distinct_UC": moved.blocks[0], "words_2N": moved.words_2N, "targets_2N": moved.targets_2N}
    for name, tensor in {**tensors, "keys_N": moved.keys_N}.items():
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64
        np.testing.assert_array_equal(tensor.numpy(), getattr(batch, name))
    assert moved.batch_sizes == batch.batch_sizes


# In the background


@READERS
def test_prefetched_batches_are_the_same_and_so_is_the_position(corpus: EncodedCorpus, make) -> None:
    expected = list(islice(make(corpus), 40))
    with Prefetcher(make(corpus), lambda batch: batch, depth=3) as batches:
        for batch, same in zip(islice(batches, 20), expected, strict=False):
            assert_equal(batch, same)
        state = batches.state_dict()
        batches.close()
        for batch, same in zip(islice(batches, 5), expected[20:], strict=False):
            assert_equal(batch, same)
    resumed = make(corpus)
    resumed.load_state_dict(state)
    for batch, same in zip(islice(resumed, 20), expected[20:], strict=True):
        assert_equal(batch, same)


def test_what_goes_wrong_in_the_background_is_raised(corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = sentence_reader(corpus)
    monkeypatch.setattr(reader, "_batch", lambda *_: 1 / 0)
    with Prefetcher(reader, lambda batch: batch) as batches, pytest.raises(ZeroDivisionError):
        next(batches)
