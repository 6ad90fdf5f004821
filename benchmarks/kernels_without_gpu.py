"""What the compiler says of every kernel for a GPU that is not there: registers, spills, shared memory, instructions.

    PYTHONPATH=src python benchmarks/kernels_without_gpu.py [--only lstm char highway output optimiser] [--arch 90]

Triton brings the assembler along, so this runs on any Linux machine, and finds what would cost time on a device: a
kernel that does not compile, that spills, or that stores one number at a time. "blocks" is how many programs a
multiprocessor of Hopper holds at once (65,536 registers, 227 KB of shared memory). bfloat16, recurrence and output in
float32 as well; sizes of the small and of the original preset. The tiles are those of the modules and, after them,
others worth trying on a device.
"""

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

import engines_sweep as sweep
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from elmokit.engines.loss import linear_cross_entropy as fused
from elmokit.engines.loss import stored_probabilities
from elmokit.engines.recurrence import triton as engine
from elmokit.engines.recurrence import triton_kernels as lstmp
from elmokit.engines.words import char_cnn, char_table, highway
from elmokit.pretrain import dropout_kernel as keyed_dropout
from elmokit.pretrain.optim import muon_kernel as momentum

ASSEMBLER = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
FLOATS = ("gates", "projection", "outputs", "d_gated", "d_gates", "gated", "read")
SMALL, ORIGINAL, HALF = (128, 1024), (512, 4096), torch.bfloat16


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["lstm", "char", "highway", "output", "optimiser"])
    parser.add_argument("--arch", type=int, default=90)
    args = parser.parse_args()
    assert os.environ.get("TRITON_INTERPRET") != "1", "the interpreter compiles nothing: unset TRITON_INTERPRET"
    print(
        f"{'kernel':24s}{'tile':66s}{'regs':>5s}{'spill':>6s}{'shared':>8s}{'blocks':>7s}{'wgmma':>6s}{'mma':>5s} wide"
    )
    for part in args.only:
        for case in {"lstm": lstm, "char": char, "highway": highways, "output": output, "optimiser": optimiser}[part]():
            compile_one(args.arch, *case)


def lstm():
    """Every kernel that `engines_on_device.py --sweep` may run, and those of float32."""
    numbers, kept = {"cell_clip": "fp32", "output_clip": "fp32"}, {"before": "fp32", "cells": "fp32", "d_cells": "fp32"}
    kept |= {"d_bias": "fp32"}
    for dtype, width, cells in ((HALF, *SMALL), (HALF, *ORIGINAL), (torch.float32, *ORIGINAL)):
        pointers = kept if dtype == HALF else dict.fromkeys((*kept, *lstmp.forward_kernel.arg_names, *FLOATS), "fp32")
        fast = {"FAST": dtype == HALF, "LAST": engine.LAST_USE}
        sizes = {"D": width, "P": width, "H": cells}
        forward, back = (lstmp.forward_kernel, lstmp.FORWARD_COUNTS), (lstmp.backward_kernel, lstmp.BACKWARD_COUNTS)
        for R, J, warps in sweep.APART_TILES:
            constants = sizes | {"R": R, "J": J, "BK": 16, "FUSES": False, "KEEPS": False} | fast
            yield *forward, pointers, numbers, constants, (), warps, 3
        for R, J, warps in sweep.BACKWARD_APART_TILES:
            for raw in (True, False) if dtype == HALF else (True,):
                yield *back, pointers, numbers, {"H": cells, "R": R, "J": J, "RAW": raw} | fast, (), warps, 3
        block = {"D": width, "P": width, "BLOCK": engine.CLIP_BLOCK}
        yield lstmp.clip_kernel, lstmp.CLIP_COUNTS, pointers, numbers, block, (), 4, 3
        if dtype != HALF:
            continue
        for R, J, BK, warps, stages in sweep.FORWARD_TILES:
            for keeps in (True, False):
                constants = sizes | {"R": R, "J": J, "BK": BK, "FUSES": True, "KEEPS": keeps} | fast
                yield *forward, pointers, numbers, constants, (), warps, stages
        for R, Q, BK, warps, stages in (engine.PROJECT_TILE,):
            constants = {"P": width, "H": cells, "R": R, "Q": Q, "BK": BK}
            yield lstmp.project_kernel, lstmp.PROJECT_COUNTS, pointers, numbers, constants, (), warps, stages


def char():
    counts, pointers = ["num_words", "num_columns", "num_channels", "splits"], {"place": "u8", "d_weight": "fp32"}
    constants = {"W": 7, "E": 16, "Q": 128, "BU": 64, "BK": 128, "PRECISE": False}
    known = ("num_channels",)
    yield char_cnn._pool_kernel, counts, pointers, {}, constants, known, 8, 3
    yield char_cnn._weights_kernel, counts, pointers, {}, constants, known, 8, 3
    back = constants | {"Q": 16, "BU": char_cnn.WORDS_BACK, "BK": char_cnn.CHANNELS_BACK}
    yield char_cnn._characters_kernel, counts, pointers, {}, back, known, 4, 3
    counts, constants = ["count", "reach", "num_symbols", "dim"], {"BS": 128, "BM": 64, "BE": 16, "PRECISION": "tf32"}
    yield char_table._sum_kernel, counts, {"ids": "i64", "sums": "fp32"}, {}, constants, ("dim",), 4, 3
    counts, pointers = ["num_words", "place", "threshold"], {"keys": "i32", "seed": "i64"}
    for width, _ in (SMALL, ORIGINAL):
        constants = {"P": width, "R": keyed_dropout.NUMBERS // width, "BP": width}
        yield keyed_dropout._kernel, counts, pointers, {"scale": "fp32"}, constants, (), 4, 3


def optimiser():
    pointers = {"table": "i64", "is_lost": "i1", "result": "bf16", "updates": "fp32"}
    pointers |= dict.fromkeys(("squares", "factor", "sizes", "decays", "rate"), "fp32")
    counts, numbers = ["count", "num_tiles"], {"share": "fp32"}
    for rows, columns in (SMALL, ORIGINAL, (2048, 2048)):
        shape = {"R": rows, "C": columns, "BLOCK": momentum.NUMBERS}
        yield momentum._mix_kernel, counts, pointers, numbers, shape, (), 4, 3
        tiles = {"BT": rows * columns // momentum.NUMBERS, "BLOCK": momentum.NUMBERS}
        yield momentum._normalise_kernel, counts, pointers, numbers, tiles, ("count",), 4, 3
        yield momentum._subtract_kernel, counts, pointers | {"updates": "bf16"}, numbers, shape, (), 4, 3


def highways():
    constants = {"R": highway.ROWS, "BF": highway.FEATURES, "SPLITS": highway.SPLITS}
    counts, pointers = ["num_rows", "num_features"], dict.fromkeys(("sums", "open_sums", "new_sums"), "fp32")
    for kernel in (
        highway._rectify_kernel,
        highway._rectify_backward_kernel,
        highway._highway_kernel,
        highway._highway_backward_kernel,
    ):
        yield kernel, counts, pointers, {}, constants, ("num_features",), 4, 3


def output():
    counts = ["num_rows", "num_columns", "num_words", "reach", "num_tiles", "stride", "num_splits"]
    pointers = {"ids": "i64", "targets": "i64"}
    names = ("bias", "own", "part_totals", "part_means", "part_sums", "totals", "scale", "grad_columns", "grad_bias")
    pointers |= dict.fromkeys((*names, "losses"), "fp32")
    known = ("num_words", "num_columns", "stride")
    yield fused._scale_kernel, ["count"], {"factor": "fp32"}, {}, {"BLOCK": fused._NUMBERS_SCALED}, ("count",), 4, 3
    single = pointers | dict.fromkeys(("hidden", "columns"), "fp32")
    for width in (64, 128, 256, 512):
        for kernel, table, owned, stepped, flags in (
            (fused._forward_kernel, fused.FORWARD_TILES, "BLOCK_M", "BLOCK_V", {"SAMPLED": True, "WANTS_GRAD": True}),
            (fused._weight_kernel, fused.WEIGHT_TILES, "BLOCK_V", "BLOCK_M", {"SAMPLED": False}),
        ):
            tiles = table[4, width]
            constants = flags | {"K": width, "PRECISION": fused.FLOAT32_PRECISION}
            constants |= {owned: tiles.owned, stepped: tiles.stepped}
            yield kernel, counts, single, {}, constants, known, tiles.warps, tiles.stages
    for width in (128, 512):
        key, plain = (2, width), {"K": width, "PRECISION": "tf32"}
        for kernel, table, owned, stepped, flags in (
            (fused._forward_kernel, fused.FORWARD_TILES, "BLOCK_M", "BLOCK_V", {"SAMPLED": False, "WANTS_GRAD": True}),
            (fused._forward_kernel, fused.FORWARD_TILES, "BLOCK_M", "BLOCK_V", {"SAMPLED": True, "WANTS_GRAD": True}),
            (fused._weight_kernel, fused.WEIGHT_TILES, "BLOCK_V", "BLOCK_M", {"SAMPLED": False}),
            (stored_probabilities._ratios_kernel, stored_probabilities.TILES, "BLOCK_M", "BLOCK_V", {}),
        ):
            if key not in table:
                continue
            tiles = table[key]
            constants = plain | flags | {owned: tiles.owned, stepped: tiles.stepped}
            yield kernel, counts, pointers, {}, constants, known, tiles.warps, tiles.stages
        if wide := stored_probabilities.WIDE_TILES.get(key):
            constants = plain | {"BLOCK_M": wide.rows, "BLOCK_V": wide.words, "BLOCK_K": wide.depth}
            constants |= {"GROUP": wide.group}
            kernel = stored_probabilities._table_kernel
            yield kernel, counts, pointers, {}, constants, known, wide.warps, wide.stages
        for sampled in (False, True):
            constants = {"K": width, "BLOCK_M": 16, "SAMPLED": sampled, "WANTS_GRAD": True}
            words = {"words": "fp32"} if sampled else {}
            yield fused._combine_kernel, counts, pointers | words, {}, constants, known, 4, 3
        for kernel in (stored_probabilities._own_kernel, stored_probabilities._combine_kernel):
            kept = pointers | {"grad_hidden": "fp32"}
            yield kernel, counts, kept, {}, {"K": width, "BLOCK_M": 16}, known, 4, 3


def compile_one(arch, kernel, counts, pointers, numbers, constants, known, warps, stages):
    """One line of the table. `known`: counts that are multiples of 16, as in the models."""
    names = kernel.arg_names
    signature = {}
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        else:
            signature[name] = "i32" if name in counts else numbers.get(name) or "*" + pointers.get(name, "bf16")
    aligned = [n for n in names if signature[n].startswith("*") or n in known]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()}, attributes)
    tile = " ".join(f"{name}={value}" for name, value in constants.items() if value is not None)
    label = f"{kernel.__name__:24s}" + f"{tile} {warps}w {stages}s".replace("PRECISION=tf32 ", "")
    try:
        compiled = triton.compile(
            source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, "num_stages": stages}
        )
    except Exception as problem:
        print(f"{label} FAILED: {' '.join(str(problem).split())[:200]}", flush=True)
        return
    code, shared = compiled.asm["ptx"], compiled.metadata.shared
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(code)
        file.flush()
        command = [str(ASSEMBLER), "-v", f"-arch=sm_{arch}{'a' if arch >= 90 else ''}", file.name, "-o", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spilled = (int(re.search(f, said)[1]) for f in (r"Used (\d+) registers", r"(\d+) bytes spill stores"))
    blocks = min(65536 // (registers * warps * 32), 227 * 1024 // max(1, shared), 64 // warps)
    wide = len(re.findall(r"st\.global\S*\.v[24]", code)), len(re.findall(r"st\.global", code))
    counted = f"{code.count('wgmma.mma_async'):6d}{code.count('mma.sync.al'):5d}"
    waits = " serialized: each matmul is waited for" if "are serialized" in said else ""
    print(
        f"{label:90s}{registers:5d}{spilled:6d}{shared:8d}{blocks:7d}{counted} {wide[0]}/{wide[1]}{waits}", flush=True
    )


if __name__ == "__main__":
    main()
