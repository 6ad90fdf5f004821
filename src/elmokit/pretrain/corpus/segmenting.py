"""Blocks of text → numbered words, in several processes.

`TextBlock`s arrive; for each, in the same order, a `SegmentedBlock` leaves: its distinct words once, and its text as
numbers into them. That is a fifth of the text, so the process that gathers the results has little to do.

The processes are plain interpreters that run `serve` and talk through pipes. They import neither the caller's main
module nor torch, so this works from an unguarded script or a notebook, whatever threads the caller has; and they end
with their parent, however it ends.

Shapes: N words of a block, U distinct words, S sentences.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import NamedTuple

import numpy as np

from elmokit.cores import thread_settings
from elmokit.errors import InputError
from elmokit.text.files import TextBlock, explain_encoding
from elmokit.text.segmenters import Segmenter

__all__ = ["SegmentedBlock", "Segmenting", "segment_blocks", "serve"]

BLOCKS_PER_COLLECTION = 16


class Segmenting(NamedTuple):
    """How text becomes sentences: by a segmenter, or with `None` one per line, its words between spaces."""

    segmenter: Segmenter | None
    max_sentence_words: int

    def sentences(self, line: str) -> list[list[str]]:
        """The sentences of one line."""
        if self.segmenter is None:
            return [[word for word in line.removesuffix("\r").split(" ") if word]]
        return [[word[0] for word in sentence] for sentence in self.segmenter(line)]


class SegmentedBlock(NamedTuple):
    """A block's distinct words (UTF-8, in order of appearance), its text as numbers into them, and its sentences."""

    words: list[bytes]
    counts_U: np.ndarray
    ids_N: np.ndarray
    lengths_S: np.ndarray


def segment_blocks(blocks: Iterable[TextBlock], segmenting: Segmenting, *, workers: int) -> Iterator[SegmentedBlock]:
    """The blocks in order, segmented by `workers` processes; 1 means in this one."""
    if workers == 1:
        for block in blocks:
            yield _unpack(block, _segment(block.data, segmenting))
        return
    with _Processes(segmenting) as processes, ThreadPoolExecutor(workers, "segmenting") as threads:
        waiting: deque[tuple[TextBlock, Future[_Answer]]] = deque()

        def wait_for_first() -> SegmentedBlock:
            block, answer = waiting.popleft()
            return _unpack(block, answer.result())

        try:
            for block in blocks:
                waiting.append((block, threads.submit(processes.ask, block.data)))
                while len(waiting) > 2 * workers:
                    yield wait_for_first()
            while waiting:
                yield wait_for_first()
        finally:  # nothing is left to do, unless something failed: then nobody waits for the rest
            threads.shutdown(wait=False, cancel_futures=True)
            processes.end()


class _Answer(NamedTuple):
    """What comes back of a block, cheap to send: distinct words are joined by line ends. Or what went wrong."""

    words: bytes = b""
    counts_U: np.ndarray | None = None
    ids_N: np.ndarray | None = None
    lengths_S: np.ndarray | None = None
    bad_byte: int | None = None
    problem: str | None = None


def _unpack(block: TextBlock, answer: _Answer) -> SegmentedBlock:
    """The answer as a segmented block; its problem as an error that names the file, the line and the byte."""
    if answer.bad_byte is not None:
        line, byte = block.first_line + block.data.count(b"\n", 0, answer.bad_byte), block.offset + answer.bad_byte
        advice = explain_encoding(block.data if block.offset == 0 else b"")
        raise InputError(f"{block.source}: expected UTF-8, but line {line} (byte {byte} of the text) is not{advice}")
    if answer.problem is not None:
        last_line = block.first_line + block.data.removesuffix(b"\n").count(b"\n")
        raise InputError(f"{block.source}: lines {block.first_line} to {last_line}: {answer.problem}")
    assert answer.counts_U is not None and answer.ids_N is not None and answer.lengths_S is not None
    words = answer.words.split(b"\n") if len(answer.counts_U) else []
    return SegmentedBlock(words, answer.counts_U, answer.ids_N, answer.lengths_S)


def _segment(data: bytes, segmenting: Segmenting) -> _Answer:
    """Segment one block."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        return _Answer(bad_byte=problem.start)
    lengths, words = [], []
    try:
        # One line at a time: to any segmenter the end of a line is the end of a sentence, and the spans of its words,
        # which nobody needs here, are gone before they fill the processor's caches.
        for line in text.split("\n"):
            for sentence in segmenting.sentences(line):
                lengths.append(len(sentence))
                words += sentence
    except Exception as problem:  # noqa: BLE001 - whatever a foreign segmenter raises belongs beside the line
        return _Answer(problem=f"the segmenter failed: {type(problem).__name__}: {problem}")
    lengths_S = np.array(lengths, dtype=np.int64)
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids_N = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
    distinct = "\n".join(numbers)
    if "" in numbers or distinct.count("\n") != max(len(numbers) - 1, 0):
        return _Answer(problem="the segmenter gave a word that is empty or holds a line end; expected neither")
    return _Answer(
        distinct.encode("utf-8"),
        np.bincount(ids_N, minlength=len(numbers)),
        ids_N,
        _cut_lengths(lengths_S[lengths_S > 0], segmenting.max_sentence_words),
    )


def _cut_lengths(lengths_S: np.ndarray, longest: int) -> np.ndarray:
    """The lengths after cutting longer sentences into pieces of `longest` words and a last one."""
    pieces_S = -(-lengths_S // longest)
    cut = np.full(int(pieces_S.sum()), longest, dtype=np.int64)
    cut[pieces_S.cumsum() - 1] = lengths_S - (pieces_S - 1) * longest
    return cut


class _Processes:
    """Interpreters that segment: one is started when a block finds all others busy."""

    def __init__(self, segmenting: Segmenting) -> None:
        try:
            self._segmenting = pickle.dumps(segmenting)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise InputError(
                f"the segmenter {type(segmenting.segmenter).__name__} cannot be sent to other processes ({problem}); "
                "make it picklable, or use workers=1"
            ) from problem
        self._all: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End every process, whatever it is doing."""
        for process in self._all:
            process.kill()  # it holds nothing that could be lost
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def ask(self, data: bytes) -> _Answer:
        """Have one block segmented by whichever process is free; called from one thread a process."""
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(data, process.stdin, protocol=5)
            process.stdin.flush()
            answer: _Answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as problem:
            raise InputError(
                f"a process that segments text ended early (exit code {process.poll()}); what it printed may say why. "
                "A segmenter must be importable from a module; workers=1 segments without other processes"
            ) from problem
        self._idle.put(process)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from elmokit.pretrain.corpus.segmenting import serve; serve()"
        alone = {**os.environ, **thread_settings(1)}  # the processes are many already, whatever a segmenter calls
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1, env=alone
        )
        self._all.append(process)
        assert process.stdin is not None
        process.stdin.write(self._segmenting)
        return process


def serve() -> None:
    """Segment what comes on standard input until it ends: the whole life of a segmenting process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, and closes our input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a segmenter that prints must not garble the answers
    segmenting: Segmenting = pickle.load(sys.stdin.buffer)
    gc.disable()  # looking for cycles among a million new words per second takes a third of the time
    # The parent closes our input when it is done, and both pipes are broken when it was killed.
    with suppress(EOFError, OSError):  # to Windows a broken pipe is an argument that is not valid
        for number in count(1):
            data: bytes = pickle.load(sys.stdin.buffer)
            pickle.dump(_segment(data, segmenting), answers, protocol=5)
            answers.flush()
            if number % BLOCKS_PER_COLLECTION == 0:  # a foreign segmenter may make some
                gc.collect()
    os._exit(0)  # at once: closing a broken pipe would only complain
