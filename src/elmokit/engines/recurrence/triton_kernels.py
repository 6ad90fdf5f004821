# ruff: noqa: ANN001, ANN201, ANN202, D103 (kernel arguments are pointers and numbers; Triton reads no other types)
"""One step of an LSTM with projection as Triton kernels, forward and backward; `triton.py` runs them.

A program owns R rows and J cells of one direction. Where it FUSES, it multiplies by itself in the forward pass: the
inputs and last outputs of its rows with its columns of the weights (the same J columns of each of the four gates, so
that a tile is one wide matmul, and all gates of a cell come to lie in one thread). Elsewhere, and always in the
backward pass, torch has made the matmuls, and the kernel is what happens between them. Programs share what they read;
each writes to its own tile alone, and where a place is read and then overwritten (gates, carried cells and their
gradients, sums of the bias) it is by the same program: nothing depends on their order.

Tables are (directions, places, width); a kernel gets the number of places and the one where the step's rows begin.
Numbers that change from batch to batch are not specialised, so that a kernel is compiled once per model.

Shapes: D input width, P output width, H cell width, K = D + P; tiles of R rows, J cells, Q outputs, BK of a sum.
FAST: tanh as one instruction, right to 2⁻¹¹, which bfloat16 rounds off.
RAW: the backward pass reads the gates' inputs, which torch left in memory anyway, and makes gates and cell again from
them. Writing the gates and reading the cell instead would cost a fifth of all bytes.
LAST: what the cache is told of numbers that are not needed for a while, so that it keeps those of the next kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["backward_kernel", "clip_kernel", "forward_kernel", "project_kernel"]


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    if FAST:
        asm: tl.constexpr = "tanh.approx.f32 $0, $1;"
        return tl.inline_asm_elementwise(asm, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    if FAST:
        return 0.5 * _tanh(0.5 * x, FAST) + 0.5
    else:
        return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _clip(x, bound):
    return tl.where(x > bound, bound, tl.where(x < -bound, -bound, x))  # NaN stays NaN, as with torch


FORWARD_COUNTS = [
    "num_active", "start", "num_words", "kept_start", "num_gates", "hidden_start", "num_hidden", "before_start",
    "num_before", "num_cells", "num_gated",
]  # fmt: skip
PROJECT_COUNTS = ["num_active", "start", "num_words", "kept_start", "num_gated"]
CLIP_COUNTS = ["num_active", "num_next", "start", "num_words"]
BACKWARD_COUNTS = [
    "num_active", "start", "num_words", "before_start", "num_before", "num_gated", "num_rows", "num_tiles",
]  # fmt: skip


@triton.jit
def _add_matmul(sums_RX, rows, weight, active, columns, inside, K: tl.constexpr, WIDTH: tl.constexpr, BK: tl.constexpr):
    """The sums so far and these rows' matmul with some columns of a matrix of that WIDTH."""
    for block in range(0, K, BK):
        k = block + tl.arange(0, BK)
        read = active
        used = inside
        if K % BK != 0:
            read = active & (k < K)[None, :]
            used = inside & (k < K)[:, None]
        row_RK = tl.load(rows + k[None, :], mask=read, other=0.0)
        weight_KX = tl.load(weight + k[:, None] * WIDTH + columns, mask=used, other=0.0)
        sums_RX = tl.dot(row_RK, weight_KX, sums_RX, input_precision="ieee")
    return sums_RX


@triton.jit
def _loaded(gate, mask, H: tl.constexpr, LAST: tl.constexpr):
    """A tile of each of the four gates."""
    i_RJ = tl.load(gate, mask=mask, other=0.0, eviction_policy=LAST).to(tl.float32)
    j_RJ = tl.load(gate + H, mask=mask, other=0.0, eviction_policy=LAST).to(tl.float32)
    f_RJ = tl.load(gate + 2 * H, mask=mask, other=0.0, eviction_policy=LAST).to(tl.float32)
    o_RJ = tl.load(gate + 3 * H, mask=mask, other=0.0, eviction_policy=LAST).to(tl.float32)
    return i_RJ, j_RJ, f_RJ, o_RJ


@triton.jit
def _opened(i_RJ, j_RJ, f_RJ, o_RJ, bias, inside, H: tl.constexpr, FAST: tl.constexpr):
    """The gates, from the sums of the matmuls and their biases."""
    i_RJ = _sigmoid(i_RJ + tl.load(bias, mask=inside, other=0.0).to(tl.float32), FAST)
    j_RJ = _tanh(j_RJ + tl.load(bias + H, mask=inside, other=0.0).to(tl.float32), FAST)
    f_RJ = _sigmoid(f_RJ + tl.load(bias + 2 * H, mask=inside, other=0.0).to(tl.float32), FAST)
    o_RJ = _sigmoid(o_RJ + tl.load(bias + 3 * H, mask=inside, other=0.0).to(tl.float32), FAST)
    return i_RJ, j_RJ, f_RJ, o_RJ


@triton.jit(do_not_specialize=FORWARD_COUNTS)
def forward_kernel(
    inputs, weight, gates, bias, hidden, before, cells, gated, num_active, start, num_words, kept_start, num_gates,
    hidden_start, num_hidden, before_start, num_before, num_cells, num_gated, cell_clip,
    KEEPS: tl.constexpr, FUSES: tl.constexpr, FAST: tl.constexpr, LAST: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr, H: tl.constexpr, R: tl.constexpr, J: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    # Where the tile begins is counted in 64 bits; places within it fit into 32.
    direction = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * R
    r = tl.arange(0, R)[:, None]
    columns = tl.program_id(1) * J + tl.arange(0, J)[None, :]
    active = first + r < num_active
    inside = columns < H
    mask = active & inside
    gate = gates + (direction * num_gates + kept_start + first) * (4 * H) + (r * (4 * H) + columns)
    place = r * H + columns
    before += (direction * num_before + before_start + first) * H
    if FUSES:
        x = tl.arange(0, 4 * J)[None, :]
        cell = tl.program_id(1) * J + x % J
        column = (x // J) * H + cell
        weight += direction * (D + P) * 4 * H
        gates_RX = tl.zeros((R, 4 * J), tl.float32)
        rows = inputs + (direction * num_words + start + first) * D + r * D
        gates_RX = _add_matmul(gates_RX, rows, weight, active, column, cell < H, D, 4 * H, BK)
        before_RJ = tl.load(before + place, mask=mask, other=0.0, eviction_policy=LAST)
        rows = hidden + (direction * num_hidden + hidden_start + first) * P + r * P
        gates_RX = _add_matmul(gates_RX, rows, weight + D * 4 * H, active, column, cell < H, P, 4 * H, BK)
        gates_RJ4 = tl.permute(tl.reshape(gates_RX, (R, 4, J)), (0, 2, 1))
        first_RJ2, second_RJ2 = tl.split(tl.reshape(gates_RJ4, (R, J, 2, 2)))  # i and f, j and o
        i_RJ, f_RJ = tl.split(first_RJ2)
        j_RJ, o_RJ = tl.split(second_RJ2)
    else:
        before_RJ = tl.load(before + place, mask=mask, other=0.0, eviction_policy=LAST)
        i_RJ, j_RJ, f_RJ, o_RJ = _loaded(gate, mask, H, LAST)
    cells += (direction * num_cells + kept_start + first) * H
    gated += (direction * num_gated + kept_start + first) * H
    bias += direction * 4 * H + columns
    i_RJ, j_RJ, f_RJ, o_RJ = _opened(i_RJ, j_RJ, f_RJ, o_RJ, bias, inside, H, FAST)
    cell_RJ = _clip(f_RJ * before_RJ + i_RJ * j_RJ, cell_clip)
    tl.store(cells + place, cell_RJ, mask=mask)
    kind = gated.dtype.element_ty
    if KEEPS:
        tl.store(gate, i_RJ.to(kind), mask=mask, eviction_policy=LAST)
        tl.store(gate + H, j_RJ.to(kind), mask=mask, eviction_policy=LAST)
        tl.store(gate + 2 * H, f_RJ.to(kind), mask=mask, eviction_policy=LAST)
        tl.store(gate + 3 * H, o_RJ.to(kind), mask=mask, eviction_policy=LAST)
    tl.store(gated + place, (o_RJ * _tanh(cell_RJ, FAST)).to(kind), mask=mask)


@triton.jit(do_not_specialize=PROJECT_COUNTS)
def project_kernel(
    gated, projection, outputs, num_active, start, num_words, kept_start, num_gated, output_clip,
    P: tl.constexpr, H: tl.constexpr, R: tl.constexpr, Q: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """What the rows say: the gated cells times the projection, clipped."""
    direction = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * R
    r = tl.arange(0, R)[:, None]
    columns = tl.program_id(1) * Q + tl.arange(0, Q)[None, :]
    active = first + r < num_active
    rows = gated + (direction * num_gated + kept_start + first) * H + r * H
    sums_RQ = tl.zeros((R, Q), tl.float32)
    sums_RQ = _add_matmul(sums_RQ, rows, projection + direction * H * P, active, columns, columns < P, H, P, BK)
    outputs += (direction * num_words + start + first) * P
    kind = outputs.dtype.element_ty
    tl.store(outputs + r * P + columns, _clip(sums_RQ, output_clip).to(kind), mask=active & (columns < P))


@triton.jit(do_not_specialize=CLIP_COUNTS)
def clip_kernel(
    outputs, read, num_active, num_next, start, num_words, output_clip,
    D: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Clips the outputs of the rows, and puts them beside the inputs of those that read another word."""
    direction = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    outputs += (direction * num_words + start) * P
    read += (direction * num_words + start + num_active) * (D + P) + D
    output = tl.load(outputs + place, mask=place < num_active * P, other=0.0)
    output = _clip(output.to(tl.float32), output_clip).to(output.dtype)
    tl.store(outputs + place, output, mask=place < num_active * P)
    tl.store(read + place // P * (D + P) + place % P, output, mask=place < num_next * P)


@triton.jit(do_not_specialize=BACKWARD_COUNTS)
def backward_kernel(
    gates, bias, before, cells, d_gated, d_gates, d_bias, d_cells,
    num_active, start, num_words, before_start, num_before, num_gated, num_rows, num_tiles, cell_clip,
    RAW: tl.constexpr, FAST: tl.constexpr, LAST: tl.constexpr, H: tl.constexpr, R: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    direction = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * R
    r = tl.arange(0, R)[:, None]
    columns = tl.program_id(1) * J + tl.arange(0, J)
    active = first + r < num_active
    inside = columns < H
    mask = active & inside[None, :]
    word = direction * num_words + start + first
    gates += word * (4 * H)
    d_gates += word * (4 * H)
    before += (direction * num_before + before_start + first) * H
    d_cells += (direction * num_rows + first) * H
    gate = r * (4 * H) + columns[None, :]
    place = r * H + columns[None, :]
    i_RJ, j_RJ, f_RJ, o_RJ = _loaded(gates + gate, mask, H, LAST)
    if RAW:
        before_RJ = tl.load(before + place, mask=mask, other=0.0, eviction_policy=LAST)
        bias += direction * 4 * H + columns[None, :]
        i_RJ, j_RJ, f_RJ, o_RJ = _opened(i_RJ, j_RJ, f_RJ, o_RJ, bias, inside[None, :], H, FAST)
        cell_RJ = _clip(f_RJ * before_RJ + i_RJ * j_RJ, cell_clip)
    else:
        before_RJ = tl.load(before + place, mask=mask, other=0.0)  # the cell of the next step on the way
        cell_RJ = tl.load(cells + word * H + place, mask=mask, other=0.0, eviction_policy=LAST)
    d_cell_RJ = tl.load(d_cells + place, mask=mask, other=0.0)
    d_gated += (direction * num_gated + first) * H
    d_gated_RJ = tl.load(d_gated + place, mask=mask, other=0.0).to(tl.float32)
    tanh_RJ = _tanh(cell_RJ, FAST)
    kind = gates.dtype.element_ty
    # The gradient of the cell is carried from step to step in one place.
    d_cell_RJ += d_gated_RJ * o_RJ * (1.0 - tanh_RJ * tanh_RJ)
    d_cell_RJ = tl.where(tl.abs(cell_RJ) < cell_clip, d_cell_RJ, 0.0)
    tl.store(d_cells + place, d_cell_RJ * f_RJ, mask=mask)
    d_i_RJ = d_cell_RJ * j_RJ * i_RJ * (1.0 - i_RJ)
    d_j_RJ = d_cell_RJ * i_RJ * (1.0 - j_RJ * j_RJ)
    d_f_RJ = d_cell_RJ * before_RJ * f_RJ * (1.0 - f_RJ)
    d_o_RJ = d_gated_RJ * tanh_RJ * o_RJ * (1.0 - o_RJ)
    tl.store(d_gates + gate, d_i_RJ.to(kind), mask=mask)
    tl.store(d_gates + gate + H, d_j_RJ.to(kind), mask=mask)
    tl.store(d_gates + gate + 2 * H, d_f_RJ.to(kind), mask=mask)
    tl.store(d_gates + gate + 3 * H, d_o_RJ.to(kind), mask=mask)
    # Summed here, for the gradients of all gates are too many to be read once more.
    d_bias += (direction * num_tiles + tl.program_id(0)) * (4 * H)
    sums_J22 = tl.sum(tl.join(tl.join(d_i_RJ, d_j_RJ), tl.join(d_f_RJ, d_o_RJ)), axis=0)  # i and f, j and o
    two = tl.arange(0, 2)
    place_J22 = d_bias + columns[:, None, None] + two[None, :, None] * H + two[None, None, :] * (2 * H)
    inside_J22 = tl.broadcast_to(inside[:, None, None], (J, 2, 2))
    tl.store(place_J22, tl.load(place_J22, mask=inside_J22, other=0.0) + sums_J22, mask=inside_J22)
