"""Whole-file jobs: lines of text in, one file of vectors out, resumable after a kill at any moment.

Arrives: text files and an Embedder. Leaves: the output, there completely or not at all. The input is cut into segments
(`segments.py`); each finished one becomes a part in `<output>.partial` (`parts.py`); when all are there, the output is
completed (`sinks.py`) and renamed into place. Everything is under way at once: lines are split into words (for a GPU in
several processes), a segment is embedded, the vectors of those before it leave the GPU, become bytes and are written to
the disk, in order. A run with `resume=True` checks that the input and the settings are the same, skips what the
finished parts hold, and embeds the rest. Its output has the same bytes as that of an uninterrupted run on the same
machine. Memory does not grow with the input. `stream_files` is the other way: JSON lines that leave as they are made.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from elmokit.cores import count_cores
from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, check_layers
from elmokit.embed.parts import Part, PartialFolder, check_same_job, make_manifest
from elmokit.embed.progress import JobClock, Progress
from elmokit.embed.rows import RowSplitter
from elmokit.embed.segment_embedder import PendingVectors, SegmentEmbedder
from elmokit.embed.segments import Cutter, Segment, choose_segment_words, skip_finished
from elmokit.embed.sinks import FORMATS, Contents, EncodedPart, Format, find_format, format_json_row
from elmokit.errors import InputError, OutputError
from elmokit.io.locks import lock_output
from elmokit.outputs import check_output, check_plain
from elmokit.reading.ahead import read_ahead
from elmokit.reading.batching import CARRY_BATCH_SIZE
from elmokit.text.files import LONGEST_SENTENCE, LineReader
from elmokit.text.segmenters import RuleSegmenter

__all__ = ["EmbedReport", "embed_files", "stream_files"]

COUNTED = ("num_lines", "num_rows", "num_words", "num_cut")  # in this order in the report
DTYPES = ("float16", "float32")
STREAMED_WORDS = 2**10  # after which rows leave: a reader sees the first in less than a second, and batches are full
MOST_WORKERS = 8  # processes that split text for a GPU: together about 2.5 M words/s, a core 0.3 M
ENCODERS = 2  # threads that make bytes of vectors, each about 1 GB/s with their checksum
SEGMENTS_BEHIND = 3  # that wait for the disk at most, vectors and all


@dataclass(frozen=True)
class EmbedReport:
    """What a job did.

    Arguments:
        output: the file that was made.
        num_lines, num_rows, num_words: what it holds, earlier runs included.
        num_cut: words that are longer than the model reads, and so were cut, or that hold a NUL.
        num_segments, num_resumed: parts it was made of, and how many of them an earlier run had finished.
        seconds: time of this run.
        was_complete: the output was there already, complete, and nothing was done (`resume=True` only); the numbers
            are then 0.
    """

    output: Path
    num_lines: int = 0
    num_rows: int = 0
    num_words: int = 0
    num_cut: int = 0
    num_segments: int = 0
    num_resumed: int = 0
    seconds: float = 0.0
    was_complete: bool = False

    @property
    def warnings(self) -> list[str]:
        """What the caller should be told, one line each."""
        if self.was_complete:
            return [f"nothing to resume: {self.output} is already there (make it anew with --overwrite)"]
        if self.num_cut:
            return [f"{self.num_cut} words are longer than this model reads, and were cut, or hold a NUL byte"]
        return []


def embed_files(
    inputs: str | PathLike[str] | Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    *,
    embedder: Embedder,
    format: str | None = None,
    layers: Layers = "average",
    dtype: str | None = None,
    batch_size: int | None = None,
    split: bool = False,
    tokenised: bool = False,
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    segment_words: int | None = None,
) -> EmbedReport:
    """Embed files of text, one row per line, into one file of vectors.

    Arguments:
        inputs: UTF-8 text files, one or several; `-` is standard input; packed files are read too. Lines
            are numbered from 0 over all of them; blank lines are kept as rows without words.
        output: the file to make; beside it `<output>.partial` holds the parts of an unfinished job.
        embedder: the model; a job has its own cache and, in carry mode, its own state, which starts from zero.
        format: `"parquet"`, `"hdf5"`, `"npy"` or `"jsonl"`; unset, the suffix of the output decides.
        layers: as for `Embedder.embed`.
        dtype: `"float16"` or `"float32"`; unset, float16 (float32 for hdf5, as AllenNLP wrote it).
        batch_size: as for `Embedder.embed`.
        split: split each line into sentences, one row each.
        tokenised: words stand between spaces already and are taken as they are.
        resume: continue an unfinished job; start one if there is none; do nothing if the output is complete.
        strict: a word that is too long for the model or holds a NUL is an error.
        overwrite: replace the output, and throw an unfinished job away.
        progress: called after every batch.
        segment_words: words after which a part is saved; unset, what suits the device.
    """
    output = Path(output)
    check_output(output)
    kind = find_format(output, format)
    layers = check_layers(layers, embedder.num_layers)
    dtype = kind.dtype if dtype is None else dtype
    segment_words = choose_segment_words(embedder.device.type) if segment_words is None else segment_words
    _check_choices(
        dtype, batch_size, segment_words, split=split, tokenised=tokenised, resume=resume, overwrite=overwrite
    )
    reader = LineReader(inputs, longest=LONGEST_SENTENCE, cuts=split)
    started = time.monotonic()
    folder = PartialFolder(output, beginning=kind.beginning)
    manifest = make_manifest(
        embedder,
        reader.files,
        tokenised=tokenised,
        format=kind.name,
        layers=layers,
        dtype=dtype,
        batch_size=batch_size,
        split=split,
        segment_words=segment_words,
    )
    splitter = _make_splitter(embedder, kind, split=split, tokenised=tokenised, strict=strict)
    cutter = _make_cutter(embedder, splitter, batch_size, segment_words)
    with lock_output(output), _explain_failures(output, folder):
        if not _prepare_folder(output, kind, folder, manifest, split=split, resume=resume, overwrite=overwrite):
            return EmbedReport(output, was_complete=True, seconds=time.monotonic() - started)
        num_layers = embedder.num_layers if layers == "all" else None
        contents = Contents(embedder.dim, dtype, num_layers, split, metadata=folder.manifest()["about"])
        finished = folder.parts()
        worker = SegmentEmbedder(embedder, layers, batch_size, contents)
        _embed_rest(reader, finished, cutter, worker, _Saver(folder, kind, contents), progress)
        parts = folder.parts()
        kind.complete(parts, folder, contents)
        counts = [sum(part.header[name] for part in parts) for name in COUNTED]
        folder.finish(kind.files(output.name, split=split))
    seconds = time.monotonic() - started
    return EmbedReport(output, *counts, num_segments=len(parts), num_resumed=len(finished), seconds=seconds)


def stream_files(
    inputs: str | PathLike[str] | Sequence[str | PathLike[str]],
    stream: BinaryIO,
    *,
    embedder: Embedder,
    layers: Layers,
    dtype: str | None = None,
    batch_size: int | None = None,
    split: bool = False,
    tokenised: bool = False,
    strict: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> EmbedReport:
    """Embed files of text and write JSON lines to a stream, some sentences at a time, as they are computed.

    The other arguments are those of `embed_files`. What was written before a problem stays written.
    """
    kind = FORMATS["jsonl"]
    layers, dtype = check_layers(layers, embedder.num_layers), dtype or kind.dtype
    _check_choices(dtype, batch_size, STREAMED_WORDS, split=split, tokenised=tokenised, resume=False, overwrite=False)
    reader = LineReader(inputs, longest=LONGEST_SENTENCE, cuts=split)
    splitter = _make_splitter(embedder, kind, split=split, tokenised=tokenised, strict=strict)
    cutter = _make_cutter(embedder, splitter, batch_size, STREAMED_WORDS)
    contents = Contents(embedder.dim, dtype, embedder.num_layers if layers == "all" else None, split)
    worker = SegmentEmbedder(embedder, layers, batch_size, contents)
    started, clock = time.monotonic(), JobClock(reader, num_lines=0, report=progress)
    total, num_segments = Counter[str](), 0
    for segment in cutter.segments(reader, tell=lambda: reader.bytes_done):
        clock.begin(segment)
        vectors, offsets = worker.embed(segment, clock.advance).wait(), segment.offsets.tolist()
        for line, words, start, end in zip(
            segment.lines_R.tolist(), segment.rows(), offsets, offsets[1:], strict=False
        ):
            stream.write(format_json_row(line, words, vectors[start:end], contents).encode())
        stream.flush()
        clock.end()
        total.update({name: segment.header()[name] for name in COUNTED})
        num_segments += 1
    counts = [total[name] for name in COUNTED]
    return EmbedReport(Path("-"), *counts, num_segments=num_segments, seconds=time.monotonic() - started)


def _make_splitter(embedder: Embedder, kind: Format, *, split: bool, tokenised: bool, strict: bool) -> RowSplitter:
    segmenter = None if tokenised else embedder.segmenter
    return RowSplitter(embedder.elmo.scheme, segmenter, split=split, strict=strict, keeps_texts=kind.keeps_texts)


def _make_cutter(embedder: Embedder, splitter: RowSplitter, batch_size: int | None, segment_words: int) -> Cutter:
    # A CPU computes with all its cores; and a segmenter of the user's own may not work in other processes.
    is_ours = splitter.segmenter is None or type(splitter.segmenter) is RuleSegmenter
    workers = count_workers() if embedder.device.type == "cuda" and is_ours else 1
    carries = embedder.state == "carry" and not splitter.split
    rows_per_batch = (batch_size or CARRY_BATCH_SIZE) if carries else 1
    return Cutter(splitter, segment_words, rows_per_batch=rows_per_batch, workers=workers)


def count_workers() -> int:
    """Processes that split text beside a GPU."""
    return min(MOST_WORKERS, max(1, count_cores() // 2))


def _embed_rest(
    reader: LineReader,
    finished: Sequence[Part],
    cutter: Cutter,
    worker: SegmentEmbedder,
    saver: _Saver,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Embed what the finished parts do not hold, and save it part by part."""
    lines = iter(reader)
    skip_finished(lines, finished)
    if finished:
        worker.restore(finished[-1])
    clock = JobClock(reader, num_lines=sum(part.header["num_lines"] for part in finished), report=progress)
    segments = cutter.segments(lines, tell=lambda: reader.bytes_done)
    # Nobody can leave while a thread waits for a pipe.
    with saver, nullcontext(segments) if reader.bytes_total is None else read_ahead(segments) as ahead:
        for number, segment in enumerate(ahead, start=len(finished)):
            clock.begin(segment)
            vectors = worker.embed(segment, clock.advance)
            saver.save(number, segment, vectors, worker.keep_state())
            clock.end()
        saver.finish()


class _Saver:
    """Makes bytes of segments in some threads, and saves these in order in another.

    Arguments:
        folder: of the job.
        kind: the format of the output.
        contents: of the output.
    """

    def __init__(self, folder: PartialFolder, kind: Format, contents: Contents) -> None:
        self._folder, self._kind, self._contents = folder, kind, contents
        self._encoders = ThreadPoolExecutor(ENCODERS, "elmokit-encode")
        self._writer = ThreadPoolExecutor(1, "elmokit-save")
        self._waiting: deque[Future[None]] = deque()
        self._has_failed = False

    def __enter__(self) -> _Saver:
        return self

    def __exit__(self, *_: object) -> None:
        for threads in (self._encoders, self._writer):
            threads.shutdown(cancel_futures=True)

    def save(self, number: int, segment: Segment, vectors: PendingVectors, state: dict[str, np.ndarray]) -> None:
        """Have a segment saved; waits while too many wait already. What went wrong with one before is raised here."""
        while len(self._waiting) >= SEGMENTS_BEHIND:
            self._waiting.popleft().result()
        encoded = self._encoders.submit(lambda: self._kind.encode(segment, vectors.wait(), self._contents))
        self._waiting.append(self._writer.submit(self._write, number, segment.header(), encoded, state))

    def finish(self) -> None:
        """Wait until everything is saved."""
        while self._waiting:
            self._waiting.popleft().result()

    def _write(
        self, number: int, header: dict[str, Any], encoded: Future[EncodedPart], state: dict[str, np.ndarray]
    ) -> None:
        if self._has_failed:  # no part is there without those before it
            return
        try:
            arrays, rows = encoded.result()
            self._folder.add(number, header, {**arrays, **state}, rows)
        except BaseException:
            self._has_failed = True
            raise


def _prepare_folder(
    output: Path,
    kind: Format,
    folder: PartialFolder,
    manifest: dict[str, Any],
    *,
    split: bool,
    resume: bool,
    overwrite: bool,
) -> bool:
    """Find or make the folder of the job; whether there is work to do."""
    existing = [name for name in kind.files(output.name, split=split) if output.with_name(name).exists()]
    for name in existing:
        check_plain(output.with_name(name))
    if folder.exists() and resume:
        check_same_job(folder.manifest(), manifest, folder=folder.path)
        if not folder.is_in_place():
            return True
        folder.discard()
        return False
    if folder.exists() and not overwrite:
        raise OutputError(
            f"an unfinished job lies in {folder.path}: continue it with --resume (resume=True), or start again with "
            "--overwrite (overwrite=True)"
        )
    if output.name in existing and resume:
        folder.discard()
        return False
    if existing and not overwrite:
        raise OutputError(
            f"{output.with_name(existing[-1])} exists already: choose another name, or replace it with --overwrite "
            "(overwrite=True)"
        )
    folder.start(manifest)
    return True


def _check_choices(
    dtype: str,
    batch_size: int | None,
    segment_words: int,
    *,
    split: bool,
    tokenised: bool,
    resume: bool,
    overwrite: bool,
) -> None:
    if dtype not in DTYPES:
        raise InputError(f"asked for dtype={dtype!r}: use one of {', '.join(map(repr, DTYPES))}")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size is {batch_size}: expected 1 or more sentences, or None")
    if segment_words < 1:
        raise InputError(f"segment_words is {segment_words}: expected 1 or more")
    if split and tokenised:
        raise InputError("split and tokenised exclude each other: a tokenised line is one sentence")
    if resume and overwrite:
        raise InputError("resume and overwrite exclude each other: continue the old job or start a new one")


@contextmanager
def _explain_failures(output: Path, folder: PartialFolder) -> Iterator[None]:
    """Failures to write become an `OutputError`; a job that fails before its first part leaves nothing of its own."""
    try:
        yield
    except Exception as problem:
        if folder.was_started and folder.exists() and folder.is_empty():
            folder.discard()
        if isinstance(problem, OutputError) or not isinstance(problem, OSError):
            raise
        reason = problem.strerror or str(problem)
        kept = f"; finished parts are kept in {folder.path}, continue with --resume (resume=True)"
        raise OutputError(
            f"cannot write {output}: {reason}; make room or choose another place{kept if folder.exists() else ''}"
        ) from problem
