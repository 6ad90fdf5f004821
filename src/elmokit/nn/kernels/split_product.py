# ruff: noqa: ANN001, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
"""A product of few rows and a long sum, cut along the sum so that the whole GPU takes part: out += a @ bᵀ.

Going back through an LSTM, every step multiplies the gradients of all gates (n, 4H) with the recurrent matrix: few
results, each a sum of thousands. A product that gives a program one tile of results leaves most of the GPU idle. Here
several programs share a tile, each with a part of the sum; a second kernel adds the parts, in a fixed order.

Shapes: E directions, n rows, P results, K numbers of a sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["add_product"]

ROWS, RESULTS, SUMMED, WARPS, STAGES = 128, 128, 64, 8, 4
PROGRAMS, MOST_SPLITS = 132, 16
BLOCK = 1024


def add_product(out_EnP: Tensor, a_EnK: Tensor, b_EPK: Tensor) -> None:
    """Add a @ bᵀ to `out`, in place; sums in float32.

    Arguments:
        out_EnP: may be a part of a larger tensor, as may `a_EnK`; their rows lie without gaps.
        a_EnK: the rows.
        b_EPK: contiguous.
    """
    num_directions, num_rows, width = out_EnP.shape
    length = a_EnK.shape[2]
    rows = triton.cdiv(num_rows, ROWS) * triton.cdiv(width, RESULTS) * num_directions
    splits = max(1, min(MOST_SPLITS, PROGRAMS // rows, triton.cdiv(length, 4 * SUMMED)))
    reach = triton.cdiv(triton.cdiv(length, SUMMED), splits)
    parts = torch.empty(splits, num_directions, num_rows, width, dtype=torch.float32, device=out_EnP.device)
    precision = "ieee" if a_EnK.dtype == torch.float32 else "tf32"
    grid = (triton.cdiv(num_rows, ROWS), triton.cdiv(width, RESULTS), splits * num_directions)
    _parts_kernel[grid](
        a_EnK, b_EPK, parts, num_rows, a_EnK.stride(0), num_directions, reach,
        P=width, K=length, BM=ROWS, BN=RESULTS, BK=SUMMED, PRECISION=precision, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    count = num_rows * width
    _add_kernel[(triton.cdiv(count, BLOCK), num_directions)](
        parts, out_EnP, count, out_EnP.stride(0), splits, num_directions, BLOCK=BLOCK, num_warps=4
    )


@triton.jit(do_not_specialize=["num_rows", "num_directions", "reach"])
def _parts_kernel(
    a, b, parts, num_rows, a_stride, num_directions, reach,
    P: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of results, one part of the sum."""
    place = tl.program_id(2)
    direction = (place % num_directions).to(tl.int64)
    split = place // num_directions
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    row_ok = (rows < num_rows)[:, None]
    col_ok = (cols < P)[:, None]
    a += direction * a_stride
    b += direction * P * K
    sum_MN = tl.zeros((BM, BN), tl.float32)
    for block in range(split * reach, tl.minimum((split + 1) * reach, tl.cdiv(K, BK))):
        k = block * BK + tl.arange(0, BK)[None, :]
        a_ok = row_ok
        b_ok = col_ok
        if K % BK != 0:
            a_ok = row_ok & (k < K)
            b_ok = col_ok & (k < K)
        a_MK = tl.load(a + rows[:, None] * K + k, mask=a_ok, other=0.0)
        b_NK = tl.load(b + cols[:, None] * K + k, mask=b_ok, other=0.0)
        sum_MN = tl.dot(a_MK, tl.trans(b_NK), sum_MN, input_precision=PRECISION)
    parts += (place.to(tl.int64) * num_rows) * P
    tl.store(parts + rows[:, None] * P + cols[None, :], sum_MN, mask=row_ok & (cols < P)[None, :])


@triton.jit(do_not_specialize=["num_directions", "splits"])
def _add_kernel(parts, out, count, out_stride, splits, num_directions, BLOCK: tl.constexpr):
    """The parts of some results, added to what is there."""
    direction = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    out += direction * out_stride
    total = tl.load(out + place, mask=inside, other=0.0).to(tl.float32)
    part = parts + direction * count
    for _ in range(splits):
        total += tl.load(part + place, mask=inside, other=0.0)
        part += num_directions.to(tl.int64) * count
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
