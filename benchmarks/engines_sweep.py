"""Which way of running the recurrence is fastest on this GPU: `engines_on_device.py --sweep FILE` runs this.

A variant is a set of constants of `elmokit.engines.recurrence.triton`. Each is first compared with the reference in
float64, in a process of its own. One that is wrong, or gives other bits the second time, is not timed; nor is one that
has not been compared when 60 % of the time are over. Then each is timed as the layer of the presets, both directions,
clipped, in bfloat16, beside cuDNN's `nn.LSTM`: first the ways forward, then, with the fastest of them, the ways back.
What the time does not allow is left out and said so. `--matmuls` first times each matmul of a layer alone, as torch
makes it: what no kernel of ours can change.

Settled on an H200, and no longer asked: the small layer forward (its tiles), the backward pass with torch's matmuls,
both directions on one stream, what the cache is told. Open: how far the fused gates reach, upwards in cells with
gradients (medium) and downwards in rows without them (64), and whether a smaller tile is still faster in the backward
pass.
"""

import concurrent.futures
import json
import math
import multiprocessing
import time
from pathlib import Path

import engines_on_device as engines
import torch

from elmokit.engines.recurrence import triton as engine

# Rows, cells, terms, warps, stages of a program; of one that multiplies nothing rows, cells, warps.
FORWARD_TILES = [engine.FORWARD_TILE, engine.MANY_CELLS_TILE]
APART_TILES = [engine.APART_TILE]
BACKWARD_APART_TILES = [engine.BACKWARD_APART_TILE, (16, 32, 2), (16, 64, 4), (64, 32, 4)]
SHAPES = engines.SHAPES
CLIPS = {"small": engines.TIGHT, "medium": engines.USUAL, "original": engines.USUAL}
ROWS = (1024, 512, 64)
CHECKING = 0.6  # of the time


def forward_variants(shape):
    found = {"as it is": {}}
    if shape == "small":
        return found
    found |= {"apart without gradients, too": {"FUSED_DTYPES": ()}}
    if shape == "medium":
        found |= {f"fused {tile}": {"FUSED_CELLS": 2048, "FORWARD_TILE": tile} for tile in FORWARD_TILES}
    return found | {"without gradients the other tile": {"MANY_CELLS_TILE": engine.FORWARD_TILE}}


def backward_variants(_):
    return {f"{tile}": {"BACKWARD_APART_TILE": tile} for tile in BACKWARD_APART_TILES}


WAYS = {"forward": forward_variants, "backward": backward_variants}


def taken(settings):
    """The engine with these constants."""
    return engines.constants(engine, settings)


def check(settings, shape, clips, dtype, device):
    """What is wrong with a variant; an empty text if nothing is. Compiles its kernels for gradients and without."""
    sizes, rows = ([130, 130, 67, 7, 1], 133) if device.type == "cuda" else ([5, 5, 2], 6)
    with taken(settings):
        line, good = engines.check("triton", dtype, shape, sizes, rows, clips, device)
    return "" if good and "same bits" in line else " ".join(line.split())


def in_a_process(*args):
    """`check` of its own process: one that reads where it must not spoils the device for all that come after it."""
    try:
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(check, *args).result()
    except Exception as problem:
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"


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
        gradients = torch.autograd.grad(outputs, leaves, outputs)
        found[:] = [part.detach() for part in (*outputs, *gradients)]  # `recorded` says why

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


def matmuls_of(shape, rows, words, dtype, device):
    """Name, function and floating-point operations of each matmul: of a step, then of all steps together."""
    (output_dim, cell_dim), num_words = shape, rows * words

    def draw(*sizes):
        return 0.01 * torch.randn(*sizes, dtype=dtype, device=device)

    for directions in (2, 1):
        weight, projection = draw(directions, 2 * output_dim, 4 * cell_dim), draw(directions, cell_dim, output_dim)
        both, recurrent = weight.transpose(1, 2), weight[:, output_dim:].transpose(1, 2)
        read, said = draw(directions, rows, 2 * output_dim), draw(directions, rows, output_dim)
        gates, gated = draw(directions, rows, 4 * cell_dim), draw(directions, rows, cell_dim)
        wide, narrow = (2 * directions * rows * cell_dim * width for width in (4 * output_dim, output_dim))
        yield f"{directions} x gates", lambda: torch.bmm(read, weight, out=gates), 2 * wide  # noqa: B023
        yield f"{directions} x projection", lambda: torch.bmm(gated, projection, out=said), narrow  # noqa: B023
        back = projection.transpose(1, 2)
        yield f"{directions} x to gated", lambda: torch.bmm(said, back, out=gated), narrow  # noqa: B023
        yield f"{directions} x to outputs", lambda: said.baddbmm_(gates, recurrent), wide  # noqa: B023
        yield f"{directions} x to outputs and inputs", lambda: torch.bmm(gates, both, out=read), 2 * wide  # noqa: B023
    weight, read = draw(2, 2 * output_dim, 4 * cell_dim), draw(2, num_words, 2 * output_dim)
    inputs, gates = weight[:, :output_dim].transpose(1, 2), draw(2, num_words, 4 * cell_dim)
    wide = 2 * 2 * num_words * output_dim * 4 * cell_dim
    yield "all steps, to inputs", lambda: torch.bmm(gates, inputs), wide
    yield "all steps, to weights", lambda: torch.bmm(read.transpose(1, 2), gates), 2 * wide
    gated, said = draw(2, num_words, cell_dim), draw(2, num_words, output_dim)
    yield "all steps, to projection", lambda: torch.bmm(gated.transpose(1, 2), said), wide / 4


class Sweep:
    def __init__(self, device, seconds, shapes, matmuls=False):
        self.device, self.ends, self.seconds = device, time.perf_counter() + seconds, seconds
        on_gpu = device.type == "cuda"
        self.dtype = torch.bfloat16 if on_gpu else torch.float16  # the interpreter cannot multiply bfloat16
        self.shapes = {shape: SHAPES[shape] if on_gpu else (24, 40) for shape in shapes}
        self.rows, self.words = (ROWS, 20) if on_gpu else ((5,), 2)
        self.matmuls = matmuls
        self.expected = {}  # by shape: what the first variant computed, at full size
        self.found = {"wrong": {}, "left out": [], "matmuls, microseconds": {}, "milliseconds": {}, "fastest": {}}

    def check_all(self):
        """Compares all variants, and compiles them by the way; those that fail are not timed."""
        variants = {
            f"{shape} / {way} / {name}": (settings, widths, CLIPS[shape], self.dtype, self.device)
            for shape, widths in self.shapes.items()
            for way, variants in WAYS.items()
            for name, settings in variants(shape).items()
        }
        pool = concurrent.futures.ThreadPoolExecutor(14 if self.device.type == "cuda" else 1)
        answers = {key: pool.submit(in_a_process, *variant) for key, variant in variants.items()}
        concurrent.futures.wait(answers.values(), timeout=self.left() - (1 - CHECKING) * self.seconds)
        problems = {key: answer.result() for key, answer in answers.items() if answer.done()}
        pool.shutdown(wait=False, cancel_futures=True)
        for late in multiprocessing.active_children():
            late.terminate()
        for key in variants:
            if problem := problems.get(key, "not compared for lack of time"):
                self.found["wrong"][key] = problem
                print(f"WRONG {key}: {problem}", flush=True)
        print(f"{len(variants)} variants compared; {self.left():.0f} s left", flush=True)

    def time_matmuls(self, shape):
        on_gpu, found = self.device.type == "cuda", {}
        for name, run, flop in matmuls_of(self.shapes[shape], self.rows[0], self.words, self.dtype, self.device):
            repeats = 2 if name.startswith("all") else 20

            def several(run=run, repeats=repeats):
                for _ in range(repeats):
                    run()

            start = time.perf_counter()
            several()
            taken = 1e3 * (time.perf_counter() - start)
            if on_gpu:
                taken = engines.milliseconds(engines.recorded(several) or several, repeats=5, warmup=2)
            found[name] = us = 1e3 * taken / repeats
            print(f"{shape:9s}matmul  {name:30s}{us:8.1f} us {flop / us / 1e6:6.0f} TFLOP/s", flush=True)
        self.found["matmuls, microseconds"][shape] = found

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
        for shape in self.shapes if self.matmuls else ():
            self.time_matmuls(shape)
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
