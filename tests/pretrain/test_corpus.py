"""Text files to an encoded corpus: exact contents, bounded memory, and every bad input refused with nothing written."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import CheckpointError, ConfigError, InputError, OutputError
from elmokit.pretrain.corpus import counting, encoding
from elmokit.pretrain.corpus.counting import WordCounter, build_alphabet, find_most_frequent
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.text import files as text_files
from elmokit.text.files import find_files, read_blocks
from elmokit.text.segmenters import RuleSegmenter, Word

TEXT = "the cat sat on the mat\nthe dog sat\n\na cat\n"


def encoded(tmp_path: Path, text: str | bytes = TEXT, **options) -> EncodedCorpus:
    file = tmp_path / "text.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    options = {"tokenised": True, "progress": False, **options}
    return encode_corpus(file, tmp_path / "corpus", **options)


def sentences_of(corpus: EncodedCorpus) -> list[list[str]]:
    return [corpus.sentence(number) for number in range(corpus.num_sentences)]


# What is written


def test_small_text_exactly(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, vocabulary_size=6)
    assert corpus.vocabulary == ["<S>", "</S>", "<UNK>", "the", "cat", "sat"]
    # Outside the vocabulary, in the order of their bytes: a, dog, mat, on.
    assert corpus.tokens.tolist() == [3, 4, 5, 9, 3, 8, 3, 7, 5, 6, 4]
    assert corpus.offsets.tolist() == [0, 6, 9, 11]
    assert corpus.words(range(corpus.num_words)) == [*corpus.vocabulary, "a", "dog", "mat", "on"]
    assert corpus.word_bytes(np.array([9, 3])) == [b"on", b"the"]
    assert corpus.target_of(corpus.tokens).tolist() == [3, 4, 5, 2, 3, 2, 3, 2, 5, 2, 4]
    assert corpus.counts_V.tolist() == [3, 3, 4, 3, 2, 2]
    assert (corpus.num_tokens, corpus.num_sentences, corpus.vocabulary_size, corpus.num_words) == (11, 3, 6, 10)
    assert corpus.coverage == pytest.approx(7 / 11)
    assert sentences_of(corpus) == [line.split() for line in TEXT.split("\n") if line]


def test_header_says_how_it_was_made(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, min_count=2)
    header = json.loads((corpus.folder / "corpus.json").read_text())
    assert header["format_version"] == 1
    (file,) = header["files"]
    assert (file["name"], file["bytes"], len(file["hash"])) == (str(tmp_path / "text.txt"), len(TEXT), 32)
    assert header["settings"]["segmenter"] == "spaces"
    assert corpus.settings["min_count"] == 2
    assert corpus.vocabulary == ["<S>", "</S>", "<UNK>", "the", "cat", "sat"]
    assert sorted(path.name for path in corpus.folder.iterdir()) == [
        "corpus.json",
        "counts.bin",
        "sentences.bin",
        "tokens.bin",
        "vocab.txt",
        "words.bin",
        "words.offsets.bin",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_ties_are_sorted_by_bytes(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, "d é b a a\nc c b\n")
    assert corpus.vocabulary[3:] == ["a", "b", "c", "d", "é"]


def test_specials_in_the_text_are_their_rows(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, "a <UNK> a\n</S> a <unk>\n")
    assert corpus.vocabulary == ["<S>", "</S>", "<UNK>", "a", "<unk>"]
    assert corpus.tokens.tolist() == [3, 2, 3, 1, 3, 4]
    assert corpus.coverage == pytest.approx(5 / 6)


def test_raw_text_is_segmented_line_by_line(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, "\ufeffMr. Lee paid. Didn't you?\r\nno stop here\nThe end.", tokenised=False)
    assert sentences_of(corpus) == [
        ["Mr.", "Lee", "paid", "."],
        ["Did", "n't", "you", "?"],
        ["no", "stop", "here"],
        ["The", "end", "."],
    ]
    assert corpus.settings["segmenter"] == "RuleSegmenter"


def test_tokenised_text_splits_at_spaces_and_newlines_only(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, "a\u00a0b  c\u2028d \r\n \x0c e\n")
    assert sentences_of(corpus) == [["a\u00a0b", "c\u2028d"], ["\x0c", "e"]]
    assert corpus.vocabulary[3:] == sorted(["a\u00a0b", "c\u2028d", "\x0c", "e"], key=str.encode)


def test_long_sentences_are_cut(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, "a b c d e f g\nh i j\n", max_sentence_words=3)
    assert sentences_of(corpus) == [list("abc"), list("def"), ["g"], list("hij")]


def test_given_vocabulary_is_kept(tmp_path: Path) -> None:
    vocabulary = ["<S>", "</S>", "<UNK>", "mat", "unseen", "the"]
    corpus = encoded(tmp_path, vocabulary=vocabulary)
    assert corpus.vocabulary == vocabulary
    assert corpus.counts_V.tolist() == [3, 3, 7, 1, 0, 3]
    assert corpus.coverage == pytest.approx(4 / 11)
    assert sentences_of(corpus)[0] == ["the", "cat", "sat", "on", "the", "mat"]


@settings(deadline=None, max_examples=25)
@given(
    lines=st.lists(st.lists(st.text("abé€", min_size=1, max_size=3), max_size=9), max_size=30).filter(any),
    size=st.integers(4, 40),
    table_words=st.integers(1, 20),
    block_bytes=st.integers(1, 60),
)
def test_any_text_comes_back(tmp_path_factory, lines, size, table_words, block_bytes) -> None:
    """Whatever the size of the table and of the blocks, the words, their counts and the vocabulary are the same."""
    tmp_path = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_blocks, "__kwdefaults__", {"block_bytes": block_bytes, "report": None})
        patch.setattr(counting, "RUNS_AT_ONCE", 3)
        text = "\n".join(" ".join(line) for line in lines)
        corpus = encoded(tmp_path, text, vocabulary_size=size, table_words=table_words, max_sentence_words=5)
    pieces = [line[start : start + 5] for line in lines for start in range(0, len(line), 5)]
    assert sentences_of(corpus) == pieces
    counts = Counter(word for line in lines for word in line)
    ordered = sorted(counts, key=lambda word: (-counts[word], word.encode()))[: size - 3]
    assert corpus.vocabulary[3:] == ordered
    assert corpus.counts_V[3:].tolist() == [counts[word] for word in ordered]
    assert corpus.counts_V[:3].tolist() == [len(pieces), len(pieces), counts.total() - sum(corpus.counts_V[3:])]


def test_processes_do_not_change_the_result(tmp_path: Path) -> None:
    text = "".join(f"Word{number % 997} stands here. And {number} too.\n" for number in range(60_000))
    (tmp_path / "text.txt").write_text(text)
    one, two = (
        encode_corpus(tmp_path / "text.txt", tmp_path / f"corpus{workers}", workers=workers, progress=False)
        for workers in (1, 2)
    )
    assert one.fingerprint == two.fingerprint
    assert one.num_sentences == 120_000


def test_an_unguarded_script_may_use_processes(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    script = """
from elmokit.pretrain.corpus.encoding import encode_corpus
print(encode_corpus("text.txt", "corpus", workers=2).num_tokens)
"""
    (tmp_path / "script.py").write_text(script)
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    assert (done.stdout, done.returncode) == (b"11\n", 0), done.stderr.decode()


# Files


def packed(text: bytes, ending: str) -> bytes:
    return {"bz2": bz2.compress, "gz": gzip.compress, "xz": lzma.compress}[ending](text)


@pytest.mark.parametrize("ending", ["bz2", "gz", "xz"])
def test_packed_files(tmp_path: Path, ending: str) -> None:
    # Two members one after the other, as parallel packers write.
    (tmp_path / f"a.txt.{ending}").write_bytes(packed(TEXT.encode(), ending) + packed(b"more\n", ending))
    corpus = encode_corpus(tmp_path / f"a.txt.{ending}", tmp_path / "corpus", tokenised=True, progress=False)
    assert corpus.num_tokens == 12


def test_zstd(tmp_path: Path) -> None:
    with pyarrow.OSFile(str(tmp_path / "a.zst"), "wb") as raw, pyarrow.CompressedOutputStream(raw, "zstd") as stream:
        stream.write(TEXT.encode())
    assert encode_corpus(tmp_path / "a.zst", tmp_path / "corpus", tokenised=True, progress=False).num_tokens == 11


@pytest.mark.parametrize("ending", ["bz2", "gz", "xz"])
def test_a_truncated_packed_file_is_refused(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.{ending}").write_bytes(packed(os.urandom(3000).hex().encode(), ending)[:-200])
    with pytest.raises(InputError, match=rf"a\.{ending}: cannot be read"):
        encode_corpus(tmp_path / f"a.{ending}", tmp_path / "corpus", progress=False)
    assert not (tmp_path / "corpus").exists()


def test_several_files_and_globs_in_order(tmp_path: Path) -> None:
    for name in "cab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    corpus = encode_corpus(
        [tmp_path / "c.txt", f"{tmp_path}/[ab].txt"], tmp_path / "corpus", tokenised=True, progress=False
    )
    assert sentences_of(corpus) == [["c"], ["a"], ["b"]]


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    corpus = encode_corpus("-", tmp_path / "corpus", tokenised=True, progress=False, workers=1)
    assert corpus.num_tokens == 11
    with pytest.raises(InputError, match="more than once"):
        find_files(["-", "-"])


@pytest.mark.parametrize("filler", ["ab ", "é€x"])
def test_a_line_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filler: str) -> None:
    monkeypatch.setattr(text_files, "LONGEST_LINE", 1000)
    text = filler * 2000
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    blocks = list(read_blocks(str(tmp_path / "text.txt"), block_bytes=100))
    assert max(len(block.data) for block in blocks) < 1200
    assert "".join(block.data.decode() for block in blocks) == text  # never inside a character
    assert [block.first_line for block in blocks] == [1] * len(blocks)
    if " " in filler:
        assert all(block.data.endswith(b" ") for block in blocks)


# Counting


def test_memory_of_the_count_table_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = WordCounter(tmp_path, table_words=100)
    largest = 0
    for block in range(50):
        words = [b"%d" % (block * 37 + place) for place in range(40)]
        counter.add(words, np.full(40, 2))
        largest = max(largest, len(counter._numbers))
    assert largest < 100 + 40
    runs = counter.finish()
    assert sum(run.num_tokens for run in runs) == 50 * 40 * 2
    assert len(find_most_frequent(runs, count=10, min_count=1)) == 10
    monkeypatch.setattr(counting, "TABLE_BYTES", 1000)
    counter = WordCounter(tmp_path, table_words=100)
    for place in range(5):
        counter.add([b"%d" % place * 900], np.ones(1, np.int64))
    assert len(counter.finish()) == 3  # few words, but long ones


def test_alphabet() -> None:
    words = [("<S>", 100), ("banana", 2), ("bé", 3), ("<UNK>", 50)]
    specials = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
    assert build_alphabet(words, 100) == [*specials, "a", "b", "n", "é"]
    assert build_alphabet(words, 8) == [*specials, "a", "b"]
    with pytest.raises(ConfigError, match="max_symbols is 6"):
        build_alphabet(words, 6)


# Bad input


def test_not_utf8_names_file_line_and_byte(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"text\.txt: expected UTF-8, but line 3 \(byte 9 of the text\)"):
        encoded(tmp_path, b"good\nok\n \xe9t\xe9\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


def test_not_utf8_far_into_the_file_and_in_another_process(tmp_path: Path) -> None:
    good = b"a line\n" * 200_000
    with pytest.raises(InputError, match=rf"line 200001 \(byte {len(good) + 2} of the text\)"):
        encoded(tmp_path, good + b"no\xff\n", workers=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_empty_corpus(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no words at all"):
        encoded(tmp_path, text)
    assert not (tmp_path / "corpus").exists()


def test_no_such_file(tmp_path: Path) -> None:
    for source, message in [
        (tmp_path / "none.txt", "does not exist"),
        (f"{tmp_path}/*.bz2", "does not exist"),
        (tmp_path, "is a folder"),
        ([], "found none"),
    ]:
        with pytest.raises(InputError, match=message):
            encode_corpus(source, tmp_path / "corpus", progress=False)


def test_bad_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocabulary_size is 3"):
        encoded(tmp_path, vocabulary_size=3)
    with pytest.raises(ConfigError, match="min_count is 0"):
        encoded(tmp_path, min_count=0)
    with pytest.raises(ConfigError, match="begins with"):
        encoded(tmp_path, vocabulary=["a", "b", "c", "d"])
    with pytest.raises(ConfigError, match="each word once"):
        encoded(tmp_path, vocabulary=["<S>", "</S>", "<UNK>", "a", "a"])
    with pytest.raises(ConfigError, match="no segmenter"):
        encoded(tmp_path, segmenter=RuleSegmenter())


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="found a file"):
        (tmp_path / "corpus").write_text("mine")
        encoded(tmp_path)
    assert (tmp_path / "corpus").read_text() == "mine"
    with pytest.raises(OutputError, match="expected an empty or a new folder"):
        encode_corpus(tmp_path / "text.txt", tmp_path, progress=False)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(encoding, "_replace", full)
    with pytest.raises(OutputError, match="No space left on device"):
        encoded(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


class Failing:
    """A segmenter that does not like one word."""

    def __call__(self, text: str) -> list[list[Word]]:
        if "bad" in text:
            raise RuntimeError("I do not like it")
        return [[Word(text, 0, len(text))]] if text else []


class Empty:
    def __call__(self, text: str) -> list[list[Word]]:
        return [[Word("", 0, 0)]]


def test_a_segmenter_that_fails(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lines 1 to 2: the segmenter failed: RuntimeError: I do not like it"):
        encoded(tmp_path, "good\nbad\n", tokenised=False, segmenter=Failing())
    with pytest.raises(InputError, match="a word that is empty"):
        encoded(tmp_path, "good\nbad\n", tokenised=False, segmenter=Empty())
    with pytest.raises(InputError, match="workers=1"):
        encoded(tmp_path, "good\n", tokenised=False, segmenter=lambda text: [], workers=2)
    assert not (tmp_path / "corpus").exists()


def test_opening_what_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no corpus\.json"):
        EncodedCorpus.open(tmp_path)
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(CheckpointError, match="found something else"):
        EncodedCorpus.open(tmp_path)


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.bin", "counts.bin", "words.bin", "words.offsets.bin"])
def test_a_truncated_corpus_is_refused(tmp_path: Path, name: str) -> None:
    folder = encoded(tmp_path).folder
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=rf"{name}: expected {len(data)} bytes, found {len(data) - 1}"):
        EncodedCorpus.open(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        EncodedCorpus.open(folder)


def test_a_newer_or_broken_header_is_refused(tmp_path: Path) -> None:
    folder = encoded(tmp_path).folder
    header = json.loads((folder / "corpus.json").read_text())
    (folder / "corpus.json").write_text(json.dumps({**header, "format_version": 2}))
    with pytest.raises(CheckpointError, match="format version 2 is newer"):
        EncodedCorpus.open(folder)
    (folder / "corpus.json").write_text(json.dumps({**header, "num_tokens": None}))
    with pytest.raises(CheckpointError, match="lacks a sound"):
        EncodedCorpus.open(folder)
    (folder / "corpus.json").write_text(json.dumps(header))
    (folder / "vocab.txt").write_text("<S>\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: expected 10 words, found 1"):
        _ = EncodedCorpus.open(folder).vocabulary
