# ruff: noqa: ANN001, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
# pyright: reportIndexIssue=false, reportMissingImports=false
"""The full softmax with its probabilities kept in memory: three matmuls instead of four, for GPUs that have the room.

`linear_cross_entropy.py` makes all logits twice so that they never leave the chip. Here one pass makes them once,
stores the probability of every word (N, V) in the dtype of the matmuls and, while a tile is still on the chip,
multiplies it by the words that made it: the gradient of the outputs, in the manner of FlashAttention. The gradient of
the weight is one matmul with the stored table. 40,960 predictions over 108,000 words take 8.8 GB while a step lasts.

What is stored is each probability relative to the target's, exp(logit - target's logit): a ratio. So the sum of a row
is 1 / p(target), its logarithm the loss, and no running maximum has to be kept. A word whose logit is more than 69
above the target's counts as 69 above: only a loss beyond that, which no sane network has, is reported too small. The
gradient of the logits is ratio / sum, less 1 at the target. So `_combine_kernel`, once the sum is known, subtracts the
target's row from the gradient of the outputs, and replaces the target's ratio in the table by 1 - sum: the table then
lacks one factor per row, 1 / sum.

What is counted for these sizes in bfloat16 on an H200: the pass does 2.3 TFLOP, 2.9 ms at the 789 TFLOP/s that large
matmuls reach, and writes 8.8 GB; the weight's gradient reads them again, 2.15 ms. Before the gradient of the outputs
was part of the pass, the pass took 5.6 ms and that gradient 2.1 ms, all of it reading the table.

That holds for outputs of width 128. A wide block of rows does not fit on the chip beside its gradient, so each word
would be fetched for few rows only; but a wide matmul takes longer than reading the table. So wide outputs have a plain
matmul with the ratios made at its end (`_table_kernel`), and torch's matmul gives their gradient.

Sums are float32 and in a fixed order: two runs give the same bits.

Shapes: N rows (predictions), V words, P = K width.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.engines.loss.linear_cross_entropy import LOG2E, Tiles, parts_of, precision_of

__all__ = ["fits", "losses"]

# How much of the GPU's memory the table may take; 0 turns it off.
MOST_OF_MEMORY = 0.25
# By bytes of a number and width. Those of bfloat16 and 128 are the fastest that `benchmarks/linear_cross_entropy.py
# --steps sweep` found on an H200; the others are chosen by what the compiler says of registers and shared memory.
TILES = {
    (2, 64): Tiles(64, 128, 4, 2),
    (2, 128): Tiles(128, 32, 8, 3),
    (2, 256): Tiles(64, 64, 4, 2),
    (4, 64): Tiles(64, 64, 4, 2),
    (4, 128): Tiles(64, 32, 4, 2),
}


class WideTiles(NamedTuple):
    """Sizes of the matmul that makes the table: its tile, how it steps along the width, and how it is scheduled."""

    rows: int
    words: int
    depth: int
    warps: int
    stages: int
    group: int  # blocks of rows that go through the words together, so that both stay in the cache


WIDE_TILES = {(2, 512): WideTiles(128, 256, 64, 8, 3, 16)}  # in place of TILES
_ROWS_AT_ONCE = 16
_ALIGNED = 64  # rows of the table begin at multiples of so many numbers, as fast loads and matmuls want it
_MORE_COLUMNS = 16  # of a matmul, one of them used, as fast matmuls want it

_LOG2E = tl.constexpr(LOG2E)
_NEVER = tl.constexpr(-1e30)
_MOST = tl.constexpr(100.0)  # in units of log 2: the sum of 2^27 such ratios is still a float32


def fits(hidden_NP: Tensor, num_words: int) -> bool:
    """Whether the table of these predictions may be stored."""
    size = hidden_NP.element_size(), hidden_NP.shape[1]
    known = (size in TILES or size in WIDE_TILES) and _has_wide_sums(hidden_NP.dtype)
    num_bytes = len(hidden_NP) * _stride(num_words) * hidden_NP.element_size()
    return known and 0 < num_bytes <= MOST_OF_MEMORY * _memory(hidden_NP.device)


@functools.cache
def _memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def _has_wide_sums(dtype: torch.dtype) -> bool:
    """Whether torch hands out a matmul's sums as they are; before 2.8 it rounded them to the dtype of the factors."""
    return dtype == torch.float32 or hasattr(torch.ops.aten.mm, "dtype")


def losses(hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss, which has gradients, and the loss of each row, which has none."""
    return cast(tuple[Tensor, Tensor], _Stored.apply(hidden_NP, weight_VP, bias_V, targets_N))


class _Stored(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden_NP: Tensor,
        weight_VP: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hidden_NP, words_VP = hidden_NP.contiguous(), weight_VP.to(hidden_NP.dtype).contiguous()
        ratios_NV, totals_N, losses_N, grad_hidden_NP = _store_ratios(
            hidden_NP, words_VP, bias_V.float() * LOG2E, targets_N
        )
        ctx.save_for_backward(hidden_NP, ratios_NV, totals_N, grad_hidden_NP)
        ctx.dtypes = weight_VP.dtype, bias_V.dtype
        ctx.mark_non_differentiable(losses_N)
        return losses_N.sum(), losses_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        hidden_NP, ratios_NV, totals_N, grad_hidden_NP = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        hidden = (grad_hidden_NP * grad).to(hidden_NP.dtype) if needs_hidden else None
        weight = bias = None
        if needs_weight or needs_bias:
            weight, bias = _weight_gradients(ratios_NV, hidden_NP, grad / totals_N)
            weight, bias = weight.to(ctx.dtypes[0]), bias.to(ctx.dtypes[1])
        return hidden, weight if needs_weight else None, bias if needs_bias else None, None


def _stride(num_words: int) -> int:
    return triton.cdiv(num_words, _ALIGNED) * _ALIGNED


def _store_ratios(
    hidden_NP: Tensor, words_VP: Tensor, bias_V: Tensor, targets_N: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The table (N, V), the sum of each row's ratios (N), the losses (N), and the gradient of the outputs (N, P)."""
    (num_rows, width), num_words = hidden_NP.shape, len(words_VP)
    table = hidden_NP.new_empty(num_rows, _stride(num_words))
    own_N, totals_N, losses_N = (bias_V.new_empty(num_rows) for _ in range(3))
    grad_hidden_NP = bias_V.new_empty(num_rows, width)
    row_blocks = (triton.cdiv(num_rows, _ROWS_AT_ONCE),)
    make = _make_table if (hidden_NP.element_size(), width) in WIDE_TILES else _make_table_and_sums
    with torch.cuda.device_of(hidden_NP):
        _own_kernel[row_blocks](
            hidden_NP, words_VP, bias_V, targets_N, own_N, num_rows, K=width, BLOCK_M=_ROWS_AT_ONCE, num_warps=4
        )
        part_totals, part_sums = make(hidden_NP, words_VP, bias_V, own_N, table)
        _combine_kernel[row_blocks](
            words_VP, targets_N, part_totals, part_sums, table, totals_N, losses_N, grad_hidden_NP, num_rows,
            table.shape[1], len(part_totals), K=width, BLOCK_M=_ROWS_AT_ONCE, num_warps=4,
        )  # fmt: skip
    return table[:, :num_words], totals_N, losses_N, grad_hidden_NP


def _make_table_and_sums(
    hidden_NP: Tensor, words_VP: Tensor, bias_V: Tensor, own_N: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """Fill the table; the sums of ratios (splits, N) and of weight rows (splits, N, P), made in the same pass."""
    (num_rows, width), num_words = hidden_NP.shape, len(words_VP)
    tiles = TILES[hidden_NP.element_size(), width]
    blocks, splits, reach = parts_of(num_rows, num_words, tiles, width, hidden_NP.device)
    part_totals, part_sums = bias_V.new_empty(splits, num_rows), bias_V.new_empty(splits, num_rows, width)
    _ratios_kernel[(blocks, splits)](
        hidden_NP, words_VP, bias_V, own_N, table, part_totals, part_sums, num_rows, num_words, table.shape[1],
        reach // tiles.stepped,
        K=width, BLOCK_M=tiles.owned, BLOCK_V=tiles.stepped, PRECISION=precision_of(hidden_NP),
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return part_totals, part_sums


def _make_table(
    hidden_NP: Tensor, words_VP: Tensor, bias_V: Tensor, own_N: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """Fill the table; the sums of ratios (1, N) and of weight rows (1, N, P), the latter by torch's matmul."""
    (num_rows, width), num_words = hidden_NP.shape, len(words_VP)
    tiles = WIDE_TILES[hidden_NP.element_size(), width]
    row_blocks, word_blocks = triton.cdiv(num_rows, tiles.rows), triton.cdiv(num_words, tiles.words)
    part_totals = bias_V.new_empty(word_blocks, num_rows)
    if row_blocks:
        _table_kernel[(row_blocks * word_blocks,)](
            hidden_NP, words_VP, bias_V, own_N, table, part_totals, num_rows, num_words, table.shape[1],
            K=width, BLOCK_M=tiles.rows, BLOCK_V=tiles.words, BLOCK_K=tiles.depth, GROUP=tiles.group,
            PRECISION=precision_of(hidden_NP), num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    return part_totals.sum(0, keepdim=True), _matmul(table[:, :num_words], words_VP).unsqueeze(0)


def _weight_gradients(ratios_NV: Tensor, hidden_NP: Tensor, factor_N: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the weight (V, P) and the bias (V), float32: one matmul, in which the bias is one more column.

    2.4 ms for the sizes above, where the best tiles of a kernel of our own took 2.8.
    """
    num_rows, width = hidden_NP.shape
    factors_NX = hidden_NP.new_zeros(num_rows, width + _MORE_COLUMNS)
    factors_NX[:, :width] = hidden_NP.float() * factor_N.unsqueeze(1)
    factors_NX[:, width] = factor_N
    grads_VX = _matmul(ratios_NV.t(), factors_NX)
    return grads_VX[:, :width], grads_VX[:, width]


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matmul in float32; a GPU's tensor cores sum in it anyway, and need no copies of half precision."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


@triton.jit(do_not_specialize=["num_rows"])
def _own_kernel(hidden, words, bias, targets, own, num_rows, K: tl.constexpr, BLOCK_M: tl.constexpr):
    """The logits of the targets, in units of log 2."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, K)
    ok = rows < num_rows
    target_M = tl.load(targets + rows, mask=ok, other=0)
    own_MK = tl.load(words + target_M[:, None] * K + ks[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
    hidden_MK = tl.load(hidden + rows[:, None] * K + ks[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
    own_M = tl.sum(hidden_MK * own_MK, 1) * _LOG2E + tl.load(bias + target_M, mask=ok, other=0.0)
    tl.store(own + rows, own_M, mask=ok)


@triton.jit(do_not_specialize=["num_rows", "num_tiles"])
def _ratios_kernel(
    hidden, words, bias, own, ratios, part_totals, part_sums, num_rows, num_words, stride, num_tiles,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of rows and a part of the vocabulary: the ratios, their sum, and their sum of weight rows."""
    split = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, K)
    row_ok = rows < num_rows
    hidden_MK = tl.load(hidden + rows[:, None] * K + ks[None, :], mask=row_ok[:, None], other=0.0)
    own_M = tl.load(own + rows, mask=row_ok, other=0.0)
    total_M = tl.zeros((BLOCK_M,), tl.float32)
    sum_MK = tl.zeros((BLOCK_M, K), tl.float32)
    row = ratios + rows.to(tl.int64)[:, None] * stride  # the table has more places than 32 bits count
    # Counted in tiles, so that the compiler knows where a tile begins and stores many numbers at a time.
    first = split * num_tiles
    last = tl.minimum(first + num_tiles, tl.cdiv(num_words, BLOCK_V))
    tl.assume(first < last)  # else the compiler prepares for sums without a matmul, and waits for every matmul
    for tile in range(first, last):
        cols = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        ok = cols < num_words
        words_VK = tl.load(words + cols[:, None] * K + ks[None, :], mask=ok[:, None], other=0.0)
        bias_V = tl.load(bias + cols, mask=ok, other=_NEVER)
        logits_MV = tl.dot(hidden_MK, tl.trans(words_VK), input_precision=PRECISION) * _LOG2E
        logits_MV += bias_V[None, :] - own_M[:, None]
        ratio_MV = tl.exp2(tl.minimum(logits_MV, _MOST, propagate_nan=tl.PropagateNan.ALL))  # a NaN shows in the loss
        total_M += tl.sum(ratio_MV, 1)
        ratio_MV = ratio_MV.to(ratios.dtype.element_ty)
        sum_MK = tl.dot(ratio_MV, words_VK, sum_MK, input_precision=PRECISION)
        # What lies between the last word and the next row is never read: a few zeros.
        room = row_ok[:, None] & (cols < stride)[None, :]
        tl.store(row + cols[None, :], ratio_MV, mask=room)
    at = split.to(tl.int64) * num_rows + rows
    tl.store(part_totals + at, total_M, mask=row_ok)
    tl.store(part_sums + at[:, None] * K + ks[None, :], sum_MK, mask=row_ok[:, None])


@triton.jit(do_not_specialize=["num_rows"])
def _table_kernel(
    hidden, words, bias, own, ratios, part_totals, num_rows, num_words, stride,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of rows and a block of words: the ratios, and their sum for each row."""
    program, row_blocks, word_blocks = tl.program_id(0), tl.cdiv(num_rows, BLOCK_M), tl.cdiv(num_words, BLOCK_V)
    first = program // (GROUP * word_blocks) * GROUP
    in_group, group = program % (GROUP * word_blocks), tl.minimum(row_blocks - first, GROUP)
    rows = (first + in_group % group) * BLOCK_M + tl.arange(0, BLOCK_M)
    word_block = in_group // group
    cols = word_block * BLOCK_V + tl.arange(0, BLOCK_V)
    row_ok, col_ok = rows < num_rows, cols < num_words
    ks = tl.arange(0, BLOCK_K)
    # Rows and words past the end read the first one: loads without a mask are faster, and the results are not kept.
    hidden_MK = hidden + tl.where(row_ok, rows, 0)[:, None] * K + ks[None, :]
    words_VK = words + tl.where(col_ok, cols, 0)[:, None] * K + ks[None, :]
    logits_MV = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
    for k in range(0, K, BLOCK_K):
        logits_MV = tl.dot(
            tl.load(hidden_MK + k), tl.trans(tl.load(words_VK + k)), logits_MV, input_precision=PRECISION
        )
    bias_V = tl.load(bias + cols, mask=col_ok, other=_NEVER)
    own_M = tl.load(own + rows, mask=row_ok, other=0.0)
    logits_MV = logits_MV * _LOG2E + (bias_V[None, :] - own_M[:, None])
    ratio_MV = tl.exp2(tl.minimum(logits_MV, _MOST, propagate_nan=tl.PropagateNan.ALL))  # a NaN shows in the loss
    tl.store(part_totals + word_block.to(tl.int64) * num_rows + rows, tl.sum(ratio_MV, 1), mask=row_ok)
    place = ratios + rows.to(tl.int64)[:, None] * stride + cols[None, :]
    tl.store(place, ratio_MV.to(ratios.dtype.element_ty), mask=row_ok[:, None] & (cols < stride)[None, :])


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def _combine_kernel(
    words, targets, part_totals, part_sums, ratios, totals, losses, grad_hidden, num_rows, stride, num_splits,
    K: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """For a block of rows: add up the splits, and bring in the target, in the gradient and in the table."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, K)
    row_ok = rows < num_rows
    mask = row_ok[:, None]
    total_M = tl.zeros((BLOCK_M,), tl.float32)
    sum_MK = tl.zeros((BLOCK_M, K), tl.float32)
    at = rows.to(tl.int64)
    for _ in range(num_splits):
        total_M += tl.load(part_totals + at, mask=row_ok, other=1.0)
        sum_MK += tl.load(part_sums + at[:, None] * K + ks[None, :], mask=mask, other=0.0)
        at += num_rows
    target_M = tl.load(targets + rows, mask=row_ok, other=0)
    own_MK = tl.load(words + target_M[:, None] * K + ks[None, :], mask=mask, other=0.0).to(tl.float32)
    # Rounding may leave a certain word a hair above 1.
    loss_M = tl.maximum(tl.log(total_M), 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(totals + rows, total_M, mask=row_ok)
    tl.store(losses + rows, loss_M, mask=row_ok)
    tl.store(grad_hidden + rows[:, None] * K + ks[None, :], sum_MK / total_M[:, None] - own_MK, mask=mask)
    place = ratios + rows.to(tl.int64) * stride + target_M
    tl.store(place, (1.0 - total_M).to(ratios.dtype.element_ty), mask=row_ok)
