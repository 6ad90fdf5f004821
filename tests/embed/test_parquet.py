"""Our Parquet is what Arrow's own reader understands, row by row and bit by bit."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.embed import parquet as parquet_module
from elmokit.embed.parquet import MAGIC, RowGroup, encode_rows, make_footer
from elmokit.embed.sinks import Contents, EmbeddedRows, write_parquet

VOCABULARY = ["the", "", "née", "北京", "a\0b", "😀", *(f"w{number}" for number in range(40))]


def schema_of(dim, dtype, columns):
    number = pa.float16() if dtype == "float16" else pa.float32()
    fields = [("line", pa.int64()), ("words", pa.list_(pa.string()))]
    return pa.schema([*fields, *((name, pa.list_(pa.list_(number, dim))) for name in columns)], metadata={"a": "b"})


def write_file(groups, dim, dtype, columns, seed=0):
    """A file of row groups with rows of these lengths, and the rows that should be in it."""
    draw = np.random.default_rng(seed)
    file, described, expected, line = io.BytesIO(), [], [], 7
    file.write(MAGIC)
    for lengths in groups:
        lengths_R, lines_R = np.array(lengths), np.arange(line, line + len(lengths))
        numbers_N = draw.integers(0, len(VOCABULARY), lengths_R.sum()).astype(np.int32)
        vectors = [draw.standard_normal((len(numbers_N), dim)).astype(dtype) for _ in columns]
        words = VOCABULARY if len(numbers_N) else []
        pieces, chunks = encode_rows(lines_R, lengths_R, words, numbers_N, vectors)
        described.append(RowGroup(file.tell(), len(lengths), line, line + len(lengths) - 1, chunks))
        file.writelines(pieces)
        line += len(lengths)
        ends = lengths_R.cumsum().tolist()
        for number, begin, end in zip(lines_R.tolist(), [0, *ends], ends, strict=False):
            row = {"line": number, "words": [VOCABULARY[word] for word in numbers_N[begin:end]]}
            expected.append(
                row | {name: values[begin:end].tolist() for name, values in zip(columns, vectors, strict=True)}
            )
    file.write(make_footer(schema_of(dim, dtype, columns), described))
    return pa.py_buffer(file.getvalue()), expected


def check(groups, dim, dtype, columns):
    data, expected = write_file(groups, dim, dtype, columns)
    table = pq.read_table(data)
    table.validate(full=True)
    assert table.schema.equals(schema_of(dim, dtype, columns)) and table.schema.metadata == {b"a": b"b"}
    assert table.to_pylist() == expected
    return pq.ParquetFile(data)


@settings(deadline=None, max_examples=60)
@given(
    groups=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), max_size=3),
    dim=st.sampled_from([1, 2, 12, 64, 65]),
    dtype=st.sampled_from(["float16", "float32"]),
    num_layers=st.integers(1, 3),
    page_bytes=st.sampled_from([1, 100, 1000, 1 << 22]),
)
def test_any_rows_come_back(groups, dim, dtype, num_layers, page_bytes):
    columns = ["vectors"] if num_layers == 1 else [f"layer_{number}" for number in range(num_layers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_module, "PAGE_BYTES", page_bytes)  # of which the least cut rows
        check(groups, dim, dtype, columns)


@pytest.mark.parametrize("count", [16, 300])
def test_many_row_groups(count):
    file = check([[1]] * count, 2, "float16", ["vectors"])
    assert file.num_row_groups == count


def test_readers_can_skip_row_groups_by_their_lines():
    file = check([[1, 2], [0], [3, 0, 1]], 2, "float32", ["vectors"])
    statistics = [file.metadata.row_group(number).column(0).statistics for number in range(3)]
    assert [(each.min, each.max, each.null_count) for each in statistics] == [(7, 8, 0), (9, 9, 0), (10, 12, 0)]


def test_vectors_are_not_copied():
    vectors = np.zeros((1000, 64), np.float16)
    pieces, _ = encode_rows(np.arange(10), np.full(10, 100), ["a"], np.zeros(1000, np.int32), [vectors])
    assert any(isinstance(piece, memoryview) and np.shares_memory(np.asarray(piece), vectors) for piece in pieces)
    others = sum(len(piece) for piece in pieces if not isinstance(piece, memoryview))
    assert others < 0.06 * vectors.nbytes


@pytest.mark.parametrize("num_layers", [None, 2])
def test_a_whole_file_at_once(tmp_path, num_layers):
    contents = Contents(4, "float32", num_layers, metadata={"layers": "x"})
    vectors = np.arange(3 * np.prod(contents.word_shape), dtype=np.float32).reshape(3, *contents.word_shape)
    rows = EmbeddedRows(np.array([4, 5]), np.array([1, 2]), ["a", "b"], np.array([0, 1, 0], np.int32), vectors)
    nothing = EmbeddedRows(np.zeros(0, int), np.zeros(0, int), [], np.zeros(0, np.int32), vectors[:0])
    write_parquet(tmp_path / "out.parquet", [rows, nothing, rows], contents)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("line").to_pylist() == [4, 5, 4, 5]
    assert table.column("words").to_pylist() == [["a"], ["b", "a"]] * 2
    first = vectors if num_layers is None else vectors[:, 0]
    assert table.column(2).to_pylist()[:2] == [first[:1].tolist(), first[1:].tolist()]
    assert table.schema.metadata[b"elmokit.layers"] == b"x"
