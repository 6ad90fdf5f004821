"""A contestant's process: requests come in as lines of JSON, answers go out the same way, until the input ends.

    python serving.py NAME [SETUP]

The adapter `use_NAME.py` stands beside this file. SETUP is a Python file that is run first, and whose `install()` is
called if it has one, for libraries that need help to be imported at all. Only the call that embeds is timed. What a
library prints goes to standard error, so that it cannot mix with answers. Needs numpy, and no elmokit.

An adapter has `LIBRARIES`, whose versions are reported, and `Model(settings)` with `embed(sentences)`, `forget()`,
`vectors(batches)` (one (layers, words, dim) array per sentence, from zero state on), and maybe `about`, a line for the
table. It may have `ACTIONS` of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import runpy
import sys
import time
import traceback
from types import ModuleType
from typing import Any

__all__ = ["Server", "main"]

PAUSE = 0.02  # seconds before a turn: threads of whoever came before may still spin, waiting for work


class Server:
    """Holds the models of one library and answers requests.

    Arguments:
        adapter: the module that knows how the library is called.
    """

    def __init__(self, adapter: ModuleType) -> None:
        self.adapter = adapter
        self.models: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; a problem becomes an answer that names it."""
        try:
            actions = {"load": self._load, "time": self._time, "vectors": self._vectors}
            actions.update(drop=self._drop, versions=self._versions)
            actions.update(getattr(self.adapter, "ACTIONS", {}))
            return actions[request.pop("do")](**request)
        except Exception as problem:
            traceback.print_exc()
            return {"error": f"{type(problem).__name__}: {' '.join(str(problem).split())}"}

    def _load(self, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        self.models[name] = self.adapter.Model(settings)
        return {"seconds": time.perf_counter() - start, "about": getattr(self.models[name], "about", None)}

    def _time(self, name: str, sentences: list[list[str]], batch_size: int) -> dict[str, Any]:
        """Seconds of each call with `batch_size` sentences."""
        model, seconds = self.models[name], []
        model.forget()
        time.sleep(PAUSE)
        waited = seconds_without_a_core()
        for start in range(0, len(sentences), batch_size):
            batch = sentences[start : start + batch_size]
            began = time.perf_counter()
            model.embed(batch)
            seconds.append(time.perf_counter() - began)
        # Threads that have ended take what they waited with them.
        return {"seconds": seconds, "waited": max(0.0, seconds_without_a_core() - waited)}

    def _vectors(self, name: str, sentences: list[list[str]], batch_size: int, path: str) -> dict[str, Any]:
        """Write the vectors of all sentences to `path`, one float32 array (layers, words of all sentences, dim)."""
        import numpy as np

        model = self.models[name]
        batches = [sentences[start : start + batch_size] for start in range(0, len(sentences), batch_size)]
        np.save(path, np.concatenate([array for array in model.vectors(batches)], axis=1).astype(np.float32))
        return {}

    def _versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {**{name: version(name) for name in self.adapter.LIBRARIES}, "python": sys.version.split()[0]}

    def _drop(self) -> dict[str, Any]:
        self.models.clear()
        return {}


def seconds_without_a_core() -> float:
    """How long this process's threads were ready to run and others had the cores; 0 where Linux does not tell."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    return total / 1e9


def main(arguments: list[str]) -> None:
    """Answer on what was standard output, line by line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if len(arguments) > 1:
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[1])))
        install = runpy.run_path(arguments[1]).get("install")
        if install is not None:
            install()
    server = Server(_adapter(arguments[0]))
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


def _adapter(name: str) -> ModuleType:
    here = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(f"adapter_of_{name}", os.path.join(here, f"use_{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1:])
