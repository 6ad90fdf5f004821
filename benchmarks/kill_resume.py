"""Whole-file jobs killed with SIGKILL at random moments, resumed, and compared byte by byte.

    python benchmarks/kill_resume.py                                         ten kills a format
    python benchmarks/kill_resume.py --kills 2 --lines 500 --formats npy     a quick look

For each format a job runs undisturbed in a process of its own. Then, ten times, the same job is started anew, killed at
a random moment, resumed, and (every other time) killed and resumed again; the output must have the bytes of the
undisturbed one, and nothing else may lie beside it. A moment is a random number of finished parts, or the assembly of
the output, and a random time after it: on a busy machine the clock alone would find most jobs at their start.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from elmokit import CharConfig, Elmo, ElmoConfig, Embedder, LstmConfig
from elmokit.embed.files import embed_files

CONFIG = ElmoConfig(
    CharConfig(dim=4, filters=((1, 8), (2, 8), (3, 16))), lstm=LstmConfig(cell_dim=64, projection_dim=32)
)
SUFFIXES = {"parquet": ".parquet", "hdf5": ".hdf5", "npy": ".npy", "jsonl": ".jsonl"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--formats", nargs="+", default=list(SUFFIXES), choices=list(SUFFIXES))
    parser.add_argument("--state", default="zero", choices=["zero", "carry", "canonical"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # one thread: the children are forked
    rng = random.Random(options.seed)
    embedder = Embedder(Elmo.random(CONFIG), state=options.state)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "in.txt"
        text.write_text("".join(f"{line}\n" for line in lines(rng, options.lines)), encoding="utf-8")
        for name in options.formats:
            failures += trials(Path(folder), text, embedder, name, rng, options.kills)
    print("all outputs are equal" if not failures else f"{failures} outputs DIFFER")
    return 1 if failures else 0


def lines(rng: random.Random, count: int) -> list[str]:
    """Lines of made-up words, some of them blank."""
    words = ["".join(rng.choices("abcdefghijklmnoprstu", k=rng.randint(1, 9))) for _ in range(2000)]
    return [" ".join(rng.choices(words, k=rng.randint(0, 14))) if rng.random() < 0.9 else "" for _ in range(count)]


def trials(folder: Path, text: Path, embedder: Embedder, name: str, rng: random.Random, kills: int) -> int:
    whole = folder / name / f"out{SUFFIXES[name]}"
    whole.parent.mkdir()
    started = time.perf_counter()
    job = Job(text, whole, embedder)
    num_parts = job.watch(until=None)
    assert job.wait() == 0
    duration = time.perf_counter() - started
    expected = contents(whole.parent)
    moments, failures = [], 0
    for trial in range(kills):
        output = folder / f"{name}-{trial}" / whole.name
        output.parent.mkdir()
        for attempt in range(1 + trial % 2):
            job = Job(text, output, embedder, resume=attempt > 0)
            job.watch(
                until=min(rng.randint(0, num_parts + 4), num_parts + 1)
            )  # past the last part: while the output is assembled
            time.sleep(rng.uniform(0, duration / num_parts))
            job.kill()
            moments.append(stage(output))
        if Job(text, output, embedder, resume=True).wait() != 0 or contents(output.parent) != expected:
            failures += 1
            print(f"{name}, trial {trial}: the resumed output differs")
        shutil.rmtree(output.parent)
    size = sum(len(data) for data in expected.values())
    print(f"{name}: {size / 1e6:.1f} MB, {num_parts} parts; {len(moments)} kills in {kills} jobs, {failures} differ")
    print(f"  found at the kill: {'; '.join(moments)}", flush=True)
    return failures


class Job:
    """A job in a process of its own."""

    def __init__(self, text: Path, output: Path, embedder: Embedder, *, resume: bool = False) -> None:
        self.partial = output.with_name(f"{output.name}.partial")
        self._code: int | None = None
        self._child = os.fork()
        if self._child == 0:
            try:
                embed_files(text, output, embedder=embedder, resume=resume, dtype="float32", segment_words=1024)
                os._exit(0)
            except BaseException as problem:  # whatever it is, the child may not go on as a second parent
                print(f"{output.name}: {problem!r}", flush=True)
                os._exit(1)

    def watch(self, until: int | None) -> int:
        """Wait for so many parts (one more than there are: for the assembly), or for the end; the parts seen."""
        seen = 0
        while self._code is None:
            seen = max(seen, len(list(self.partial.glob("part-*.safetensors"))))
            if until is not None and seen + (self.partial / "assembly").exists() >= until:
                break
            self._ended(os.WNOHANG)
            time.sleep(0.001)
        return seen

    def kill(self) -> None:
        if self._code is None:
            os.kill(self._child, signal.SIGKILL)
            self.wait()

    def wait(self) -> int:
        """The exit code, or minus the signal that ended it."""
        while self._code is None:
            self._ended(0)
        return self._code

    def _ended(self, flag: int) -> None:
        pid, status = os.waitpid(self._child, flag)
        self._code = os.waitstatus_to_exitcode(status) if pid else None


def stage(output: Path) -> str:
    """What the killed job had reached."""
    partial = output.with_name(f"{output.name}.partial")
    if not partial.exists():
        return "complete" if output.exists() else "nothing"
    parts = len(list(partial.glob("part-*.safetensors")))
    return f"{parts} parts, assembling" if (partial / "assembly").exists() else f"{parts} parts"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.iterdir()}


if __name__ == "__main__":
    sys.exit(main())
