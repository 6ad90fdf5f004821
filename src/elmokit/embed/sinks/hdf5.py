"""AllenNLP's layout: what `allennlp elmo in.txt out.hdf5` wrote, for the tools that read it.

One dataset a row, named by the row's number from 0: (words, dim), or (layers, words, dim) with all layers; a blank line
has no words and keeps its place. `sentence_to_index` is one string of JSON from the text of a row to its number (as a
string; of equal texts the last wins). That string is the one thing here that grows with the input, as the layout
demands. When lines are split a row is a sentence, and the attribute `line` of its dataset says which line it is from.
What made the file stands in the attributes of the root. Times are not tracked, so equal input gives equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np

from elmokit.embed.parts import Part
from elmokit.embed.sinks.contents import Contents
from elmokit.io.new_hdf5 import new_hdf5

__all__ = ["write_hdf5"]


def write_hdf5(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    """Write `name` into the folder."""
    with new_hdf5(folder / name) as (file, check):
        _fill(file, parts, contents, check)


def _fill(file: h5py.File, parts: Sequence[Part], contents: Contents, check: Callable[[], None]) -> None:
    for key, value in contents.metadata.items():
        file.attrs[f"elmokit.{key}"] = value
    index: dict[str, str] = {}
    row = 0
    for part in parts:
        for line, text, _, vectors in part.rows():
            values = vectors if contents.num_layers is None else np.ascontiguousarray(vectors.swapaxes(0, 1))
            dataset = file.create_dataset(str(row), data=values, track_times=False)
            if contents.split:
                dataset.attrs["line"] = line
            index[text] = str(row)
            row += 1
            check()
    strings = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype(), track_times=False)
    # HDF5 ends a string at a NUL; JSON writes one as \u0000, so the text survives.
    strings[0] = json.dumps(index)
