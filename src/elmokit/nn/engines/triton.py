"""The recurrence on a GPU: two launches a step, both directions side by side, with clipping.

A step is a product with the recurrent matrix, the gates, and a product with the projection. The first two are one Triton
kernel, so that the gates' inputs never travel to memory and back; the third is a batched matrix product. Going back it is
the same in mirror image. What needs no history (the products with the inputs, the gradients of the weights) is one large
product before or after all steps.

float32 multiplies in float32 (`ieee`); bfloat16 multiplies bfloat16 and sums in float32; the cell is always float32.

Shapes as in `engines/__init__.py`; E directions, n rows that read a word at a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.errors import EngineError
from elmokit.nn.engines import Clips, LayerState, Recurrence

__all__ = ["run"]

NO_CLIP = 3e38
ROWS, CELLS, WARPS, STAGES = 128, 32, 4, 2  # of a program's tile; measured on an H200 (benchmarks/training_parts.py)


@torch.compiler.disable
def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence."""
    if recurrences[0].weights.projection_HP is None:
        raise EngineError("the triton engine needs a projection: use the packed engine for models without one")
    if not batch_sizes:
        return [(recurrence.state.hidden_BP[:0], recurrence.state) for recurrence in recurrences]
    inputs_END = torch.stack([recurrence.inputs_ND for recurrence in recurrences])
    weights = [
        torch.stack([part for recurrence in recurrences if (part := recurrence.weights[number]) is not None])
        for number in range(4)
    ]
    hidden_EBP = torch.stack([recurrence.state.hidden_BP for recurrence in recurrences])
    cell_EBH = torch.stack([recurrence.state.cell_BH for recurrence in recurrences])
    results = _Lstmp.apply(inputs_END, *weights, hidden_EBP, cell_EBH, tuple(batch_sizes), clips)
    return [
        (outputs_NP, LayerState(hidden_BP, cell_BH))
        for outputs_NP, hidden_BP, cell_BH in zip(*results, strict=True)  # type: ignore[arg-type]
    ]


class _Lstmp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs_END, input_ED4H, recurrent_EP4H, bias_E4H, projection_EHP, hidden_EBP, cell_EBH, sizes, clips):  # noqa: ANN001, ANN205, E501
        num_directions, num_words, _ = inputs_END.shape
        output_dim, cell_dim = hidden_EBP.shape[2], cell_EBH.shape[2]
        needs_grad = any(ctx.needs_input_grad)
        gates_EN4H = torch.baddbmm(bias_E4H.unsqueeze(1), inputs_END, input_ED4H)
        outputs_ENP = inputs_END.new_empty(num_directions, num_words, output_dim)
        cells_ENH = inputs_END.new_empty(num_directions, num_words, cell_dim, dtype=torch.float32)
        gated_EnH = inputs_END.new_empty(num_directions, sizes[0], cell_dim)
        first_cell_EBH = cell_EBH.float().contiguous()
        hidden, cell = hidden_EBP.contiguous(), first_cell_EBH
        start = 0
        for n in sizes:
            grid = (triton.cdiv(n, ROWS), triton.cdiv(cell_dim, CELLS), num_directions)
            _forward_kernel[grid](
                gates_EN4H[:, start:], recurrent_EP4H, hidden, cell, cells_ENH[:, start:], gated_EnH, n,
                num_words * 4 * cell_dim, hidden.stride(0), cell.stride(0), num_words * cell_dim, gated_EnH.stride(0),
                _bound(clips.cell), P=output_dim, H=cell_dim, KEEPS=needs_grad,
                PRECISE=inputs_END.dtype == torch.float32, **_tile(output_dim),
            )  # fmt: skip
            output_EnP = outputs_ENP[:, start : start + n]
            torch.bmm(gated_EnH[:, :n], projection_EHP, out=output_EnP)
            if clips.projection is not None:
                output_EnP.clamp_(-clips.projection, clips.projection)
            hidden, cell = output_EnP, cells_ENH[:, start : start + n]
            start += n
        last = _last_words(sizes, inputs_END.device)
        active = sizes[0]
        final_hidden_EBP, final_cell_EBH = hidden_EBP.clone(), cell_EBH.clone()
        final_hidden_EBP[:, :active] = outputs_ENP[:, last]
        final_cell_EBH[:, :active] = cells_ENH[:, last].to(cell_EBH.dtype)
        if needs_grad:
            ctx.save_for_backward(
                inputs_END, input_ED4H, recurrent_EP4H, projection_EHP, hidden_EBP, first_cell_EBH,
                gates_EN4H, outputs_ENP, cells_ENH,
            )  # fmt: skip
        ctx.sizes, ctx.clips = sizes, clips
        return outputs_ENP, final_hidden_EBP, final_cell_EBH

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_outputs_ENP, d_hidden_EBP, d_cell_EBH):  # noqa: ANN001, ANN205
        (
            inputs_END, input_ED4H, recurrent_EP4H, projection_EHP, hidden_EBP, first_cell_EBH,
            gates_EN4H, outputs_ENP, cells_ENH,
        ) = ctx.saved_tensors  # fmt: skip
        sizes, clips = ctx.sizes, ctx.clips
        num_directions, num_words, _ = inputs_END.shape
        output_dim, cell_dim = hidden_EBP.shape[2], first_cell_EBH.shape[2]
        last, active = _last_words(sizes, inputs_END.device), sizes[0]
        d_outputs_ENP = d_outputs_ENP.clone(memory_format=torch.contiguous_format)
        d_outputs_ENP[:, last] += d_hidden_EBP[:, :active]
        d_cells_EBH = d_cell_EBH.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
        d_gates_EN4H = torch.empty_like(gates_EN4H)
        gated_ENH = inputs_END.new_empty(num_directions, num_words, cell_dim)
        backwards_E4HP = recurrent_EP4H.transpose(1, 2)
        starts = [sum(sizes[:step]) for step in range(len(sizes))]
        d_first_hidden_EBP = d_hidden_EBP.clone()
        for step in reversed(range(len(sizes))):
            start, n = starts[step], sizes[step]
            before = cells_ENH[:, starts[step - 1] :] if step else first_cell_EBH
            grid = (triton.cdiv(n, ROWS), triton.cdiv(cell_dim, CELLS), num_directions)
            _backward_kernel[grid](
                gates_EN4H[:, start:], projection_EHP, before, cells_ENH[:, start:], outputs_ENP[:, start:],
                d_outputs_ENP[:, start:], d_gates_EN4H[:, start:], gated_ENH[:, start:], d_cells_EBH, n,
                num_words * 4 * cell_dim, before.stride(0), num_words * cell_dim, num_words * output_dim,
                d_cells_EBH.stride(0), _bound(clips.cell), _bound(clips.projection), P=output_dim, H=cell_dim,
                CLIPS=clips.projection is not None, PRECISE=inputs_END.dtype == torch.float32, **_tile(output_dim),
            )  # fmt: skip
            d_gates_En4H = d_gates_EN4H[:, start : start + n]
            if step:
                # What a step did to the output before it joins what came to that output from outside.
                d_outputs_ENP[:, starts[step - 1] : starts[step - 1] + n].baddbmm_(d_gates_En4H, backwards_E4HP)
            else:
                torch.bmm(d_gates_En4H, backwards_E4HP, out=d_first_hidden_EBP[:, :n])
        before_ENP = torch.empty_like(outputs_ENP)
        before_ENP[:, :active] = hidden_EBP[:, :active]
        if sizes[-1] == active:  # rows of one length: every word's predecessor lies n places before it
            before_ENP[:, active:] = outputs_ENP[:, :-active]
        else:
            for step in range(1, len(sizes)):
                n, start = sizes[step], starts[step]
                before_ENP[:, start : start + n] = outputs_ENP[:, starts[step - 1] : starts[step - 1] + n]
        return (
            torch.bmm(d_gates_EN4H, input_ED4H.transpose(1, 2)),
            torch.bmm(inputs_END.transpose(1, 2), d_gates_EN4H),
            torch.bmm(before_ENP.transpose(1, 2), d_gates_EN4H),
            d_gates_EN4H.sum(1),
            torch.bmm(gated_ENH.transpose(1, 2), d_outputs_ENP),
            d_first_hidden_EBP,
            d_cells_EBH.to(hidden_EBP.dtype),
            None,
            None,
        )


_last: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def _last_words(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Where the last word of each reading row lies; kept, since batches of one shape come again and again."""
    if (sizes, device) not in _last:
        if len(_last) >= 1000:
            _last.clear()
        steps = torch.tensor(sizes)
        starts = steps.cumsum(0) - steps
        rows = torch.arange(sizes[0])
        lengths = (steps > rows.unsqueeze(1)).sum(1)
        _last[sizes, device] = (starts[lengths - 1] + rows).to(device)
    return _last[sizes, device]


def _bound(clip: float | None) -> float:
    return NO_CLIP if clip is None else float(clip)


def _tile(output_dim: int) -> dict[str, int]:
    return {"R": ROWS, "J": CELLS, "BP": min(128, output_dim), "num_warps": WARPS, "num_stages": STAGES}


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def _dot(a, b, PRECISE: tl.constexpr):
    if PRECISE:
        return tl.dot(a, b, input_precision="ieee")
    else:
        return tl.dot(a, b)


@triton.jit(do_not_specialize=["num_active"])
def _forward_kernel(
    gates, recurrent, hidden, cell_before, cells, gated, num_active,
    gates_stride, hidden_stride, before_stride, cells_stride, gated_stride, cell_clip,
    P: tl.constexpr, H: tl.constexpr, KEEPS: tl.constexpr, PRECISE: tl.constexpr,
    R: tl.constexpr, J: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    direction = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    columns = tl.program_id(1) * J + tl.arange(0, J)
    mask = (rows < num_active)[:, None] & (columns < H)[None, :]
    i_RJ = tl.zeros((R, J), tl.float32)
    j_RJ = tl.zeros((R, J), tl.float32)
    f_RJ = tl.zeros((R, J), tl.float32)
    o_RJ = tl.zeros((R, J), tl.float32)
    for block in range(0, P, BP):
        p = block + tl.arange(0, BP)
        hidden_RP = tl.load(
            hidden + direction * hidden_stride + rows[:, None] * P + p[None, :], mask=(rows < num_active)[:, None], other=0.0
        )
        weight = recurrent + direction * P * 4 * H + p[:, None] * (4 * H) + columns[None, :]
        inside = (columns < H)[None, :]
        i_RJ += _dot(hidden_RP, tl.load(weight, mask=inside, other=0.0), PRECISE)
        j_RJ += _dot(hidden_RP, tl.load(weight + H, mask=inside, other=0.0), PRECISE)
        f_RJ += _dot(hidden_RP, tl.load(weight + 2 * H, mask=inside, other=0.0), PRECISE)
        o_RJ += _dot(hidden_RP, tl.load(weight + 3 * H, mask=inside, other=0.0), PRECISE)
    gate = gates + direction * gates_stride + rows.to(tl.int64)[:, None] * (4 * H) + columns[None, :]
    i_RJ = _sigmoid(i_RJ + tl.load(gate, mask=mask, other=0.0).to(tl.float32))
    j_RJ = _tanh(j_RJ + tl.load(gate + H, mask=mask, other=0.0).to(tl.float32))
    f_RJ = _sigmoid(f_RJ + tl.load(gate + 2 * H, mask=mask, other=0.0).to(tl.float32))
    o_RJ = _sigmoid(o_RJ + tl.load(gate + 3 * H, mask=mask, other=0.0).to(tl.float32))
    place = rows.to(tl.int64)[:, None] * H + columns[None, :]
    cell_RJ = f_RJ * tl.load(cell_before + direction * before_stride + place, mask=mask, other=0.0) + i_RJ * j_RJ
    cell_RJ = tl.minimum(tl.maximum(cell_RJ, -cell_clip), cell_clip)
    tl.store(cells + direction * cells_stride + place, cell_RJ, mask=mask)
    kind = gates.dtype.element_ty
    if KEEPS:
        # What came into the gates is never needed again: the gates themselves take its place, for the way back.
        tl.store(gate, i_RJ.to(kind), mask=mask)
        tl.store(gate + H, j_RJ.to(kind), mask=mask)
        tl.store(gate + 2 * H, f_RJ.to(kind), mask=mask)
        tl.store(gate + 3 * H, o_RJ.to(kind), mask=mask)
    tl.store(gated + direction * gated_stride + place, (o_RJ * _tanh(cell_RJ)).to(kind), mask=mask)


@triton.jit(do_not_specialize=["num_active"])
def _backward_kernel(
    gates, projection, cell_before, cells, outputs, d_outputs, d_gates, gated, d_cells, num_active,
    gates_stride, before_stride, cells_stride, outputs_stride, d_cells_stride, cell_clip, output_clip,
    P: tl.constexpr, H: tl.constexpr, CLIPS: tl.constexpr, PRECISE: tl.constexpr,
    R: tl.constexpr, J: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    direction = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    columns = tl.program_id(1) * J + tl.arange(0, J)
    active = (rows < num_active)[:, None]
    mask = active & (columns < H)[None, :]
    d_gated_RJ = tl.zeros((R, J), tl.float32)
    for block in range(0, P, BP):
        p = block + tl.arange(0, BP)
        place = direction * outputs_stride + rows.to(tl.int64)[:, None] * P + p[None, :]
        d_output_RP = tl.load(d_outputs + place, mask=active, other=0.0)
        if CLIPS:
            output_RP = tl.load(outputs + place, mask=active, other=0.0).to(tl.float32)
            d_output_RP = tl.where(tl.abs(output_RP) < output_clip, d_output_RP, 0.0).to(d_output_RP.dtype)
            # Programs of the same rows write the same values: whoever reads them later finds them clipped or clips them.
            tl.store(d_outputs + place, d_output_RP, mask=active)
        weight_JP = tl.load(
            projection + direction * H * P + columns[:, None] * P + p[None, :], mask=(columns < H)[:, None], other=0.0
        )
        d_gated_RJ += _dot(d_output_RP, tl.trans(weight_JP), PRECISE)
    gate = direction * gates_stride + rows.to(tl.int64)[:, None] * (4 * H) + columns[None, :]
    i_RJ = tl.load(gates + gate, mask=mask, other=0.0).to(tl.float32)
    j_RJ = tl.load(gates + gate + H, mask=mask, other=0.0).to(tl.float32)
    f_RJ = tl.load(gates + gate + 2 * H, mask=mask, other=0.0).to(tl.float32)
    o_RJ = tl.load(gates + gate + 3 * H, mask=mask, other=0.0).to(tl.float32)
    place = rows.to(tl.int64)[:, None] * H + columns[None, :]
    cell_RJ = tl.load(cells + direction * cells_stride + place, mask=mask, other=0.0)
    before_RJ = tl.load(cell_before + direction * before_stride + place, mask=mask, other=0.0)
    tanh_RJ = _tanh(cell_RJ)
    kind = gates.dtype.element_ty
    tl.store(gated + direction * cells_stride + place, (o_RJ * tanh_RJ).to(kind), mask=mask)
    carried = d_cells + direction * d_cells_stride + place
    d_cell_RJ = tl.load(carried, mask=mask, other=0.0) + d_gated_RJ * o_RJ * (1.0 - tanh_RJ * tanh_RJ)
    d_cell_RJ = tl.where(tl.abs(cell_RJ) < cell_clip, d_cell_RJ, 0.0)
    tl.store(carried, d_cell_RJ * f_RJ, mask=mask)
    tl.store(d_gates + gate, (d_cell_RJ * j_RJ * i_RJ * (1.0 - i_RJ)).to(kind), mask=mask)
    tl.store(d_gates + gate + H, (d_cell_RJ * i_RJ * (1.0 - j_RJ * j_RJ)).to(kind), mask=mask)
    tl.store(d_gates + gate + 2 * H, (d_cell_RJ * before_RJ * f_RJ * (1.0 - f_RJ)).to(kind), mask=mask)
    tl.store(d_gates + gate + 3 * H, (d_gated_RJ * tanh_RJ * o_RJ * (1.0 - o_RJ)).to(kind), mask=mask)
