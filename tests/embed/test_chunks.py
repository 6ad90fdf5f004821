"""A corpus in chunks: every line once, with the number it has when one process reads everything, in any order."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.embed.chunks import cut_file, find_inputs, join_plans, read_chunks, read_plan, write_plan
from elmokit.errors import CheckpointError, InputError
from elmokit.text.files import LONGEST_SENTENCE, LineReader

HOW = {"column": "text", "splits": False}
TEXTS = ["She sat.", "", "한국어 문장", "\ufeffa mark in the middle", "tail\r", "x" * 40] * 7


def plan(files, chunk_bytes, **changes):
    return join_plans(cut_file(str(file), chunk_bytes=chunk_bytes, **{**HOW, **changes}) for file in files)


def read(chunks, **changes):
    """The lines of chunks, each read by itself, from the last to the first."""
    found = {}
    for chunk in reversed(chunks):
        ((same, lines),) = read_chunks([chunk], **{**HOW, **changes})
        assert same == chunk
        assert [line.number for line in lines][:1] in ([], [chunk.first_line])
        found[chunk.first_line] = lines
    return [line for first in sorted(found) for line in found[first]]


@pytest.mark.parametrize("pack", [None, gzip, bz2])
@pytest.mark.parametrize("chunk_bytes", [1, 50, 10**6])
def test_chunks_hold_the_lines_of_one_reader(pack, chunk_bytes, tmp_path):
    data = ("\ufeff" + "\n".join(TEXTS)).encode()
    files = [tmp_path / f"{number}.txt{'' if pack is None else '.gz' if pack is gzip else '.bz2'}" for number in (1, 2)]
    for file in files:
        file.write_bytes(data if pack is None else pack.compress(data))
    chunks = plan(files, chunk_bytes)
    assert read(chunks) == list(LineReader(files))
    in_one_pass = [line for _, lines in read_chunks(chunks[1::2], **HOW) for line in lines]
    assert in_one_pass == [line for chunk in chunks[1::2] for line in read([chunk])]
    assert (len(chunks) == 2) == (chunk_bytes == 10**6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="a \n\r\ufeffé", max_size=8), max_size=20), st.integers(1, 30))
def test_any_text_is_cut_without_loss(tmp_path_factory, pieces, chunk_bytes):
    file = tmp_path_factory.mktemp("text") / "any.txt"
    file.write_bytes("\n".join(pieces).encode())
    assert read(plan([file], chunk_bytes)) == list(LineReader(file))


def test_a_long_line_is_refused_or_cut_as_by_one_reader(tmp_path):
    file = tmp_path / "long.txt"
    file.write_bytes(b"first\n" + b"word " * (LONGEST_SENTENCE // 4) + b"\nlast\n")
    with pytest.raises(InputError, match=r"long.txt:2: expected one sentence"):
        plan([file], 100)
    assert read(plan([file], 100, splits=True)) == list(LineReader(file, longest=LONGEST_SENTENCE, cuts=True))


def test_the_size_of_a_parquet_column_is_that_of_the_text_behind_structures(tmp_path):
    texts = [f"text {number} " * 20 for number in range(200)]
    about = pa.array([{"a": 1, "b": 2, "c": 3}] * len(texts))
    counts = []
    for name, columns in {"flat": {}, "nested": {"about": about}}.items():
        pq.write_table(pa.table({**columns, "text": texts}), tmp_path / f"{name}.parquet", use_dictionary=False)
        counts.append(len(plan([tmp_path / f"{name}.parquet"], 4_000)))
    assert counts[0] == counts[1] > 5


@pytest.mark.parametrize("row_group_size", [4, 1000])
def test_rows_of_parquet_are_lines(row_group_size, tmp_path):
    texts = [*TEXTS, None]
    pq.write_table(pa.table({"id": range(len(texts)), "body": texts}), tmp_path / "a.parquet", row_group_size)
    chunks = plan([tmp_path / "a.parquet"] * 2, 60, column="body")
    lines = read(chunks, column="body")
    assert [line.text() for line in lines] == [text or "" for text in texts] * 2
    assert [line.number for line in lines] == list(range(2 * len(texts)))
    assert len(chunks) > 4
    in_one_pass = [line for _, lines in read_chunks(chunks[2:], column="body", splits=False) for line in lines]
    assert in_one_pass == [line for line in lines if line.number >= chunks[2].first_line]


def test_what_cannot_be_a_corpus_is_refused(tmp_path):
    pq.write_table(pa.table({"text": [1], "texts": ["a"]}), tmp_path / "numbers.parquet")
    (tmp_path / "text.txt").write_text("a\n")
    (tmp_path / "false.parquet").write_text("no table")
    cases = {
        "standard input cannot be divided": lambda: find_inputs(["-"]),
        "found none": lambda: find_inputs([tmp_path / "empty"]),
        "found both": lambda: find_inputs([tmp_path]),
        "found int64": lambda: plan([tmp_path / "numbers.parquet"], 9),
        "did you mean text": lambda: plan([tmp_path / "numbers.parquet"], 9, column="txt"),
        "cannot be read as Parquet": lambda: plan([tmp_path / "false.parquet"], 9),
    }
    (tmp_path / "empty").mkdir()
    for message, call in cases.items():
        with pytest.raises(InputError, match=message):
            call()


def test_folders_are_read_in_order_without_hidden_files(tmp_path):
    for name in ("b.txt", "a/c.txt", ".hidden", "_facts.json", "a/_more/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n")
    assert [Path(file).name for file in find_inputs([tmp_path])] == ["c.txt", "b.txt"]


def test_a_file_that_shrank_since_is_an_error(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("one\ntwo\nthree\n")
    chunks = plan([file], 1)
    file.write_text("one\n")
    with pytest.raises(InputError, match="become shorter"):
        read(chunks)


def test_a_plan_comes_back_and_a_damaged_one_is_told(tmp_path):
    (tmp_path / "text.txt").write_text("one\ntwo\n")
    chunks = plan([tmp_path / "text.txt"], 1)
    write_plan(tmp_path / "plan.parquet", chunks)
    assert read_plan(tmp_path / "plan.parquet") == chunks
    (tmp_path / "plan.parquet").write_bytes(b"PAR1")
    with pytest.raises(CheckpointError, match="damaged"):
        read_plan(tmp_path / "plan.parquet")
