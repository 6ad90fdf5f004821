# ruff: noqa: ANN001, ANN002, ANN202 (fake operators and the context of autograd)
"""The recurrence on a GPU: two launches a step, both directions side by side, with clipping.

A step is a product of its inputs and its last outputs with their matrices, the gates, and a product with the
projection. All but the last are one Triton kernel, so that what comes into the gates never travels to memory and back;
the projection is a batched matrix product. Going back it is the same in mirror image. What is left is done for all
steps at once after the last: the gradients of inputs and weights, and the clipping of the outputs (a step clips what it
reads of the step before by itself).

The products are taken in the inputs' dtype (float32, bfloat16 or float16) and summed in float32; gates are computed,
and the cell is kept, in float32. The whole is two operators of `torch.library`, `elmokit::lstmp` and its backward; the
kernels are in `nn/kernels/lstmp.py`.

Shapes as in `engines/__init__.py`; E directions, n rows that read a word at a step, M words of a block of steps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import triton
from torch import Tensor

from elmokit.errors import EngineError
from elmokit.nn.engines import TRITON_DTYPES, Clips, LayerState, Recurrence, engine_named
from elmokit.nn.kernels.lstmp import backward_kernel, forward_kernel

__all__ = ["run"]

# How float32 is multiplied: "ieee" is exact; "tf32x3" is three products of TF32 parts on the tensor cores.
FLOAT32_PRECISION = "ieee"
# Rows, cells and outputs of a program, its warps, its stages: the fastest of those timed on an H200 in bfloat16
# (benchmarks/2026-11-15-training-on-an-h200.md), both at the small and at the original size.
FORWARD_TILE = (128, 64, 64, 8, 3)
BACKWARD_TILE = (64, 32, 64, 8, 3)
# That forward tile takes 144 KB of shared memory; GPUs with 99 (8.6, 8.9, 12.0) get one of 72, 7 % slower.
SMALLER_TILE, FORWARD_SHARED_BYTES = (64, 32, 64, 4, 3), 144 * 2**10
# float32 multiplies without tensor cores, every product of a tile written out: larger ones take minutes to compile.
FLOAT32_TILE = (128, 32, 32, 8, 2)
# Where the kernel multiplies the inputs as well: it saves their way to memory and back. float32 leaves them to torch, a
# block of steps at once, for without tensor cores torch's products should be the faster ones (not timed).
FUSED_DTYPES = (torch.bfloat16, torch.float16)
# Memory of one such block where no gradient is wanted: the peak does not grow with the length.
BLOCK_BYTES = 2**29


@torch.compiler.disable  # batches of every new shape would be compiled anew
def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence; layers without a projection go to the packed engine."""
    dtype = recurrences[0].inputs_ND.dtype
    if dtype not in TRITON_DTYPES:
        known = ", ".join(str(known).removeprefix("torch.") for known in TRITON_DTYPES)
        raise EngineError(f"the triton engine computes in {known}, found {dtype}: use the reference engine")
    if not batch_sizes or recurrences[0].weights.projection_HP is None:
        return engine_named("packed")(recurrences, batch_sizes, clips)
    parts = zip(*((each.inputs_ND, *each.weights, *each.state) for each in recurrences), strict=True)
    stacked = [torch.stack(part) for part in parts]
    keeps = any(part.requires_grad for part in stacked)  # never so under no_grad
    outputs_ENP, hidden_EBP, cell_EBH, *_ = _lstmp(*stacked, list(batch_sizes), *clips, keeps)
    finals = map(LayerState, hidden_EBP, cell_EBH)
    return list(zip(outputs_ENP, finals, strict=True))


@torch.library.custom_op("elmokit::lstmp", mutates_args=())
def _lstmp(
    inputs_END: Tensor,
    input_ED4H: Tensor,
    recurrent_EP4H: Tensor,
    bias_E4H: Tensor,
    projection_EHP: Tensor,
    hidden_EBP: Tensor,
    cell_EBH: Tensor,
    sizes: list[int],
    cell_clip: float | None,
    output_clip: float | None,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs, final hidden state and cell; and, where `keeps`, the gates and cells of every word for the way back."""
    num_directions, num_words, _ = inputs_END.shape
    output_dim, cell_dim, dtype = hidden_EBP.shape[2], cell_EBH.shape[2], inputs_END.dtype
    cell_bound, output_bound = _bound(cell_clip), _bound(output_clip, dtype)
    weights = _gates_joined(recurrent_EP4H), bias_E4H.contiguous()
    fuses = dtype in FUSED_DTYPES
    tile = _tile(dtype, _forward_tile(inputs_END.device), cell_dim, P=output_dim, D=inputs_END.shape[2])
    flags = tile | {"KEEPS": keeps, "CLIPS": output_clip is not None, "FUSES": fuses}
    inputs_END = inputs_END.contiguous()
    input_weight = _gates_joined(input_ED4H) if fuses else input_ED4H
    outputs_ENP = inputs_END.new_empty(num_directions, num_words, output_dim)
    gated_EnH = inputs_END.new_empty(num_directions, sizes[0], cell_dim)
    gates_EM4H = inputs_END.new_empty(num_directions, num_words if fuses and keeps else 0, 4 * cell_dim)
    hidden, hidden_start = hidden_EBP.to(dtype).contiguous(), 0
    if keeps:
        before, before_start = cell_EBH.float().contiguous(), 0
        cells = before.new_empty(num_directions, num_words, cell_dim)
    else:  # one cell a row is enough: each is read and then overwritten by one program
        cells = cell_EBH.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        before, before_start = cells, 0
    steps_a_block = len(sizes) if keeps else max(1, BLOCK_BYTES // (4 * gated_EnH.nbytes))
    start = block_start = block_end = 0
    with torch.cuda.device_of(inputs_END):
        for step, n in enumerate(sizes):
            if step % steps_a_block == 0 and not fuses:
                block_start, block_end = start, start + sum(sizes[step : step + steps_a_block])
                gates_EM4H = torch.bmm(inputs_END[:, block_start:block_end], input_ED4H)
            cells_start = start if keeps else 0
            forward_kernel[_grid(n, num_directions, tile)](
                inputs_END, input_weight, gates_EM4H, *weights, hidden, before, cells, gated_EnH, n, start, num_words,
                start - block_start, gates_EM4H.shape[1], hidden_start, hidden.shape[1], before_start, before.shape[1],
                cells_start, cells.shape[1], sizes[0], cell_bound, output_bound if step else float("inf"), **flags,
            )  # fmt: skip
            torch.bmm(gated_EnH[:, :n], projection_EHP, out=outputs_ENP[:, start : start + n])
            hidden, hidden_start, before, before_start = outputs_ENP, start, cells, cells_start
            start += n
    if output_clip is not None:
        outputs_ENP.clamp_(-output_bound, output_bound)
    final_hidden_EBP = _after_last_words(outputs_ENP, hidden_EBP, sizes)
    if not keeps:
        final_cell_EBH = cells.to(cell_EBH.dtype)
        return outputs_ENP, final_hidden_EBP, final_cell_EBH, inputs_END.new_empty(0), cells.new_empty(0)
    return outputs_ENP, final_hidden_EBP, _after_last_words(cells, cell_EBH, sizes), gates_EM4H, cells


@_lstmp.register_fake
def _(inputs_END, *others):
    *_, hidden_EBP, cell_EBH, _, _, _, keeps = others
    num_directions, num_words, _ = inputs_END.shape
    cell_dim = cell_EBH.shape[2]
    outputs_ENP = inputs_END.new_empty(num_directions, num_words, hidden_EBP.shape[2])
    gates = inputs_END.new_empty((num_directions, num_words, 4 * cell_dim) if keeps else 0)
    cells = inputs_END.new_empty((num_directions, num_words, cell_dim) if keeps else 0, dtype=torch.float32)
    return outputs_ENP, torch.empty_like(hidden_EBP), torch.empty_like(cell_EBH), gates, cells


@torch.library.custom_op("elmokit::lstmp_backward", mutates_args=())
def _lstmp_backward(
    d_outputs_ENP: Tensor,
    d_hidden_EBP: Tensor,
    d_cell_EBH: Tensor,
    inputs_END: Tensor,
    input_ED4H: Tensor,
    recurrent_EP4H: Tensor,
    projection_EHP: Tensor,
    hidden_EBP: Tensor,
    cell_EBH: Tensor,
    outputs_ENP: Tensor,
    gates_EN4H: Tensor,
    cells_ENH: Tensor,
    sizes: list[int],
    cell_clip: float | None,
    output_clip: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the inputs, the four weights and the first state."""
    num_directions, num_words, cell_dim = cells_ENH.shape
    active, starts, dtype = sizes[0], _starts(sizes), inputs_END.dtype
    cell_bound, output_bound = _bound(cell_clip), _bound(output_clip, dtype)
    tile = _tile(dtype, BACKWARD_TILE, cell_dim, P=outputs_ENP.shape[2])
    flags = tile | {"CLIPS": output_clip is not None}
    projection_EHP = projection_EHP.contiguous()
    d_outputs_ENP = d_outputs_ENP.clone(memory_format=torch.contiguous_format)
    for rows, places in _last_words(sizes):
        d_outputs_ENP[:, places] += d_hidden_EBP[:, rows]
    d_cells_EBH = d_cell_EBH.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    d_gates_EN4H = torch.empty_like(gates_EN4H)
    gated_ENH = inputs_END.new_empty(num_directions, num_words, cell_dim)
    backwards_E4HP = recurrent_EP4H.transpose(1, 2)
    first_cell_EBH = cell_EBH.float().contiguous()
    with torch.cuda.device_of(inputs_END):
        for step in reversed(range(len(sizes))):
            start, n = starts[step], sizes[step]
            before, before_start = (cells_ENH, starts[step - 1]) if step else (first_cell_EBH, 0)
            backward_kernel[_grid(n, num_directions, tile)](
                gates_EN4H, projection_EHP, before, cells_ENH, outputs_ENP, d_outputs_ENP, d_gates_EN4H, gated_ENH,
                d_cells_EBH, n, start, num_words, before_start, before.shape[1], d_cells_EBH.shape[1],
                cell_bound, output_bound, **flags,
            )  # fmt: skip
            if step:  # what a step did to the output before it joins what came to that output from outside
                d_before_EnP = d_outputs_ENP[:, starts[step - 1] : starts[step - 1] + n]
                d_before_EnP.baddbmm_(d_gates_EN4H[:, start : start + n], backwards_E4HP)
    if output_clip is not None:  # the kernel did so for itself, in registers
        d_outputs_ENP.masked_fill_(outputs_ENP.abs() >= output_bound, 0)
    d_first_EnP = torch.bmm(d_gates_EN4H[:, :active], backwards_E4HP).to(hidden_EBP.dtype)
    words_before = [hidden_EBP[:, :active].to(dtype)]
    words_before += [outputs_ENP[:, start : start + n] for start, n in zip(starts, sizes[1:], strict=False)]
    # Both matrices of the gates at once: their gradients are read from memory once instead of twice.
    read_ENX = torch.cat([inputs_END, torch.cat(words_before, dim=1)], dim=2)
    d_input_ED4H, d_recurrent_EP4H = torch.bmm(read_ENX.transpose(1, 2), d_gates_EN4H).split(
        [inputs_END.shape[2], outputs_ENP.shape[2]], dim=1
    )
    return (
        torch.bmm(d_gates_EN4H, input_ED4H.transpose(1, 2)),
        d_input_ED4H.clone(),  # an operator must not return parts of one tensor
        d_recurrent_EP4H.clone(),
        d_gates_EN4H.sum(1),
        torch.bmm(gated_ENH.transpose(1, 2), d_outputs_ENP),
        torch.cat([d_first_EnP, d_hidden_EBP[:, active:]], dim=1),
        d_cells_EBH.to(cell_EBH.dtype),
    )


@_lstmp_backward.register_fake
def _(d_outputs, d_hidden, d_cell, inputs, input_weight, recurrent, projection, hidden, cell, outputs, gates, *others):
    del d_outputs, d_hidden, d_cell, outputs, others
    bias = gates.new_empty(gates.shape[0], gates.shape[2])
    return tuple(torch.empty_like(part) for part in (inputs, input_weight, recurrent, bias, projection, hidden, cell))


def _keep(ctx, inputs, output) -> None:
    inputs_END, input_ED4H, recurrent_EP4H, _, projection_EHP, hidden_EBP, cell_EBH, *ctx.settings, _ = inputs
    outputs_ENP, final_hidden_EBP, final_cell_EBH, gates_EN4H, cells_ENH = output
    ctx.save_for_backward(
        inputs_END, input_ED4H, recurrent_EP4H, projection_EHP, hidden_EBP, cell_EBH, outputs_ENP, gates_EN4H, cells_ENH
    )
    ctx.mark_non_differentiable(gates_EN4H, cells_ENH)
    ctx.set_materialize_grads(False)  # the kept gates would get as many zeros


def _differentiate(ctx, *gradients):
    _, _, _, _, hidden_EBP, cell_EBH, outputs_ENP, *_ = saved = ctx.saved_tensors
    pairs = zip(gradients, (outputs_ENP, hidden_EBP, cell_EBH), strict=False)
    gradients = [torch.zeros_like(like) if gradient is None else gradient for gradient, like in pairs]
    return *_lstmp_backward(*gradients, *saved, *ctx.settings), None, None, None, None


_lstmp.register_autograd(_differentiate, setup_context=_keep)


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where each step's words begin."""
    return [0, *accumulate(sizes)][:-1]


def _last_words(sizes: Sequence[int]) -> list[tuple[slice, slice]]:
    """Rows that end with the same step, and the places of their last words; the rows in order."""
    steps = zip(_starts(sizes), sizes, [*sizes[1:], 0], strict=True)
    return [(slice(left, n), slice(start + left, start + n)) for start, n, left in steps if left < n][::-1]


def _after_last_words(values_ENX: Tensor, first_EBX: Tensor, sizes: Sequence[int]) -> Tensor:
    """What every row holds after its last word; a row without words what it came with."""
    ended = [values_ENX[:, places] for _, places in _last_words(sizes)]
    return torch.cat([*ended, first_EBX[:, sizes[0] :]], dim=1).to(first_EBX.dtype)


def _bound(clip: float | None, dtype: torch.dtype = torch.float32) -> float:
    """The clip as the dtype holds it: what was clipped must be found by comparing with it."""
    return float("inf") if clip is None else torch.tensor(clip, dtype=dtype).item()


def _gates_joined(weight_EX4H: Tensor) -> Tensor:
    """The same matrix with the four gates of a cell side by side."""
    return weight_EX4H.unflatten(2, (4, -1)).transpose(2, 3).reshape(weight_EX4H.shape).contiguous()


def _grid(num_rows: int, num_directions: int, tile: dict[str, Any]) -> tuple[int, int, int]:
    return triton.cdiv(num_rows, tile["R"]), triton.cdiv(tile["H"], tile["J"]), num_directions


def _forward_tile(device: torch.device) -> tuple[int, ...]:
    return FORWARD_TILE if _shared_bytes(device) >= FORWARD_SHARED_BYTES else SMALLER_TILE


@functools.cache
def _shared_bytes(device: torch.device) -> int:
    """What one program may take of the shared memory; Triton's interpreter knows no bound."""
    if device.type != "cuda":
        return FORWARD_SHARED_BYTES
    return triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]


def _tile(dtype: torch.dtype, usual: tuple[int, ...], cell_dim: int, **widths: int) -> dict[str, Any]:
    """Sizes of a kernel; `widths` are those of the sums it takes, by their letters there."""
    precise = dtype == torch.float32
    rows, cells, outputs, num_warps, num_stages = FLOAT32_TILE if precise else usual
    blocks = {f"B{name}": max(16, min(outputs, triton.next_power_of_2(width))) for name, width in widths.items()}
    sizes = widths | blocks | {"H": cell_dim, "R": rows, "J": cells}
    precision = FLOAT32_PRECISION if precise else "tf32"  # Triton's default, of no effect in half precision
    return sizes | {"PRECISION": precision, "num_warps": num_warps, "num_stages": num_stages}
