"""The engines on this processor: how fast a layer runs beside the machine's own limits.

    PYTHONPATH=src python benchmarks/engines_on_cpu.py                          # all threads, by the clock
    PYTHONPATH=src python benchmarks/engines_on_cpu.py --threads 1 --cpu-time   # where others share the machine

One layer, both directions, clipped, 20 words per row, shapes of the small and the original model. First what the
machine can do: matmuls of rows with a matrix that stays in a core's cache (the peak), and of one row with a matrix
that does not (the rate at which weights are read). Then each engine: best time of several, billions of operations per
second and their share of the peak of its precision, and how far its outputs are from the reference.
"""

import argparse
import functools
import time

import torch

from elmokit.engines import choose
from elmokit.engines.cpp.linear import apply_linear
from elmokit.engines.recurrence.random_problems import draw_recurrence
from elmokit.nn.operations import Clips, Request, find_engine

SHAPES = {"small": (128, 1024), "original": (512, 4096)}
NUM_STEPS = 20
CLIPS = Clips(3.0, 3.0)
PRECISIONS = {"packed": "float32", "cpu": "float32", "int8": "int8"}


def best_seconds(call, clock, repeats):
    call()
    seconds = []
    for _ in range(repeats):
        start = clock()
        call()
        seconds.append(clock() - start)
    return min(seconds)


def limits(clock, repeats):
    """Billions of operations per second of each precision, at best."""
    peaks = {}
    rows, weight, row, wide = (torch.randn(*shape) for shape in ((60, 2048), (128, 2048), (1, 512), (65536, 512)))
    for precision in ("float32", "int8"):
        cached = functools.partial(apply_linear, rows, weight, precision=precision)
        seconds = best_seconds(lambda call=cached: [call() for _ in range(100)], clock, repeats) / 100
        peaks[precision] = 2 * rows.numel() * len(weight) / seconds / 1e9
        seconds = best_seconds(functools.partial(apply_linear, row, wide, precision=precision), clock, repeats)
        gigabytes = wide.numel() * (4 if precision == "float32" else 1) / seconds / 1e9
        print(f"{precision}: peak {peaks[precision]:.0f} G operations/s; weights are read at {gigabytes:.1f} GB/s")
    return peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's seconds instead of the clock's")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    request = Request("recurrence", torch.device("cpu"), torch.float32, clips=CLIPS)
    print(choose(request), f"{arguments.threads} thread(s)")
    peaks = limits(clock, arguments.repeats)
    for name, (output_dim, cell_dim) in SHAPES.items():
        for num_rows in arguments.batches:
            shape = {"num_words": num_rows * NUM_STEPS, "num_rows": num_rows, "input_dim": output_dim}
            shape |= {"cell_dim": cell_dim, "output_dim": output_dim}
            layer = [draw_recurrence(seed, **shape) for seed in (0, 1)]
            sizes = [num_rows] * NUM_STEPS
            operations = 2 * 2 * num_rows * NUM_STEPS * 9 * output_dim * cell_dim
            exact = find_engine("recurrence", "reference")(layer, sizes, CLIPS)
            for engine, precision in PRECISIONS.items():
                run = functools.partial(find_engine("recurrence", engine), layer, sizes, CLIPS)
                pairs = zip(run(), exact, strict=True)
                error = max((found - right).abs().max().item() for (found, _), (right, _) in pairs)
                seconds = best_seconds(run, clock, arguments.repeats)
                rate = operations / seconds / 1e9
                print(
                    f"{name:<9}batch {num_rows:<4}{engine:<7}{seconds * 1e3:9.2f} ms{rate:7.0f} G/s"
                    f"{rate / peaks[precision]:6.0%} of peak   error {error:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
