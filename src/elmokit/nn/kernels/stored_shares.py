# ruff: noqa: ANN001, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
# pyright: reportIndexIssue=false, reportMissingImports=false
"""The full softmax with its shares kept in memory: three products instead of four, for GPUs that have the room.

`linear_cross_entropy.py` makes all logits twice so that they never leave the chip. Here one pass makes them once and
stores every word's share (N, V) in the dtype of the products; both gradients are then plain products with that table,
which run at the speed of memory. 40,960 predictions over 108,000 words take 8.8 GB for the time of a step, and on an
H200, in bfloat16, 10.6 ms instead of 15.6.

Shares are relative to the target's: exp(logit - target's logit). So their sum is 1 / p(target), its logarithm the loss,
and no running maximum has to be kept. A word whose logit is more than 69 above the target's counts as 69 above: only a
loss beyond that, which no network in its right mind has, is reported too small. The target's own share, once the sum is
known, is replaced by 1 - sum, so the table holds the gradient of the logits but for one factor a row, 1 / sum.

Sums are float32 and in a fixed order: two runs give the same bits.

Shapes: N rows (predictions), V words, P = K width.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.nn.kernels.linear_cross_entropy import LOG2E, Tiles, parts_of, precision_of

__all__ = ["fits", "linear_cross_entropies"]

# How much of the GPU's memory the table may take; 0 turns it off.
MOST_OF_MEMORY = 0.25
# By bytes of a number and width. (2, 128) is fastest on an H200: 5.6 ms for the sizes above, where 128 x 128 took 6.5;
# the others were chosen by what the compiler says of registers and shared memory, and not timed.
SHARES_TILES = {
    (2, 64): Tiles(128, 64, 4, 3),
    (2, 128): Tiles(128, 64, 4, 3),
    (2, 256): Tiles(64, 64, 4, 3),
    (2, 512): Tiles(64, 64, 4, 2),
    (4, 64): Tiles(64, 64, 4, 2),
    (4, 128): Tiles(64, 32, 4, 2),
}
_ROWS_AT_ONCE = 16
_ALIGNED = 64  # rows of the table begin at multiples of so many numbers, as fast loads and products want it
_MORE_COLUMNS = 8  # of a product, one of them used, as fast products want it

_LOG2E = tl.constexpr(LOG2E)
_NEVER = tl.constexpr(-1e30)
_MOST = tl.constexpr(100.0)  # in units of log 2: the sum of 2^27 such shares is still a float32


def fits(hidden_NP: Tensor, num_words: int) -> bool:
    """Whether the table of these predictions may be stored."""
    known = (hidden_NP.element_size(), hidden_NP.shape[1]) in SHARES_TILES and _has_wide_sums(hidden_NP.dtype)
    num_bytes = len(hidden_NP) * _stride(num_words) * hidden_NP.element_size()
    return known and 0 < num_bytes <= MOST_OF_MEMORY * _memory(hidden_NP.device)


@functools.cache
def _memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def _has_wide_sums(dtype: torch.dtype) -> bool:
    """Whether torch hands out a product's sums as they are; before 2.8 it rounded them to the dtype of the factors."""
    return dtype == torch.float32 or hasattr(torch.ops.aten.mm, "dtype")


def linear_cross_entropies(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor
) -> tuple[Tensor, Tensor]:
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
        shares_NV, totals_N = _shares(hidden_NP, words_VP, bias_V.float() * LOG2E, targets_N)
        losses_N = totals_N.log().clamp_min(0)  # rounding may leave a certain word a hair above 1
        shares_NV.scatter_(1, targets_N.unsqueeze(1), (1 - totals_N).unsqueeze(1).to(shares_NV.dtype))
        ctx.save_for_backward(hidden_NP, words_VP, shares_NV, totals_N)
        ctx.dtypes = weight_VP.dtype, bias_V.dtype
        ctx.mark_non_differentiable(losses_N)
        return losses_N.sum(), losses_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        hidden_NP, words_VP, shares_NV, totals_N = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        factor_N = grad / totals_N
        hidden = weight = bias = None
        if needs_hidden:
            hidden = (torch.mm(shares_NV, words_VP).float() * factor_N.unsqueeze(1)).to(hidden_NP.dtype)
        if needs_weight or needs_bias:
            weight, bias = _weight_gradients(shares_NV, hidden_NP, factor_N)
            weight, bias = weight.to(ctx.dtypes[0]), bias.to(ctx.dtypes[1])
        return hidden, weight if needs_weight else None, bias if needs_bias else None, None


def _stride(num_words: int) -> int:
    return triton.cdiv(num_words, _ALIGNED) * _ALIGNED


def _shares(hidden_NP: Tensor, words_VP: Tensor, bias_V: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """Every word's share relative to the target's (N, V), and their sums (N)."""
    (num_rows, width), num_words = hidden_NP.shape, len(words_VP)
    tiles = SHARES_TILES[hidden_NP.element_size(), width]
    blocks, splits, reach = parts_of(num_rows, num_words, tiles, width, hidden_NP.device)
    table = hidden_NP.new_empty(num_rows, _stride(num_words))
    own_N, part_totals = bias_V.new_empty(num_rows), bias_V.new_empty(splits, num_rows)
    with torch.cuda.device_of(hidden_NP):
        _own_kernel[(triton.cdiv(num_rows, _ROWS_AT_ONCE),)](
            hidden_NP, words_VP, bias_V, targets_N, own_N, num_rows, K=width, BLOCK_M=_ROWS_AT_ONCE, num_warps=4
        )
        _shares_kernel[(blocks, splits)](
            hidden_NP, words_VP, bias_V, own_N, table, part_totals, num_rows, num_words, table.shape[1],
            reach // tiles.stepped,
            K=width, BLOCK_M=tiles.owned, BLOCK_V=tiles.stepped, PRECISION=precision_of(hidden_NP),
            num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    return table[:, :num_words], part_totals.sum(0)


def _weight_gradients(shares_NV: Tensor, hidden_NP: Tensor, factor_N: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the weight (V, P) and the bias (V), float32: one product, in which the bias is one more column.

    2.4 ms for the sizes above, where the best tiles of a kernel of our own took 2.8.
    """
    num_rows, width = hidden_NP.shape
    factors_NX = hidden_NP.new_zeros(num_rows, width + _MORE_COLUMNS)
    factors_NX[:, :width] = hidden_NP.float() * factor_N.unsqueeze(1)
    factors_NX[:, width] = factor_N
    grads_VX = _product(shares_NV.t(), factors_NX)
    return grads_VX[:, :width], grads_VX[:, width]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The product in float32; a GPU's tensor cores sum in it anyway, and need no copies of half precision."""
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
def _shares_kernel(
    hidden, words, bias, own, shares, part_totals, num_rows, num_words, stride, num_tiles,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of rows and a part of the vocabulary: the shares, and their sum."""
    split = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, K)
    row_ok = rows < num_rows
    hidden_MK = tl.load(hidden + rows[:, None] * K + ks[None, :], mask=row_ok[:, None], other=0.0)
    own_M = tl.load(own + rows, mask=row_ok, other=0.0)
    total_M = tl.zeros((BLOCK_M,), tl.float32)
    row = shares + rows.to(tl.int64)[:, None] * stride  # the table has more places than 32 bits count
    # Counted in tiles, so that the compiler knows where a tile begins and stores many numbers at a time.
    for tile in range(split * num_tiles, tl.minimum((split + 1) * num_tiles, tl.cdiv(num_words, BLOCK_V))):
        cols = tile * BLOCK_V + tl.arange(0, BLOCK_V)
        ok = cols < num_words
        words_VK = tl.load(words + cols[:, None] * K + ks[None, :], mask=ok[:, None], other=0.0)
        bias_V = tl.load(bias + cols, mask=ok, other=_NEVER)
        logits_MV = tl.dot(hidden_MK, tl.trans(words_VK), input_precision=PRECISION) * _LOG2E
        share_MV = tl.exp2(tl.minimum(logits_MV + (bias_V[None, :] - own_M[:, None]), _MOST))
        total_M += tl.sum(share_MV, 1)
        # What lies between the last word and the next row is never read: a few zeros.
        room = row_ok[:, None] & (cols < stride)[None, :]
        tl.store(row + cols[None, :], share_MV.to(shares.dtype.element_ty), mask=room)
    tl.store(part_totals + split.to(tl.int64) * num_rows + rows, total_M, mask=row_ok)
