"""Plain numpy: one memory-mappable array of all word vectors, and where each row starts.

`out.npy` is (words, dim), or (words, layers, dim) with all layers; `out.offsets.npy` is int64 (rows + 1): row r has the
words `offsets[r]` to `offsets[r + 1]`. When lines are split, `out.lines.npy` int64 (rows) has the line of each row,
from 0.

    vectors, offsets = np.load("out.npy", mmap_mode="r"), np.load("out.offsets.npy")
    row = vectors[offsets[7] : offsets[8]]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmokit.embed.parts import Part
from elmokit.embed.sinks.contents import Contents

__all__ = ["npy_files", "write_npy"]


def npy_files(name: str, *, split: bool) -> list[str]:
    """Names of the files that belong to `name`, which comes last.

    Example:
        >>> npy_files("out.npy", split=False)
        ['out.offsets.npy', 'out.npy']
    """
    stem = name.removesuffix(".npy")
    companions = ("offsets", "lines") if split else ("offsets",)
    return [*(f"{stem}.{companion}.npy" for companion in companions), name]


def write_npy(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    """Write `name` and its companions into the folder."""
    num_words = sum(part.header["num_words"] for part in parts)
    num_rows = sum(part.header["num_rows"] for part in parts)
    offsets = np.zeros(num_rows + 1, np.int64)
    lines = np.zeros(num_rows, np.int64)
    row = 0
    with (folder / name).open("wb") as file:
        header = {
            "descr": np.dtype(contents.dtype).newbyteorder("<").str,
            "fortran_order": False,
            "shape": (num_words, *contents.word_shape),
        }
        np.lib.format.write_array_header_2_0(file, header)
        for part in parts:
            file.write(part.array("vectors").reshape(-1).view(np.uint8).data)
            rows = part.header["num_rows"]
            offsets[row + 1 : row + rows + 1] = offsets[row] + part.array("offsets")[1:]
            lines[row : row + rows] = part.array("lines")
            row += rows
    files = npy_files(name, split=contents.split)
    np.save(folder / files[0], offsets)
    if contents.split:
        np.save(folder / files[1], lines)
