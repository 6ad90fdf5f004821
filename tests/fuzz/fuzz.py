"""`make fuzz MINUTES=10 SEED=1`: spoil model folders, tasks, trainings, jobs, texts and command lines, and look.

Minutes and a seed come in; counts leave, and every failure with a folder in which it can be seen again. A case is the
copy of a healthy specimen with one or two mutations, and a command that reads it. It is a function of the seed and its
number: `--only NUMBER` runs it alone. Commands run in children that are forked from one process in which everything is
imported, so a case takes a fraction of a second.

A failure is: a traceback, an exit code other than 0, 2 and 130, more than one line of error, the word "unexpected", NaN
in a result, a mutation taken that must be refused, more memory for a refused file than twice its size and 200 MB over
what the healthy one takes, a connection to the network, a hang.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from mutations import mutate, mutate_arguments  # noqa: E402 - neighbours, found through the line above
from specimens import Specimen, list_specimens, make_specimens  # noqa: E402

ROOT = Path(__file__).parents[2]
LONGEST = 60.0  # seconds after which a case hangs
LARGEST = 8 << 30  # bytes that a case may allocate: what asks for more fails without hurting the machine
SLACK = 200e6
# Exit code 1 is for disks and paths that cannot be written; a spoiled command line may well name one.
MAY_FAIL_TO_WRITE = {"command": ("OutputError", "MissingExtra", "TrainingError")}


@dataclass
class Case:
    """One mutated copy of a specimen, and the command for it."""

    number: int
    specimen: Specimen
    arguments: list[str]
    mutations: list[str] = field(default_factory=list)
    num_bytes: int = 0

    @property
    def must_be_refused(self) -> bool:
        """Whether one of the mutations may never be taken; a second one may have undone it."""
        is_read = "softmax" not in self.mutations[0] or self.arguments[0] in ("evaluate", "predict", "convert")
        return len(self.mutations) == 1 and ": !" in self.mutations[0] and is_read


@dataclass
class Outcome:
    """What came of it."""

    code: int
    output: str
    error: str
    peak: int = 0
    problem: str = ""
    connected: bool = False
    hung: bool = False
    has_nan: bool = False


def make_case(specimens: Sequence[Specimen], seed: int, number: int, folder: Path) -> Case:
    """The case of this number, its files in `folder`."""
    draw = random.Random(f"{seed}/{number}")
    specimen = specimens[number % len(specimens)]
    shutil.copytree(specimen.folder, folder)
    case = Case(number, specimen, list(draw.choice(specimen.commands)))
    if not specimen.target:
        case.arguments = mutate_arguments(case.arguments, draw)
        case.mutations = ["command line"]
        return case
    for _ in range(draw.choice([1, 1, 1, 2])):
        target = folder / specimen.target
        files = sorted(path for path in [target, *target.rglob("*")] if path.is_file() and not path.is_symlink())
        weighted = [path for path in files for _ in range(1 if path.suffix in (".md", ".jsonl") else 4)]
        if not weighted:
            break
        path = draw.choice(weighted)
        # What the user names himself may be a link, and text may come from a pipe.
        what = mutate(path, draw, keeps_kind=path == target or specimen.name == "text")
        case.mutations.append(f"{path.relative_to(folder)}: {what}")
    sizes = [path.stat().st_size for path in (folder / specimen.target, *target.rglob("*")) if path.is_file()]
    case.num_bytes = max([0, *(size for size in sizes if size < 1 << 32)])
    return case


def judge(case: Case, outcome: Outcome, healthy_peak: int) -> list[str]:
    """What is wrong with an outcome."""
    lines = [line for line in outcome.error.splitlines() if line.strip()]
    allowed = MAY_FAIL_TO_WRITE.get(case.specimen.name, ())
    found = {
        "hangs": outcome.hung,
        "traceback": "Traceback (most recent call last)" in outcome.error,
        f"exit code {outcome.code}": not outcome.hung
        and outcome.code not in (0, 2, 130)
        and not (outcome.code == 1 and outcome.problem in allowed),
        "unexpected": "elmo: unexpected" in outcome.error,
        f"{len(lines)} lines of error": outcome.code == 2 and len(lines) != 1,
        "no line of our own": outcome.code == 2 and not (lines and lines[-1].startswith("elmo: ")),
        "NaN in the result": outcome.code == 0 and outcome.has_nan and not {"nan", "inf"} & {*case.arguments},
        "taken, not refused": outcome.code == 0 and case.must_be_refused,
        "connects": outcome.connected and case.specimen.name != "command",
    }
    if outcome.code == 2 and healthy_peak and outcome.peak - healthy_peak > 2 * case.num_bytes + SLACK:
        found[f"{(outcome.peak - healthy_peak) / 1e6:,.0f} MB for a file of {case.num_bytes:,} bytes"] = True
    return [what for what, holds in found.items() if holds]


# ---------------------------------------------------------------- children

Collect = Callable[[int | None], Outcome]


def run_in_child(folder: Path, arguments: Sequence[str], outputs: Sequence[str]) -> tuple[int, Collect]:
    """Start a command in a fork of this process; its number, and what to call with its exit status once it ended."""
    place = folder.with_name(f"{folder.name}.said")
    place.mkdir()
    child = os.fork()
    if child == 0:
        _be_the_child(folder, list(arguments), place)

    def collect(status: int | None) -> Outcome:
        output, error = ((place / name).read_text("utf-8", "backslashreplace") for name in ("output", "error"))
        told = json.loads((place / "report.json").read_text()) if (place / "report.json").is_file() else {}
        code = -1 if status is None else os.waitstatus_to_exitcode(status)
        results = output + "".join(_read_result(folder / name) for name in outputs)
        has_nan = re.search(r"(?<![\w.\"'<-])(nan|inf|NaN|Infinity)(?![\w\"'>-])", results) is not None
        return Outcome(code, output, error, **told, hung=status is None, has_nan=has_nan)

    return child, collect


def _be_the_child(folder: Path, arguments: list[str], place: Path) -> None:
    code, told = 99, {"peak": 0, "problem": "", "connected": False}
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number, name in ((0, os.devnull), (1, place / "output"), (2, place / "error")):
            os.dup2(os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT), number)
        for limit, value in ((resource.RLIMIT_DATA, LARGEST), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (value, value))
        os.chdir(folder)
        _watch(told)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
        from elmokit.cli import main

        code = main(arguments)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - whatever escapes is what this program looks for
        traceback.print_exc()
    finally:
        try:
            status = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else ""
            told["peak"] = 1024 * int((re.search(r"VmHWM:\s+(\d+)", status) or [0, 0])[1])
            (place / "report.json").write_text(json.dumps(told))
        finally:
            os._exit(code)


def _watch(told: dict[str, Any]) -> None:
    """Note what becomes of a command: the kind of its error, and whether it reaches for the network."""
    from elmokit import cli

    explain = cli._explain

    def note(problem: Exception) -> tuple[int, str]:
        told["problem"] = type(problem).__name__
        return explain(problem)

    def connect(*_: object) -> None:
        told["connected"] = True
        raise OSError("no network here")

    cli._explain = note
    socket.socket.connect = connect  # pyright: ignore[reportAttributeAccessIssue]


def _read_result(path: Path) -> str:
    """The numbers of a result as text."""
    if not path.is_file():
        return ""
    if path.suffix == ".npy":
        import numpy as np

        return " nan " if not np.isfinite(np.load(path)).all() else ""
    return path.read_text("utf-8", "replace")


def wait_for(child: int, seconds: float) -> int | None:
    """The exit status of a child; `None` for one that took too long, and is gone."""
    end, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(pause)
        pause = min(0.02, 1.3 * pause)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


# ---------------------------------------------------------------- the hunt


class Hunt:
    """A run of many cases.

    Arguments:
        root: the specimens are made here.
        seed: decides every mutation.
        keep: failures are kept here.
        kinds: names of specimens to be used, all if empty.
    """

    def __init__(self, root: Path, seed: int, keep: Path, kinds: Sequence[str] = ()) -> None:
        self.seed, self.keep, self._root = seed, keep, root
        _import_everything(trains=not kinds or bool({"training", "streams", "text", "command"} & {*kinds}))
        child = os.fork()
        if child == 0:  # what computes is kept out of this process, so that it has no threads when it forks
            code = 1
            try:
                with (root / "specimens.log").open("w") as log, contextlib.redirect_stdout(log):
                    make_specimens(root / "specimens", kinds)
                code = 0
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            finally:
                os._exit(code)
        if wait_for(child, 600) != 0:
            raise SystemExit("the specimens could not be made")
        self.specimens = [each for each in list_specimens(root / "specimens") if not kinds or each.name in kinds]
        self.peaks: dict[tuple[str, ...], int] = {}
        self.codes: Counter[tuple[str, int]] = Counter()
        self.failures: dict[str, list[int]] = {}

    def check_healthy(self) -> Iterator[str]:
        """Run every command on its healthy specimen; what it says if it fails."""
        for number, specimen in enumerate(self.specimens):
            for place, arguments in enumerate(specimen.commands):
                folder = self._root / f"healthy-{number}-{place}"
                shutil.copytree(specimen.folder, folder)
                child, collect = run_in_child(folder, arguments, specimen.outputs)
                outcome = collect(wait_for(child, 2 * LONGEST))
                self.peaks[(specimen.name, *arguments)] = outcome.peak
                if outcome.code or outcome.has_nan:
                    yield f"{specimen.name}: {' '.join(arguments)}: exit code {outcome.code}: {outcome.error[-500:]}"
                self._clean(folder)

    def run(self, numbers: Iterable[int], *, minutes: float, at_once: int) -> None:
        """Run the cases of these numbers, some at once, until the time is over."""
        end, numbers, running = time.monotonic() + 60 * minutes, iter(numbers), {}
        while True:
            while len(running) < at_once and time.monotonic() < end:
                number = next(numbers, None)
                if number is None:
                    end = 0.0
                    break
                case = make_case(self.specimens, self.seed, number, self._root / f"case-{number}")
                child, collect = run_in_child(self._root / f"case-{number}", case.arguments, case.specimen.outputs)
                running[child] = case, collect, time.monotonic() + LONGEST
            if not running:
                return
            for child, (case, collect, latest) in list(running.items()):
                done, status = os.waitpid(child, os.WNOHANG)
                if done or time.monotonic() > latest:
                    del running[child]
                    self._finish(case, collect(status if done else wait_for(child, 0)))
            time.sleep(0.004)

    def _finish(self, case: Case, outcome: Outcome) -> None:
        healthy = self.peaks.get((case.specimen.name, *case.arguments), 0)
        wrong = judge(case, outcome, healthy)
        self.codes[case.specimen.name, outcome.code] += 1
        self._clean(self._root / f"case-{case.number}")
        if wrong:
            self._keep(case, outcome, wrong)

    def _keep(self, case: Case, outcome: Outcome, wrong: list[str]) -> None:
        """Keep the first failure of each kind with its files, as they were before the command ran."""
        last = (outcome.error.strip().splitlines() or [""])[-1]
        told = re.sub(r"\d+", "0", re.sub(r"'[^']*'|/\S+", "…", last))[:100]
        key = (
            f"{case.specimen.name.split('-')[0]}: {', '.join(re.sub(r'[0-9,]+', '0', each) for each in wrong)}: {told}"
        )
        self.failures.setdefault(key, []).append(case.number)
        if len(self.failures[key]) > 1:
            return
        folder = self.keep / f"seed-{self.seed}" / f"case-{case.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_case(self.specimens, self.seed, case.number, folder)
        about = [
            f"wrong: {', '.join(wrong)}",
            f"command: elmo {' '.join(map(repr, case.arguments))}",
            *(f"mutation: {each}" for each in case.mutations),
            f"exit code: {outcome.code}, peak: {outcome.peak / 1e6:,.0f} MB, problem: {outcome.problem}",
            outcome.error[-3000:],
        ]
        (folder / "about.txt").write_text("\n".join(about) + "\n", "utf-8", "backslashreplace")
        say("\n".join(["", f"case {case.number} ({folder})", *about[:4], *about[4].splitlines()[-3:]]))

    def _clean(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_name(f"{folder.name}.said"), ignore_errors=True)


def _import_everything(*, trains: bool) -> None:
    import torch

    import elmokit

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(elmokit.__path__, "elmokit."):
        if "adapters" not in module.name and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # a framework that is not installed
                importlib.import_module(module.name)
    for name in ("torch._dynamo", "torch.distributed.optim") if trains else ():  # which each training would import
        importlib.import_module(name)


def say(text: str) -> None:
    """A line for whoever watches, whatever is in it."""
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


def main() -> int:
    """Hunt, and say what was found; exit code 1 if it was anything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, default=None, help="run the case of this number alone")
    parser.add_argument("--at-once", type=int, default=2, help="cases that run at the same time")
    parser.add_argument("--kinds", nargs="*", default=())
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz")
    options = parser.parse_args()
    os.environ.update({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"})
    say(f"seed {options.seed}")
    warnings.filterwarnings("ignore", "Duplicate name")  # in a zip: that is what a mutation wants
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # waits for no disk
    with tempfile.TemporaryDirectory(prefix="elmokit-fuzz-", dir=memory) as root:
        hunt = Hunt(Path(root), options.seed, options.keep, options.kinds)
        sick = list(hunt.check_healthy())
        for line in sick:
            say(f"not healthy: {line}")
        started = time.monotonic()
        numbers = [options.only] if options.only is not None else range(options.cases)
        hunt.run(numbers, minutes=options.minutes, at_once=options.at_once)
        minutes = (time.monotonic() - started) / 60
    total = sum(hunt.codes.values())
    speed = total / max(minutes, 1e-9)
    say(f"\nseed {options.seed}: {total:,} cases in {minutes:.1f} minutes, {speed:,.0f} per minute")
    for specimen in hunt.specimens:
        counts = {code: count for (name, code), count in sorted(hunt.codes.items()) if name == specimen.name}
        told = ", ".join(f"{count:,} × exit code {code}" for code, count in counts.items())
        say(f"  {specimen.name:14} {told}")
    say(f"{sum(map(len, hunt.failures.values())):,} failures of {len(hunt.failures)} kinds")
    for key, cases in sorted(hunt.failures.items(), key=lambda each: -len(each[1])):
        say(f"  {len(cases):5,} × {key} (--seed {options.seed} --only {cases[0]})")
    return 1 if hunt.failures or sick else 0


if __name__ == "__main__":
    sys.exit(main())
