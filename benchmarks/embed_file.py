"""Text to vectors on the disk: `elmo embed` of a large file beside the engine alone on the same sentences.

    python benchmarks/embed_file.py corpus.txt                     # a million words, random weights of the small size
    python benchmarks/embed_file.py corpus.txt --words 100000 --precision int8 --model my-model

The engine alone is `Embedder.embed_batches`, words to average vectors in memory, over the batches that the command
takes; the text is split into words before the clock starts. The command is `elmo embed` to float16 Parquet as a process
of its own, measured from its start to its end: importing, loading, splitting, embedding, writing. Both run one after
the other, `--runs` times; medians are compared. Seconds of the processor (all threads) stand beside seconds of the
clock: on a machine with other work they are the better measure of one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.embed.segments import Cutter
from elmokit.text.files import LineReader


def main() -> None:
    arguments = parsed()
    if arguments.engine_only:
        print(json.dumps(engine_alone(arguments.text, arguments.model, arguments.precision)))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or str(random_model(Path(folder), arguments.size))
        text, num_words = first_words(arguments.text, arguments.words, Path(folder) / "text.txt")
        print(
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
        )
        print(f"python {platform.python_version()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
        print(f"{num_words:,} words, model {arguments.model or f'{arguments.size}, random'}, {arguments.precision}")
        engine, command = [], []
        for _ in range(arguments.runs):
            engine.append(measured_engine(text, model, arguments.precision))
            command.append(measured_command(text, model, arguments.precision, Path(folder) / "out.parquet"))
            for name, run in (("engine alone", engine[-1]), ("elmo embed", command[-1])):
                speed = num_words / run["seconds"]
                memory = f"{run['cpu_seconds']:.1f} s of processor, peak {run['peak_mb']:,.0f} MB"
                print(f"{name:<14}{run['seconds']:8.1f} s {speed:10,.0f} words/s, {memory}")
        ratios = [
            statistics.median(run[clock] for run in engine) / statistics.median(run[clock] for run in command)
            for clock in ("seconds", "cpu_seconds")
        ]
        print("the command reaches {:.0%} of the engine's speed by the clock, {:.0%} by the processor".format(*ratios))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="UTF-8 text, .gz, .bz2 and .xz too")
    parser.add_argument("--words", type=int, default=1_000_000, help="how much of it")
    parser.add_argument("--model", help="a model; random weights if not given")
    parser.add_argument("--size", choices=["tiny", "small", "medium", "original"], default="small")
    parser.add_argument("--precision", choices=["float32", "int8"], default="float32")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--engine-only", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def random_model(folder: Path, size: str) -> Path:
    Elmo.random(getattr(ElmoConfig, size)()).save_pretrained(folder / "model")
    return folder / "model"


def first_words(source: str, num_words: int, target: Path) -> tuple[str, int]:
    """The first lines with so many words, in a file of their own."""
    embedder = Embedder(Elmo.random(ElmoConfig.tiny()))
    count = 0
    with target.open("wb") as file:
        for line in LineReader([source]):
            if count >= num_words:
                break
            count += sum(map(len, embedder.segmenter(line.text())))
            file.write(line.raw + b"\n")
    return str(target), count


def engine_alone(text: str, model: str, precision: str) -> dict[str, float]:
    embedder = Embedder.from_pretrained(model, device="cpu", precision=precision)
    cutter = Cutter(embedder.elmo.scheme, embedder.segmenter)
    segments = [[row.words for row in segment.rows] for segment in cutter.segments(LineReader([text]))]
    embedder.embed([["warm", "up"]])
    embedder.clear_cache()
    started, cpu_started = time.perf_counter(), time.process_time()
    for sentences in segments:
        for _ in embedder.embed_batches(sentences):
            pass
    return {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu_started}


def measured_engine(text: str, model: str, precision: str) -> dict[str, float]:
    options = ["--engine-only", "--model", model, "--precision", precision]
    return measured([sys.executable, __file__, text, *options], reports=True)


def measured_command(text: str, model: str, precision: str, output: Path) -> dict[str, float]:
    elmo = [sys.executable, "-c", "from elmokit.cli import main; main()"]
    command = [*elmo, "embed", text, "-o", str(output), "--overwrite"]
    return measured([*command, "--model", model, "--device", "cpu", "--precision", precision], reports=False)


def measured(command: list[str], *, reports: bool) -> dict[str, float]:
    """Seconds and peak memory of a process; with `reports` it says itself how long it took."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    taken = {"seconds": time.perf_counter() - started, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    return {**(json.loads(said) if reports else taken), "peak_mb": peak_mb(usage)}


def peak_mb(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)  # bytes on macOS, else kilobytes


if __name__ == "__main__":
    main()
