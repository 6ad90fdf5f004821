"""The fused output layer on a GPU: equal to float64, how fast beside plain torch, and which tiles are best.

    PYTHONPATH=src python benchmarks/linear_cross_entropy.py [--widths 128 512] [--rows 40960] [--words 100000]
        [--negatives 8192] [--sweep-seconds 25] [--steps check time sweep]

Times are medians by CUDA events. "useful" TFLOP/s count the three products that plain torch needs (forward, and two in
backward), "done" the four that the kernels do. The sweep times each kernel alone; copy the best tiles into
`FORWARD_TILES`, `WEIGHT_TILES` and `SHARES_TILES`. Measured so far: see LOG.md.
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

from elmokit.nn.kernels import linear_cross_entropy as fused
from elmokit.nn.kernels import stored_shares as stored
from elmokit.nn.kernels.linear_cross_entropy import Tiles

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1e-2}
# Most promising first: the sweep ends when its time is up.
TILES = {
    64: [(128, 128, 8, 3), (128, 128, 4, 3), (128, 64, 4, 3), (64, 128, 4, 3)],
    128: [(128, 128, 8, 3), (128, 64, 8, 3), (64, 128, 4, 2), (128, 128, 8, 2), (128, 64, 4, 3), (128, 64, 8, 4),
          (64, 64, 4, 3), (128, 128, 8, 4), (64, 128, 4, 3), (256, 64, 8, 3)],
    256: [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (128, 32, 8, 3), (64, 64, 4, 3)],
    512: [(64, 64, 8, 2), (64, 32, 8, 3), (64, 32, 8, 4), (64, 32, 8, 2)],
}  # fmt: skip

FUNCTIONS = {
    "full": lambda *problem: fused._summed(*problem, None, None, None)[0],
    "stored": lambda *problem: stored.linear_cross_entropies(*problem)[0],
    "sampled": lambda *problem: fused.sampled_cross_entropies(*problem)[0],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--rows", type=int, default=40_960)
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--negatives", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--sweep-seconds", type=float, default=25.0, help="a width")
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
            sweep(args, width)


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
    """Losses and gradients beside float64, in memory that holds NaN until it is written."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills new memory with NaN
    rows, words = (1003, 5003) if device == "cuda" else (67, 131)
    for dtype in (torch.bfloat16, torch.float32):
        for width in (64, 128, 256, 512):
            for kind, function in FUNCTIONS.items():
                if kind == "stored" and (dtype.itemsize, width) not in stored.SHARES_TILES:
                    continue
                inputs, targets = random_problem(device, rows, words, width, dtype)
                rest = random_sample(device, rows, words, words // 5) if kind == "sampled" else ()
                try:
                    found = values(function, inputs, targets, rest)
                except Exception as problem:
                    print(f"check {dtype} {width} {kind}: FAILED {str(problem)[:200]}")
                    continue
                hidden, weight, bias = (tensor.detach() for tensor in inputs)
                exact = hidden.double(), weight.to(dtype).double(), bias.double()
                expected = values(plain, [tensor.requires_grad_() for tensor in exact], targets, rest)
                errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, expected, strict=True)]
                fine = errors[0] < 1e-5 and all(error < TOLERANCE[dtype] for error in errors)
                shown = ", ".join(f"{error:.1e}" for error in errors) + ("" if fine else " WRONG")
                print(f"check {dtype} {width} {kind}: loss, hidden, weight, bias {shown}")
    torch.use_deterministic_algorithms(False)


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
    report("full, shares stored", args.words, float("nan"), both)
    both = milliseconds(lambda: backward(plain, rows=4096), args)
    report("full, plain, chunks of 4096 rows", args.words, float("nan"), both)
    forward = milliseconds(lambda: without_grad(sampled, *sample), args)
    report("sampled, fused", args.negatives, forward, milliseconds(lambda: backward(sampled, *sample), args))
    report("sampled, plain", args.negatives, float("nan"), milliseconds(lambda: backward(plain, *sample), args))


def sweep(args, width):
    """Each kernel alone, for each choice of tiles, while the time lasts."""
    inputs, targets = random_problem(args.device, args.rows, args.words, width, torch.bfloat16)
    problem = fused._Problem.full(*[tensor.detach() for tensor in inputs], targets)
    _, totals, _ = fused._forward(problem, wants_grad=True)
    one = torch.ones((), device=args.device)
    runs = {
        "forward": (fused.FORWARD_TILES, lambda: fused._forward(problem, wants_grad=True)),
        "weight": (fused.WEIGHT_TILES, lambda: fused._weight_gradients(problem, totals, one)),
        "shares": (
            stored.SHARES_TILES,
            lambda: stored._shares(problem.hidden_NP, problem.words_VP, problem.bias_C, targets),
        ),
    }
    started, best = time.perf_counter(), {}
    flop = 4 * args.rows * args.words * width / 1e9
    for tiles in TILES[width]:
        for name, (table, run) in runs.items():
            if time.perf_counter() - started > args.sweep_seconds:
                continue
            kept = table[2, width]
            table[2, width] = Tiles(*tiles)
            try:
                taken = milliseconds(run, args)
            except Exception as reason:
                print(f"  sweep P={width} {name:8s} {tiles}: {type(reason).__name__} {str(reason)[:100]}", flush=True)
                continue
            finally:
                table[2, width] = kept
            best[name] = min(best.get(name, (float("inf"), ())), (taken, tiles))
            print(f"  sweep P={width} {name:8s} {tiles!s:20s} {taken:7.2f} ms {flop / taken:5.0f} TFLOP/s", flush=True)
    print(f"  best P={width}: " + ", ".join(f"{name} {tiles} {taken:.2f} ms" for name, (taken, tiles) in best.items()))


def milliseconds(run, args):
    """Median time of a run, after one to compile and one to warm up."""
    run()
    run()
    times = []
    for _ in range(args.repeats):
        if args.device != "cuda":
            start = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - start))
            continue
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        run()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after))
    return statistics.median(times)


if __name__ == "__main__":
    main()
