"""Parquet: `line: int64`, `words: list<string>`, `vectors: list<fixed_size_list<float16 or float32>>`.

With all layers, one such column a layer: `layer_0` (the word without its sentence), `layer_1`, … Lines count from 0;
when lines are split, several rows have the same line. One row group a part, so that a reader can take a piece at a time
and writing holds one. What made the file stands in the schema's metadata under `elmokit.…`; there is no time stamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.embed.parts import Part
from elmokit.embed.sinks.contents import Contents

__all__ = ["write_parquet"]

WORDS_PATH = "words.list.element"
ROWS_A_PIECE = 64


def write_parquet(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    """Write `name` into the folder."""
    schema = _schema(contents)
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
            writer.write_table(_table(part, schema, contents))


def _schema(contents: Contents) -> pa.Schema:
    number = pa.float16() if contents.dtype == "float16" else pa.float32()
    vectors = pa.list_(pa.list_(number, contents.dim))
    fields = [("line", pa.int64()), ("words", pa.list_(pa.string()))]
    fields += [(column, vectors) for column in contents.columns]
    return pa.schema(fields, metadata={f"elmokit.{key}": value for key, value in contents.metadata.items()})


def _table(part: Part, schema: pa.Schema, contents: Contents) -> pa.Table:
    offsets = pa.array(part.array("offsets").astype(np.int32))
    words = pa.LargeStringArray.from_buffers(
        len(part.array("words.offsets")) - 1,
        pa.py_buffer(part.array("words.offsets")),
        pa.py_buffer(part.array("words.data")),
    ).cast(pa.string())
    columns = [pa.array(part.array("lines")), pa.ListArray.from_arrays(offsets, words)]
    for number in range(len(contents.columns)):
        vectors_WD = contents.column(part.array("vectors"), number)
        flat = pa.array(np.ascontiguousarray(vectors_WD).reshape(-1))
        columns.append(pa.ListArray.from_arrays(offsets, pa.FixedSizeListArray.from_arrays(flat, contents.dim)))
    return pa.table([_in_pieces(column) for column in columns], schema=schema)


def _in_pieces(column: pa.Array) -> pa.ChunkedArray:
    """The same rows; the writer computes where lists begin for one piece at a time, which takes twice its vectors."""
    starts = range(0, max(1, len(column)), ROWS_A_PIECE)
    return pa.chunked_array([column.slice(start, ROWS_A_PIECE) for start in starts], type=column.type)
