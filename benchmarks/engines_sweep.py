"""Which way of running the recurrence is fastest on this GPU: `engines_on_device.py --sweep FILE` runs this.

A variant is a set of constants of `elmokit.nn.engines.triton`, or something put in the place of one of its parts. Each
is first compared with the reference in float64, in processes of their own, which compile all kernels side by side; one
that is wrong, or gives other bits the second time, is not timed. Then each is timed as the layer of the presets, both
directions, clipped, in bfloat16, beside cuDNN's `nn.LSTM`: first the ways forward, then, with the fastest of them, the
ways back. What the time does not allow is left out and said so.
"""

import concurrent.futures
import contextlib
import json
import math
import multiprocessing
import time
from pathlib import Path

import engines_on_device as engines
import torch

from elmokit.nn.engines import triton as engine

ALL = 1_000_000
# Rows, cells, terms, warps, stages of a program; of one that multiplies nothing rows, cells, warps.
FORWARD_TILES = [(128, 64, 64, 8, 3), (128, 32, 64, 4, 3), (64, 64, 64, 4, 2), (64, 32, 64, 4, 3)]
PROJECT_TILES = [(64, 32, 128, 4, 3), (64, 64, 64, 4, 4)]
BACKWARD_TILES = [(64, 32, 128, 8, 2), (64, 32, 64, 8, 3)]
APART_TILES = [(16, 64, 4), (16, 128, 8)]
BACKWARD_APART_TILES = [(32, 64, 8), (32, 32, 4), (64, 64, 8)]
STREAM_ROWS = 256  # with fewer the host's launches take longer than the device
SHAPES = engines.SHAPES
ROWS = (1024, 512)


class TorchProjection:
    """In the place of `project_kernel`: torch's product, then its clipping."""

    def __getitem__(self, grid):
        return self.project

    @staticmethod
    def project(gated, projection, outputs, n, start, num_words, kept, num_gated, bound, **flags):
        out = outputs[:, start : start + n]
        torch.bmm(gated[:, kept : kept + n], projection, out=out).clamp_(-bound, bound)


def both_at_once(steps):
    """In the place of `_forward_apart` or `_backward_apart`: one launch for both directions, on one stream."""

    @contextlib.contextmanager
    def one_lane(num_directions, num_rows, device):
        yield [(slice(None), contextlib.nullcontext)]

    def run(*args, **options):
        before, engine._lanes = engine._lanes, one_lane
        try:
            steps(*args, **options)
        finally:
            engine._lanes = before

    return run


PARTS = {
    "project_kernel": {"torch": TorchProjection()},
    "_forward_apart": {"both at once": both_at_once(engine._forward_apart)},
    "_backward_apart": {"both at once": both_at_once(engine._backward_apart)},
}


def forward_variants(shape):
    fused = {"FUSED_CELLS": ALL, "FORWARD_TILE": FORWARD_TILES[0]}
    apart = {"FUSED_CELLS": 0, "STREAM_ROWS": STREAM_ROWS}
    if shape == "small":
        found = {f"fused {tile}": fused | {"FORWARD_TILE": tile} for tile in FORWARD_TILES}
        found["fused, torch's projection"] = fused | {"project_kernel": "torch"}
        found |= {f"fused, projection {tile}": fused | {"PROJECT_TILE": tile} for tile in PROJECT_TILES[1:]}
        found["apart"] = apart
    else:
        found = {f"apart {tile}": apart | {"APART_TILE": tile} for tile in APART_TILES}
        found["fused, torch's projection"] = fused | {"project_kernel": "torch"}
    return found | {"apart, both at once": apart | {"_forward_apart": "both at once"}}


def backward_variants(shape):
    fused, apart = {"BACKWARD_FUSED_CELLS": ALL}, {"BACKWARD_FUSED_CELLS": 0, "STREAM_ROWS": STREAM_ROWS}
    tiles = BACKWARD_TILES if shape == "small" else BACKWARD_TILES[1:]
    found = {f"fused {tile}": fused | {"BACKWARD_TILE": tile} for tile in tiles}
    found |= {f"apart {tile}": apart | {"BACKWARD_APART_TILE": tile} for tile in BACKWARD_APART_TILES}
    found["apart, both at once"] = apart | {"_backward_apart": "both at once"}
    return found | {"apart, cache told nothing": apart | {"LAST_USE": ""}}


WAYS = {"forward": forward_variants, "backward": backward_variants}


@contextlib.contextmanager
def taken(settings):
    """The engine with these constants and parts."""
    before = {name: getattr(engine, name) for name in settings}
    for name, value in settings.items():
        setattr(engine, name, PARTS[name][value] if name in PARTS else value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(engine, name, value)


def check(settings, shape, dtype, device):
    """What is wrong with a variant; an empty text if nothing is. Compiles its kernels for gradients and without."""
    device = torch.device(device)
    sizes, rows = ([300, 300, 257, 64, 7, 1], 303) if device.type == "cuda" else ([5, 5, 2], 6)
    try:
        for clips in (engines.TIGHT, engines.USUAL):
            with taken(settings):
                line, good = engines.check("triton", dtype, shape, sizes, rows, clips, device)
            if not good or "same bits" not in line:
                return " ".join(line.split())
    except Exception as problem:
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
    return ""


def timed(name, settings, shape, rows, words, dtype, device):
    """Milliseconds of forward and of forward + backward, launched one by one, then recorded."""
    if device.type == "cpu":
        run, leaves = engines.layer(name, rows, words, shape, dtype, device)
        with taken(settings):
            start = time.perf_counter()
            outputs = run()
            middle = time.perf_counter()
            torch.autograd.grad(outputs, leaves, outputs)
            both = 1e3 * (time.perf_counter() - start)
        return [1e3 * (middle - start)] * 2 + [both] * 2
    with taken(settings):
        return engines.time_layer(name, rows, words, shape, dtype, device, repeats=11)


def at_full_size(settings, shape, rows, words, dtype, device):
    """Outputs and gradients of a layer as it is timed: launched one by one, and as the third replay of a recording."""
    run, leaves = engines.layer("triton", rows, words, shape, dtype, device)
    found = []

    def both():
        outputs = run()
        found[:] = [*outputs, *torch.autograd.grad(outputs, leaves, outputs)]

    with taken(settings):
        both()
        launched = found.copy()
        if device.type == "cpu":
            return launched, launched
        replay = engines.recorded(both)
        if replay is None:
            raise RuntimeError("could not be recorded")
        for _ in range(3):
            replay()
        return launched, [part.clone() for part in found]


class Sweep:
    def __init__(self, device, seconds):
        self.device, self.ends = device, time.perf_counter() + seconds
        on_gpu = device.type == "cuda"
        self.dtype = torch.bfloat16 if on_gpu else torch.float16  # the interpreter cannot multiply bfloat16
        self.shapes, self.rows, self.words = (SHAPES, ROWS, 20) if on_gpu else ({"small": (24, 40)}, (5,), 2)
        self.for_timing = 0.4 * seconds
        self.expected = {}  # by shape: what the first variant computed, at full size
        self.found = {"wrong": {}, "left out": [], "milliseconds": {}, "fastest": {}}

    def check_all(self):
        """Compares all variants, and compiles them by the way; those that fail are not timed."""
        jobs = {}
        for shape, widths in self.shapes.items():
            for way, variants in WAYS.items():
                jobs |= {f"{shape} / {way} / {name}": (settings, widths) for name, settings in variants(shape).items()}
        # Processes of their own: a kernel keeps the compiler busy for a second or two, and one that reads where it must
        # not spoils the device for its process.
        options = {"mp_context": multiprocessing.get_context("spawn")}
        if self.device.type == "cuda":
            options |= {"max_workers": 14, "max_tasks_per_child": 1}
        pool = concurrent.futures.ProcessPoolExecutor(**options)
        answers = {key: pool.submit(check, *job, self.dtype, str(self.device)) for key, job in jobs.items()}
        for key, answer in answers.items():
            try:
                problem = answer.result(timeout=max(1, self.left() - self.for_timing))
            except Exception as unanswered:
                problem = f"not compared: {type(unanswered).__name__} {unanswered}"
            if problem:
                self.found["wrong"][key] = problem
                print(f"WRONG {key}: {problem}", flush=True)
        pool.shutdown(wait=False, cancel_futures=True)
        for late in multiprocessing.active_children():
            late.terminate()
        print(f"{len(jobs)} variants compiled and compared, {self.left():.0f} s left", flush=True)

    def left(self):
        return self.ends - time.perf_counter()

    def measure(self, shape, label, settings, name="triton"):
        """Times for each number of rows; `None` where there is no time."""
        if self.left() < 3:
            self.found["left out"].append(f"{shape} {label}")
            return None
        fixed = self.words, self.dtype, self.device
        try:
            if name == "triton" and (problem := self.disagreement(shape, settings)):
                raise ArithmeticError(problem)
            times = [timed(name, settings, self.shapes[shape], rows, *fixed) for rows in self.rows]
        except Exception as problem:
            self.found["wrong"][f"{shape} / {label}"] = f"not timed: {type(problem).__name__}: {problem}"
            print(f"WRONG {shape} {label}: {problem}", flush=True)
            return None
        self.found["milliseconds"].setdefault(shape, {})[label] = dict(zip(map(str, self.rows), times, strict=True))
        base = self.found["milliseconds"][shape]["nn.LSTM"]
        for rows, row_times in zip(self.rows, times, strict=True):
            cells = zip(row_times, base[str(rows)], strict=True)
            shown = " ".join(f"{ms:7.3f} ({other / ms:4.2f})" for ms, other in cells)
            print(f"{shape:9s}{rows:5d} x {self.words}  {label:44s}{shown}", flush=True)
        return times

    def disagreement(self, shape, settings):
        """What is wrong at full size: the recording, or a result unlike that of the first variant."""
        shapes = self.shapes[shape], self.rows[0], self.words
        launched, recorded = at_full_size(settings, *shapes, self.dtype, self.device)
        expected = self.expected.setdefault(shape, [part.double() for part in launched])
        errors = [engines.largest_error(found, expected) for found in (launched, recorded)]
        bound = 4 * engines.BOUND[self.dtype]
        if not max(errors) < bound:
            return f"launched {errors[0]:.1e}, recorded {errors[1]:.1e} away from the first variant"
        if not all(map(torch.equal, launched, recorded)):
            print(f"the recording gives other bits: {errors}", flush=True)
        return ""

    def fastest(self, shape, way, variants, chosen):
        """The variant of the least forward × (forward + backward), recorded, over the numbers of rows."""
        scores = {}
        for name, settings in variants.items():
            if f"{shape} / {way} / {name}" in self.found["wrong"]:
                continue
            times = self.measure(shape, f"{way} {name}", chosen | settings)
            if times is not None:
                scores[name] = math.prod(forward * both for _, forward, _, both in times)
        return chosen | variants[min(scores, key=scores.get)] if scores else chosen

    def run(self, path):
        start = time.perf_counter()
        self.check_all()
        print("ms (times as fast as nn.LSTM): forward launched, recorded; and backward launched, recorded", flush=True)
        for shape in self.shapes:
            self.measure(shape, "nn.LSTM", {}, name="nn.LSTM")
        for shape in self.shapes:
            chosen = {}
            for way, variants in WAYS.items():
                chosen = self.fastest(shape, way, variants(shape), chosen)
            self.found["fastest"][shape] = chosen
        self.found["device"] = torch.cuda.get_device_name() if self.device.type == "cuda" else "interpreted"
        self.found["seconds"] = time.perf_counter() - start
        Path(path).write_text(json.dumps(self.found, indent=1) + "\n")
        print(f"fastest: {json.dumps(self.found['fastest'])}\nleft out: {self.found['left out']}")
        return not self.found["wrong"]
