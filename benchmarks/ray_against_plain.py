"""`elmo embed` in one process and on Ray: words per second, a worker killed, and are the rows equal?

    python benchmarks/ray_against_plain.py TEXT --words 2_000_000 --workers 2 [--precision int8]

TEXT may be packed. Its first lines with so many words (as the segmenter counts them) are embedded three times: by the
plain command with as many threads as there are workers, on Ray, and on Ray while a worker is killed in the middle
(SIGKILL). Times are those of whole commands, from their start to their end, the start of Ray included. Every output is
compared with the plain one, row by row and number by number.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds

from elmokit import words
from elmokit.text.files import LineReader


def take_lines(text: str, num_words: int, path: Path) -> int:
    """Write the first lines with so many words; how many they have."""
    total = 0
    with path.open("wb") as file:
        for line in LineReader([text]):
            file.write(line.raw + b"\n")
            total += len(words(line.text()))
            if total >= num_words:
                break
    return total


def run(arguments: list[str], environment: dict[str, str]) -> float:
    """Seconds of a command."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", *arguments], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr}")
    return time.monotonic() - started


def kill_one_worker(parts: Path, when: int, killed: list[int]) -> None:
    """Wait until there are so many parts, then kill a worker that holds a model."""
    for _ in range(36_000):
        if parts.exists() and sum(path.suffix == ".parquet" for path in parts.iterdir()) >= when:
            break
        time.sleep(0.1)
    found = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    workers = [int(line.split()[0]) for line in found.splitlines() if "ray::MapWorker" in line]
    os.kill(workers[0], signal.SIGKILL)
    killed.append(workers[0])


def compare(plain: Path, other: Path) -> str:
    """Whether two outputs have the same rows, read side by side; how many numbers differ, and by how much."""
    batches = [ds.dataset(path).to_batches(batch_size=256, batch_readahead=1) for path in (plain, other)]
    rows, numbers, differ, largest = 0, 0, 0, 0.0
    one, two = (read_rows(each) for each in batches)
    for (line, found_words, vectors), (other_line, other_words, other_vectors) in zip(one, two, strict=True):
        if (line, found_words) != (other_line, other_words):
            raise SystemExit(f"row {rows}: line {line} and line {other_line} differ")
        apart = np.abs(vectors - other_vectors)
        rows, numbers, differ = rows + 1, numbers + apart.size, differ + int((apart > 0).sum())
        largest = max(largest, float(apart.max(initial=0.0)))
    return f"{rows:,} rows equal, of {numbers:,} numbers {differ:,} differ, by {largest:.2g} at most"


def read_rows(batches):
    for batch in batches:
        vectors = batch["vectors"]
        flat = vectors.values.values.to_numpy(zero_copy_only=False).astype(np.float32)
        width = vectors.type.value_type.list_size
        offsets = vectors.offsets.to_numpy()
        for row, (line, found_words) in enumerate(
            zip(batch["line"].to_pylist(), batch["words"].to_pylist(), strict=True)
        ):
            yield line, found_words, flat[offsets[row] * width : offsets[row + 1] * width]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--words", type=lambda text: int(float(text)), default=2_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--folder", help="where the outputs go; a temporary one unless told")
    arguments = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if not re.match("(OMP|MKL|OPENBLAS)_", name)}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        desk = Path(folder)
        total = take_lines(arguments.text, arguments.words, desk / "text.txt")
        how = [
            "embed",
            str(desk / "text.txt"),
            "--model",
            arguments.model,
            "--precision",
            arguments.precision,
            "--split",
        ]
        how += ["--device", "cpu", "--quiet"]
        print(f"{total:,} words, {arguments.workers} workers, {arguments.precision}", flush=True)
        plain = desk / "plain.parquet"
        seconds = run([*how, "-o", str(plain), "--threads", str(arguments.workers)], environment)
        print(f"plain             {seconds:7.1f} s {total / seconds:9,.0f} words/s", flush=True)
        for name in ("ray", "ray, one killed"):
            output, killed = desk / name.replace(", ", "-").replace(" ", "-"), []
            if "killed" in name:
                parts = desk / f"{output.name}.partial/parts"
                killer = threading.Thread(target=kill_one_worker, args=(parts, 3, killed), daemon=True)
                killer.start()
            on_ray = ["--engine", "ray", "--workers", str(arguments.workers), "-o", str(output)]
            seconds = run([*how, *on_ray], environment)
            if "killed" in name and not killed:
                raise SystemExit("the job was done before a worker could be killed: ask for more words")
            print(f"{name:17} {seconds:7.1f} s {total / seconds:9,.0f} words/s; {compare(plain, output)}", flush=True)


if __name__ == "__main__":
    main()
