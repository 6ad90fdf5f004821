"""How fast text is encoded, and that memory does not grow with it.

    python benchmarks/corpus_memory.py [--megabytes 20] [--times 10] [--workers 2] [--text FILE ...]

Makes a text of so many megabytes in a temporary folder (sentences of Zipf-distributed words, new ones without end),
and another of `--times` the size; or takes the files named, once and `--times` over. Each is encoded in a new process,
and every 20 ms the anonymous memory (RssAnon) of that process and of all those it started is summed: file-backed pages,
which the system takes back when it likes, are not counted. Prints the largest and the mean of each, and words per
second.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

INTERVAL = 0.02
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "il", "on", "us")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--text", nargs="+", help="real text instead of a generated one")
    parser.add_argument("--encode", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.encode:
        print(json.dumps(encode(arguments.workers, *arguments.encode)))
        return
    print(f"{'size':>5} {'M words':>8} {'seconds':>8} {'k words/s':>9} {'peak MiB':>9} {'mean MiB':>9}")
    with tempfile.TemporaryDirectory() as temporary:
        peaks = []
        for times in (1, arguments.times):
            files = arguments.text * times if arguments.text else [f"{temporary}/text{times}.txt"]
            if not arguments.text:
                write_text(Path(files[0]), arguments.megabytes * times)
            result = in_fresh_process(arguments.workers, f"{temporary}/corpus{times}", files)
            peaks.append(result["peak"])
            speed = result["words"] / result["seconds"] / 1e3
            print(f"{times:4}× {result['words'] / 1e6:8.1f} {result['seconds']:8.1f} {speed:9.0f} ", end="")
            print(f"{result['peak'] / 2**20:9.1f} {result['mean'] / 2**20:9.1f}")
        print(f"peak at {arguments.times}× / peak at 1×: {peaks[1] / peaks[0]:.3f}")


def write_text(path: Path, megabytes: int) -> None:
    """Sentences whose words follow Zipf's law; word number n is n written in syllables."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            words = [spelled(number) for number in rng.zipf(1.2, 200_000) % 10**9]
            ends = np.cumsum(rng.integers(5, 40, 10_000))
            for start, end in zip(ends[:-1], ends[1:], strict=True):
                if end > len(words):
                    break
                new_line = "\n" if start % 4 == 0 else " "
                file.write(" ".join([words[start].capitalize(), *words[start + 1 : end]]) + "." + new_line)


def spelled(number: int) -> str:
    word = ""
    while number or not word:
        number, digit = divmod(number, len(SYLLABLES))
        word += SYLLABLES[digit]
    return word


def in_fresh_process(workers: int, folder: str, files: list[str]) -> dict[str, float]:
    command = [sys.executable, __file__, "--workers", str(workers), "--encode", folder, *files]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples: list[int] = []

    def watch() -> None:
        while process.poll() is None:
            samples.append(anonymous_memory(process.pid))
            time.sleep(INTERVAL)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    return {**json.loads(output), "peak": max(samples), "mean": sum(samples) / len(samples)}


def anonymous_memory(pid: int) -> int:
    """Bytes of a process and of all that it started."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1]) * 1024
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(map(anonymous_memory, map(int, (task / "children").read_text().split())))
    except OSError:
        pass  # it ended while we looked
    return total


def encode(workers: int, folder: str, *files: str) -> dict[str, float]:
    from elmokit.pretrain.corpus.encoding import encode_corpus

    start = time.perf_counter()
    corpus = encode_corpus(list(files), folder, workers=workers, progress=False)
    return {"words": corpus.num_tokens, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    main()
