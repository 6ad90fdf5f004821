"""The files that a job can make: finished parts in, one complete output out.

    parquet   line, words and vectors of each row; one row group a part        parquet.py
    hdf5      AllenNLP's layout: one dataset a row, and `sentence_to_index`    hdf5.py
    npy       all word vectors in one array, and where each row starts         npy.py
    jsonl     one JSON object a row                                            jsonl.py

A sink is a function: it writes its files under their final names into an empty folder, holding one part at a time, and
the same parts always give the same bytes. Putting the files in place is the job's work. A format is chosen by name
or by the suffix of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.embed.parts import Part
from elmokit.embed.sinks.contents import Contents
from elmokit.embed.sinks.hdf5 import write_hdf5
from elmokit.embed.sinks.jsonl import write_jsonl
from elmokit.embed.sinks.npy import npy_files, write_npy
from elmokit.embed.sinks.parquet import write_parquet
from elmokit.errors import InputError

__all__ = ["FORMATS", "Contents", "Format", "format_of"]


def _one_file(name: str, *, split: bool) -> list[str]:
    return [name]


@dataclass(frozen=True)
class Format:
    """One kind of output.

    Arguments:
        name: how `format=` calls it.
        suffixes: the endings that mean it.
        dtype: how vectors are stored unless told.
        write: parts, folder, name and contents in; the files of the output lie in the folder afterwards.
        files: the names of those files; the one that was asked for comes last, and so appears last.
    """

    name: str
    suffixes: tuple[str, ...]
    dtype: str
    write: Callable[[Sequence[Part], Path, str, Contents], None]
    files: Callable[..., list[str]] = _one_file


FORMATS = {
    format.name: format
    for format in (
        Format("parquet", (".parquet",), "float16", write_parquet),
        Format("hdf5", (".hdf5", ".h5"), "float32", write_hdf5),
        Format("npy", (".npy",), "float16", write_npy, npy_files),
        Format("jsonl", (".jsonl",), "float16", write_jsonl),
    )
}


def format_of(output: Path, name: str | None) -> Format:
    """The format of that name or, without one, of the output's suffix.

    Example:
        >>> format_of(Path("out.h5"), None).name
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
