# ruff: noqa: ANN001, ANN002, ANN202 (fake operators and the context of autograd)
"""The recurrence on a GPU: a few launches per step, both directions, with clipping.

A step is a matmul of its inputs and its last outputs with their matrices, the gates, and a matmul with the projection.
There are two ways:

- Fused. Models of few cells wait for launches and memory. There the first matmul and the gates are one Triton kernel,
  so that the gates' inputs never travel to memory and back; the projection is another; and a launch does both
  directions.
- Apart. Models of many cells are bound by the matmuls, and torch (cuBLAS) makes these fastest: Triton does what lies
  between them. float32 always goes this way, for it multiplies without tensor cores.

Without gradients no gates are kept, and the fused kernel is faster for many cells, too; their projection remains
torch's. The backward pass goes apart alone: measured, that is faster for the small model, too. The gradients of inputs
and weights are left for the end and taken for all steps at once.

Matmuls are taken in the inputs' dtype (float32, bfloat16 or float16) and summed in float32; gates are computed, and
the cell is kept, in float32. Only the way apart rounds the gates' inputs to the dtype in between. The whole is two
operators of `torch.library`, `elmokit::lstmp` and its backward; the kernels are in `triton_kernels.py`.

Shapes as in `nn/operations.py`; E directions, K = D + P, n rows that read a word at a step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from elmokit.engines.choice import TRITON_DTYPES
from elmokit.engines.recurrence.triton_kernels import backward_kernel, clip_kernel, forward_kernel, project_kernel
from elmokit.errors import EngineError
from elmokit.nn.operations import Clips, LayerState, Recurrence

__all__ = ["run"]

# Up to how many cells Triton kernels make the matmuls by themselves; in these dtypes alone.
FUSED_CELLS = 1024
FUSED_DTYPES = (torch.bfloat16, torch.float16)
# Rows, cells (or outputs) and terms of a program's matmul, its warps, its stages.
FORWARD_TILE = (64, 64, 64, 4, 2)
PROJECT_TILE = (64, 32, 128, 4, 3)
# For many cells. It takes 144 KB of shared memory; GPUs with 99 (8.6, 8.9, 12.0) stay with the other, of 80.
MANY_CELLS_TILE, MANY_CELLS_SHARED_BYTES = (128, 64, 64, 8, 3), 144 * 2**10
# Rows, cells and warps of a program that multiplies nothing: 16 bytes of each gate per thread.
APART_TILE = (16, 128, 8)
BACKWARD_APART_TILE = (32, 32, 4)
CLIP_BLOCK = 1024
# Numbers that are next read in the backward pass, or never again, should leave the cache first.
LAST_USE = "evict_first"


def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence, of layers with a projection."""
    dtype = recurrences[0].inputs_ND.dtype
    if dtype not in TRITON_DTYPES:
        known = ", ".join(str(known).removeprefix("torch.") for known in TRITON_DTYPES)
        raise EngineError(f"the triton engine computes in {known}, found {dtype}: use the reference engine")
    # Both matrices of the gates as one: they are copied once, and their gradients are one matmul.
    matrices = [matrix for each in recurrences for matrix in each.weights[:2]]
    weight_EK4H = torch.cat(matrices).unflatten(0, (len(recurrences), -1))
    parts = zip(*((each.inputs_ND, *each.weights[2:], *each.state) for each in recurrences), strict=True)
    inputs_END, *others = map(torch.stack, parts)
    stacked = [inputs_END, weight_EK4H, *others]
    keeps = any(part.requires_grad for part in stacked)  # never so under no_grad
    outputs_ENP, hidden_EBP, cell_EBH, *_ = _lstmp(*stacked, list(batch_sizes), *clips, keeps)
    finals = map(LayerState, hidden_EBP, cell_EBH)
    return list(zip(outputs_ENP, finals, strict=True))


class _Forward(NamedTuple):
    """What the steps read and fill; every table begins with its directions."""

    read_ENX: Tensor  # inputs; on the way apart, beside them, the last output of each word's row
    weight_EK4H: Tensor
    bias_E4H: Tensor
    projection_EHP: Tensor
    hidden_EBP: Tensor
    first_cell_EBH: Tensor
    cells: Tensor  # of all words, or of all rows, where they are then the first ones as well
    gates: Tensor  # of all words, or of a step, or none; on the way apart, their inputs
    gated: Tensor  # of all words, or of a step
    outputs_ENP: Tensor


@torch.library.custom_op("elmokit::lstmp", mutates_args=())
def _lstmp(
    inputs_END: Tensor,
    weight_EK4H: Tensor,
    bias_E4H: Tensor,
    projection_EHP: Tensor,
    hidden_EBP: Tensor,
    cell_EBH: Tensor,
    sizes: list[int],
    cell_clip: float | None,
    output_clip: float | None,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs, final hidden state and cell; and, where `keeps`, of every word, for backward: gates, cells, gated.

    On the way apart these are the gates' inputs, and last there is what the matmuls read, K numbers per word.
    """
    num_directions, num_words, _ = inputs_END.shape
    cell_dim, output_dim, dtype = *projection_EHP.shape[1:], inputs_END.dtype
    if keeps:
        first_cell_EBH = cell_EBH.float().contiguous()
        cells = first_cell_EBH.new_empty(num_directions, num_words, cell_dim)
    else:  # one cell per row is enough: each is read and then overwritten by one program
        first_cell_EBH = cell_EBH.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        cells = first_cell_EBH
    fuses = _fuses(dtype, cell_dim, keeps=keeps)
    num_kept = num_words if keeps else sizes[0]
    tables = _Forward(
        inputs_END.contiguous() if fuses else _join_inputs(inputs_END, hidden_EBP[:, : sizes[0]]),
        weight_EK4H.contiguous(),
        bias_E4H.contiguous(),
        projection_EHP.contiguous(),
        hidden_EBP.to(dtype).contiguous(),
        first_cell_EBH,
        cells,
        inputs_END.new_empty(num_directions, 0 if fuses and not keeps else num_kept, 4 * cell_dim),
        inputs_END.new_empty(num_directions, num_kept, cell_dim),
        outputs_ENP := inputs_END.new_empty(num_directions, num_words, output_dim),
    )
    with torch.cuda.device_of(inputs_END):
        steps = _forward_fused if fuses else _forward_apart
        steps(tables, sizes, _bound(cell_clip), _bound(output_clip, dtype), keeps=keeps)
    final_hidden_EBP = _after_last_words(outputs_ENP, hidden_EBP, sizes)
    if keeps:
        final_cell_EBH = _after_last_words(cells, cell_EBH, sizes)
        read = inputs_END.new_empty(0) if fuses else tables.read_ENX
        return outputs_ENP, final_hidden_EBP, final_cell_EBH, tables.gates, cells, tables.gated, read
    gates, gated, read = (inputs_END.new_empty(0) for _ in range(3))
    return outputs_ENP, final_hidden_EBP, cells.to(cell_EBH.dtype), gates, cells.new_empty(0), gated, read


def _join_inputs(inputs_END: Tensor, hidden_EnP: Tensor) -> Tensor:
    """Side by side what a word is computed from: its input, and its row's last output; so far that of first words."""
    input_dim, output_dim = inputs_END.shape[2], hidden_EnP.shape[2]
    read_ENK = inputs_END.new_empty(*inputs_END.shape[:2], input_dim + output_dim)
    read_ENK[:, :, :input_dim] = inputs_END
    read_ENK[:, : hidden_EnP.shape[1], input_dim:] = hidden_EnP
    return read_ENK


def _forward_fused(
    tables: _Forward, sizes: Sequence[int], cell_bound: float, output_bound: float, *, keeps: bool
) -> None:
    """A kernel for matmul and gates; another for the projection, or, where there are many cells, torch."""
    inputs, weight, bias, projection, hidden, before, cells, gates, gated, outputs = tables
    num_directions, num_words, input_dim = inputs.shape
    cell_dim, output_dim = projection.shape[1:]
    has_many_cells = cell_dim > FUSED_CELLS
    R, J, BK, num_warps, num_stages = _many_cells_tile(inputs.device) if has_many_cells else FORWARD_TILE
    shared: dict[str, Any] = {"P": output_dim, "H": cell_dim}
    flags = shared | {"D": input_dim, "R": R, "J": J, "BK": _terms(BK, max(input_dim, output_dim))}
    flags |= {"num_warps": num_warps, "num_stages": num_stages, "KEEPS": keeps, "FUSES": True, "FAST": _is_fast(inputs)}
    flags["LAST"] = LAST_USE if keeps else ""
    rows, Q, terms, num_warps, num_stages = PROJECT_TILE
    Q = _terms(Q, output_dim)
    projects = shared | {"R": rows, "Q": Q, "BK": _terms(terms, cell_dim)}
    projects |= {"num_warps": num_warps, "num_stages": num_stages}
    start = hidden_start = before_start = 0
    for n in sizes:
        kept = start if keeps else 0
        forward_kernel[(triton.cdiv(n, R), triton.cdiv(cell_dim, J), num_directions)](
            inputs, weight, gates, bias, hidden, before, cells, gated, n, start, num_words, kept, gates.shape[1],
            hidden_start, hidden.shape[1], before_start, before.shape[1], cells.shape[1], gated.shape[1], cell_bound,
            **flags,
        )  # fmt: skip
        if has_many_cells:
            output_EnP = torch.bmm(gated[:, kept : kept + n], projection, out=outputs[:, start : start + n])
            output_EnP.clamp_(-output_bound, output_bound)
        else:
            project_kernel[(triton.cdiv(n, rows), triton.cdiv(output_dim, Q), num_directions)](
                gated, projection, outputs, n, start, num_words, kept, gated.shape[1], output_bound, **projects
            )
        hidden, hidden_start, before, before_start = outputs, start, cells, kept
        start += n


def _forward_apart(
    tables: _Forward, sizes: Sequence[int], cell_bound: float, output_bound: float, *, keeps: bool
) -> None:
    """Matmuls by torch; a kernel for the gates, and one that clips the outputs and hands them to the next step."""
    read, weight, bias, projection, _, before, cells, gates, gated, outputs = tables
    num_directions, num_words, read_dim = read.shape
    cell_dim, output_dim = projection.shape[1:]
    input_dim = read_dim - output_dim
    R, J, num_warps = APART_TILE
    flags: dict[str, Any] = {"D": input_dim, "P": output_dim, "H": cell_dim, "R": R, "J": J, "BK": 16}
    flags |= {"num_warps": num_warps, "KEEPS": False, "FUSES": False, "FAST": _is_fast(read)}
    flags["LAST"] = LAST_USE if keeps else ""
    start = before_start = 0
    for n, num_next in zip(sizes, [*sizes[1:], 0], strict=True):
        kept = start if keeps else 0
        torch.bmm(read[:, start : start + n], weight, out=gates[:, kept : kept + n])
        forward_kernel[(triton.cdiv(n, R), triton.cdiv(cell_dim, J), num_directions)](
            read, weight, gates, bias, read, before, cells, gated, n, start, num_words, kept, gates.shape[1], 0,
            num_words, before_start, before.shape[1], cells.shape[1], gated.shape[1], cell_bound, **flags,
        )  # fmt: skip
        torch.bmm(gated[:, kept : kept + n], projection, out=outputs[:, start : start + n])
        clip_kernel[(triton.cdiv(n * output_dim, CLIP_BLOCK), num_directions)](
            outputs, read, n, num_next, start, num_words, output_bound, D=input_dim, P=output_dim, BLOCK=CLIP_BLOCK
        )
        before, before_start = cells, kept
        start += n


@_lstmp.register_fake
def _(inputs_END, *others):
    weight_EK4H, *_, hidden_EBP, cell_EBH, _, _, _, keeps = others
    cell_dim = cell_EBH.shape[2]

    def of_words(width, wanted=True, dtype=inputs_END.dtype):
        return inputs_END.new_empty((*inputs_END.shape[:2], width) if wanted else 0, dtype=dtype)

    outputs_ENP, gates, gated = of_words(hidden_EBP.shape[2]), of_words(4 * cell_dim, keeps), of_words(cell_dim, keeps)
    cells = of_words(cell_dim, keeps, torch.float32)
    read = of_words(weight_EK4H.shape[1], keeps and not _fuses(inputs_END.dtype, cell_dim, keeps=True))
    return outputs_ENP, torch.empty_like(hidden_EBP), torch.empty_like(cell_EBH), gates, cells, gated, read


class _Backward(NamedTuple):
    """What the steps of the backward pass read and fill; every table begins with its directions."""

    recurrent_E4HP: Tensor
    bias_E4H: Tensor
    projection_EHP: Tensor
    first_cell_EBH: Tensor
    cells_ENH: Tensor
    gates_EN4H: Tensor  # or their inputs
    outputs_ENP: Tensor
    d_outputs_ENP: Tensor  # from outside; each step adds its own to that of the output before
    d_gates_EN4H: Tensor
    d_bias_ET4H: Tensor  # of each tile of rows
    d_cells_EBH: Tensor


@torch.library.custom_op("elmokit::lstmp_backward", mutates_args=())
def _lstmp_backward(
    d_outputs_ENP: Tensor,
    d_hidden_EBP: Tensor,
    d_cell_EBH: Tensor,
    read_ENX: Tensor,
    weight_EK4H: Tensor,
    bias_E4H: Tensor,
    projection_EHP: Tensor,
    hidden_EBP: Tensor,
    cell_EBH: Tensor,
    outputs_ENP: Tensor,
    gates_EN4H: Tensor,
    cells_ENH: Tensor,
    gated_ENH: Tensor,
    sizes: list[int],
    cell_clip: float | None,
    output_clip: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the inputs, the weights and the first state. `read_ENX`: inputs, or all that the matmuls read."""
    num_directions, _, cell_dim = cells_ENH.shape
    active, output_dim, dtype = sizes[0], outputs_ENP.shape[2], read_ENX.dtype
    input_dim = weight_EK4H.shape[1] - output_dim
    is_raw = read_ENX.shape[2] != input_dim  # the forward pass went apart
    d_outputs_ENP = d_outputs_ENP.clone(memory_format=torch.contiguous_format)
    for rows, places in _last_words(sizes):
        d_outputs_ENP[:, places] += d_hidden_EBP[:, rows]
    d_cells_EBH = d_cell_EBH.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    num_tiles = triton.cdiv(active, BACKWARD_APART_TILE[0])
    input_E4HD, recurrent_E4HP = weight_EK4H.transpose(1, 2).split([input_dim, output_dim], dim=2)
    tables = _Backward(
        recurrent_E4HP, bias_E4H.contiguous(), projection_EHP.contiguous(), cell_EBH.float().contiguous(), cells_ENH,
        gates_EN4H, outputs_ENP, d_outputs_ENP, d_gates_EN4H := torch.empty_like(gates_EN4H),
        d_bias_ET4H := d_cells_EBH.new_zeros(num_directions, num_tiles, 4 * cell_dim), d_cells_EBH,
    )  # fmt: skip
    output_bound = None if output_clip is None else _bound(output_clip, dtype)
    with torch.cuda.device_of(read_ENX):
        _backward_steps(tables, sizes, _bound(cell_clip), output_bound, is_raw=is_raw)
    d_first_EnP = torch.bmm(d_gates_EN4H[:, :active], recurrent_E4HP).to(hidden_EBP.dtype)
    # Both matrices of the gates at once: the gradients of these are read from memory once instead of twice.
    read_ENK = read_ENX if is_raw else torch.cat([read_ENX, _previous_outputs(outputs_ENP, hidden_EBP, sizes)], dim=2)
    return (
        torch.bmm(d_gates_EN4H, input_E4HD),
        torch.bmm(read_ENK.transpose(1, 2), d_gates_EN4H),
        d_bias_ET4H.sum(1).to(dtype),
        torch.bmm(gated_ENH.transpose(1, 2), d_outputs_ENP),
        torch.cat([d_first_EnP, d_hidden_EBP[:, active:]], dim=1),
        d_cells_EBH.to(cell_EBH.dtype),
    )


def _backward_steps(
    tables: _Backward, sizes: Sequence[int], cell_bound: float, output_bound: float | None, *, is_raw: bool
) -> None:
    """Matmuls by torch, a kernel for what lies between them."""
    recurrent, bias, projection, first_cell, cells, gates, outputs, d_outputs, d_gates, d_bias, d_cells = tables
    num_directions, num_words, cell_dim = cells.shape
    R, J, num_warps = BACKWARD_APART_TILE
    flags = {"H": cell_dim, "R": R, "J": J, "RAW": is_raw, "FAST": _is_fast(gates), "LAST": LAST_USE}
    flags["num_warps"] = num_warps
    d_gated = gates.new_empty(num_directions, sizes[0], cell_dim)
    clipped = None if output_bound is None else outputs.abs() >= output_bound
    starts = _starts(sizes)
    for step in reversed(range(len(sizes))):
        start, n = starts[step], sizes[step]
        now = slice(start, start + n)
        before, before_start = (cells, starts[step - 1]) if step else (first_cell, 0)
        if clipped is not None:  # an output at its bound passes nothing on
            d_outputs[:, now].masked_fill_(clipped[:, now], 0)
        torch.bmm(d_outputs[:, now], projection.transpose(1, 2), out=d_gated[:, :n])
        backward_kernel[(triton.cdiv(n, R), triton.cdiv(cell_dim, J), num_directions)](
            gates, bias, before, cells, d_gated, d_gates, d_bias, d_cells, n, start, num_words, before_start,
            before.shape[1], sizes[0], d_cells.shape[1], d_bias.shape[1], cell_bound, **flags,
        )  # fmt: skip
        if step:  # the gradient of the output before joins what came to it from outside
            d_outputs[:, before_start : before_start + n].baddbmm_(d_gates[:, now], recurrent)


@_lstmp_backward.register_fake
def _(d_outputs, d_hidden, d_cell, read, weight, bias, projection, hidden, cell, *others):
    del d_hidden, d_cell, others
    d_inputs = read.new_empty(*read.shape[:2], weight.shape[1] - d_outputs.shape[2])
    return d_inputs, *(torch.empty_like(part) for part in (weight, bias, projection, hidden, cell))


def _keep(ctx, inputs, output) -> None:
    inputs_END, *parameters, hidden_EBP, cell_EBH = inputs[:6]
    *ctx.settings, _ = inputs[6:]
    outputs_ENP, _, _, *kept, read = output
    saved = [read if read.numel() else inputs_END, *parameters, hidden_EBP, cell_EBH, outputs_ENP, *kept]
    ctx.save_for_backward(*saved)
    ctx.mark_non_differentiable(*kept, read)
    ctx.set_materialize_grads(False)  # the kept gates would get as many zeros


def _differentiate(ctx, *gradients):
    *_, hidden_EBP, cell_EBH, outputs_ENP, _, _, _ = saved = ctx.saved_tensors
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
    """What every row holds after its last word; a row without words holds what it came with."""
    ended = [values_ENX[:, places] for _, places in _last_words(sizes)]
    return torch.cat([*ended, first_EBX[:, sizes[0] :]], dim=1).to(first_EBX.dtype)


def _previous_outputs(outputs_ENP: Tensor, hidden_EBP: Tensor, sizes: Sequence[int]) -> Tensor:
    """The output before each word in its row. Steps of one size follow each other in one piece."""
    pieces, begin, end = [hidden_EBP[:, : sizes[0]].to(outputs_ENP.dtype)], 0, 0
    for start, size, after in zip(_starts(sizes), sizes, [*sizes[1:], 0], strict=True):
        end = start + after
        if after < size:  # the rows that end here are left out
            pieces.append(outputs_ENP[:, begin:end])
            begin = start + size
    return torch.cat(pieces, dim=1)


def _bound(clip: float | None, dtype: torch.dtype = torch.float32) -> float:
    """The clip as the dtype holds it: what was clipped must be found by comparing with it."""
    return float("inf") if clip is None else torch.tensor(clip, dtype=dtype).item()


def _fuses(dtype: torch.dtype, cell_dim: int, *, keeps: bool) -> bool:
    """Whether one kernel makes the matmul and the gates; `keeps`: gradients are wanted."""
    return dtype in FUSED_DTYPES and (cell_dim <= FUSED_CELLS or not keeps)


def _is_fast(values: Tensor) -> bool:
    """Whether the approximate tanh of the hardware is near enough; Triton's interpreter has none."""
    return values.dtype == torch.bfloat16 and values.is_cuda


def _terms(most: int, width: int) -> int:
    """How many terms of a sum of that width a program takes at once."""
    return max(16, min(most, triton.next_power_of_2(width)))


def _many_cells_tile(device: torch.device) -> tuple[int, ...]:
    return MANY_CELLS_TILE if _shared_bytes(device) >= MANY_CELLS_SHARED_BYTES else FORWARD_TILE


@functools.cache
def _shared_bytes(device: torch.device) -> int:
    """What one program may take of the shared memory; Triton's interpreter knows no bound."""
    if device.type != "cuda":
        return MANY_CELLS_SHARED_BYTES
    return triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
