"""The files that a job can make: finished parts in, one complete output out.

    parquet   `line`, `words` and `vectors` of each row; one row group per part
    hdf5      AllenNLP's layout: one dataset per row, and `sentence_to_index`; words are attributes
    npy       all word vectors in one array, and beside it where each row starts and its words
    jsonl     one JSON object per row

A sink is a function: it writes its files under their final names into an empty folder, holding one part at a time, and
the same parts always give the same bytes. Putting the files in place is the job's work. A format is chosen by name
or by the suffix of the output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.embed.parts import Part
from elmokit.errors import InputError
from elmokit.io.hdf5 import new_hdf5

__all__ = ["FORMATS", "Contents", "Format", "find_format", "format_json_row"]


@dataclass(frozen=True)
class Contents:
    """What an output holds, the same for every row.

    Arguments:
        dim: width of a vector.
        dtype: `"float16"` or `"float32"`.
        num_layers: layers of each word, `None` when each word has one vector (everything but `layers="all"`).
        split: whether a row is a sentence of a line and not a whole line.
        metadata: what made it, as plain strings.
    """

    dim: int
    dtype: str
    num_layers: int | None = None
    split: bool = False
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the vectors of a row where each layer has its own: `vectors`, or `layer_0`, `layer_1` and so on."""
        return ["vectors"] if self.num_layers is None else [f"layer_{number}" for number in range(self.num_layers)]

    @property
    def word_shape(self) -> tuple[int, ...]:
        """Shape of what one word has: (dim,) or (layers, dim)."""
        return (self.dim,) if self.num_layers is None else (self.num_layers, self.dim)

    def split_columns(self, vectors: np.ndarray) -> list[np.ndarray]:
        """The vectors (words, dim) of each column."""
        return [vectors] if self.num_layers is None else [vectors[:, number] for number in range(self.num_layers)]


@dataclass(frozen=True)
class Format:
    """One kind of output.

    Arguments:
        name: how `format=` calls it.
        suffixes: the endings that mean it.
        dtype: how vectors are stored unless told.
        write: parts, folder, name and contents in; the files of the output lie in the folder afterwards.
        companions: names of files beside the output, given its name; they appear before it.
    """

    name: str
    suffixes: tuple[str, ...]
    dtype: str
    write: Callable[[Sequence[Part], Path, str, Contents], None]
    companions: Callable[..., list[str]] = lambda name, split: []

    def files(self, name: str, *, split: bool) -> list[str]:
        """The names of all files of an output; the one that was asked for comes last, and so appears last."""
        return [*self.companions(name, split), name]


def find_format(output: Path, name: str | None) -> Format:
    """The format of that name or, without one, of the output's suffix.

    Example:
        >>> find_format(Path("out.h5"), None).name
        'hdf5'
    """
    if name is not None:
        if name not in FORMATS:
            raise InputError(f"asked for format={name!r}: use one of {', '.join(map(repr, FORMATS))}")
        return FORMATS[name]
    for format in FORMATS.values():
        if output.suffix.lower() in format.suffixes:
            return format
    known = ", ".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
    raise InputError(f"cannot tell the format of {output} from its suffix: use one of {known}, or say format=")


# Parquet: `line: int64`, `words: list<string>`, `vectors: list<fixed_size_list<float16 or float32>>`. With all layers,
# one such column per layer: `layer_0` (the word without its sentence), `layer_1`, … Lines count from 0; when lines are
# split, several rows have the same line. One row group per part, so that a reader can take a piece at a time and
# writing holds one. What made the file stands in the schema's metadata under `elmokit.…`; there is no time stamp.

WORDS_PATH = "words.list.element"
ROWS_PER_PIECE = 64


def _write_parquet(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    number = pa.float16() if contents.dtype == "float16" else pa.float32()
    fields = [("line", pa.int64()), ("words", pa.list_(pa.string()))]
    fields += [(column, pa.list_(pa.list_(number, contents.dim))) for column in contents.columns]
    schema = pa.schema(fields, metadata={f"elmokit.{key}": value for key, value in contents.metadata.items()})
    paths = ["line", WORDS_PATH, *(f"{column}.list.element.list.element" for column in contents.columns)]
    with pq.ParquetWriter(
        folder / name,
        schema,
        # Vectors do not shrink, and dictionaries or minima of them help nobody.
        compression={path: "zstd" if path in ("line", WORDS_PATH) else "none" for path in paths},  # type: ignore[arg-type]
        use_dictionary=[WORDS_PATH],  # type: ignore[arg-type]
        write_statistics=["line"],  # type: ignore[arg-type]
    ) as writer:
        for part in parts:
            writer.write_table(_make_table(part, schema, contents))


def _make_table(part: Part, schema: pa.Schema, contents: Contents) -> pa.Table:
    offsets = pa.array(part.array("offsets").astype(np.int32))
    words = pa.LargeStringArray.from_buffers(
        len(part.array("words.offsets")) - 1,
        pa.py_buffer(part.array("words.offsets")),
        pa.py_buffer(part.array("words.data")),
    ).cast(pa.string())
    columns = [pa.array(part.array("lines")), pa.ListArray.from_arrays(offsets, words)]
    for vectors_WD in contents.split_columns(part.array("vectors")):
        flat = pa.array(np.ascontiguousarray(vectors_WD).reshape(-1))
        columns.append(pa.ListArray.from_arrays(offsets, pa.FixedSizeListArray.from_arrays(flat, contents.dim)))
    return pa.table([_cut_in_pieces(column) for column in columns], schema=schema)


def _cut_in_pieces(column: pa.Array) -> pa.ChunkedArray:
    """The same rows; the writer computes where lists begin for one piece at a time, which takes twice its vectors."""
    starts = range(0, max(1, len(column)), ROWS_PER_PIECE)
    return pa.chunked_array([column.slice(start, ROWS_PER_PIECE) for start in starts], type=column.type)


# HDF5, as `allennlp elmo in.txt out.hdf5` wrote it, for the tools that read it. One dataset per row, named by the row's
# number from 0: (words, dim), or (layers, words, dim) with all layers; a blank line has no words and keeps its place.
# The attribute `words` of a dataset is a JSON list of the words of its row, in the order of the vectors.
# `sentence_to_index` is one string of JSON from the text of a row to its number (as a string; of equal texts the last
# wins): the one thing here that grows with the input, as the layout demands. When lines are split a row is a sentence,
# and the attribute `line` of its dataset says which line it is from. What made the file stands in the attributes of the
# root. Times are not tracked, so equal input gives equal bytes.


def _write_hdf5(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    with new_hdf5(folder / name) as (file, check):
        for key, value in contents.metadata.items():
            file.attrs[f"elmokit.{key}"] = value
        index: dict[str, str] = {}
        row = 0
        for part in parts:
            for line, text, words, vectors in part.rows():
                values = vectors if contents.num_layers is None else np.ascontiguousarray(vectors.swapaxes(0, 1))
                dataset = file.create_dataset(str(row), data=values, track_times=False)
                dataset.attrs["words"] = _format_words(words)
                if contents.split:
                    dataset.attrs["line"] = line
                index[text] = str(row)
                row += 1
                check()
        strings = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype(), track_times=False)
        # HDF5 ends a string at a NUL; JSON writes one as \u0000, so the text survives.
        strings[0] = json.dumps(index)


# Plain numpy, to be mapped into memory. `out.npy` is (words, dim), or (words, layers, dim) with all layers;
# `out.offsets.npy` is int64 (rows + 1): row r has the words `offsets[r]` to `offsets[r + 1]`; line r of
# `out.words.jsonl` is the JSON list of them. When lines are split, `out.lines.npy` int64 (rows) has the line of each
# row, from 0.
#
#     vectors, offsets = np.load("out.npy", mmap_mode="r"), np.load("out.offsets.npy")
#     row = vectors[offsets[7] : offsets[8]]


def _name_npy_companions(name: str, split: bool) -> list[str]:
    stem = name.removesuffix(".npy")
    return [f"{stem}.words.jsonl", f"{stem}.offsets.npy", *([f"{stem}.lines.npy"] if split else [])]


def _write_npy(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    num_words = sum(part.header["num_words"] for part in parts)
    num_rows = sum(part.header["num_rows"] for part in parts)
    offsets = np.zeros(num_rows + 1, np.int64)
    lines = np.zeros(num_rows, np.int64)
    row = 0
    words_name, *array_names = _name_npy_companions(name, contents.split)
    with (
        (folder / name).open("wb") as file,
        (folder / words_name).open("w", encoding="utf-8", newline="\n") as words_file,
    ):
        header = {
            "descr": np.dtype(contents.dtype).newbyteorder("<").str,
            "fortran_order": False,
            "shape": (num_words, *contents.word_shape),
        }
        np.lib.format.write_array_header_2_0(file, header)
        for part in parts:
            file.write(part.array("vectors").reshape(-1).view(np.uint8).data)
            words_file.writelines(f"{_format_words(words)}\n" for _, _, words, _ in part.rows())
            rows = part.header["num_rows"]
            offsets[row + 1 : row + rows + 1] = offsets[row] + part.array("offsets")[1:]
            lines[row : row + rows] = part.array("lines")
            row += rows
    for array_name, array in zip(array_names, (offsets, lines), strict=False):
        np.save(folder / array_name, array)


# JSON lines: `{"line": 0, "words": ["The", …], "vectors": [[0.12, …], …]}` in UTF-8. With all layers, `layer_0`,
# `layer_1`, … stand in the place of `vectors`. Numbers have as many digits as it takes to get the stored float16 or
# float32 back exactly. For looking at and for languages without a Parquet reader: it is many times larger than the
# other formats.

DIGITS = {"float16": 5, "float32": 9}


def _write_jsonl(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    with (folder / name).open("w", encoding="utf-8", newline="\n") as file:
        for part in parts:
            file.writelines(format_json_row(line, words, vectors, contents) for line, _, words, vectors in part.rows())


def format_json_row(line: int, words: list[str], vectors: np.ndarray, contents: Contents) -> str:
    """One row, with the end of its line."""
    pattern = "[" + ",".join([f"%.{DIGITS[contents.dtype]}g"] * contents.dim) + "]"
    columns = ", ".join(
        f'"{column}": [{",".join(_format_vectors(vectors_WD, pattern))}]'
        for column, vectors_WD in zip(contents.columns, contents.split_columns(vectors), strict=True)
    )
    return f'{{"line": {line}, "words": {_format_words(words)}, {columns}}}\n'


def _format_words(words: list[str]) -> str:
    return json.dumps(words, ensure_ascii=False)


def _format_vectors(vectors_WD: np.ndarray, pattern: str) -> list[str]:
    if np.isfinite(vectors_WD).all():
        return [pattern % tuple(vector_D) for vector_D in vectors_WD.tolist()]
    # JSON has no word for NaN or infinity.
    rows = [[value if np.isfinite(value) else None for value in vector_D] for vector_D in vectors_WD.tolist()]
    return [json.dumps(row) for row in rows]


FORMATS = {
    format.name: format
    for format in (
        Format("parquet", (".parquet",), "float16", _write_parquet),
        Format("hdf5", (".hdf5", ".h5"), "float32", _write_hdf5),
        Format("npy", (".npy",), "float16", _write_npy, _name_npy_companions),
        Format("jsonl", (".jsonl",), "float16", _write_jsonl),
    )
}
