"""The engines on a real GPU: are they equal to the reference, and how fast are they beside cuDNN?

    PYTHONPATH=src python benchmarks/engines_on_device.py            # about a minute on an H200
    PYTHONPATH=src compute-sanitizer --tool racecheck python benchmarks/engines_on_device.py --small
    PYTHONPATH=src python benchmarks/engines_on_device.py --sweep $OUT/sweep.json [--shapes medium] [--seconds 100]
    PYTHONPATH=src TRITON_INTERPRET=1 python benchmarks/engines_on_device.py --device cpu    # a rehearsal without GPU

Equality: every engine against `reference` in float64 over the same (rounded) numbers, as the largest error of a tensor
relative to its norm; ragged rows, rows without words, widths that are no powers of two. Exits with 1 if a bound is
passed. Speed: one layer, both directions, all clipped but cuDNN, which cannot; medians, as ratios to cuDNN's own
bidirectional `nn.LSTM`; launched one by one, and recorded as a CUDA graph. `--small` checks few tiny shapes and times
nothing. `--set 'FORWARD_TILE=(64,32,64,4,3)' FUSED_CELLS=0` tries other constants of the triton engine; `--sweep FILE`
checks and times, instead of all this, the designs and tiles of `engines_sweep.py` that are a question; writes the
fastest.
"""

import argparse
import ast
import contextlib
import importlib
import os
import statistics
import sys
import time

import torch

from elmokit.engines.recurrence.random_problems import draw_recurrence, list_tensors, map_tensors
from elmokit.nn.operations import Clips, find_engine

# Rounding to 8 or 11 bits at every step; in float32 the order of sums, and matmuls of TF32 where cuDNN takes them.
BOUND = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
BOUND_OF_CUDNN_FLOAT32 = 5e-3
# Tight clips in half precision: a value next to its bound is clipped on one side and not on the other, and its whole
# gradient with it. The reference itself, in bfloat16 against float64, is 6e-2 off there.
BOUND_OF_TIGHT_GRADIENTS = 1e-1
FREE, TIGHT, USUAL = Clips(None, None), Clips(0.9, 0.7), Clips(3.0, 3.0)
RAGGED = [300, 300, 299, 130, 129, 128, 7, 1]
SHAPES = {"small": (128, 1024), "medium": (256, 2048), "original": (512, 4096)}


def recurrences(sizes, rows, output_dim, cell_dim, dtype, device, spread=1.0):
    shape = {"num_words": sum(sizes), "num_rows": rows, "input_dim": output_dim}
    shape |= {"cell_dim": cell_dim, "output_dim": output_dim, "scale": spread}
    return [
        map_tensors(draw_recurrence(len(sizes) + seed, **shape), lambda part: part.to(device, dtype)) for seed in (0, 1)
    ]


def cast(recurrence, dtype):
    return map_tensors(recurrence, lambda part: part.detach().to(dtype))


def leaves_of(problem):
    return [part.requires_grad_() for each in problem for part in list_tensors(each)]


def everything(name, problem, sizes, clips, with_gradients=True):
    """Outputs, final states, and the gradients of all that was handed in."""
    leaves = leaves_of(problem) if with_gradients else []
    results = find_engine("recurrence", name)(problem, sizes, clips)
    found = [part for outputs, state in results for part in (outputs, *state)]
    generator = torch.Generator().manual_seed(0)
    upstream = [torch.randn(part.shape, generator=generator).to(part) for part in found]
    return found, list(torch.autograd.grad(found, leaves, upstream)) if with_gradients else []


def largest_error(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(((one.double() - other).norm() / other.norm().clamp_min(1e-6)).item() for one, other in pairs)


def check(name, dtype, shape, sizes, rows, clips, device):
    """One line of the table, and whether the bound holds."""
    problem = recurrences(sizes, rows, *shape, dtype, device)
    exact = everything("reference", [cast(each, torch.float64) for each in problem], sizes, clips)
    found = everything(name, problem, sizes, clips)
    with torch.no_grad():
        without = everything(name, problem, sizes, clips, with_gradients=False)
    again = everything(name, problem, sizes, clips)
    errors = [largest_error(one, other) for one, other in zip(found, exact, strict=True)]
    bound = BOUND_OF_CUDNN_FLOAT32 if (name, dtype) == ("cudnn", torch.float32) else BOUND[dtype]
    same = all(torch.equal(one, other) for one, other in zip(sum(found, []), sum(again, []), strict=True))
    no_grad = largest_error(without[0], exact[0])
    tight = clips == TIGHT and dtype != torch.float32
    good = errors[0] < bound and errors[1] < (BOUND_OF_TIGHT_GRADIENTS if tight else 4 * bound) and no_grad < bound
    kind = str(dtype).removeprefix("torch.")
    clipped = "free" if clips == FREE else f"{clips.cell:g}/{clips.projection:g}"
    line = f"{name:10s}{kind:10s}{shape[0]:4d}/{shape[1]:<6d}{clipped:9s}"
    line += "".join(f"{error:10.1e}" for error in (errors[0], no_grad, errors[1]))
    return line + f"   {'same bits' if same else 'bits vary':10s}{'ok' if good else 'OVER'}", good


def check_all(device, small):
    half, single, third = torch.bfloat16, torch.float32, torch.float16
    sizes, rows = ([5, 5, 3, 1], 6) if small else (RAGGED, 305)
    cases = [("triton", half, (32, 48), TIGHT), ("triton", single, (32, 48), TIGHT)]
    if not small:
        cases = [("triton", half, SHAPES["small"], TIGHT), ("triton", half, (96, 200), FREE)]
        cases += [("triton", single, (96, 200), FREE), ("triton", single, SHAPES["small"], TIGHT)]
        cases += [("triton", third, (96, 200), TIGHT), ("packed", single, (96, 200), TIGHT)]
        cases += [("triton", half, SHAPES["original"], USUAL), ("triton", third, SHAPES["medium"], USUAL)]
        if device.type == "cuda":
            cases += [("cudnn", dtype, SHAPES["small"], FREE) for dtype in (half, third, single)]
    if device.type == "cpu":  # the interpreter is slow, and cuts where a GPU rounds
        sizes, rows = [9, 9, 5, 1], 10
        cases = [(name, dtype, (24, 40), clips) for name, dtype, _, clips in cases if dtype != half]
    lines = ["engine    dtype     widths     clips       outputs   no grad gradients   twice"]
    good = True
    for name, dtype, shape, clips in cases:
        start = time.perf_counter()
        line, fine = check(name, dtype, shape, sizes, rows, clips, device)
        print(f"{line}   {time.perf_counter() - start:.1f} s", flush=True)
        lines.append(line)
        good &= fine
    return lines, good


def recorded(run):
    """The same as one launch, a CUDA graph; `None` where it cannot be recorded.

    Nothing that `run` computed before with gradients may be alive: autograd keeps the nodes of its leaves, and with
    them the stream they were made on, which would be drawn into the recording and spoil it.
    """
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):  # left also when recording fails, which `torch.cuda.graph` by itself does not do
            run()
            with torch.cuda.graph(graph, stream=side):
                run()
        return graph.replay
    except RuntimeError as error:
        print(f"not recorded: {str(error).splitlines()[0]}")
        return None


@contextlib.contextmanager
def constants(module, changes):
    """Other constants of a module for a while; compiled kernels follow, for they are arguments."""
    before = {name: getattr(module, name) for name in changes}
    for name, value in changes.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def library_lstm(width, cell_dim, dtype, device):
    """The LSTM of torch, both directions; on a GPU its weights lie in one piece, else cuDNN copies them at every call.

    torch sees to that by itself but for bfloat16, of which `flatten_parameters` does not know that cuDNN takes it.
    """
    lstm = torch.nn.LSTM(width, cell_dim, proj_size=width, bidirectional=True, device=device, dtype=dtype)
    torch.backends.cudnn.CUDNN_TENSOR_DTYPES.add(torch.bfloat16)
    lstm.flatten_parameters()
    return lstm


def layer(name, rows, words, shape, dtype, device):
    """A function that runs one layer in both directions, and what it is differentiated by."""
    sizes = [rows] * words
    problem = recurrences(sizes, rows, *shape, dtype, device, spread=0.5)
    if name == "nn.LSTM":
        lstm = library_lstm(*shape, dtype, device)
        inputs = problem[0].inputs_ND.view(words, rows, shape[0]).requires_grad_()
        return lambda: [lstm(inputs)[0]], [inputs, *lstm.parameters()]
    clips = FREE if name == "cudnn" else USUAL
    engine = find_engine("recurrence", name)
    leaves = [part for each in problem for part in (each.inputs_ND, *each.weights)]
    for leaf in leaves:
        leaf.requires_grad_()
    return lambda: [outputs for outputs, _ in engine(problem, sizes, clips)], leaves


def time_layer(name, rows, words, shape, dtype, device, repeats):
    """Milliseconds of forward and of forward + backward: launched one by one, then recorded."""
    run, leaves = layer(name, rows, words, shape, dtype, device)

    def forward():
        with torch.no_grad():
            run()

    def both():
        outputs = run()
        torch.autograd.grad(outputs, leaves, outputs)

    found = []
    for function in (forward, both):
        replay = recorded(function)
        found += [milliseconds(function, repeats), milliseconds(replay, repeats) if replay else float("nan")]
    return found


def milliseconds(run, repeats=20, warmup=5):
    """Median by CUDA events."""
    for _ in range(warmup):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def time_all(device, repeats):
    lines = ["shape     rows x words  dtype     engine      forward, ms (ratio): launched, recorded     and backward"]
    shapes = ("small", "original")
    cases = [(shape, rows, torch.bfloat16) for shape in shapes for rows in (512, 1024)]
    cases += [(shape, 512, torch.float32) for shape in shapes]
    for shape, rows, dtype in cases:
        base = None
        for name in ("nn.LSTM", "cudnn", "triton"):
            times = time_layer(name, rows, 20, SHAPES[shape], dtype, device, repeats)
            base = base or times
            cells = [f"{ms:7.3f} ({other / ms:4.2f})" for ms, other in zip(times, base, strict=True)]
            kind = str(dtype).removeprefix("torch.")
            lines.append(f"{shape:10s}{rows:5d} x 20    {kind:10s}{name:9s}{' '.join(cells)}")
            print(lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="constants of the triton engine")
    parser.add_argument("--sweep", metavar="FILE", help="time designs and tiles, and write the fastest as JSON")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="of the sweep")
    parser.add_argument("--seconds", type=float, default=100, help="for the sweep in all")
    parser.add_argument("--matmuls", action="store_true", help="the sweep times torch's matmuls, too")
    args = parser.parse_args()
    device = torch.device(args.device)
    assert device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1", "without a GPU set TRITON_INTERPRET=1"
    for name, value in (setting.split("=") for setting in args.set):
        engine = importlib.import_module("elmokit.engines.recurrence.triton")
        assert hasattr(engine, name), f"the triton engine has no constant {name}"
        setattr(engine, name, ast.literal_eval(value))
    if args.sweep:
        import engines_sweep

        sweep = engines_sweep.Sweep(device, args.seconds, args.shapes, args.matmuls)
        sys.exit(0 if sweep.run(args.sweep) else 1)
    start = time.perf_counter()
    lines, good = check_all(device, args.small)
    if device.type == "cuda" and not args.small:
        lines += ["", *time_all(device, args.repeats)]
    elif device.type == "cpu":  # the timed functions at least run
        for engine in ("nn.LSTM", "triton"):
            run, leaves = layer(engine, 3, 2, (8, 12), torch.float32, device)
            torch.autograd.grad(run(), leaves, run())
    name = torch.cuda.get_device_name() if device.type == "cuda" else "interpreted on the CPU"
    print(f"\n{name}, torch {torch.__version__}, {time.perf_counter() - start:.0f} s\n" + "\n".join(lines))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
