# ruff: noqa: ANN001, ANN201, ANN202, D103 (kernel arguments are pointers and numbers; Triton reads no other types)
"""One step of an LSTM with projection as Triton kernels, forward and backward; `engines/triton.py` runs them.

A program owns R rows and J cells of one direction. Going forward it multiplies what the rows last said with its columns
of the recurrent matrix (and, where it FUSES, the inputs with theirs: otherwise that product is in the gates already),
and computes gates, cells and what the projection will read. The four gates of a cell lie side by side in these
matrices, so that a tile is one wide product instead of four narrow ones. Going back a program multiplies the gradient
of the outputs with its rows of the projection and computes the gradients of gates and cells. Programs share what they
read; each writes to its own tile alone, and where a place is read and then overwritten (gates, carried cells and their
gradients) it is by the same program: nothing depends on their order.

Tables are (directions, places, width); a kernel gets the number of places and the one where the step's rows begin.
Numbers that change from batch to batch are not specialised, so that a kernel is compiled once for a model.

Shapes: D input width, P output width, H cell width; tiles of R rows, J cells (X = 4 J gates), BD inputs, BP outputs.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["backward_kernel", "forward_kernel"]


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def _clip(x, bound):
    return tl.where(x > bound, bound, tl.where(x < -bound, -bound, x))  # NaN stays NaN, as with torch


FORWARD_COUNTS = [
    "num_active", "start", "num_words", "gates_start", "num_gates", "hidden_start", "num_hidden", "before_start",
    "num_before", "cells_start", "num_cells", "num_gated",
]  # fmt: skip
BACKWARD_COUNTS = ["num_active", "start", "num_words", "before_start", "num_before", "num_rows"]


@triton.jit
def _with_product(
    gates_RX, rows, weight, active, bound, CLIPS: tl.constexpr, PRECISION: tl.constexpr,
    P: tl.constexpr, H: tl.constexpr, J: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """What came into the gates before, and what these rows say to them."""
    columns = tl.program_id(1) * (4 * J) + tl.arange(0, 4 * J)[None, :]
    inside = columns < 4 * H
    for block in range(0, P, BP):
        p = block + tl.arange(0, BP)
        read = active
        used = inside
        if P % BP != 0:
            read = active & (p < P)[None, :]
            used = inside & (p < P)[:, None]
        row_RP = tl.load(rows + p[None, :], mask=read, other=0.0)
        if CLIPS:
            row_RP = _clip(row_RP.to(tl.float32), bound).to(row_RP.dtype)
        weight_PX = tl.load(weight + p[:, None] * (4 * H) + columns, mask=used, other=0.0)
        gates_RX = tl.dot(row_RP, weight_PX, gates_RX, input_precision=PRECISION)
    return gates_RX


@triton.jit(do_not_specialize=FORWARD_COUNTS)
def forward_kernel(
    inputs, input_weight, gates, recurrent, bias, hidden, before, cells, gated, num_active, start, num_words,
    gates_start, num_gates, hidden_start, num_hidden, before_start, num_before, cells_start, num_cells, num_gated,
    cell_clip, output_clip,
    KEEPS: tl.constexpr, CLIPS: tl.constexpr, FUSES: tl.constexpr, PRECISION: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr, H: tl.constexpr, R: tl.constexpr, J: tl.constexpr,
    BD: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    # Where the tile begins is counted in 64 bits; places within it fit into 32.
    direction = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * R
    r = tl.arange(0, R)[:, None]
    columns = tl.program_id(1) * J + tl.arange(0, J)[None, :]
    active = first + r < num_active
    inside = columns < H
    gates_RX = tl.zeros((R, 4 * J), tl.float32)
    if FUSES:
        rows = inputs + (direction * num_words + start + first) * D + r * D
        weight = input_weight + direction * D * 4 * H
        gates_RX = _with_product(gates_RX, rows, weight, active, 0.0, False, PRECISION, D, H, J, BD)
    rows = hidden + (direction * num_hidden + hidden_start + first) * P + r * P
    weight = recurrent + direction * P * 4 * H
    gates_RX = _with_product(gates_RX, rows, weight, active, output_clip, CLIPS, PRECISION, P, H, J, BP)
    first_RJ2, second_RJ2 = tl.split(tl.reshape(gates_RX, (R, J, 2, 2)))  # i and f, j and o
    i_RJ, f_RJ = tl.split(first_RJ2)
    j_RJ, o_RJ = tl.split(second_RJ2)
    mask = active & inside
    gate = gates + (direction * num_gates + gates_start + first) * (4 * H) + (r * (4 * H) + columns)
    bias += direction * 4 * H
    i_RJ = _sigmoid(i_RJ + _both(gate, bias + columns, mask, inside, FUSES))
    j_RJ = _tanh(j_RJ + _both(gate + H, bias + H + columns, mask, inside, FUSES))
    f_RJ = _sigmoid(f_RJ + _both(gate + 2 * H, bias + 2 * H + columns, mask, inside, FUSES))
    o_RJ = _sigmoid(o_RJ + _both(gate + 3 * H, bias + 3 * H + columns, mask, inside, FUSES))
    before += (direction * num_before + before_start + first) * H
    cells += (direction * num_cells + cells_start + first) * H
    gated += (direction * num_gated + first) * H
    place = r * H + columns
    cell_RJ = _clip(f_RJ * tl.load(before + place, mask=mask, other=0.0) + i_RJ * j_RJ, cell_clip)
    tl.store(cells + place, cell_RJ, mask=mask)
    kind = gated.dtype.element_ty
    if KEEPS:
        # What came into the gates is never needed again: the gates themselves take its place, for the way back.
        tl.store(gate, i_RJ.to(kind), mask=mask)
        tl.store(gate + H, j_RJ.to(kind), mask=mask)
        tl.store(gate + 2 * H, f_RJ.to(kind), mask=mask)
        tl.store(gate + 3 * H, o_RJ.to(kind), mask=mask)
    tl.store(gated + place, (o_RJ * _tanh(cell_RJ)).to(kind), mask=mask)


@triton.jit
def _both(gate, bias, mask, inside, FUSES: tl.constexpr):
    from_outside = tl.load(bias, mask=inside, other=0.0).to(tl.float32)
    if not FUSES:
        from_outside += tl.load(gate, mask=mask, other=0.0).to(tl.float32)
    return from_outside


@triton.jit(do_not_specialize=BACKWARD_COUNTS)
def backward_kernel(
    gates, projection, before, cells, outputs, d_outputs, d_gates, gated, d_cells, num_active, start, num_words,
    before_start, num_before, num_rows, cell_clip, output_clip, CLIPS: tl.constexpr, PRECISION: tl.constexpr,
    P: tl.constexpr, H: tl.constexpr, R: tl.constexpr, J: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    direction = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * R
    r = tl.arange(0, R)[:, None]
    columns = tl.program_id(1) * J + tl.arange(0, J)
    active = first + r < num_active
    inside = columns < H
    word = direction * num_words + start + first
    outputs += word * P
    d_outputs += word * P
    projection += direction * H * P
    d_gated_RJ = tl.zeros((R, J), tl.float32)
    for block in range(0, P, BP):
        p = block + tl.arange(0, BP)
        read = active
        used = inside[:, None]
        if P % BP != 0:
            read = active & (p < P)[None, :]
            used = inside[:, None] & (p < P)[None, :]
        place = r * P + p[None, :]
        d_output_RP = tl.load(d_outputs + place, mask=read, other=0.0)
        if CLIPS:  # an output at its bound passes nothing on
            output_RP = tl.load(outputs + place, mask=read, other=0.0).to(tl.float32)
            d_output_RP = tl.where(tl.abs(output_RP) < output_clip, d_output_RP, 0.0).to(d_output_RP.dtype)
        weight_JP = tl.load(projection + columns[:, None] * P + p[None, :], mask=used, other=0.0)
        d_gated_RJ += tl.dot(d_output_RP, tl.trans(weight_JP), input_precision=PRECISION)
    mask = active & inside[None, :]
    gates += word * (4 * H)
    d_gates += word * (4 * H)
    gate = r * (4 * H) + columns[None, :]
    i_RJ = tl.load(gates + gate, mask=mask, other=0.0).to(tl.float32)
    j_RJ = tl.load(gates + gate + H, mask=mask, other=0.0).to(tl.float32)
    f_RJ = tl.load(gates + gate + 2 * H, mask=mask, other=0.0).to(tl.float32)
    o_RJ = tl.load(gates + gate + 3 * H, mask=mask, other=0.0).to(tl.float32)
    place = r * H + columns[None, :]
    before += (direction * num_before + before_start + first) * H
    cells += word * H
    gated += word * H
    d_cells += (direction * num_rows + first) * H
    before_RJ = tl.load(before + place, mask=mask, other=0.0)
    cell_RJ = tl.load(cells + place, mask=mask, other=0.0)
    tanh_RJ = _tanh(cell_RJ)
    kind = gates.dtype.element_ty
    tl.store(gated + place, (o_RJ * tanh_RJ).to(kind), mask=mask)
    # The gradient of the cell is carried from step to step in one place.
    d_cell_RJ = tl.load(d_cells + place, mask=mask, other=0.0) + d_gated_RJ * o_RJ * (1.0 - tanh_RJ * tanh_RJ)
    d_cell_RJ = tl.where(tl.abs(cell_RJ) < cell_clip, d_cell_RJ, 0.0)
    tl.store(d_cells + place, d_cell_RJ * f_RJ, mask=mask)
    tl.store(d_gates + gate, (d_cell_RJ * j_RJ * i_RJ * (1.0 - i_RJ)).to(kind), mask=mask)
    tl.store(d_gates + gate + H, (d_cell_RJ * i_RJ * (1.0 - j_RJ * j_RJ)).to(kind), mask=mask)
    tl.store(d_gates + gate + 2 * H, (d_cell_RJ * before_RJ * f_RJ * (1.0 - f_RJ)).to(kind), mask=mask)
    tl.store(d_gates + gate + 3 * H, (d_gated_RJ * tanh_RJ * o_RJ * (1.0 - o_RJ)).to(kind), mask=mask)
