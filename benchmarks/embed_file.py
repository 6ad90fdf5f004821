"""Text to vectors on the disk: `elmo embed` of a large file beside the engine alone on the same sentences.

    python benchmarks/embed_file.py corpus.txt                     # a million words, random weights of the small size
    python benchmarks/embed_file.py corpus.txt --words 100000 --precision int8 --model my-model
    python benchmarks/embed_file.py corpus.txt --device cuda --precision bfloat16 --words 8e6 --split --folder /dev/shm

Measured one after the other, `--runs` times; medians are compared:

    engine alone  segments to vectors in memory; the text is split into words before the clock starts
    host alone    `embed_files` with a model that computes nothing: what reading, splitting, encoding and writing take
    embed_files   text to float16 Parquet in a process that has run the same once before, so that everything is loaded
    elmo embed    the command as a process of its own, from its start to its end: importing, loading, compiling, too

For `embed_files`, the time of each stage follows. Stages run at the same time, in threads of their own, so they do not
add up: the slowest one is what the others wait for, and "waits" say who waited. Seconds of the processor (all threads)
stand beside seconds of the clock: on a machine with other work they are the better measure of one thread
(`OMP_NUM_THREADS=1`). How fast the folder takes bytes is measured first; nothing can be faster than that.
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
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.embed import files as files_module
from elmokit.embed import segment_embedder as embedder_module
from elmokit.embed.files import embed_files
from elmokit.embed.parts import PartialFolder
from elmokit.embed.rows import RowSplitter
from elmokit.embed.segment_embedder import PendingVectors, SegmentEmbedder
from elmokit.embed.segments import Cutter, Segment, choose_segment_words
from elmokit.embed.sinks import FORMATS, Contents
from elmokit.reading.batching import TOKEN_BUDGETS
from elmokit.text.characters import ByteScheme
from elmokit.text.files import LineReader
from elmokit.text.segmenters import RuleSegmenter

WAYS = ("engine", "host", "job", "command")
NAMES = {"engine": "engine alone", "host": "host alone", "job": "embed_files", "command": "elmo embed"}


def main() -> None:
    arguments = parsed()
    if arguments.inside:
        print(json.dumps(INSIDE[arguments.inside](arguments)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        arguments.model = arguments.model or str(random_model(Path(folder), arguments.size))
        first_words(arguments.text, int(arguments.words), Path(folder) / "text.txt")
        num_words = describe(arguments, Path(folder))
        measured_runs: dict[str, list[dict]] = {way: [] for way in arguments.ways}
        for _ in range(arguments.runs):
            for way, runs in measured_runs.items():
                runs.append(measured(way, arguments, Path(folder)))
                report(NAMES[way], runs[-1], num_words)
        if "engine" in measured_runs:
            for way in [way for way in arguments.ways if way in ("job", "command")]:
                ratios = compare(measured_runs["engine"], measured_runs[way])
                said = "{} reaches {:.0%} of the engine's speed by the clock, {:.0%} by the processor"
                print(said.format(NAMES[way], *ratios))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="UTF-8 text, .gz, .bz2 and .xz too")
    parser.add_argument("--words", type=float, default=1e6, help="how much of it; a shorter text is repeated")
    parser.add_argument("--model", help="a model; random weights if not given")
    parser.add_argument("--size", choices=["tiny", "small", "medium", "original"], default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["float32", "bfloat16", "int8"], default="float32")
    parser.add_argument("--split", action="store_true", help="one row per sentence")
    parser.add_argument("--folder", help="where outputs go; a folder in memory shows what the disk costs")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--inside", choices=["engine", "host", "job"], help=argparse.SUPPRESS)
    return parser.parse_args()


def random_model(folder: Path, size: str) -> Path:
    Elmo.random(getattr(ElmoConfig, size)()).save_pretrained(folder / "model")
    return folder / "model"


def first_words(source: str, num_words: int, target: Path) -> None:
    """The first lines with about so many words, in a file of their own."""
    count = 0
    with target.open("wb") as file:
        while count < num_words:
            for line in LineReader([source]):
                if count >= num_words:
                    break
                count += 1.15 * len(line.raw.split())  # punctuation stands alone
                file.write(line.raw + b"\n")


def split_alone(text: Path, *, split: bool) -> tuple[list[Segment], float]:
    """The segments of a text, split by several processes, and how long that took."""
    splitter = RowSplitter(ByteScheme(), RuleSegmenter(), split=split)
    cutter = Cutter(splitter, choose_segment_words("cuda"), workers=files_module.count_workers())
    started = time.perf_counter()
    segments = list(cutter.segments(LineReader([text])))
    return segments, time.perf_counter() - started


def describe(arguments: argparse.Namespace, folder: Path) -> int:
    """Say what is measured where; how many words the text has."""
    segments, seconds = split_alone(folder / "text.txt", split=arguments.split)
    num_words = sum(segment.num_words for segment in segments)
    processor = platform.processor() or platform.machine()
    print(f"{processor}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    if arguments.device != "cpu":
        print(torch.cuda.get_device_name(arguments.device))
    print(f"python {platform.python_version()}, torch {torch.__version__}")
    print(f"{num_words:,} words, model {arguments.model}, {arguments.device}, {arguments.precision}")
    print(f"splitting alone, {files_module.count_workers()} processes: {num_words / seconds:,.0f} words/s")
    print(f"the folder takes {measure_folder(folder) / 1e6:,.0f} MB/s", flush=True)
    return num_words


def measure_folder(folder: Path, size: int = 1 << 30) -> float:
    """Bytes per second of one thread that writes and waits for the disk."""
    data = memoryview(bytearray(os.urandom(1 << 20) * 64))
    started = time.perf_counter()
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(size // len(data)):
            file.write(data)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    (folder / "probe").unlink()
    return size / seconds


def report(name: str, run: dict, num_words: int) -> None:
    cost = f"{run['cpu_seconds']:.1f} s of processor, peak {run['peak_mb']:,.0f} MB"
    print(f"{name:<14}{run['seconds']:8.2f} s {num_words / run['seconds']:10,.0f} words/s, {cost}")
    for stage, (seconds, computing) in run.get("stages", {}).items():
        print(f"    {stage:<36}{seconds:8.2f} s, {computing:6.2f} s of it computing", flush=True)


def compare(engine: list[dict], other: list[dict]) -> list[float]:
    return [
        statistics.median(run[clock] for run in engine) / statistics.median(run[clock] for run in other)
        for clock in ("seconds", "cpu_seconds")
    ]


def run_engine(arguments: argparse.Namespace) -> dict:
    embedder = load(arguments)
    splitter = RowSplitter(embedder.elmo.scheme, embedder.segmenter, split=arguments.split)
    cutter = Cutter(splitter, choose_segment_words(embedder.device.type), workers=files_module.count_workers())
    segments = list(cutter.segments(LineReader([arguments.text])))
    worker = SegmentEmbedder(embedder, "average", None, Contents(embedder.dim, "float16"))
    for segment in segments[:4]:  # compiles what has to be
        worker.embed(segment, ignore).wait()
    worker = SegmentEmbedder(embedder, "average", None, Contents(embedder.dim, "float16"))
    started, cpu_started = time.perf_counter(), time.process_time()
    waiting: list[PendingVectors] = []
    for segment in segments:
        waiting.append(worker.embed(segment, ignore))
        if len(waiting) > 2:
            waiting.pop(0).wait()
    for vectors in waiting:
        vectors.wait()
    return {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu_started}


def run_host(arguments: argparse.Namespace) -> dict:
    """The job with a model that computes nothing, split and batched as it is for a GPU, whichever device there is."""
    embedder = Embedder.from_pretrained(arguments.model, device="cpu")
    make_cutter = files_module._make_cutter

    def make_with_workers(*given):
        cutter = make_cutter(*given)
        return Cutter(cutter.splitter, choose_segment_words("cuda"), workers=files_module.count_workers())

    def read_nothing(elmo, text, layers, state, *, keeps_state):
        return [], None

    def encode_nothing(encoder, words):
        return torch.zeros(0, 0)

    with (
        patch.object(files_module, "_make_cutter", make_with_workers),
        patch.object(embedder_module, "read_layers", read_nothing),
        patch.dict(TOKEN_BUDGETS, cpu=TOKEN_BUDGETS["cuda"]),
        patch.object(type(embedder.encoder), "encode_distinct", encode_nothing),
    ):
        return time_job(arguments, embedder)


def run_job(arguments: argparse.Namespace) -> dict:
    embedder = load(arguments)
    if arguments.device != "cpu":
        time_job(arguments, embedder)
    return time_job(arguments, embedder)


def time_job(arguments: argparse.Namespace, embedder: Embedder) -> dict:
    """Seconds of a job, and of its stages."""
    stages: Counter[str] = Counter()
    computing: Counter[str] = Counter()

    def timed(stage, function):
        def call(*given, **options):
            started, cpu_started = time.perf_counter(), time.thread_time()
            try:
                return function(*given, **options)
            finally:
                stages[stage] += time.perf_counter() - started
                computing[stage] += time.thread_time() - cpu_started

        return call

    def timed_ahead(segments):
        ahead = read_ahead(segments)

        class Timed:
            def __enter__(self):
                taken = ahead.__enter__()
                return iter(timed("main thread: waits for segments", lambda: next(taken, None)), None)

            def __exit__(self, *given):
                return ahead.__exit__(*given)

        return Timed()

    read_ahead, segments = files_module.read_ahead, Cutter._cut_block
    output = Path(arguments.text).with_name("out.parquet")
    kind = FORMATS["parquet"]
    encode = timed("2 threads: make bytes of vectors", kind.encode)

    def cut_block(*given):
        return iter(timed("thread: joins blocks to segments", lambda: list(segments(*given)))())

    with (
        patch.object(files_module, "read_ahead", timed_ahead),
        patch.object(Cutter, "_cut_block", cut_block),
        patch.object(SegmentEmbedder, "embed", timed("main thread: embeds", SegmentEmbedder.embed)),
        patch.object(files_module._Saver, "save", timed("main thread: waits for the disk", files_module._Saver.save)),
        patch.object(PendingVectors, "wait", timed("2 threads: wait for the device", PendingVectors.wait)),
        patch.object(PartialFolder, "add", timed("thread: writes", PartialFolder.add)),
        patch.dict(FORMATS, {"parquet": type(kind)(**{**vars(kind), "encode": encode})}),
    ):
        started, cpu_started = time.perf_counter(), os.times()
        embed_files(arguments.text, output, embedder=embedder, split=arguments.split, dtype="float16", overwrite=True)
        seconds, cpu = time.perf_counter() - started, os.times()
    output.unlink()
    cpu_seconds = sum(cpu[:4]) - sum(cpu_started[:4])
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "stages": {name: (stages[name], computing[name]) for name in stages},
    }


INSIDE = {"engine": run_engine, "host": run_host, "job": run_job}


def load(arguments: argparse.Namespace) -> Embedder:
    return Embedder.from_pretrained(arguments.model, device=arguments.device, precision=arguments.precision)


def ignore(fraction: float) -> None:
    pass


def measured(way: str, arguments: argparse.Namespace, folder: Path) -> dict:
    """What a process measured of itself, or was measured by; and its peak memory."""
    text, output = str(folder / "text.txt"), str(folder / "out.parquet")
    options = ["--model", arguments.model, "--device", arguments.device, "--precision", arguments.precision]
    options += ["--split"] if arguments.split else []
    if way == "command":
        code = "from elmokit.cli import main; main()"
        command = [sys.executable, "-c", code, "embed", text, "-o", output, "--overwrite", *options]
    else:
        command = [sys.executable, __file__, text, "--inside", way, *options]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    taken = {"seconds": time.perf_counter() - started, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    return {**(taken if way == "command" else json.loads(said)), "peak_mb": peak_mb(usage)}


def peak_mb(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)  # bytes on macOS, else kilobytes


if __name__ == "__main__":
    main()
