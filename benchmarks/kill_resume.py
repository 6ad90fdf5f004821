"""Whole-file jobs and trainings killed with SIGKILL at random moments, resumed, and compared byte by byte.

    python benchmarks/kill_resume.py                                         ten jobs a format, ten trainings
    python benchmarks/kill_resume.py --kills 2 --lines 500 --formats npy     a quick look

For each format a job runs undisturbed in a process of its own. Then, ten times, the same job is started anew, killed at
a random moment, resumed, and (every other time) killed and resumed again; the output must have the bytes of the
undisturbed one, and nothing else may lie beside it. A moment is a random number of finished parts, or the assembly of
the output, and a random time after it: on a busy machine the clock alone would find most jobs at their start. A
training is killed as often, while it encodes, steps or saves; its log, apart from speeds, and its model must be those
of the undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path

import torch

from elmokit import CharConfig, Elmo, ElmoConfig, Embedder, LstmConfig
from elmokit.embed.files import embed_files
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.train import train

CONFIG = ElmoConfig(
    CharConfig(dim=4, filters=((1, 8), (2, 8), (3, 16))), lstm=LstmConfig(cell_dim=64, projection_dim=32)
)
SUFFIXES = {"parquet": ".parquet", "hdf5": ".hdf5", "npy": ".npy", "jsonl": ".jsonl"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--formats", nargs="*", default=list(SUFFIXES), choices=list(SUFFIXES))
    parser.add_argument("--trainings", type=int, help="as --kills unless given")
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
        failures += training_trials(
            Path(folder), rng, options.kills if options.trainings is None else options.trainings
        )
    print("all outputs are equal" if not failures else f"{failures} outputs DIFFER")
    return 1 if failures else 0


def lines(rng: random.Random, count: int) -> list[str]:
    """Lines of made-up words, some of them blank."""
    words = ["".join(rng.choices("abcdefghijklmnoprstu", k=rng.randint(1, 9))) for _ in range(2000)]
    return [" ".join(rng.choices(words, k=rng.randint(0, 14))) if rng.random() < 0.9 else "" for _ in range(count)]


def embed(text: Path, output: Path, embedder: Embedder, *, resume: bool = False) -> None:
    embed_files(text, output, embedder=embedder, resume=resume, dtype="float32", segment_words=1024)


def trials(folder: Path, text: Path, embedder: Embedder, name: str, rng: random.Random, kills: int) -> int:
    whole = folder / name / f"out{SUFFIXES[name]}"
    whole.parent.mkdir()
    started = time.perf_counter()
    job = Job(lambda: embed(text, whole, embedder), whole)
    num_parts = job.watch_parts(until=None)
    assert job.wait() == 0
    duration = time.perf_counter() - started
    expected = contents(whole.parent)
    moments, failures = [], 0
    for trial in range(kills):
        output = folder / f"{name}-{trial}" / whole.name
        output.parent.mkdir()
        for attempt in range(1 + trial % 2):
            job = Job(lambda output=output, attempt=attempt: embed(text, output, embedder, resume=attempt > 0), output)
            job.watch_parts(
                until=min(rng.randint(0, num_parts + 4), num_parts + 1)
            )  # past the last part: while the output is assembled
            time.sleep(rng.uniform(0, duration / num_parts))
            job.kill()
            moments.append(stage(output))
        last = Job(lambda output=output: embed(text, output, embedder, resume=True), output)
        if last.wait() != 0 or contents(output.parent) != expected:
            failures += 1
            print(f"{name}, trial {trial}: the resumed output differs")
        shutil.rmtree(output.parent)
    size = sum(len(data) for data in expected.values())
    print(f"{name}: {size / 1e6:.1f} MB, {num_parts} parts; {len(moments)} kills in {kills} jobs, {failures} differ")
    print(f"  found at the kill: {'; '.join(moments)}", flush=True)
    return failures


def training_trials(folder: Path, rng: random.Random, count: int) -> int:
    """Kill trainings while they encode, step and save."""
    if not count:
        return 0
    prepare_training()
    text = folder / "text.txt"
    text.write_text("".join(f"{line}\n" for line in lines(rng, 300)), encoding="utf-8")
    whole = folder / "train" / "model"
    whole.parent.mkdir()
    started = time.perf_counter()
    assert Job(lambda: train_tiny(text, whole), whole).wait() == 0
    duration = time.perf_counter() - started
    expected, num_lines = trained(whole), num_logged(whole.with_name("model.training") / "log.jsonl")
    moments, failures = [], 0
    for trial in range(count):
        model = folder / f"train-{trial}" / "model"
        model.parent.mkdir()
        for _ in range(1 + trial % 2):
            job = Job(lambda model=model: train_tiny(text, model), model)
            log, num_more = model.with_name("model.training") / "log.jsonl", rng.randrange(num_lines)
            before = num_logged(log)
            job.watch(lambda log=log, wanted=before + num_more: num_logged(log) >= wanted)
            # Before the first line there is more to meet: encoding, building. After the last, the model is saved.
            time.sleep(rng.uniform(0, duration / (2 if num_more == 0 else num_lines)))
            job.kill()
            moments.append(training_stage(model))
        if Job(lambda model=model: train_tiny(text, model), model).wait() != 0 or trained(model) != expected:
            failures += 1
            print(f"training, trial {trial}: the resumed run differs, there lies {sorted(trained(model))}")
        shutil.rmtree(model.parent)
    print(f"training: {duration:.1f} s undisturbed; {len(moments)} kills in {count} trainings, {failures} differ")
    print(f"  found at the kill: {'; '.join(moments)}", flush=True)
    return failures


def prepare_training() -> None:
    """Once, before processes are forked: importing them takes longer than training does."""
    for name in ("torch._dynamo", "torch.distributed.optim"):
        import_module(name)
    # A model card names the commit, which may change while this runs.
    import_module("elmokit.pretrain.train").describe_version = lambda: "of this run"


def train_tiny(text: Path, model: Path, report: Callable[[dict], object] | None = None) -> None:
    characters = CharConfig(max_length=12, dim=4, filters=((1, 4), (2, 8)), num_highways=1)
    lstm = LstmConfig(cell_dim=12, projection_dim=8, cell_clip=None, projection_clip=None)
    every = {"warmup_tokens": 300, "evaluate_every": 1000, "checkpoint_every": 200, "log_every": 150}
    sizes = {"vocabulary_size": 500, "tokens": 3000, "tokens_per_batch": 100}
    config = TrainConfig(model=ElmoConfig(characters, lstm=lstm), **sizes, **every)
    train([text], model, config, tokenised=True, workers=1, device="cpu", report=report)


def trained(model: Path) -> dict[str, object]:
    """All that a finished training left."""
    folder = model.with_name(f"{model.name}.training")
    if not (model / "config.json").exists():
        return {name: None for name in os.listdir(model.parent)}
    others = sorted(os.listdir(model.parent)), sorted(os.listdir(folder))
    return {"log": losses(folder), "model": contents(model), "others": others}


def losses(folder: Path) -> list[dict]:
    """The log of a training without its speeds, which no two runs share."""
    read = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in read]


def num_logged(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def training_stage(model: Path) -> str:
    """What the killed training had reached."""
    folder = model.with_name(f"{model.name}.training")
    if model.exists():
        return "complete"
    if not (folder / "corpus").exists():
        return "encoding" if folder.exists() else "nothing"
    saved = list((folder / "checkpoints").glob("*.pt"))
    if list(model.parent.glob(".model.*")):
        return "saving the model"
    return f"step {int(max(saved).stem.removeprefix('step-'))}" if saved else "no checkpoint"


@contextmanager
def silently() -> Iterator[None]:
    """What is said for people is not shown; a problem still is."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


class Job:
    """A job in a process of its own."""

    def __init__(self, work: Callable[[], object], output: Path) -> None:
        self.partial = output.with_name(f"{output.name}.partial")
        self._code: int | None = None
        self._child = os.fork()
        if self._child == 0:
            try:
                with silently():
                    work()
                os._exit(0)
            except BaseException as problem:  # whatever it is, the child may not go on as a second parent
                print(f"{output.name}: {problem!r}", flush=True)
                os._exit(1)

    def watch(self, is_reached: Callable[[], bool]) -> None:
        """Wait until something is reached, or for the end."""
        while self._code is None and not is_reached():
            self._ended(os.WNOHANG)
            time.sleep(0.001)

    def watch_parts(self, until: int | None) -> int:
        """Wait for so many parts (one more than there are: for the assembly), or for the end; the parts seen."""
        seen = 0

        def is_reached() -> bool:
            nonlocal seen
            seen = max(seen, len(list(self.partial.glob("part-*.safetensors"))))
            return until is not None and seen + (self.partial / "assembly").exists() >= until

        self.watch(is_reached)
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
