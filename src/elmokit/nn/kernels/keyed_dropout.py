# ruff: noqa: ANN001, ANN202 (Triton reads a kernel's annotations: only constants may have one)
"""Dropout from a hash, in one launch each way: the mask is never stored, going back draws it again.

`pretrain/network.py` says what the mask is; this gives the same one, bit for bit.

Shapes: N words, P features.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["keyed_dropout"]

BLOCK = 1024


def keyed_dropout(values_NP: Tensor, word_hashes_N: Tensor, threshold: int, scale: float) -> Tensor:
    """`values * scale` where the 24 lower bits of a place's hash reach the threshold, else 0.

    Arguments:
        values_NP: what to drop from.
        word_hashes_N: int32, a scrambled number for each word.
        threshold: share of zeros times 2^24.
        scale: what the others are multiplied by.
    """
    return _KeyedDropout.apply(values_NP, word_hashes_N, threshold, scale)  # type: ignore[return-value]


class _KeyedDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values_NP: Tensor, word_hashes_N: Tensor, threshold: int, scale: float):  # noqa: ANN001, ANN205
        ctx.save_for_backward(word_hashes_N)
        ctx.threshold, ctx.scale = threshold, scale
        return _dropped(values_NP, word_hashes_N, threshold, scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_values_NP: Tensor):  # noqa: ANN001, ANN205
        (word_hashes_N,) = ctx.saved_tensors
        return _dropped(d_values_NP, word_hashes_N, ctx.threshold, ctx.scale), None, None, None


def _dropped(values_NP: Tensor, word_hashes_N: Tensor, threshold: int, scale: float) -> Tensor:
    values_NP = values_NP.contiguous()
    result_NP = torch.empty_like(values_NP)
    grid = (triton.cdiv(values_NP.numel(), BLOCK),)
    if values_NP.numel():
        _kernel[grid](
            values_NP, word_hashes_N, result_NP, values_NP.numel(), threshold, scale, P=values_NP.shape[1], BLOCK=BLOCK
        )
    return result_NP


@triton.jit
def _kernel(values, hashes, result, total, threshold, scale, P: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    feature = (place % P).to(tl.int32)
    x = tl.load(hashes + place // P, mask=inside, other=0) + feature * 0x3C6EF372
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x046CA68B
    x = x ^ (x >> 16)
    value = tl.load(values + place, mask=inside, other=0.0).to(tl.float32)
    kept = tl.where((x & 0xFFFFFF) >= threshold, value * scale, 0.0)
    tl.store(result + place, kept.to(result.dtype.element_ty), mask=inside)
