"""Whole-file jobs on a GPU: the vectors of a CPU, and the same bytes after a kill.

    python benchmarks/embed_on_device.py corpus.txt [--model en-small] [--words 300000] [--kills 3] [--device cuda]

First the job's vectors beside `Embedder.embed` on a CPU in float32: the largest difference, and the least and the mean
cosine of a word, for each precision. Then `elmo embed` runs once undisturbed, and `--kills` times in a process that is
killed (SIGKILL) when a random number of parts is finished, and resumed: the outputs must have the same bytes.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from embed_file import first_words

from elmokit import Embedder
from elmokit.embed.files import embed_files

COMPARED_WORDS = 60_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--words", type=float, default=3e5)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--folder")
    asked = parser.parse_args()
    if asked.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        first_words(asked.text, COMPARED_WORDS, folder / "few.txt")
        first_words(asked.text, int(asked.words), folder / "text.txt")
        for precision in asked.precisions:
            compare(asked, folder, precision)
        return 1 if kill(asked, folder) else 0


def compare(asked: argparse.Namespace, folder: Path, precision: str) -> None:
    """The job on the device beside the library on a CPU."""
    output = folder / "few.parquet"
    embedder = Embedder.from_pretrained(asked.model, device=asked.device, precision=precision)
    embed_files(folder / "few.txt", output, embedder=embedder, split=True, dtype="float32", overwrite=True)
    rows = pq.read_table(output)
    sentences = rows["words"].to_pylist()
    vectors = rows["vectors"].combine_chunks()
    found = vectors.flatten().flatten().to_numpy(zero_copy_only=False).reshape(-1, embedder.dim)
    expected = np.concatenate(Embedder.from_pretrained(asked.model, device="cpu").embed(sentences))
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    print(
        f"{precision}: {len(found):,} words, largest difference {np.abs(found - expected).max():.1e}, "
        f"cosine at least {cosines.min():.6f}, on average {cosines.mean():.6f}",
        flush=True,
    )


def kill(asked: argparse.Namespace, folder: Path) -> int:
    """How many of the killed and resumed outputs differ."""
    start, whole = time.perf_counter(), folder / "whole.parquet"
    run(asked, folder, whole)
    print(f"undisturbed: {time.perf_counter() - start:.1f} s from start to end of the process", flush=True)
    draw, failures, found_parts = random.Random(1), 0, []
    for number in range(asked.kills):
        output = folder / f"killed-{number}.parquet"
        wanted = draw.randint(1, 6)
        with subprocess.Popen(command(asked, folder, output)) as job:
            while job.poll() is None and count_parts(output) < wanted:
                time.sleep(0.005)
            job.kill()
        found_parts.append(count_parts(output))
        run(asked, folder, output, "--resume")
        failures += not filecmp.cmp(output, whole, shallow=False)
        output.unlink()
    print(f"{asked.kills} jobs killed with {found_parts} parts finished and resumed: {failures} differ")
    return failures


def count_parts(output: Path) -> int:
    return len(list(output.with_name(output.name + ".partial").glob("*.safetensors")))


def command(asked: argparse.Namespace, folder: Path, output: Path, *options: str) -> list[str]:
    chosen = ["--model", asked.model, "--device", asked.device, "--precision", asked.precisions[-1], "--split"]
    text = str(folder / "text.txt")
    return [sys.executable, "-m", "elmokit", "embed", text, "-o", str(output), *chosen, *options]


def run(asked: argparse.Namespace, folder: Path, output: Path, *options: str) -> None:
    subprocess.run(command(asked, folder, output, *options), check=True)


if __name__ == "__main__":
    sys.exit(main())
