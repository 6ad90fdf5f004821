"""The fused output layer on a GPU: equal to float64, how fast beside plain torch, and which design and tiles are best.

    PYTHONPATH=src python benchmarks/linear_cross_entropy.py [--widths 128 512] [--rows 40960] [--words 108000]
        [--negatives 8192] [--seconds 30] [--steps check time sweep tiles] [--out FOLDER]

Times are medians by CUDA events. "useful" TFLOP/s count the three matmuls that plain torch needs (forward, and two in
backward), "done" the four that the kernels do where nothing is stored.

`sweep` is of the stored probabilities (`stored_probabilities.py`), in bfloat16: each part alone, for the tiles and
designs that the compiler's figures left open, each compared with what is in use; the rest is left out when --seconds
are over. It prints a table and writes sweep.json, whose "fastest" says what to put into `TILES` and `_MORE_COLUMNS`.
Designs in brackets leave something out, to show what it costs.

`tiles` times the kernels that store nothing, for `FORWARD_TILES` and `WEIGHT_TILES`. Measured so far: see LOG.md.
"""

import argparse
import faulthandler
import json
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest.mock import patch

import engines_on_device as engines
import torch
from torch.nn import functional as F

from elmokit.engines.loss import linear_cross_entropy as fused
from elmokit.engines.loss import stored_probabilities as stored
from elmokit.engines.loss.linear_cross_entropy import Tiles
from elmokit.nn.operations import Sample

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1e-2}
# Most promising first: the sweep ends when its time is up.
TILES = {
    64: [(128, 128, 8, 3), (128, 128, 4, 3), (128, 64, 4, 3), (64, 128, 4, 3)],
    128: [(128, 128, 8, 3), (128, 64, 8, 3), (64, 128, 4, 2), (128, 128, 8, 2), (128, 64, 4, 3), (128, 64, 8, 4),
          (64, 64, 4, 3), (128, 128, 8, 4), (64, 128, 4, 3), (256, 64, 8, 3)],
    256: [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (128, 32, 8, 3), (64, 64, 4, 3)],
    512: [(64, 64, 8, 2), (64, 32, 8, 3), (64, 32, 8, 4), (64, 32, 8, 2)],
}  # fmt: skip

# Of the pass that stores the probabilities: rows, words, warps, stages.
PASS_TILES = {
    64: [(64, 128, 4, 2), (64, 64, 4, 3), (128, 128, 8, 3)],
    128: [(64, 128, 4, 2), (64, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3), (128, 32, 8, 3), (64, 64, 4, 2)],
    256: [(64, 64, 4, 2), (64, 64, 8, 2), (64, 32, 4, 2)],
    512: [(64, 64, 8, 2)],
}
# Of the matmul that makes the table of wide outputs: rows, words, depth, warps, stages, blocks of rows in a group.
WIDE_TILES = {
    512: [(128, 256, 64, 8, 3, 16), (128, 128, 64, 8, 4, 16), (128, 128, 64, 4, 4, 16), (256, 128, 64, 8, 3, 8),
          (128, 256, 64, 8, 4, 16), (128, 256, 32, 8, 5, 16), (128, 256, 64, 8, 3, 64), (128, 256, 64, 8, 3, 4),
          (128, 256, 128, 8, 2, 16), (128, 128, 64, 8, 3, 16), (128, 256, 64, 16, 3, 16), (64, 256, 64, 4, 4, 16)],
}  # fmt: skip
MORE_COLUMNS = [8, 16, 32, 64]

FUNCTIONS = {
    "full": lambda *problem: fused._Summed.apply(*problem, None, None, None, True)[0],
    "stored": lambda *problem: stored.losses(*problem)[0],
    "sampled": lambda *problem: fused.losses(*problem[:4], Sample(*problem[4:]))[0],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--rows", type=int, default=40_960)
    parser.add_argument("--words", type=int, default=108_000)
    parser.add_argument("--negatives", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a sweep, each width")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")), help="folder for sweep.json")
    parser.add_argument("--steps", nargs="+", default=["check", "time", "sweep"])
    args = parser.parse_args()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu (interpreted: times mean nothing)"
    print(f"{name}, torch {torch.__version__}, triton {fused.triton.__version__}")
    if "check" in args.steps:
        check(args.device)
    for width in args.widths:
        if "time" in args.steps:
            compare(args, width)
        if "sweep" in args.steps:
            Sweep(args, width).run()
        if "tiles" in args.steps:
            sweep_tiles(args, width)


def random_problem(device, num_rows, num_words, width, dtype):
    random = torch.Generator(device).manual_seed(1)
    hidden = torch.randn(num_rows, width, generator=random, device=device).to(dtype).requires_grad_()
    weight = (torch.randn(num_words, width, generator=random, device=device) * width**-0.5).requires_grad_()
    bias = torch.randn(num_words, generator=random, device=device).requires_grad_()
    # Zipf's law, roughly: most targets are among the first words.
    uniform = torch.rand(num_rows, generator=random, device=device)
    targets = (num_words**uniform).long().clamp(max=num_words) - 1
    return [hidden, weight, bias], targets


def random_sample(device, num_rows, num_words, size):
    random = torch.Generator(device).manual_seed(2)
    negatives = torch.randperm(num_words, generator=random, device=device)[:size]
    counts = torch.rand(size + num_rows, generator=random, device=device).clamp_min(0.01).log()
    return negatives, counts[:size], counts[size:]


def check(device):
    """Losses and gradients beside float64; a process each, for one that reads where it must not spoils the device."""
    # The interpreter multiplies the bit patterns of bfloat16.
    dtypes = (torch.bfloat16, torch.float32) if device == "cuda" else (torch.float32,)
    cases = [(dtype, width) for dtype in dtypes for width in (64, 128, 256, 512)]
    pools = [ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) for _ in cases]
    answers = [pool.submit(check_one, device, *case) for pool, case in zip(pools, cases, strict=True)]
    for (dtype, width), pool, answer in zip(cases, pools, answers, strict=True):
        lines = [f"FAILED {error}"] if (error := answer.exception()) else answer.result()
        for line in lines:
            print(f"check {dtype} {width} {line}", flush=True)
        pool.shutdown()


def check_one(device, dtype, width):
    """A line for each function, in memory that holds NaN until it is written; the first that fails is the last."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills new memory with NaN
    rows, words = (1003, 5003) if device == "cuda" else (67, 131)
    lines = []
    for kind, function in FUNCTIONS.items():
        if kind == "stored" and not {(dtype.itemsize, width)} & {*stored.TILES, *stored.WIDE_TILES}:
            continue
        inputs, targets = random_problem(device, rows, words, width, dtype)
        rest = random_sample(device, rows, words, words // 5) if kind == "sampled" else ()
        try:
            found = values(function, inputs, targets, rest)
            hidden, weight, bias = (tensor.detach() for tensor in inputs)
            exact = hidden.double(), weight.to(dtype).double(), bias.double()
            expected = values(plain, [tensor.requires_grad_() for tensor in exact], targets, rest)
            errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, expected, strict=True)]
        except Exception as problem:
            return [*lines, f"{kind}: FAILED {str(problem)[:200]}"]
        fine = errors[0] < 1e-5 and all(error < TOLERANCE[dtype] for error in errors)
        shown = ", ".join(f"{error:.1e}" for error in errors) + ("" if fine else " WRONG")
        lines.append(f"{kind}: loss, hidden, weight, bias {shown}")
    return lines


def values(function, inputs, targets, rest):
    loss = function(*inputs, targets, *rest)
    return loss.detach(), *torch.autograd.grad(0.5 * loss, inputs)


def plain(hidden, weight, bias, targets, negatives=None, log_expected=None, own_log_expected=None):
    """What one would write: all logits at once, in the dtype of the outputs, the loss in float32 or better."""
    exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    if negatives is None:
        logits = F.linear(hidden, weight.to(hidden.dtype)).to(exact) + bias
        return F.cross_entropy(logits, targets, reduction="sum")
    logits = F.linear(hidden, weight[negatives].to(hidden.dtype)).to(exact) + (bias[negatives] - log_expected)
    logits = logits.masked_fill(targets.unsqueeze(1) == negatives, -torch.inf)
    own = (hidden * weight[targets].to(hidden.dtype)).to(exact).sum(1) + bias[targets] - own_log_expected
    return (torch.logaddexp(logits.logsumexp(1), own) - own).sum()


def compare(args, width):
    inputs, targets = random_problem(args.device, args.rows, args.words, width, torch.bfloat16)
    sample = random_sample(args.device, args.rows, args.words, args.negatives)

    def backward(function, *rest, rows=None):
        for start in range(0, args.rows, rows or args.rows):
            part = slice(start, start + (rows or args.rows))
            cut = [tensor[part] if len(tensor) == args.rows else tensor for tensor in rest]
            function(inputs[0][part], *inputs[1:], targets[part], *cut).backward()
        for tensor in inputs:
            tensor.grad = None

    def report(name, columns, forward, both):
        flop = 2 * args.rows * columns * width / 1e9
        print(
            f"P={width} {name:34s} forward {forward:7.2f} ms ({flop / forward:4.0f} TFLOP/s)   "
            f"forward+backward {both:7.2f} ms (useful {3 * flop / both:4.0f}, done {4 * flop / both:4.0f} TFLOP/s)",
            flush=True,
        )

    def without_grad(function, *rest):
        with torch.no_grad():
            function(*inputs, targets, *rest)

    full, sampled = FUNCTIONS["full"], FUNCTIONS["sampled"]
    forward, both = (milliseconds(run, args) for run in (lambda: without_grad(full), lambda: backward(full)))
    report("full, fused", args.words, forward, both)
    both = milliseconds(lambda: backward(FUNCTIONS["stored"]), args)
    report("full, probabilities stored", args.words, float("nan"), both)
    both = milliseconds(lambda: backward(plain, rows=4096), args)
    report("full, plain, chunks of 4096 rows", args.words, float("nan"), both)
    forward = milliseconds(lambda: without_grad(sampled, *sample), args)
    report("sampled, fused", args.negatives, forward, milliseconds(lambda: backward(sampled, *sample), args))
    report("sampled, plain", args.negatives, float("nan"), milliseconds(lambda: backward(plain, *sample), args))


class Sweep:
    """Each part of the output layer with stored probabilities, for each tile and design, beside what is in use."""

    def __init__(self, args, width):
        self.args, self.width, self.rows, self.started = args, width, [], time.perf_counter()
        inputs, self.targets = random_problem(args.device, args.rows, args.words, width, torch.bfloat16)
        problem = fused._Problem.full(*[tensor.detach() for tensor in inputs], self.targets)
        self.hidden, self.words, self.bias = problem.hidden_NP, problem.words_VP, problem.bias_C
        self.flop = 2 * args.rows * args.words * width / 1e9
        self.bytes = 2 * args.rows * args.words / 1e9

    def run(self):
        # A kernel that never ends would take the rest of the session with it.
        faulthandler.dump_traceback_later(self.args.seconds + 30, exit=True)
        print(
            f"{'P':>4s} {'part':7s} {'design':34s}{'tiles':18s}{'ms':>8s}{'TFLOP/s':>8s}{'TB/s':>6s}  error", flush=True
        )
        expected = self.results(self.pass_in_use())
        for tiles in PASS_TILES[self.width]:
            self.time("pass", "Triton", tiles, self.triton_pass(Tiles(*tiles)), 2, expected)
        for tiles in WIDE_TILES.get(self.width, []):
            self.time("pass", "Triton, then torch.mm", tiles, self.triton_pass(stored.WideTiles(*tiles)), 2, expected)
        self.time_weight()
        faulthandler.cancel_dump_traceback_later()
        self.report()

    def pass_in_use(self):
        return lambda: stored._store_ratios(self.hidden, self.words, self.bias, self.targets)

    def triton_pass(self, tiles):
        size = 2, self.width
        one_pass, wide = ({}, {size: tiles}) if isinstance(tiles, stored.WideTiles) else ({size: tiles}, {})

        def run():
            with patch.object(stored, "TILES", one_pass), patch.object(stored, "WIDE_TILES", wide):
                return self.pass_in_use()()

        return run

    def time_weight(self):
        """The matmul with the table: one of its columns is the bias, the others are there to make it fast."""
        ratios_NV, factor_N, expected = self.weight_problem()
        kept = stored._MORE_COLUMNS
        self.time("pass", "(torch.mm alone)", "", lambda: stored._matmul(ratios_NV, self.words), 1, None)
        self.time("weight", "(torch.mm, no bias)", "", lambda: stored._matmul(ratios_NV.t(), self.hidden), 1, None)
        for columns in MORE_COLUMNS:
            stored._MORE_COLUMNS = columns
            run = lambda: stored._weight_gradients(ratios_NV, self.hidden, factor_N)  # noqa: E731
            self.time("weight", "torch.mm, columns for the bias", columns, run, 1, expected)
        stored._MORE_COLUMNS = kept

    def weight_problem(self):
        ratios_NV, totals_N, _, _ = self.pass_in_use()()
        found = stored._weight_gradients(ratios_NV, self.hidden, 1 / totals_N)
        return ratios_NV, 1 / totals_N, [tensor.clone() for tensor in found]

    def results(self, run):
        """What a pass in memory that held NaN leads to: losses and all gradients, of which the table makes two."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        ratios_NV, totals_N, losses_N, grad_hidden_NP = run()
        torch.use_deterministic_algorithms(False)
        return losses_N, grad_hidden_NP, *stored._weight_gradients(ratios_NV, self.hidden, 1 / totals_N)

    def time(self, part, design, tiles, run, matmuls, expected):
        """One line of the table. What a design in brackets finds is not compared."""
        if time.perf_counter() - self.started > self.args.seconds:
            print(f"{self.width:4d} {part:7s} {design:34s}{tiles!s:18s} left out for lack of time", flush=True)
            return
        try:
            error = float("nan")
            if not design.startswith("("):
                found = self.results(run) if part == "pass" else run()
                error = max_or_nan([difference(one, other) for one, other in zip(found, expected, strict=True)])
                del found
            taken = milliseconds(run, self.args)
        except Exception as reason:
            said = " ".join(f"{type(reason).__name__} {reason}".split())[:100]
            print(f"{self.width:4d} {part:7s} {design:34s}{tiles!s:18s} FAILED {said}", flush=True)
            return
        wrong = not (design.startswith("(") or error < TOLERANCE[torch.bfloat16])
        row = {"part": part, "design": design, "tiles": tiles, "ms": taken, "error": error, "wrong": wrong}
        self.rows.append(row)
        self.report()
        rates = f"{matmuls * self.flop / taken:8.0f}{self.bytes / taken:6.2f}"
        print(
            f"{self.width:4d} {part:7s} {design:34s}{tiles!s:18s}{taken:8.3f}{rates}  {error:.1e}{' WRONG' * wrong}",
            flush=True,
        )

    def report(self):
        """The fastest of each part, so far, in a file."""
        fine = [row for row in self.rows if not row["wrong"] and not row["design"].startswith("(")]
        fastest = {row["part"]: row for row in sorted(fine, key=lambda row: -row["ms"])}
        self.args.out.mkdir(parents=True, exist_ok=True)
        path = self.args.out / (f"sweep-{self.width}.json" if len(self.args.widths) > 1 else "sweep.json")
        rows = [{**row, "error": None if row["error"] != row["error"] else row["error"]} for row in self.rows]
        path.write_text(json.dumps({"width": self.width, "fastest": fastest, "rows": rows}, indent=1) + "\n")


def difference(one, other):
    """Of everything together, relative; NaN where either has one."""
    return ((one.double() - other.double()).norm() / other.double().norm()).item()


def max_or_nan(values):
    """The largest; Python's `max` passes over a NaN."""
    return torch.tensor(values).max().item()


def sweep_tiles(args, width):
    """Each kernel alone, for each choice of tiles, while the time lasts."""
    inputs, targets = random_problem(args.device, args.rows, args.words, width, torch.bfloat16)
    problem = fused._Problem.full(*[tensor.detach() for tensor in inputs], targets)
    _, totals, _ = fused._forward(problem, wants_grad=True)
    one = torch.ones((), device=args.device)
    runs = {
        "forward": (fused.FORWARD_TILES, lambda: fused._forward(problem, wants_grad=True)),
        "weight": (fused.WEIGHT_TILES, lambda: fused._weight_gradients(problem, totals, one)),
    }
    started, best = time.perf_counter(), {}
    flop = 4 * args.rows * args.words * width / 1e9
    for tiles in TILES[width]:
        for name, (table, run) in runs.items():
            if time.perf_counter() - started > args.seconds:
                continue
            kept = table[2, width]
            table[2, width] = Tiles(*tiles)
            try:
                taken = milliseconds(run, args)
            except Exception as reason:
                print(f"  tiles P={width} {name:8s} {tiles}: {type(reason).__name__} {str(reason)[:100]}", flush=True)
                continue
            finally:
                table[2, width] = kept
            best[name] = min(best.get(name, (float("inf"), ())), (taken, tiles))
            print(f"  tiles P={width} {name:8s} {tiles!s:20s} {taken:7.2f} ms {flop / taken:5.0f} TFLOP/s", flush=True)
    print(f"  best P={width}: " + ", ".join(f"{name} {tiles} {taken:.2f} ms" for name, (taken, tiles) in best.items()))


def milliseconds(run, args):
    """Median time of a run, after one to compile and one to warm up."""
    if args.device == "cuda":
        return engines.milliseconds(run, args.repeats, warmup=2)
    run()
    run()
    times = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


if __name__ == "__main__":
    main()
