"""A function run in several processes over a stream of pieces, its answers in the order of the pieces.

Arrives: a function that can be pickled, and pairs of a piece's name and its data. Leaves: pairs of the name and the
function's answer. Splitting text into words is pure Python, which one process does on one core.

The processes are plain interpreters that run `serve` and talk through pipes. They import neither the caller's main
module nor, unless the function does, torch, so this works from an unguarded script or a notebook, whatever threads the
caller has; and they end with their parent, however it ends.
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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from elmokit.cores import thread_settings
from elmokit.errors import InputError

__all__ = ["run_in_order", "serve"]

PIECES_PER_COLLECTION = 16

Name = TypeVar("Name")
Data = TypeVar("Data")
Answer = TypeVar("Answer")


def run_in_order(
    function: Callable[[Data], Answer], pieces: Iterable[tuple[Name, Data]], *, workers: int, doer: str
) -> Iterator[tuple[Name, Answer]]:
    """The name and the answer of each piece, in order.

    Arguments:
        function: takes the data of a piece; what it cannot do, its answer says.
        pieces: read ahead by two per process.
        workers: processes; 1 means in this one.
        doer: what errors call the part of the function that the caller brought, such as "the segmenter Foo".
    """
    if workers == 1:
        for name, data in pieces:
            yield name, function(data)
        return
    with _Processes(function, doer) as processes, ThreadPoolExecutor(workers, "elmokit-pieces") as threads:
        waiting: deque[tuple[Name, Future[Answer]]] = deque()

        def wait_for_first() -> tuple[Name, Answer]:
            name, answer = waiting.popleft()
            return name, answer.result()

        try:
            for name, data in pieces:
                waiting.append((name, threads.submit(processes.ask, data)))
                while len(waiting) > 2 * workers:
                    yield wait_for_first()
            while waiting:
                yield wait_for_first()
        finally:  # nothing is left to do, unless something failed: then nobody waits for the rest
            threads.shutdown(wait=False, cancel_futures=True)
            processes.end()


class _Processes:
    """Interpreters that run the function: one is started when a piece finds all others busy."""

    def __init__(self, function: Callable[[Any], Any], doer: str) -> None:
        try:
            self._function = pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise InputError(
                f"{doer} cannot be sent to other processes ({problem}); make it picklable, or use workers=1"
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

    def ask(self, data: object) -> Any:  # noqa: ANN401
        """Have one piece done by whichever process is free; called from one thread per process."""
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(data, process.stdin, protocol=5)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as problem:
            raise InputError(
                f"a process that segments text ended early (exit code {process.poll()}); what it printed may say why. "
                "A segmenter must be importable from a module; workers=1 segments without other processes"
            ) from problem
        self._idle.put(process)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        alone = {**os.environ, **thread_settings(1)}  # the processes are many already, whatever a segmenter calls
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1, env=alone
        )
        self._all.append(process)
        assert process.stdin is not None
        process.stdin.write(self._function)
        return process


def serve() -> None:
    """Answer what comes on standard input until it ends: the whole life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, and closes our input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a segmenter that prints must not garble the answers
    function: Callable[[Any], Any] = pickle.load(sys.stdin.buffer)
    gc.disable()  # looking for cycles among a million new words per second takes a third of the time
    # The parent closes our input when it is done, and both pipes are broken when it was killed.
    with suppress(EOFError, OSError):  # to Windows a broken pipe is an argument that is not valid
        for number in count(1):
            data = pickle.load(sys.stdin.buffer)
            pickle.dump(function(data), answers, protocol=5)
            answers.flush()
            if number % PIECES_PER_COLLECTION == 0:  # a foreign segmenter may make some
                gc.collect()
    os._exit(0)  # at once: closing a broken pipe would only complain
