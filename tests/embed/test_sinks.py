import json
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit.embed.embedder import Embedder
from elmokit.embed.files import embed_files
from elmokit.embed.sinks import FORMATS, find_format
from elmokit.errors import InputError
from elmokit.model import Elmo

TEXT = "The bank of the river.\n\nShe said “no”. He left!\nx\nThe bank of the river.\n"
SUFFIXES = {"parquet": ".parquet", "hdf5": ".hdf5", "npy": ".npy", "jsonl": ".jsonl"}


@pytest.fixture
def embedder(elmo):
    return Embedder(elmo)


def make(tmp_path, embedder, suffix, **options):
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    options = {"segment_words": 6, **options}
    report = embed_files(tmp_path / "in.txt", tmp_path / f"out{suffix}", embedder=embedder, **options)
    assert report.num_segments > 1
    return tmp_path / f"out{suffix}"


def read_parquet(path, num_layers):
    table = pq.read_table(path).to_pydict()
    columns = ["vectors"] if num_layers is None else [f"layer_{n}" for n in range(num_layers)]
    dim = 12
    arrays = [
        np.stack([np.array(table[c][row], np.float32).reshape(-1, dim) for c in columns])
        for row in range(len(table["line"]))
    ]
    return table["line"], table["words"], arrays if num_layers else [array[0] for array in arrays]


def read_jsonl(path, num_layers):
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    columns = ["vectors"] if num_layers is None else [f"layer_{n}" for n in range(num_layers)]
    arrays = [np.stack([np.array(row[c], np.float32).reshape(-1, 12) for c in columns]) for row in rows]
    return [r["line"] for r in rows], [r["words"] for r in rows], arrays if num_layers else [a[0] for a in arrays]


def read_hdf5(path, num_layers):
    with h5py.File(path) as file:
        arrays = [file[str(row)][...].astype(np.float32) for row in range(len(file) - 1)]
        lines = [int(file[str(row)].attrs.get("line", row)) for row in range(len(arrays))]
        words = [json.loads(file[str(row)].attrs["words"]) for row in range(len(arrays))]
    return lines, words, arrays


def read_npy(path, num_layers):
    vectors, offsets = np.load(path, mmap_mode="r"), np.load(path.with_name("out.offsets.npy"))
    assert isinstance(vectors, np.memmap)
    rows = [np.asarray(vectors[a:b], np.float32) for a, b in zip(offsets, offsets[1:], strict=False)]
    lines = path.with_name("out.lines.npy")
    words = path.with_name("out.words.jsonl").read_text("utf-8").split("\n")[:-1]
    return (
        np.load(lines).tolist() if lines.exists() else list(range(len(rows))),
        [json.loads(row) for row in words],
        (rows if num_layers is None else [row.swapaxes(0, 1) for row in rows]),
    )


READERS = {"parquet": read_parquet, "hdf5": read_hdf5, "npy": read_npy, "jsonl": read_jsonl}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layers", ["average", "all", 1])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_back_what_the_embedder_says(tmp_path, embedder, name, layers, dtype, split):
    path = make(tmp_path, embedder, SUFFIXES[name], layers=layers, dtype=dtype, split=split)
    lines, words, arrays = READERS[name](path, 3 if layers == "all" else None)
    if split:
        texts = ["The bank of the river.", "", "She said “no”.", "He left!", "x", "The bank of the river."]
        assert lines == [0, 1, 2, 2, 3, 4]
    else:
        texts = TEXT.split("\n")[:-1]
        assert lines == [0, 1, 2, 3, 4]
    expected = embedder.embed(texts, layers=layers)
    assert len(arrays) == len(expected)
    for array, other in zip(arrays, expected, strict=True):
        assert array.shape == other.shape
        np.testing.assert_allclose(array, other.astype(dtype), atol=1e-5 if dtype == "float32" else 2e-3)
    assert [len(row) for row in words] == [array.shape[-2] for array in expected]
    assert words[0] == ["The", "bank", "of", "the", "river", "."]


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_stored_exactly(tmp_path, embedder, name):
    """The same job in two formats agrees to the last bit, JSON's decimal digits included."""
    arrays = READERS[name](make(tmp_path, embedder, SUFFIXES[name], dtype="float32"), None)[2]
    for array, other in zip(
        arrays, read_npy(make(tmp_path, embedder, ".npy", dtype="float32", overwrite=True), None)[2], strict=True
    ):
        assert np.array_equal(array, other)


def test_parquet_has_the_schema_of_the_design(tmp_path, embedder):
    path = make(tmp_path, embedder, ".parquet")
    schema = pq.read_schema(path)
    assert schema.field("line").type == pa.int64()
    assert schema.field("words").type.value_type == pa.string()
    assert schema.field("vectors").type.value_type == pa.list_(pa.float16(), 12)
    assert schema.names == ["line", "words", "vectors"]
    assert {b"elmokit.version", b"elmokit.model", b"elmokit.fingerprint", b"elmokit.layers"} <= set(schema.metadata)
    assert schema.metadata[b"elmokit.layers"] == b"average"
    assert pq.ParquetFile(path).num_row_groups == 3
    everything = pq.read_schema(make(tmp_path, embedder, ".parquet", layers="all", dtype="float32", overwrite=True))
    assert everything.names == ["line", "words", "layer_0", "layer_1", "layer_2"]
    assert everything.field("layer_2").type.value_type == pa.list_(pa.float32(), 12)


def test_hdf5_has_the_layout_of_allennlp(tmp_path, embedder):
    with h5py.File(make(tmp_path, embedder, ".hdf5", layers="all")) as file:
        assert sorted(file) == ["0", "1", "2", "3", "4", "sentence_to_index"]
        assert file["0"].shape == (3, 6, 12) and file["0"].dtype == np.float32
        assert file["1"].shape == (3, 0, 12)
        assert file["sentence_to_index"].shape == (1,)
        index = json.loads(file["sentence_to_index"][0])
    assert index == {"The bank of the river.": "4", "": "1", "She said “no”. He left!": "2", "x": "3"}


@pytest.mark.parametrize("name", FORMATS)
def test_odd_words_come_back(tmp_path, embedder, name):
    rows = [["a\0b", "\u2028", '"', "\\", "北京", "e\u0301", "😀"], ["x" * 50] * 5000]  # the second beyond 64 KB
    (tmp_path / "in.txt").write_text("\n".join(map(" ".join, rows)) + "\n", encoding="utf-8")
    output = tmp_path / f"out{SUFFIXES[name]}"
    embed_files(tmp_path / "in.txt", output, embedder=embedder, tokenised=True)
    assert READERS[name](output, None)[1] == rows


def test_defaults_of_the_formats():
    assert {name: format.dtype for name, format in FORMATS.items()} == {
        "parquet": "float16",
        "hdf5": "float32",
        "npy": "float16",
        "jsonl": "float16",
    }
    assert [find_format(Path(f"x{s}"), None).name for s in (".parquet", ".h5", ".HDF5", ".npy", ".jsonl")] == [
        "parquet",
        "hdf5",
        "hdf5",
        "npy",
        "jsonl",
    ]
    assert find_format(Path("x.bin"), "npy").name == "npy"
    with pytest.raises(InputError, match=r"\.parquet, \.hdf5, \.h5, \.npy, \.jsonl"):
        find_format(Path("x.bin"), None)
    with pytest.raises(InputError, match="'parquet', 'hdf5', 'npy', 'jsonl'"):
        find_format(Path("x.npy"), "csv")


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_input_gives_an_empty_output(tmp_path, embedder, name):
    (tmp_path / "in.txt").write_bytes(b"")
    output = tmp_path / f"out{SUFFIXES[name]}"
    report = embed_files(tmp_path / "in.txt", output, embedder=embedder)
    assert report.num_rows == 0
    assert READERS[name](output, None)[2] == []


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("layers", ["average", "all"])
def test_blank_lines_alone(tmp_path, embedder, name, layers):
    (tmp_path / "in.txt").write_bytes(b"\n\n\n")
    output = tmp_path / f"out{SUFFIXES[name]}"
    embed_files(tmp_path / "in.txt", output, embedder=embedder, layers=layers)
    arrays = READERS[name](output, 3 if layers == "all" else None)[2]
    assert [array.shape for array in arrays] == [(3, 0, 12) if layers == "all" else (0, 12)] * 3


def test_json_has_no_word_for_nan(tmp_path, config):
    elmo = Elmo.random(config)
    elmo.encoder.projection.bias.data.fill_(np.nan)
    (tmp_path / "in.txt").write_text("The bank of the river.")
    embed_files(tmp_path / "in.txt", tmp_path / "out.jsonl", embedder=Embedder(elmo))
    assert json.loads((tmp_path / "out.jsonl").read_text())["vectors"][0] == [None] * 12
