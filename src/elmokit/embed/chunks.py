"""A corpus of many files cut into chunks that can be read in any order, by any process: the plan of a job on a cluster.

Arrives: names of text files (packed ones too), Parquet files with a column of text, or folders of either. Leaves: a
table with one `Chunk` per row, and the lines of a chunk when a worker asks for them. Chunks end after about a megabyte
of text, at the end of a line. So they follow from the files alone, and lines keep the numbers that they have when one
process reads everything in order.

Cutting reads the text once, without splitting it into words, to count lines; for Parquet the footer is enough. A chunk
of a plain file, or of a Parquet file, is found at once; a packed file is unpacked from its beginning. So a run of
chunks of one file is read in one pass, and a corpus in packed files should have many of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.errors import CheckpointError, InputError, suggest
from elmokit.text.files import (
    LONGEST_SENTENCE,
    PACKED_SUFFIXES,
    STANDARD_INPUT,
    Line,
    LineReader,
    find_files,
    open_text,
    split_lines,
)

__all__ = ["CHUNK_BYTES", "Chunk", "cut_file", "find_inputs", "join_plans", "read_chunks", "read_plan", "write_plan"]

CHUNK_BYTES = 1 << 20  # some 180,000 words: half a minute of a CPU core, and 90 MB of vectors of width 256 in float16
PARQUET = ".parquet"
ROWS_AT_ONCE = 1024  # of a Parquet file


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of one file.

    Arguments:
        file: its name.
        first_line: number of its first line over the whole input, from 0.
        num_lines: how many lines it has; a row of a Parquet file is a line.
        num_bytes: of text in it, about, for progress.
        before: lines of the same file before it.
        offset: bytes of a plain text file before it.
    """

    file: str
    first_line: int
    num_lines: int
    num_bytes: int
    before: int
    offset: int

    @property
    def is_packed(self) -> bool:
        """Whether the file must be unpacked from its beginning to find the chunk."""
        return Path(self.file).suffix.lower() in PACKED_SUFFIXES


def find_inputs(sources: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files of a corpus in order: those of a folder, and of the folders in it, are sorted by their paths.

    Names that begin with a dot or an underscore are left out in folders, as other readers of datasets do.
    """
    names = [os.fspath(source) for source in sources]
    if STANDARD_INPUT in names:
        raise InputError("standard input cannot be divided among workers: name files or folders")
    files = [file for name in names for file in (_list_folder(name) if os.path.isdir(name) else find_files([name]))]
    if not files:
        raise InputError("expected at least one file of text, found none: name a file or a folder")
    kinds = {Path(file).suffix.lower() == PARQUET for file in files}
    if len(kinds) > 1:
        raise InputError("expected text files or Parquet files, found both: embed them one after the other")
    return files


def cut_file(file: str, *, column: str, chunk_bytes: int, splits: bool) -> list[Chunk]:
    """The chunks of one file, numbered as if it were the whole input.

    Arguments:
        file: its name.
        column: of a Parquet file, that has the text.
        chunk_bytes: of text after which a chunk ends.
        splits: lines are split into sentences later, so a line may be longer than a sentence.
    """
    if Path(file).suffix.lower() == PARQUET:
        return list(_cut_parquet(file, column, chunk_bytes))
    return list(_cut_text(file, chunk_bytes, splits))


def join_plans(plans: Iterable[Sequence[Chunk]]) -> list[Chunk]:
    """The chunks of all files, numbered over the whole input; at least one, be it without lines."""
    joined, num_lines = [], 0
    for chunks in plans:
        joined += [replace(chunk, first_line=num_lines + chunk.before) for chunk in chunks]
        num_lines += sum(chunk.num_lines for chunk in chunks)
    # A file without lines has one chunk, so that a corpus without lines has one, too; elsewhere it is in the way.
    return [chunk for chunk in joined if chunk.num_lines] or joined[:1]


def write_plan(path: Path, chunks: Sequence[Chunk]) -> None:
    """Keep a plan as a Parquet file."""
    rows = [asdict(chunk) for chunk in chunks]
    pq.write_table(pa.table({each.name: [row[each.name] for row in rows] for each in fields(Chunk)}), path)


def read_plan(path: Path) -> list[Chunk]:
    """The chunks of a plan that was kept."""
    try:
        return [Chunk(**row) for row in pq.read_table(path).to_pylist()]
    except (OSError, pa.ArrowException, TypeError) as problem:
        raise CheckpointError(
            f"{path}: the plan of the job is damaged ({problem}); start again with --overwrite"
        ) from (problem)


def read_chunks(chunks: Sequence[Chunk], *, column: str, splits: bool) -> Iterator[tuple[Chunk, list[Line]]]:
    """Each of these chunks with its lines.

    Arguments:
        chunks: in the order of the plan; those of one file are read in one pass.
        column: of Parquet files, that has the text.
        splits: as for `cut_file`.
    """
    # A file may be named twice, one time after the other.
    for (file, _), run in groupby(chunks, key=lambda chunk: (chunk.file, chunk.first_line - chunk.before)):
        if Path(file).suffix.lower() == PARQUET:
            yield from _read_parquet(file, list(run), column, splits)
        else:
            yield from _read_text(file, list(run))


def _list_folder(folder: str) -> list[str]:
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    hidden = [path for path in paths if any(part[0] in "._" for part in path.relative_to(folder).parts)]
    return sorted(map(str, {*paths}.difference(hidden)))


def _cut_text(file: str, chunk_bytes: int, splits: bool) -> Iterator[Chunk]:
    reader = LineReader([file], longest=LONGEST_SENTENCE, cuts=splits)
    first, offset, num_bytes, number, end = 0, 0, 0, -1, 0
    for line in reader:
        if num_bytes >= chunk_bytes and line.number != number:  # the line before this one was a chunk's last
            yield Chunk(file, first, line.number - first, num_bytes, before=first, offset=offset)
            first, offset, num_bytes = line.number, end, 0
        num_bytes += len(line.raw) + 1
        number, end = line.number, reader.bytes_done
    yield Chunk(file, first, number + 1 - first, num_bytes, before=first, offset=offset)


def _read_text(file: str, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Line]]]:
    with open_text(file) as (data, _):
        skipped = 0
        if chunks[0].offset and not chunks[0].is_packed:
            # From the end of the line before, which becomes an empty line: the beginning of a file has its own rules.
            data.seek(chunks[0].offset - 1)
            skipped = chunks[0].before - 1
        pieces = split_lines(data, longest=LONGEST_SENTENCE)
        num_done = skipped
        for chunk in chunks:
            lines = []
            while num_done < chunk.before + chunk.num_lines:
                place, raw, is_cut = next(pieces, (0, b"", False))
                if not place:
                    raise _tell_change(file)
                number = skipped + place - 1
                if number >= chunk.before:
                    shift = chunk.first_line - chunk.before
                    lines.append(Line(shift + number, f"{file}:{number + 1}", raw))
                num_done = number + (not is_cut)
            yield chunk, lines


def _cut_parquet(file: str, column: str, chunk_bytes: int) -> Iterator[Chunk]:
    """Chunks of equally many rows, by the size of the column that the footer tells."""
    with _open_parquet(file, column) as data:
        num_rows = data.metadata.num_rows
        # The footer counts the columns inside of structures, too, so a column is found there by its name.
        names = [data.schema.column(place).path for place in range(len(data.schema))]
        place = names.index(column)
        groups = [data.metadata.row_group(number) for number in range(data.num_row_groups)]
        num_bytes = sum(group.column(place).total_uncompressed_size for group in groups)
    step = max(1, num_rows * chunk_bytes // max(1, num_bytes))
    for first in range(0, max(1, num_rows), step):
        rows = min(step, num_rows - first)
        yield Chunk(file, first, rows, num_bytes * rows // max(1, num_rows), before=first, offset=0)


def _read_parquet(file: str, chunks: Sequence[Chunk], column: str, splits: bool) -> Iterator[tuple[Chunk, list[Line]]]:
    with _open_parquet(file, column) as data:
        sizes = [data.metadata.row_group(number).num_rows for number in range(data.num_row_groups)]
        group, start = 0, 0
        while group < len(sizes) and start + sizes[group] <= chunks[0].before:
            start += sizes[group]
            group += 1
        batches = data.iter_batches(ROWS_AT_ONCE, row_groups=range(group, len(sizes)), columns=[column])
        texts = enumerate((text for batch in batches for text in batch.column(0).to_pylist()), start)
        for chunk in chunks:
            rows = islice(texts, chunk.before - start, chunk.before - start + chunk.num_lines)
            start = chunk.before + chunk.num_lines
            shift = chunk.first_line - chunk.before
            lines = [Line(shift + row, f"{file}:{row + 1}", (text or "").encode()) for row, text in rows]
            if len(lines) < chunk.num_lines:
                raise _tell_change(file)
            if not splits and (long := next((line for line in lines if len(line.raw) > LONGEST_SENTENCE), None)):
                raise InputError(
                    f"{long.place}: expected one sentence in a row, found a text of {len(long.raw):,} bytes: split it "
                    "into sentences, e.g. with --split"
                )
            yield chunk, lines


def _open_parquet(file: str, column: str) -> pq.ParquetFile:
    try:
        data = pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as problem:
        raise InputError(f"{file}: cannot be read as Parquet: {' '.join(str(problem).split()):.200}") from problem
    if column not in data.schema_arrow.names:
        known = ", ".join(map(repr, data.schema_arrow.names))
        raise InputError(
            f"{file}: expected a column {column!r} of text, found {known}: say --column"
            f"{suggest(column, data.schema_arrow.names)}"
        )
    kind = data.schema_arrow.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"{file}: expected text in the column {column!r}, found {kind}: choose another with --column")
    return data


def _tell_change(file: str) -> InputError:
    return InputError(
        f"{file} has become shorter since the job was started: give the same input, or start again with --overwrite"
    )
