"""Two jobs at once on one output: one of them makes it, whole; the other is refused, and harms nothing.

    python benchmarks/racing_jobs.py                                 200 pairs, about 3 minutes on a free core
    python benchmarks/racing_jobs.py --pairs 8 --kinds npy train     a quick look

Three pairs of four embed two different texts into one file (all formats; both jobs with `resume`, with `overwrite`, or
with neither), one of four trains twice on one text in one folder. The second job begins at a random moment of
the first one's life. Afterwards the output must have exactly the bytes that a job alone makes of one of the two texts,
a job that said it was done must have been; and nothing else may lie beside the output.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from kill_resume import CONFIG, SUFFIXES, contents, lines, losses, prepare_training, silently, train_tiny

from elmokit import Elmo, Embedder
from elmokit.embed.files import embed_files
from elmokit.errors import BusyError, ElmoError

DONE, REFUSED, WAS_THERE, BROKEN = 0, 2, 3, 1
REFUSALS = re.compile("exists already|an unfinished job lies")
WAYS = ({"resume": True}, {}, {"overwrite": True})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=1500)
    parser.add_argument("--kinds", nargs="+", default=[*SUFFIXES, "train"], choices=[*SUFFIXES, "train"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # one thread: the children are forked
    rng = random.Random(options.seed)
    seen: Counter[str] = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [folder / "1.txt", folder / "2.txt"]
        for text in texts:
            text.write_text("".join(f"{line}\n" for line in lines(rng, options.lines)), encoding="utf-8")
        races: dict[str, Race] = {}
        for number in range(options.pairs):
            embeds = [kind for kind in options.kinds if kind != "train"]
            # One turn in four trains; the formats take the others by turns.
            is_training = number % 4 == 3 and "train" in options.kinds
            kind = "train" if is_training else embeds[(number - number // 4) % len(embeds)]
            if kind not in races:
                races[kind] = Training(folder) if kind == "train" else Embedding(folder, texts, SUFFIXES[kind])
            way = WAYS[number // 4 % 3]
            problem, outcome = races[kind].run(folder / f"race-{number}", way, rng)
            seen[f"{'train' if kind == 'train' else 'embed'}: {outcome}"] += 1
            if problem:
                problems.append(f"pair {number} ({kind}, {way}): {problem}")
                print(problems[-1], flush=True)
    print("; ".join(f"{outcome} {count}" for outcome, count in sorted(seen.items())))
    print(f"{options.pairs} pairs, {len(problems)} mixed or lost")
    return 1 if problems else 0


class Race:
    """Two jobs, and what each alone would leave behind."""

    jobs: list[Callable[[Path, dict[str, bool]], int]]
    expected: list[object]
    seconds: float

    def run(self, folder: Path, way: dict[str, bool], rng: random.Random) -> tuple[str, str]:
        """What is wrong, or nothing; and how both jobs ended."""
        folder.mkdir()
        order = rng.sample((0, 1), 2)
        children = []
        for place in order:
            children.append(start(lambda place=place: self.jobs[place](folder, way)))
            if len(children) == 1:
                time.sleep(rng.uniform(0, 1.1 * self.seconds))
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        outcome = " and ".join(
            sorted({DONE: "done", REFUSED: "refused", WAS_THERE: "was there"}.get(c, "broken") for c in codes)
        )
        done = [place for place, code in zip(order, codes, strict=True) if code == DONE]
        if any(code not in (DONE, REFUSED, WAS_THERE) for code in codes):
            return f"a job broke down: exit codes {codes}", outcome
        if not done:
            return f"no job was done: exit codes {codes}", outcome
        if len(done) == 2 and not way.get("overwrite"):
            return "both jobs say that they made the output", outcome
        found = self.look(folder)
        if not any(found == self.expected[place] for place in done):
            return (
                f"the output is not that of a job that was done ({len(done)} were); there lies {os.listdir(folder)}",
                outcome,
            )
        return "", outcome

    def measure(self, folder: Path) -> None:
        """Run each job alone."""
        self.expected = []
        for number, job in enumerate(self.jobs):
            alone = folder / f"alone-{type(self).__name__}-{id(self)}-{number}"
            alone.mkdir()
            began = time.perf_counter()
            child = start(lambda job=job, alone=alone: job(alone, {}))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DONE
            self.seconds = time.perf_counter() - began
            self.expected.append(self.look(alone))

    def look(self, folder: Path) -> object:
        """What lies in the folder."""
        raise NotImplementedError


class Embedding(Race):
    def __init__(self, folder: Path, texts: list[Path], suffix: str) -> None:
        embedder = Embedder(Elmo.random(CONFIG))
        self.jobs = [
            lambda place, way, text=text: self.embed(text, place / f"out{suffix}", embedder, way) for text in texts
        ]
        self.measure(folder)

    def embed(self, text: Path, output: Path, embedder: Embedder, way: dict[str, bool]) -> int:
        report = embed_files(text, output, embedder=embedder, dtype="float32", segment_words=1024, **way)
        return WAS_THERE if report.was_complete else DONE

    def look(self, folder: Path) -> object:
        return contents(folder)


class Training(Race):
    def __init__(self, folder: Path) -> None:
        text = folder / "train.txt"
        text.write_text("".join(f"{line}\n" for line in lines(random.Random(1), 300)), encoding="utf-8")
        prepare_training()
        self.jobs = [lambda place, way: self.train(text, place / "model")] * 2
        self.measure(folder)

    def train(self, text: Path, model: Path) -> int:
        logged: list[object] = []
        train_tiny(text, model, report=logged.append)
        return DONE if logged else WAS_THERE

    def look(self, folder: Path) -> object:
        others = sorted(os.listdir(folder)), sorted(os.listdir(folder / "model.training"))
        return losses(folder / "model.training"), contents(folder / "model"), others


def start(job: Callable[[], int]) -> int:
    """Run a job in a process of its own; gives its number."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            with silently():
                code = job()
        except ElmoError as problem:
            code = REFUSED if isinstance(problem, (ValueError, BusyError)) or REFUSALS.search(str(problem)) else BROKEN
            if code == BROKEN:
                print(f"{problem!r}", flush=True)
        except BaseException as problem:  # whatever it is, the child may not go on as a second parent
            print(f"{problem!r}", flush=True)
        os._exit(code)
    return child


if __name__ == "__main__":
    sys.exit(main())
