"""That the memory of training does not grow with the corpus.

    python benchmarks/training_memory.py [--megabytes 20] [--times 10] [--steps 40] [--workers 2]

Makes a text of so many megabytes in a temporary folder, and another of `--times` the size (as `corpus_memory.py` does),
and trains a tiny model on each from raw text: encoding, then so many steps, held-out perplexities and two checkpoints.
Each runs in a new process, whose anonymous memory (RssAnon), and that of all processes it starts, is read every 5 ms.
Prints the largest while encoding and the largest while training.

The processes run with MALLOC_ARENA_MAX=1: glibc else gives each thread a heap of its own, as it happens, and the same
run on the same text peaks anywhere between 555 and 667 MiB.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

spec = importlib.util.spec_from_file_location("corpus_memory", Path(__file__).with_name("corpus_memory.py"))
assert spec is not None and spec.loader is not None
corpus_memory = importlib.util.module_from_spec(spec)
spec.loader.exec_module(corpus_memory)

TOKENS_PER_BATCH = 2048
INTERVAL = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{'size':>5} {'MB':>6} {'encoding, peak MiB':>19} {'training, peak MiB':>19} {'seconds':>8}")
    with tempfile.TemporaryDirectory() as temporary:
        held_out = Path(temporary, "held-out.txt")
        corpus_memory.write_text(held_out, 1)
        held_out.write_text("".join(held_out.read_text().splitlines(keepends=True)[:20]))
        results = []
        for times in (1, arguments.times):
            text = Path(temporary, f"text{times}.txt")
            corpus_memory.write_text(text, arguments.megabytes * times)
            start = time.perf_counter()
            peaks = peaks_of(text, held_out, Path(temporary, f"model{times}"), arguments.steps, arguments.workers)
            results.append(peaks)
            encoding, training = (peak / 2**20 for peak in peaks)
            size, seconds = text.stat().st_size / 1e6, time.perf_counter() - start
            print(f"{times:4}× {size:6.0f} {encoding:19.1f} {training:19.1f} {seconds:8.1f}", flush=True)
        ratios = [large / small for small, large in zip(*results, strict=True)]
        print(f"peaks at {arguments.times}× / peaks at 1×: encoding {ratios[0]:.3f}, training {ratios[1]:.3f}")


def peaks_of(text: Path, held_out: Path, model: Path, steps: int, workers: int) -> tuple[int, int]:
    tokens = steps * TOKENS_PER_BATCH
    settings = {
        "recipe": "tiny_cpu", "held-out": held_out, "workers": workers, "tokens": tokens,
        "tokens-per-batch": TOKENS_PER_BATCH, "checkpoint-every": tokens // 2, "log-every": TOKENS_PER_BATCH,
        "evaluate-every": TOKENS_PER_BATCH,  # often: the largest moments are short, and are to be seen
    }  # fmt: skip
    command = [sys.executable, "-m", "elmokit", "train", str(text), "-o", str(model)]
    command += [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "MALLOC_ARENA_MAX": "1"})
    log = model.with_name(model.name + ".training") / "log.jsonl"
    peaks = {False: 0, True: 0}

    def watch() -> None:
        while process.poll() is None:
            is_training = log.exists()
            peaks[is_training] = max(peaks[is_training], corpus_memory.anonymous_memory(process.pid))
            time.sleep(INTERVAL)

    watcher = threading.Thread(target=watch)
    watcher.start()
    watcher.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    return peaks[False], peaks[True]


if __name__ == "__main__":
    main()
