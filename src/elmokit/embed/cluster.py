"""What the workers of a cluster do with a corpus: runs of text in, finished parts of a Parquet dataset out.

An engine (`integrations/ray.py`) sends runs of chunks (`chunks.py`) through two steps, in one process (`RunMaker`) or
apart. `read_runs` reads chunks and splits them into words, which needs no model; `PartMaker` holds a model, embeds the
words and writes the part. A part that is there already is not made again, and a part appears by a rename. So an engine
may send a chunk as often as it likes, and to several workers at once: the part is there once, with the same rows.

What travels between the steps is a table with one row per chunk, the message: the number of the part, what it holds,
and the segments of the chunk. The driver counts with a `Tally` which parts are there.
"""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.embed.chunks import Chunk, read_chunks, read_plan
from elmokit.embed.mapping import EmbedBatches
from elmokit.embed.progress import Progress
from elmokit.embed.segment_embedder import SegmentEmbedder
from elmokit.embed.segments import Cutter, Segment
from elmokit.embed.sinks import Contents, EmbeddedRows, write_parquet
from elmokit.errors import InputError, OutputError
from elmokit.io.atomic import flush_to_disk

__all__ = ["COUNTED", "PARTS", "PLAN", "ClusterJob", "PartMaker", "RunMaker", "Tally", "divide_plan", "read_runs"]

PLAN, PARTS = "plan.parquet", "parts"  # in the folder of an unfinished job
COUNTED = ("num_rows", "num_words", "num_cut")  # of each part, in the metadata of its file
MOST_RUNS = 2**16  # tasks of one job


@dataclass(frozen=True)
class ClusterJob:
    """What a worker needs to know, all of it small: the rest lies in the folder of the job.

    Arguments:
        folder: of the unfinished job, which all workers see under this name.
        embed: the model and how it is run.
        fingerprint: of the model that the driver has opened; a worker's must be the same.
        contents: of the output.
        cutter: how lines become rows, and rows segments.
        column: of Parquet input, that has the text.
    """

    folder: Path
    embed: EmbedBatches
    fingerprint: str
    contents: Contents
    cutter: Cutter
    column: str

    def part_path(self, number: int) -> Path:
        """Where a part is when it is finished."""
        return self.folder / PARTS / f"part-{number:08d}.parquet"

    def plan(self) -> list[Chunk]:
        """All chunks; their places in the list are the numbers of the parts."""
        return read_plan(self.folder / PLAN)


def divide_plan(chunks: Sequence[Chunk]) -> list[dict[str, int]]:
    """Runs of chunks of one file, each by the number of its first chunk and of the one after its last.

    A packed file is one run, since its chunks are found only by unpacking what is before them.
    """
    size = -(-len(chunks) // MOST_RUNS)
    runs: list[dict[str, int]] = []
    for number, chunk in enumerate(chunks):
        is_new = not number or chunk.file != chunks[number - 1].file
        if is_new or (not chunk.is_packed and number - runs[-1]["first"] >= size):
            runs.append({"first": number, "stop": number})
        runs[-1]["stop"] = number + 1
    return runs


def read_runs(runs: pa.Table, job: ClusterJob) -> Iterator[pa.Table]:
    """A message for each chunk of some runs; of a part that is there already, only what it holds."""
    plan = job.plan()
    for run in runs.to_pylist():
        numbers = range(run["first"], run["stop"])
        there = {number: counts for number in numbers if (counts := _count_part(job.part_path(number))) is not None}
        for number, counts in there.items():
            yield _make_message(number, counts, None)
        left = [number for number in numbers if number not in there]
        chunks = read_chunks([plan[number] for number in left], column=job.column, splits=job.cutter.splitter.split)
        for number, (_, lines) in zip(left, chunks, strict=True):
            segments = list(job.cutter.segments(lines))
            headers = [segment.header() for segment in segments]
            yield _make_message(number, {name: sum(each[name] for each in headers) for name in COUNTED}, segments)


def _make_message(number: int, counts: dict[str, int], segments: Sequence[Segment] | None) -> pa.Table:
    columns = {name: [count] for name, count in counts.items()}
    kept = pa.array([pickle.dumps(segments, pickle.HIGHEST_PROTOCOL)], pa.large_binary())
    return pa.table({"part": [number], **columns, "was_there": [segments is None], "segments": kept})


class PartMaker:
    """A worker: holds the model, and turns the segments of a chunk into a part."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job
        self._worker: SegmentEmbedder | None = None

    def __call__(self, messages: pa.Table) -> pa.Table:
        """Make the parts, and tell what they hold."""
        for message in messages.to_pylist():
            if not message["was_there"]:
                counts = {name: str(message[name]) for name in COUNTED}
                self._write(self._job.part_path(message["part"]), counts, pickle.loads(message["segments"]))
        return messages.select(["part", *COUNTED, "was_there"])

    def _write(self, path: Path, counts: dict[str, str], segments: Sequence[Segment]) -> None:
        """Write a part under a name that no other worker has, and put it in its place."""
        contents = replace(self._job.contents, metadata={**self._job.contents.metadata, **counts})
        with tempfile.TemporaryDirectory(dir=self._job.folder) as folder:
            made = Path(folder, path.name)
            write_parquet(made, self._embed(segments), contents)
            flush_to_disk(made)
            os.replace(made, path)

    def _embed(self, segments: Sequence[Segment]) -> Iterator[EmbeddedRows]:
        worker = self._open()
        for segment in segments:
            vectors = worker.embed(segment, lambda _: None).wait()
            yield EmbeddedRows(segment.lines_R, segment.lengths_R, segment.words, segment.numbers_N, vectors)

    def _open(self) -> SegmentEmbedder:
        """The model, which is opened with the first chunk: what goes wrong is then told like anything else."""
        if self._worker is None:
            job = self._job
            embedder = job.embed.embedder
            if embedder.elmo.fingerprint() != job.fingerprint:
                raise InputError(
                    f"the model {job.embed.model} on {socket.gethostname()} is not that of the driver: give all "
                    "machines the same one"
                )
            self._worker = SegmentEmbedder(embedder, job.embed.layers, job.embed.batch_size, job.contents)
        return self._worker


class RunMaker:
    """Both steps in one process, for workers on CPUs, where splitting text is a small part of the work."""

    def __init__(self, job: ClusterJob) -> None:
        self._job, self._maker = job, PartMaker(job)

    def __call__(self, runs: pa.Table) -> Iterator[pa.Table]:
        """Make the parts of some runs, and tell of each when it is there."""
        return (self._maker(message) for message in read_runs(runs, self._job))


class Tally:
    """Counts the parts that are there, each once, however often a worker tells of it.

    Arguments:
        chunks: of the whole job.
        progress: called after every part, if given.
    """

    def __init__(self, chunks: Sequence[Chunk], progress: Callable[[Progress], None] | None) -> None:
        self._chunks, self._progress = chunks, progress
        self._found: dict[int, dict[str, Any]] = {}
        self._lines = self._words = self._bytes = self._bytes_before = 0
        self._total = sum(chunk.num_bytes for chunk in chunks)
        self._started = time.monotonic()

    def add(self, found: dict[str, Any]) -> None:
        """A part is there."""
        if found["part"] in self._found:
            return
        self._found[found["part"]] = found
        chunk = self._chunks[found["part"]]
        self._lines += chunk.num_lines
        self._bytes += chunk.num_bytes
        if found["was_there"]:
            self._bytes_before += chunk.num_bytes
        else:
            self._words += found["num_words"]
        if self._progress is not None:
            seconds = time.monotonic() - self._started
            self._progress(Progress(self._lines, self._words, self._bytes, self._total, self._bytes_before, seconds))

    def finish(self, job: ClusterJob) -> tuple[int, dict[str, int]]:
        """How many parts an earlier run had made, and the sums; an `OutputError` if a part is missing."""
        every = range(len(self._chunks))
        missing = [number for number in every if number not in self._found or not job.part_path(number).exists()]
        if missing:
            count = "1 part is" if len(missing) == 1 else f"{len(missing)} parts are"
            raise OutputError(f"{count} missing, first part {missing[0]}: run again with --resume (resume=True)")
        sums = {name: sum(found[name] for found in self._found.values()) for name in COUNTED}
        return sum(found["was_there"] for found in self._found.values()), sums


def _count_part(path: Path) -> dict[str, int] | None:
    """What a finished part holds; `None` if it is not there."""
    if not path.exists():
        return None
    facts = pq.read_schema(path).metadata
    return {name: int(facts[f"elmokit.{name}".encode()]) for name in COUNTED}
