"""The paper's tables with our own model: a grid of tasks × variants × seeds, run side by side and resumed.

    python recipes/task_tables.py six --data EVAL --vectors glove.txt --elmo en-small -o OUT --jobs 6
    python recipes/task_tables.py layers placement --tasks sick srl squad --seeds 0 …
    python recipes/task_tables.py samples --tasks ner srl …
    python recipes/task_tables.py six layers --plan plan.txt --minutes 23 --jobs 15 …

EVAL holds the unpacked sets (`ner/conll2003`, `classify/sst5`, …; SETS below). Each run is a folder
OUT/runs/TASK/VARIANT-SEED with its results.json, and a log beside it; what has one is not run again, so a killed grid
goes on with the same command, and several tables share the runs they have in common. ELMo's layers are computed once
for all runs of a task, in OUT/elmo-layers/TASK. OUT/results.json and OUT/tables.md are written anew after every run,
from all runs there are. Options after `--` go to every training command.

On a GPU that is held for a short time: many small heads are bound by the host, so give it nearly a job a core (and let
NVIDIA's MPS share the GPU), `--plan` to say what comes first (a line `TASK VARIANT SEED` a run), and `--minutes`, in
which everything ends: a run that would be late stops after an epoch and says so in its results and in the tables (†).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Set:
    """A task on one set of files, the score that counts, and the paper's numbers for its own set of that task."""

    title: str
    task: str
    files: dict[str, str]
    score: str
    options: tuple[str, ...] = ()
    paper: str = "–"  # baseline → + ELMo, relative error reduction
    paper_layers: str = ""
    paper_places: str = ""

    @property
    def tested(self) -> str:
        """Its name beside scores of the test set, or of the development set for want of one."""
        return self.title + ("" if "test" in self.files else " (dev)")


def falling(epochs: int) -> tuple[str, ...]:
    """A rate that rises for a tenth of so many epochs and falls for the rest: shorter than waiting for a plateau."""
    return ("--schedule", "slanted", "--epochs", str(epochs), "--patience", str(epochs))


SETS = {
    "squad": Set(
        "SQuAD 1.1",
        "answer",
        {"train": "squad/train-v1.1.rebuilt.json", "dev": "squad/dev-v1.1.rebuilt.json"},
        "f1",
        paper="81.1 → 85.8 (24.9 %)",
        options=falling(epochs=6),
        paper_layers="80.8 / 84.7 / 85.0 / 85.2",
        paper_places="85.1 / 85.6 / 84.8",
    ),
    "sick": Set(
        "SICK",
        "infer",
        {
            "train": "nli/sick/SICK_train.txt",
            "dev": "nli/sick/SICK_trial.txt",
            "test": "nli/sick/SICK_test_annotated.txt",
        },
        "accuracy",
        (*falling(epochs=20), "--learning-rate", "2e-3"),
        paper="SNLI 88.0 → 88.7 (5.8 %)",
        paper_layers="SNLI 88.1 / 89.1 / 89.3 / 89.5",
        paper_places="SNLI 88.9 / 89.5 / 88.7",
    ),
    "cad": Set(
        "counterfactual SNLI",
        "infer",
        {"train": "nli/cad/train.tsv", "dev": "nli/cad/dev.tsv", "test": "nli/cad/test.tsv"},
        "accuracy",
        (*falling(epochs=16), "--learning-rate", "2e-3"),
        paper="SNLI 88.0 → 88.7 (5.8 %)",
        paper_layers="SNLI 88.1 / 89.1 / 89.3 / 89.5",
        paper_places="SNLI 88.9 / 89.5 / 88.7",
    ),
    "srl": Set(
        "roles, EWT",
        "roles",
        {part: f"srl/ewt-propbank.{part}.jsonl" for part in ("train", "dev", "test")},
        "f1",
        ("--skip-bad", *falling(epochs=15), "--learning-rate", "1.5e-3"),
        paper="OntoNotes 81.4 → 84.6 (17.2 %)",
        paper_layers="OntoNotes 81.6 / 84.1 / 84.6 / 84.8",
        paper_places="OntoNotes 84.7 / 84.3 / 80.9",
    ),
    "coref": Set(
        "coreference, LitBank",
        "coref",
        {part: f"coref/litbank.{part}.conll" for part in ("train", "dev", "test")},
        "conll_f1",
        ("--skip-bad", *falling(epochs=20)),
        paper="OntoNotes 67.2 → 70.4 (9.8 %)",
    ),
    "ner": Set(
        "names, CoNLL-2003",
        "tag",
        {"train": "ner/conll2003/eng.train", "dev": "ner/conll2003/eng.testa", "test": "ner/conll2003/eng.testb"},
        "f1",
        (*falling(epochs=12), "--batch-size", "64", "--learning-rate", "2e-3"),
        paper="90.15 → 92.22 (21 %)",
    ),
    "sst5": Set(
        "SST-5",
        "classify",
        {part: f"classify/sst5/{part}.txt" for part in ("train", "dev", "test")},
        "accuracy",
        ("--set", "phrases=yes", "--batch-size", "128", *falling(epochs=4)),
        paper="51.4 → 54.7 (6.8 %)",
    ),
}
TASKS_OF = {
    "six": tuple(SETS),
    "layers": ("squad", "cad", "srl"),
    "placement": ("squad", "cad", "srl"),
    "samples": ("srl", "ner"),
}
SHARES = (0.001, 0.01, 0.1, 1.0)
# Few examples make few steps an epoch, so a small share is learned from more often, in smaller batches.
SHARE_OPTIONS = {"0.001": (60, 4), "0.01": (40, 16), "0.1": (24, 32)}  # epochs, examples per batch
WITHOUT, WITH, RANDOM, TOP, HELD, WORDS = "glove", "elmo", "random", "top", "l2-1", "words"
WORDS_ALONE = ("ner",)  # where static vectors are also tried without the character CNN of the baseline


def variants_of(table: str, task: str) -> list[str]:
    """The variants that a table compares, by name."""
    if table == "six":
        return [WITHOUT, WITH, RANDOM] + [WORDS] * (task in WORDS_ALONE)
    if table == "layers":
        return [WITHOUT, TOP, HELD, WITH]
    if table == "placement":
        return [place_variant(task, place) for place in ("input", "both", "output")]
    return [share_variant(kind, share) for share in SHARES for kind in (WITHOUT, WITH)]


def place_variant(task: str, place: str) -> str:
    from elmokit.tasks import find_task

    return WITH if find_task(SETS[task].task).Config().inputs.elmo_at == place else f"at-{place}"


def share_variant(kind: str, share: float) -> str:
    return kind if share == 1 else f"{kind}-share-{share:g}"


def options_of(variant: str, elmo: str) -> list[str]:
    """A variant's options of the training command."""
    kind, _, share = variant.partition("-share-")
    options = ["--elmo", "none" if kind in (WITHOUT, WORDS) else elmo]
    if share:
        epochs, batch_size = SHARE_OPTIONS[share]
        options += ["--share", share, *falling(epochs), "--batch-size", str(batch_size)]
    if kind == WORDS:
        options += ["--character-filters", "0"]
    elif kind == RANDOM:
        options += ["--random-elmo", "yes"]
    elif kind == TOP:
        options += ["--elmo-layers", "top"]
    elif kind == HELD:
        options += ["--elmo-l2", "1"]
    elif kind.startswith("at-"):
        options += ["--elmo-at", kind.removeprefix("at-")]
    return options


@dataclass(frozen=True)
class Run:
    task: str
    variant: str
    seed: int

    @property
    def size(self) -> str:
        """What runs have in common that take about as long: the task and how much of it is learned from."""
        return self.task + self.variant.partition("-share-")[2]

    def folder(self, out: Path) -> Path:
        return out / "runs" / self.task / f"{self.variant}-{self.seed}"

    def arguments(self, given: argparse.Namespace, minutes: float | None = None) -> list[str]:
        data = SETS[self.task]
        files = [part for name, path in data.files.items() for part in (f"--{name}", str(given.data / path))]
        vectors = ["--vectors", given.vectors] if given.vectors else []
        common = [*vectors, "--seed", str(self.seed), "--layers-folder", str(layers_folder(given) / self.task)]
        common += [] if minutes is None else ["--minutes", f"{max(minutes, 1e-4):.4f}"]  # 0 would be no limit
        kept = [] if given.keep_models else ["--results-only"]
        own = [*data.options, *options_of(self.variant, given.elmo), *given.rest]
        return [data.task, *files, *common, *kept, *own, "-o", str(self.folder(given.out))]


def layers_folder(given: argparse.Namespace) -> Path:
    return given.layers_folder or given.out / "elmo-layers"


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    runs = list(dict.fromkeys(planned(given))) if given.plan is None else read_plan(given.plan)
    if given.report:
        print(report(given))
        return 0
    for task in {run.task for run in runs}:
        prepare(task, given.data)
    waiting = [run for run in runs if not (run.folder(given.out) / "results.json").exists()]
    print(f"{len(runs)} runs, {len(waiting)} of them to do", flush=True)
    clock, lock = Clock(given.minutes), threading.Lock()

    def do(run: Run) -> bool:
        if not clock.has_time_for(run.size):
            print(f"no time left for {run.folder(given.out)}", flush=True)
            return False
        began = time.monotonic()
        done = execute(run, given, clock.left())
        with lock:
            if done:
                clock.took(run.size, time.monotonic() - began)
            print(outcome(run, given, done, time.monotonic() - began), flush=True)
            report(given)
        return done

    with ThreadPoolExecutor(max(1, given.jobs)) as pool:
        outcomes = list(pool.map(do, waiting))
    print(report(given))
    return 0 if all(outcomes) else 1


class Clock:
    """How much time is left, and what runs of each size took so far."""

    def __init__(self, minutes: float | None) -> None:
        self._ends = None if minutes is None else time.monotonic() + 60 * minutes
        self._took: dict[str, float] = {}

    def left(self) -> float | None:
        """Minutes; `None` for no limit."""
        return None if self._ends is None else (self._ends - time.monotonic()) / 60

    def took(self, size: str, seconds: float) -> None:
        self._took[size] = min(seconds, self._took.get(size, seconds))

    def has_time_for(self, size: str) -> bool:
        """Whether as much is left as the shortest run of the size took, and a minute at least."""
        left = self.left()
        return left is None or 60 * left > max(60, self._took.get(size, 0))


def outcome(run: Run, given: argparse.Namespace, done: bool, seconds: float) -> str:
    """A line about a run that has ended: its scores, or where to read what went wrong."""
    folder = run.folder(given.out)
    if not done:
        return f"FAILED: {folder}, {seconds:.0f} s: see {folder}.log"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    scores = ", ".join(
        f"{part} {100 * results[part][SETS[run.task].score]:.2f}" for part in ("dev", "test") if results[part]
    )
    epochs = f"epochs {len(results['history'])}, ended by {results['ended_by']}"
    return f"done: {folder}, {seconds:.0f} s, {epochs}: {SETS[run.task].score} {scores}"


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    arguments = sys.argv[1:] if arguments is None else arguments
    place = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=tuple(TASKS_OF))
    parser.add_argument("--data", type=Path, required=True, help="the folder with the unpacked sets")
    parser.add_argument("--vectors", default=None, help="GloVe or word2vec text")
    parser.add_argument("--elmo", required=True, help="the ELMo model")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=tuple(SETS), default=None, help="instead of the table's own")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side; 0 runs them in this process")
    parser.add_argument("--minutes", type=float, default=None, help="in which all runs end; call again to go on")
    parser.add_argument(
        "--plan", type=Path, default=None, help="what to run and in which order: TASK VARIANT SEED a line"
    )
    parser.add_argument("--layers-folder", type=Path, default=None, help="of ELMo's layers, instead of OUT/elmo-layers")
    parser.add_argument("--report", action="store_true", help="run nothing, write the tables of what there is")
    parser.add_argument("--keep-models", action="store_true", help="keep the task models, not their results alone")
    given = parser.parse_args(arguments[:place])
    given.rest = arguments[place + 1 :]
    return given


def planned(given: argparse.Namespace) -> list[Run]:
    """Seed by seed, so that a grid that is stopped has whole tables of fewer seeds."""
    return [
        Run(task, variant, seed)
        for seed in given.seeds
        for table in given.tables
        for task in given.tasks or TASKS_OF[table]
        for variant in variants_of(table, task)
    ]


def read_plan(path: Path) -> list[Run]:
    """The runs of a file, one per line; `#` begins a remark."""
    runs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        if len(fields) != 3 or fields[0] not in SETS or not fields[2].isdigit():
            sys.exit(f"{path}:{number}: expected TASK VARIANT SEED, TASK one of {', '.join(SETS)}; found {line!r}")
        runs.append(Run(fields[0], fields[1], int(fields[2])))
    return list(dict.fromkeys(runs))


def prepare(task: str, data: Path) -> None:
    """LitBank's 100 documents in the order of their names: 80 to learn from, 10 to choose by, 10 to test on."""
    folder = data / "coref/litbank/conll"
    if task != "coref" or not folder.is_dir():
        return
    documents = sorted(folder.glob("*.conll"))
    for part, chosen in (("train", documents[:80]), ("dev", documents[80:90]), ("test", documents[90:])):
        path = data / SETS["coref"].files[part]
        if not path.exists():
            path.write_bytes(b"".join(document.read_bytes() for document in chosen))


def execute(run: Run, given: argparse.Namespace, minutes: float | None) -> bool:
    folder = run.folder(given.out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    arguments = run.arguments(given, minutes)
    if given.jobs == 0:
        from elmokit.cli import main as elmo

        return elmo(["task", "train", *arguments]) == 0
    threads = str(max(1, (os.cpu_count() or 1) // given.jobs))
    environment = {"OMP_NUM_THREADS": threads, **os.environ}
    with folder.with_name(folder.name + ".log").open("w") as log:
        command = [sys.executable, "-m", "elmokit", "task", "train", *arguments]
        return subprocess.run(command, stdout=log, stderr=log, env=environment).returncode == 0


def report(given: argparse.Namespace) -> str:
    """Write results.json and tables.md from all runs there are, and give the latter."""
    out: Path = given.out
    found: dict[str, dict[str, list[dict]]] = {}
    for run in runs_there_are(out):
        results = json.loads((run.folder(out) / "results.json").read_text(encoding="utf-8")) | {"seed": run.seed}
        found.setdefault(run.task, {}).setdefault(run.variant, []).append(results)
    writers = {"six": six_table, "layers": layers_table, "placement": placement_table, "samples": samples_table}
    shown = {
        table: {task: found[task] for task in given.tasks or TASKS_OF[table] if task in found} for table in given.tables
    }
    text = "\n\n".join(writers[table](shown[table]) for table in given.tables) + "\n"
    if "†" in text:
        text += "\n† the time that was given ended a run before its patience did\n"
    for name, contents in (("results.json", json.dumps(found, indent=1) + "\n"), ("tables.md", text)):
        temporary = out / f"{name}.tmp"
        temporary.write_text(contents, encoding="utf-8")
        temporary.replace(out / name)
    return text


def runs_there_are(out: Path) -> list[Run]:
    """The runs that have ended, whichever call began them; folders of other names, as of a run under way, are none."""
    runs = []
    for path in (out / "runs").glob("*/*/results.json"):
        variant, _, seed = path.parent.name.rpartition("-")
        if seed.isdigit() and variant:
            runs.append(Run(path.parent.parent.name, variant, int(seed)))
    return sorted(runs, key=lambda run: (run.task, run.variant, run.seed))


def scores_of(runs: list[dict], task: str, part: str) -> list[float]:
    scores = [run[part] or run["dev"] for run in runs]
    return [100 * score[SETS[task].score] for score in scores]


def cell(found: dict, task: str, variant: str, part: str = "dev") -> str:
    runs = found.get(task, {}).get(variant, [])
    scores = scores_of(runs, task, part)
    if not scores:
        return "…"
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    count = {1: " (one seed)", 2: " (two seeds)"}.get(len(scores), "")
    late = " †" if any(run.get("ended_by") == "minutes" for run in runs) else ""  # the clock ended one of them
    return f"{statistics.mean(scores):.2f}{spread}{count}{late}"


def rows(head: list[str], body: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def six_table(found: dict) -> str:
    """Test scores, or those of the development set where a task has no test set of its own."""
    body = []
    for task in found:
        cells = [cell(found, task, variant, "test") for variant in (WITHOUT, RANDOM, WITH)]
        means = [statistics.mean(scores_of(found[task].get(kind, []), task, "test") or [0]) for kind in (WITHOUT, WITH)]
        cut = f"{100 * (means[1] - means[0]) / (100 - means[0]):.1f} %" if all(means) else "…"
        body.append([SETS[task].tested, *cells, cut, SETS[task].paper])
    head = ["task", "baseline", "+ random ELMo", "+ ELMo", "relative error reduction", "paper: baseline → + ELMo"]
    alone = [
        f"\n\n{SETS[task].title}, static vectors without the character CNN: {cell(found, task, WORDS, 'test')}"
        for task in found
        if task in WORDS_ALONE
    ]
    return "### Baseline and ELMo\n\n" + rows(head, body) + "".join(alone)


def layers_table(found: dict) -> str:
    body = [
        [
            SETS[task].title,
            *(cell(found, task, variant) for variant in (WITHOUT, TOP, HELD, WITH)),
            SETS[task].paper_layers or "–",
        ]
        for task in found
    ]
    head = ["task (dev)", "no ELMo", "last layer only", "all, λ=1", "all, λ=0.001", "paper"]
    return "### Layer weighting\n\n" + rows(head, body)


def placement_table(found: dict) -> str:
    body = []
    for task in found:
        cells = [cell(found, task, place_variant(task, place)) for place in ("input", "both", "output")]
        body.append([SETS[task].title, *cells, SETS[task].paper_places or "–"])
    return "### Placement\n\n" + rows(["task (dev)", "input", "input and output", "output", "paper"], body)


def samples_table(found: dict) -> str:
    body = []
    for task in found:
        for share in SHARES:
            names = [share_variant(kind, share) for kind in (WITHOUT, WITH)]
            body.append(
                [
                    SETS[task].title,
                    f"{100 * share:g} %",
                    *(cell(found, task, name, "test") for name in names),
                    passed(found, task, *names),
                ]
            )
    head = ["task", "labels", "baseline", "+ ELMo", "epochs: baseline's best, and ELMo past it"]
    return "### Sample efficiency\n\n" + rows(head, body)


def passed(found: dict, task: str, without: str, with_elmo: str) -> str:
    """The epoch of the baseline's best score, and the first in which ELMo was above it, seed by seed."""
    pairs = []
    elmo = {run["seed"]: run for run in found[task].get(with_elmo, [])}
    for run in found[task].get(without, []):
        if run["seed"] in elmo:
            history, best = elmo[run["seed"]]["history"], max(run["history"])
            first = next((str(number) for number, score in enumerate(history, 1) if score > best), "never")
            pairs.append(f"{run['best_epoch']}, {first}")
    return "; ".join(pairs) or "…"


if __name__ == "__main__":
    sys.exit(main())
