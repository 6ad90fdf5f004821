"""The files that a job can make: finished parts in, one complete output out.

    parquet   `line`, `words` and `vectors` of each row; one row group per part (`parquet.py`)
    hdf5      AllenNLP's layout: one dataset per row, and `sentence_to_index`; words are attributes
    npy       all word vectors in one array, and beside it where each row starts and its words
    jsonl     one JSON object per row

Parquet grows: the rows of each segment become bytes that are appended to the file at once, and at the end only a footer
is missing. Others keep the arrays of each segment in its part and are assembled from them: a function writes their
files under their final names into an empty folder, holding one part at a time. Either way the same segments give the
same bytes. Putting the files in place is the job's work. A format is chosen by name or by the suffix of the output.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pyarrow as pa

from elmokit.embed.parquet import MAGIC, Chunk, RowGroup, encode_rows, make_footer
from elmokit.embed.parts import EncodedRows, Part, PartialFolder, pack_strings
from elmokit.embed.segments import Segment
from elmokit.errors import InputError
from elmokit.io.hdf5 import new_hdf5

__all__ = [
    "FORMATS",
    "Contents",
    "EmbeddedRows",
    "EncodedPart",
    "Format",
    "find_format",
    "format_json_row",
    "write_parquet",
]


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


EncodedPart = tuple[dict[str, np.ndarray], EncodedRows | None]  # arrays of a part, and bytes for a file that grows


def encode_arrays(segment: Segment, vectors: np.ndarray, contents: Contents) -> EncodedPart:
    """The arrays of a part from which an output is assembled."""
    texts = {} if segment.texts is None else pack_strings("texts", segment.texts)
    words = pack_strings("words", [segment.words[number] for number in segment.numbers_N.tolist()])
    return {"lines": segment.lines_R, "offsets": segment.offsets, **texts, **words, "vectors": vectors}, None


@dataclass(frozen=True)
class Format:
    """One kind of output.

    Arguments:
        name: how `format=` calls it.
        suffixes: the endings that mean it.
        dtype: how vectors are stored unless told.
        encode: a segment, its vectors and contents in; what its part holds out. Several threads may call it.
        assemble: parts, folder, name and contents in; the files of the output lie in the folder afterwards.
        beginning: with which a file that grows begins.
        end: parts and contents in, the bytes that end a file that grows out.
        companions: names of files beside the output, given its name; they appear before it.
        keeps_texts: whether the text of each row is needed.
    """

    name: str
    suffixes: tuple[str, ...]
    dtype: str
    encode: Callable[[Segment, np.ndarray, Contents], EncodedPart] = encode_arrays
    assemble: Callable[[Sequence[Part], Path, str, Contents], None] | None = None
    beginning: bytes | None = None
    end: Callable[[Sequence[Part], Contents], bytes] | None = None
    companions: Callable[..., list[str]] = lambda name, split: []
    keeps_texts: bool = False

    def complete(self, parts: Sequence[Part], folder: PartialFolder, contents: Contents) -> None:
        """Make the files of the output from all its parts."""
        if self.end is not None:
            folder.end_growing(self.end(parts, contents))
        else:
            assert self.assemble is not None, "a format is assembled or grows"
            self.assemble(parts, folder.assembly(), folder.output.name, contents)

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
# split, several rows have the same line. One row group per part, so that a reader can take a piece at a time. What made
# the file stands in the schema's metadata under `elmokit.…`; there is no time stamp.


def _encode_parquet(segment: Segment, vectors: np.ndarray, contents: Contents) -> EncodedPart:
    columns = contents.split_columns(vectors)
    pieces, chunks = encode_rows(segment.lines_R, segment.lengths_R, segment.words, segment.numbers_N, columns)
    borders = np.array([segment.lines_R.min(), segment.lines_R.max()], np.int64)
    checksum = reduce(lambda before, piece: zlib.crc32(piece, before), pieces, 0)
    return {"chunks": np.array(chunks, np.int64), "borders": borders}, EncodedRows(pieces, checksum)


def _make_parquet_end(parts: Sequence[Part], contents: Contents) -> bytes:
    return make_footer(_make_schema(contents), [_describe_part(part) for part in parts])


def write_parquet(path: Path, groups: Iterable[EmbeddedRows], contents: Contents) -> None:
    """A whole file at once, by the same rules: for who has no job that must be resumed in the middle of it.

    Arguments:
        path: of the new file.
        groups: the rows of each row group.
        contents: of the file.
    """
    described, place = [], len(MAGIC)
    with path.open("wb") as file:
        file.write(MAGIC)
        for rows in groups:
            if not len(rows.lines_R):
                continue
            columns = contents.split_columns(rows.vectors)
            pieces, chunks = encode_rows(rows.lines_R, rows.lengths_R, rows.words, rows.numbers_N, columns)
            file.writelines(pieces)
            borders = int(rows.lines_R.min()), int(rows.lines_R.max())
            described.append(RowGroup(place, len(rows.lines_R), *borders, chunks))
            place += sum(map(len, pieces))
        file.write(make_footer(_make_schema(contents), described))


class EmbeddedRows(NamedTuple):
    """Rows and their vectors.

    Arguments:
        lines_R: the line of each row.
        lengths_R: its words.
        words: the distinct words.
        numbers_N: which of them stands at each place, row after row.
        vectors: (words, dim) or (words, layers, dim).
    """

    lines_R: np.ndarray
    lengths_R: np.ndarray
    words: Sequence[str]
    numbers_N: np.ndarray
    vectors: np.ndarray


def _make_schema(contents: Contents) -> pa.Schema:
    number = pa.float16() if contents.dtype == "float16" else pa.float32()
    fields = [("line", pa.int64()), ("words", pa.list_(pa.string()))]
    fields += [(column, pa.list_(pa.list_(number, contents.dim))) for column in contents.columns]
    return pa.schema(fields, metadata={f"elmokit.{key}": value for key, value in contents.metadata.items()})


def _describe_part(part: Part) -> RowGroup:
    chunks = [Chunk(*numbers) for numbers in part.array("chunks").tolist()]
    first, last = part.array("borders").tolist()
    return RowGroup(int(part.array("extent")[0]), part.header["num_rows"], first, last, chunks)


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
            for (line, words, vectors), text in zip(part.rows(), part.strings("texts"), strict=True):
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
            words_file.writelines(f"{_format_words(words)}\n" for _, words, _ in part.rows())
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
            file.writelines(format_json_row(line, words, vectors, contents) for line, words, vectors in part.rows())


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
        Format("parquet", (".parquet",), "float16", _encode_parquet, beginning=MAGIC, end=_make_parquet_end),
        Format("hdf5", (".hdf5", ".h5"), "float32", assemble=_write_hdf5, keeps_texts=True),
        Format("npy", (".npy",), "float16", assemble=_write_npy, companions=_name_npy_companions),
        Format("jsonl", (".jsonl",), "float16", assemble=_write_jsonl),
    )
}
