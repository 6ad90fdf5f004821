"""How much of its speed is left to elmokit where other programs have the cores.

    python benchmarks/busy_machine.py [--before OTHER/src] [--setting NAME=VALUE] [--hogs 0 2 4] [--seconds 10]
                                      [--repeats 1] [--measures train evaluate embed]

Starts so many hogs (processes that do nothing but count), and measures words/s beside them:

    train      `elmo train --recipe tiny_cpu`
    evaluate   `LanguageModel.perplexity` in a process that begins as `elmo evaluate` does
    embed      `Embedder.embed`, a hundred sentences at a time, in a program of the user's own

Each is the best of so many repeats, taken in turns with the tree of another commit, if its `src` is given, and with
settings of the environment, such as GOMP_SPINCOUNT=300, OMP_WAIT_POLICY=passive or OMP_NUM_THREADS=1. "of quiet"
is the ratio to the same without hogs: a fair system leaves half to a program of as many threads as there are hogs,
where both are as many as the cores. "others" is how many cores all other programs used meanwhile, on average: beside
more than 0.1 a figure is not that of a quiet machine. With three numbers of hogs and two trees it takes four minutes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"
MEASURES = ("train", "evaluate", "embed")
SENTENCES = 100  # per call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the src folder of another commit")
    parser.add_argument("--setting", nargs="+", default=[], metavar="NAME=VALUE", help="each is measured too")
    parser.add_argument("--hogs", type=int, nargs="+", default=[0, 2, 4])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--measures", nargs="+", choices=MEASURES, default=MEASURES)
    parser.add_argument("--child", choices=MEASURES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        run_child(asked.child, asked.seconds)
        return
    ways = {"now": environment_of(HERE)}
    if asked.before:
        ways["before"] = environment_of(asked.before.resolve())
    for setting in asked.setting:
        ways[setting] = {**ways["now"], **dict([setting.split("=", 1)])}
    print(f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.1f}, best of {asked.repeats}\n")
    print("| measure | what | hogs | words/s | of quiet | others |\n|---|---|---|---|---|---|")
    for measure in asked.measures:
        quiet: dict[str, float] = {}
        for hogs in asked.hogs:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for _ in range(asked.repeats):
                for name, environment in ways.items():
                    found[name].append(watch_others(measure, environment, hogs, asked.seconds))
            for name, results in found.items():
                speed, others = max(results)
                quiet.setdefault(name, speed)
                ratio = f"{speed / quiet[name]:.0%}" if asked.hogs[0] == 0 else "–"
                print(f"| {measure} | {name} | {hogs} | {speed:,.0f} | {ratio} | {others:.1f} |", flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end, hogs included")


def watch_others(measure: str, environment: dict[str, str], hogs: int, seconds: float) -> tuple[float, float]:
    """Words/s, and the cores that neither this nor the hogs used."""
    start, busy, ours = time.perf_counter(), busy_seconds(), own_seconds()
    with Hogs(hogs):
        speed = (
            measure_training(environment, seconds) if measure == "train" else ask_child(measure, environment, seconds)
        )
    others = busy_seconds() - busy - (own_seconds() - ours)
    return speed, max(0.0, others) / (time.perf_counter() - start)


class Hogs:
    """So many processes that do nothing but count, until the end of a block."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        code = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n  for _ in range(10**6): pass"
        count = [sys.executable, "-S", "-c", code]  # ends with this program, however that ends
        self.processes = [subprocess.Popen(count) for _ in range(self.number)]

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def measure_training(environment: dict[str, str], seconds: float) -> float:
    """Words/s of all steps but the first, which warms up; of that one if there is no other."""
    with tempfile.TemporaryDirectory() as folder:
        text, model = Path(folder, "text.txt"), Path(folder, "model")
        text.write_text("\n".join(" ".join(sentence) for sentence in sample(4000)) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "elmokit", "train", str(text), "-o", str(model), "--recipe", "tiny_cpu"]
        command += ["--tokenised", "--workers", "1", "--log-every", "1000", "--minutes", str(seconds / 60)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        lines = map(json.loads, Path(f"{model}.training", "log.jsonl").read_text(encoding="utf-8").splitlines())
        steps = [(line["tokens"], line["words_per_second"]) for line in lines if line["kind"] == "train"]
    ends = [0, *(tokens for tokens, _ in steps)]
    counted = [(after - before, speed) for (before, after), (_, speed) in zip(pairwise(ends), steps, strict=True)]
    counted = counted[min(1, len(counted) - 1) :]
    return sum(count for count, _ in counted) / sum(count / speed for count, speed in counted)


def ask_child(measure: str, environment: dict[str, str], seconds: float) -> float:
    """What a child of this program tells."""
    command = [sys.executable, __file__, "--child", measure, "--seconds", str(seconds)]
    return float(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def run_child(measure: str, seconds: float) -> None:
    """Compute until the time is over; the last call may take longer."""
    if measure == "evaluate":
        try:
            from elmokit.cores import use_threads
        except ImportError:  # a tree before there was one
            pass
        else:
            use_threads()
    from elmokit import Embedder, LanguageModel

    compute = (
        LanguageModel.from_pretrained("en-small").perplexity
        if measure == "evaluate"
        else Embedder.from_pretrained("en-small").embed
    )
    size = SENTENCES if measure == "embed" else SENTENCES // 10
    sentences = sample(4000)
    compute(sentences[:size])
    start, words, first = time.perf_counter(), 0, size
    while time.perf_counter() - start < seconds:
        taken = sentences[first : first + size]
        compute(taken)
        words += sum(map(len, taken))
        first = (first + size) % (len(sentences) - size)
    print(words / (time.perf_counter() - start))


def sample(number: int) -> list[list[str]]:
    from elmokit.bench.texts import sample_text

    return sample_text(number).sentences


def environment_of(tree: Path) -> dict[str, str]:
    """As it is, without what would decide about threads."""
    decide = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    return {**{name: value for name, value in os.environ.items() if name not in decide}, "PYTHONPATH": str(tree)}


def busy_seconds() -> float:
    """Seconds that all cores have worked since the machine started."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Seconds that this process and those it has waited for have worked."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
