# ruff: noqa: ANN001, ANN202 (Triton reads a kernel's annotations: only constants may have one)
"""Dropout from a hash, in one launch per pass: the mask is never stored, the backward pass draws it again.

`network.py` says what the mask is; this gives the same one, bit for bit. A word's hash is made here as well:
in torch it would be a dozen launches, each of them over in no time.

Shapes: N words, P features.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["keyed_dropout"]

NUMBERS = 4096  # of a program


def keyed_dropout(values_NP: Tensor, keys_N: Tensor, seed: Tensor, place: int, threshold: int, scale: float) -> Tensor:
    """`values * scale` where the 24 lower bits of a place's hash reach the threshold, else 0.

    Arguments:
        values_NP: what to drop from.
        keys_N: a number for each word, int32 or int64.
        seed: one number, int64.
        place: in the network.
        threshold: probability of zeros times 2^24.
        scale: what the others are multiplied by.
    """
    return _KeyedDropout.apply(values_NP, keys_N, seed, place, threshold, scale)  # type: ignore[return-value]


class _KeyedDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values_NP: Tensor, keys_N: Tensor, seed: Tensor, *numbers):  # noqa: ANN001, ANN002, ANN205
        ctx.save_for_backward(keys_N, seed)
        ctx.numbers = numbers
        return _launch(values_NP, keys_N, seed, *numbers)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_values_NP: Tensor):  # noqa: ANN001, ANN205
        return _launch(d_values_NP, *ctx.saved_tensors, *ctx.numbers), None, None, None, None, None


def _launch(values_NP: Tensor, keys_N: Tensor, seed: Tensor, place: int, threshold: int, scale: float) -> Tensor:
    values_NP, (num_words, width) = values_NP.contiguous(), values_NP.shape
    result_NP = torch.empty_like(values_NP)
    features = triton.next_power_of_2(width)
    rows = max(1, NUMBERS // features)
    if result_NP.numel():
        _kernel[(triton.cdiv(num_words, rows),)](
            values_NP, keys_N, seed, result_NP, num_words, place, threshold, scale, P=width, R=rows, BP=features
        )
    return result_NP


@triton.jit(do_not_specialize=["num_words", "place", "threshold"])
def _kernel(
    values, keys, seed, result, num_words, place, threshold, scale, P: tl.constexpr, R: tl.constexpr, BP: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * R
    rows = tl.arange(0, R)
    features = tl.arange(0, BP)
    exists = first + rows < num_words
    seeds = tl.load(seed + tl.zeros((R,), tl.int32)) * 64 + place
    mixed = (seeds * 0x1E3779B97F4A7C15 + tl.load(keys + first + rows, mask=exists, other=0)) * 0x2545F4914F6CDD1D
    hashes = _scramble((mixed >> 32).to(tl.int32))
    x = _scramble(hashes[:, None] + features[None, :] * 0x3C6EF372)
    inside = exists[:, None] & (features < P)[None, :]
    address = rows[:, None] * P + features[None, :]
    value = tl.load(values + first * P + address, mask=inside, other=0.0).to(tl.float32)
    kept = tl.where((x & 0xFFFFFF) >= threshold, value * scale, 0.0)
    tl.store(result + first * P + address, kept.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _scramble(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x046CA68B
    return x ^ (x >> 16)
