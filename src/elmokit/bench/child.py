"""A contestant in a process of its own, which stays alive between its turns and answers requests over a pipe.

Arrives: the Python of an environment, an adapter's name, and requests. Leaves: answers, or a `PeerError` with what went
wrong over there. Other environments must not see this one's modules, so PYTHONPATH goes only to our own process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from elmokit.cores import WAITING, count_cores, thread_settings
from elmokit.errors import ElmoError

__all__ = ["Child", "PeerError"]

ADAPTERS = Path(__file__).parent / "adapters"
LAST_LINES = 3


class PeerError(ElmoError):
    """A contestant that could not do what it was asked; the message is its own."""


class Child:
    """The process of one library. Use it as a context manager: leaving it ends the process.

    Arguments:
        adapter: the file of `adapters/` that it answers through.
        python: the interpreter that has the library; this one if not given.
        setup: a file that is run before the library is imported.
        threads: cores that it may use; all but ours are shut to it, so that libraries with pools of their own obey too.
    """

    def __init__(self, adapter: str, *, python: str | None = None, setup: Path | None = None, threads: int = 1) -> None:
        self.adapter = adapter
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        command = [python or sys.executable, str(ADAPTERS / "serving.py"), adapter]
        self._process = subprocess.Popen(
            command + ([str(setup)] if setup else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(threads, is_ours=python is None),
            encoding="utf-8",
        )
        if hasattr(os, "sched_setaffinity") and threads < count_cores():
            os.sched_setaffinity(self._process.pid, sorted(os.sched_getaffinity(0))[:threads])

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, do: str, **details: Any) -> dict[str, Any]:  # noqa: ANN401
        """The answer to a request; see `adapters/serving.py`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **details}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"its process ended with {self._process.wait()}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:]) or "it said nothing"


def _environment(threads: int, *, is_ours: bool) -> dict[str, str]:
    # `elmo` says how its own threads wait. Contestants are called from Python, where nobody says that.
    left_out = ("PYTHONPATH", *WAITING)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= thread_settings(threads)
    if is_ours:
        ours = str(Path(__file__).parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
    return environment
