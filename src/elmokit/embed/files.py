"""Whole-file jobs: lines of text in, one file of vectors out, resumable after a kill at any moment.

Arrives: text files and an Embedder. Leaves: the output, there completely or not at all. The input is cut into segments
(`segments.py`); each finished one becomes a part in `<output>.partial` (`parts.py`); when all are there, a sink
assembles the output from them (`sinks/`), and it is renamed into place. While one segment is embedded, the one before
is written to the disk. A run with `resume=True` checks that the input and the settings are the same, skips what the
finished parts hold, and embeds the rest. Its output has the same bytes as that of an uninterrupted run on the same
machine. Memory does not grow with the input. `stream_files` is the other way: JSON lines that leave as they are made.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, check_layers
from elmokit.embed.parts import Part, PartialFolder, check_same_job, make_manifest, pack_strings
from elmokit.embed.progress import JobClock, Progress
from elmokit.embed.segments import SEGMENT_WORDS, Cutter, Segment, skip_finished
from elmokit.embed.sinks import FORMATS, Contents, Format, find_format, format_json_row
from elmokit.errors import InputError, OutputError
from elmokit.io.locks import lock_output
from elmokit.nn.bilm import BilmState
from elmokit.outputs import check_output, check_plain
from elmokit.reading.batching import CARRY_BATCH_SIZE
from elmokit.text.files import LONGEST_SENTENCE, LineReader

__all__ = ["EmbedReport", "embed_files", "stream_files"]

COUNTED = ("num_lines", "num_rows", "num_words", "num_cut")  # in this order in the report
DTYPES = ("float16", "float32")
STREAMED_WORDS = 2**10  # after which rows leave: a reader sees the first in less than a second, and batches are full
FLOAT16_LIMIT = 65520  # the least number that becomes infinite


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
    segment_words: int = SEGMENT_WORDS,
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
        segment_words: words after which a part is saved.
    """
    output = Path(output)
    check_output(output)
    kind = find_format(output, format)
    layers = check_layers(layers, embedder.num_layers)
    dtype = kind.dtype if dtype is None else dtype
    _check_choices(
        dtype, batch_size, segment_words, split=split, tokenised=tokenised, resume=resume, overwrite=overwrite
    )
    reader = LineReader(inputs, longest=LONGEST_SENTENCE, cuts=split)
    started = time.monotonic()
    folder = PartialFolder(output)
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
    cutter = _make_cutter(embedder, split, tokenised, strict, batch_size, segment_words)
    with lock_output(output), _explain_failures(output, folder):
        if not _prepare_folder(output, kind, folder, manifest, split=split, resume=resume, overwrite=overwrite):
            return EmbedReport(output, was_complete=True, seconds=time.monotonic() - started)
        num_layers = embedder.num_layers if layers == "all" else None
        contents = Contents(embedder.dim, dtype, num_layers, split, metadata=folder.manifest()["about"])
        finished = folder.parts()
        _embed_rest(reader, folder, finished, cutter, _Worker(embedder, layers, batch_size, contents), progress)
        parts = folder.parts()
        kind.write(parts, folder.assembly(), output.name, contents)
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
    cutter = _make_cutter(embedder, split, tokenised, strict, batch_size, STREAMED_WORDS)
    contents = Contents(embedder.dim, dtype, embedder.num_layers if layers == "all" else None, split)
    worker = _Worker(embedder, layers, batch_size, contents)
    started, clock = time.monotonic(), JobClock(reader, num_lines=0, report=progress)
    total, num_segments = Counter[str](), 0
    for segment in cutter.segments(reader):
        clock.begin(segment)
        arrays = worker.embed(segment, clock.advance)
        for row, start, end in zip(segment.rows, arrays["offsets"], arrays["offsets"][1:], strict=False):
            stream.write(format_json_row(row.line, row.words, arrays["vectors"][start:end], contents).encode())
        stream.flush()
        clock.end()
        total.update({name: segment.header()[name] for name in COUNTED})
        num_segments += 1
    counts = [total[name] for name in COUNTED]
    return EmbedReport(Path("-"), *counts, num_segments=num_segments, seconds=time.monotonic() - started)


def _make_cutter(
    embedder: Embedder, split: bool, tokenised: bool, strict: bool, batch_size: int | None, segment_words: int
) -> Cutter:
    return Cutter(
        embedder.elmo.scheme,
        None if tokenised else embedder.segmenter,
        split=split,
        strict=strict,
        segment_words=segment_words,
        rows_per_batch=(batch_size or CARRY_BATCH_SIZE) if embedder.state == "carry" and not split else 1,
    )


def _embed_rest(
    reader: LineReader,
    folder: PartialFolder,
    finished: Sequence[Part],
    cutter: Cutter,
    worker: _Worker,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Embed what the finished parts do not hold, and save it part by part."""
    lines = iter(reader)
    skip_finished(lines, finished)
    if finished:
        worker.restore(finished[-1])
    clock = JobClock(reader, num_lines=sum(part.header["num_lines"] for part in finished), report=progress)
    with ThreadPoolExecutor(1, thread_name_prefix="elmokit-save") as saver:
        saving: Future[None] | None = None
        for number, segment in enumerate(cutter.segments(lines), start=len(finished)):
            clock.begin(segment)
            arrays = worker.embed(segment, clock.advance)
            if saving is not None:
                saving.result()  # one at a time, so that no part is there without those before it
            saving = saver.submit(folder.add, number, segment.header(), arrays)
            clock.end()
        if saving is not None:
            saving.result()


class _Worker:
    """An Embedder of the job's own, so that neither its cache nor its state depends on what else is going on."""

    def __init__(self, embedder: Embedder, layers: Layers, batch_size: int | None, contents: Contents) -> None:
        self._embedder = Embedder(
            embedder.elmo, state=embedder.state, segmenter=embedder.segmenter, cache_words=embedder.cache_words
        )
        self._layers, self._batch_size, self._contents = layers, batch_size, contents

    def restore(self, part: Part) -> None:
        """Continue from the state at the end of a part."""
        if "hidden" in part:
            parts = (torch.from_numpy(part.array(name).copy()) for name in ("hidden", "cell"))
            self._embedder.carried_state = BilmState(*(tensor.to(self._embedder.device) for tensor in parts))

    def embed(self, segment: Segment, report: Callable[[float], None]) -> dict[str, np.ndarray]:
        """The arrays of a segment's part."""
        if not self._embedder.elmo.encoder.is_batch_invariant:
            # A resumed run must not find vectors that were computed in another company and so differ in a last bit.
            self._embedder.clear_cache()
        sentences = [row.words for row in segment.rows]
        offsets = np.zeros(len(sentences) + 1, np.int64)
        np.cumsum([len(words) for words in sentences], out=offsets[1:])
        vectors = np.zeros((segment.num_words, *self._contents.word_shape), np.dtype(self._contents.dtype))
        num_done = 0
        for places, arrays in self._embedder.embed_batches(sentences, layers=self._layers, batch_size=self._batch_size):
            for place, array in zip(places, arrays, strict=True):
                _store_vectors(vectors[offsets[place] : offsets[place + 1]], array)
                num_done += len(sentences[place])
            report(num_done / max(1, segment.num_words))
        state = self._embedder.carried_state
        kept = {} if state is None else {"hidden": state.hidden.cpu().numpy(), "cell": state.cell.cpu().numpy()}
        return {
            "lines": np.array([row.line for row in segment.rows], np.int64),
            "offsets": offsets,
            **pack_strings("texts", [row.text for row in segment.rows]),
            **pack_strings("words", [word for words in sentences for word in words]),
            **kept,
            "vectors": vectors,
        }


def _store_vectors(place: np.ndarray, array: np.ndarray) -> None:
    if place.dtype == np.float16 and array.size:
        largest = max(array.max(), -array.min())
        if largest >= FLOAT16_LIMIT:
            raise InputError(f"a vector has the value {largest:.3g}, too large for float16: use dtype float32")
    # Ten times faster than numpy's own conversion to float16, with the same results.
    torch.from_numpy(place).copy_(torch.from_numpy(array if array.ndim == 2 else array.swapaxes(0, 1)))


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
        return True
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
