# ruff: noqa: ANN001, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
"""Convolution over characters and maximum over the word in one kernel: what lies between never reaches memory.

Written plainly, a convolution of 1024 channels writes every position of every word, and the maximum reads it all
back; with gradients, several times over. Here a program keeps a running maximum in registers and stores only that and
its position. A window of w characters is w * E numbers in a row of memory, so each position is one small matmul; in the
backward pass only the winning positions are left in it. Of several equal maxima the first wins (torch divides the
gradient among them); windows of padding alone are such, and there the gradients of filter and table come out the same.

Shapes: N words of all blocks, U of one block, F channels of all filters, T columns, E character width, w filter width,
Q = w * E rounded up to a power of two, K channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["best", "best_backward", "convolve_and_pool", "fits"]

WORDS, CHANNELS, SPLITS = 64, 128, 40
FLOAT32_CHANNELS = 32  # multiplied without tensor cores; more of them would not fit the registers
# In the backward pass a program sums the gradient of one column of its words: a channel is read w times, but no program
# waits for another. On an H200 the convolutions of a step take 2.6 ms so, and 3.7 if windows are added one by one.
WORDS_BACK, CHANNELS_BACK = 64, 64
MOST_IN_A_WINDOW = 128  # numbers; a program holds a window of every word and the filters of its channels at once
MOST_POSITIONS = 255  # a position is kept as one byte


def fits(words: Sequence[Tensor], filters: Sequence[Tensor]) -> bool:
    """Whether the kernels are made for these blocks (U, T, E) and filters (K, E, w)."""
    return all(_fits(characters_UTE.shape, weight_KEw.shape) for characters_UTE in words for weight_KEw in filters)


def _fits(characters: Sequence[int], weight: Sequence[int]) -> bool:
    """Windows that fit a program, positions that fit a byte."""
    (_, num_columns, dim), width = characters, weight[2]
    return width * dim <= MOST_IN_A_WINDOW and 0 < num_columns - width + 1 <= MOST_POSITIONS


def convolve_and_pool(words: Sequence[Tensor], filters: Sequence[Tensor]) -> Tensor:
    """The largest value (N, F) of each channel of each filter over all positions of a word.

    Arguments:
        words: blocks (U, T, E) of character vectors.
        filters: in `nn.Conv1d`'s layout (K, E, w), of the same dtype.
    """
    weights = [weight_KEw.permute(2, 1, 0).contiguous() for weight_KEw in filters]
    return cast(Tensor, _Pooled.apply(len(words), *words, *weights))


class _Pooled(torch.autograd.Function):
    """All filters over all blocks of words as one step for autograd.

    In the backward pass the gradients of the characters from all filters, and of a filter from all blocks, are added in
    one launch for many tensors; left to autograd it would be a launch for every pair.
    """

    @staticmethod
    def forward(ctx: Any, num_blocks: int, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        words, filters = tensors[:num_blocks], tensors[num_blocks:]
        found = [[best(characters_UTE, weight_wEK) for weight_wEK in filters] for characters_UTE in words]
        ctx.num_blocks = num_blocks
        ctx.save_for_backward(*tensors, *(place_UK for block in found for _, place_UK in block))
        return torch.cat([torch.cat([best_UK for best_UK, _ in block], dim=1) for block in found])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_features_NF: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        num_filters = len(ctx.needs_input_grad) - 1 - ctx.num_blocks
        words, filters = ctx.saved_tensors[: ctx.num_blocks], ctx.saved_tensors[ctx.num_blocks :][:num_filters]
        places = iter(ctx.saved_tensors[ctx.num_blocks + num_filters :])
        places = [[next(places) for _ in filters] for _ in words]
        channels, rows = [weight_wEK.shape[2] for weight_wEK in filters], [len(block) for block in words]
        d_best = [part.contiguous().split(rows) for part in d_features_NF.split(channels, dim=1)]
        found = [
            [best_backward(d_best[f][b], words[b], filters[f], places[b][f]) for f in range(num_filters)]
            for b in range(ctx.num_blocks)
        ]
        d_words = _sum_lists([[found[b][f][0] for b in range(ctx.num_blocks)] for f in range(num_filters)])
        d_filters = _sum_lists([[found[b][f][1] for f in range(num_filters)] for b in range(ctx.num_blocks)])
        return None, *d_words, *d_filters


def _sum_lists(lists: Sequence[list[Tensor]]) -> list[Tensor]:
    """The sum of the first tensors of these lists, of the second, and so on; the first list is overwritten."""
    for other in lists[1:]:
        torch._foreach_add_(lists[0], other)  # pyright: ignore[reportPrivateImportUsage]
    return lists[0]


@torch.library.custom_op("elmokit::convolve_and_pool", mutates_args=())
def best(characters_UTE: Tensor, weight_wEK: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of each channel, and the position where it was first found; `_Pooled` has gradients."""
    characters_UTE, weight_wEK = characters_UTE.contiguous(), weight_wEK.contiguous()
    num_words, num_columns, _ = characters_UTE.shape
    num_channels = weight_wEK.shape[2]
    best_UK = characters_UTE.new_empty(num_words, num_channels)
    place_UK = characters_UTE.new_empty(num_words, num_channels, dtype=torch.uint8)
    tile = _tile(weight_wEK)
    grid = (triton.cdiv(num_words, WORDS), triton.cdiv(num_channels, tile["BK"]))
    with torch.cuda.device_of(characters_UTE):
        _pool_kernel[grid](
            characters_UTE, weight_wEK, best_UK, place_UK, num_words, num_columns, num_channels, **tile, num_warps=8
        )
    return best_UK, place_UK


@best.register_fake
def _(characters_UTE, weight_wEK):
    best_UK = characters_UTE.new_empty(characters_UTE.shape[0], weight_wEK.shape[2])
    return best_UK, torch.empty_like(best_UK, dtype=torch.uint8)


@torch.library.custom_op("elmokit::convolve_and_pool_backward", mutates_args=())
def best_backward(
    d_best_UK: Tensor, characters_UTE: Tensor, weight_wEK: Tensor, place_UK: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the characters and of the filter."""
    characters_UTE, weight_wEK = characters_UTE.contiguous(), weight_wEK.contiguous()
    num_words, num_columns, _ = characters_UTE.shape
    num_channels = weight_wEK.shape[2]
    d_best_UK = d_best_UK.contiguous()
    # Each split sums its part of the words; the splits are summed in a fixed order, so a step is reproducible.
    splits = min(SPLITS, triton.cdiv(num_words, WORDS))
    d_characters = torch.empty_like(characters_UTE)
    d_weights = weight_wEK.new_empty(splits, *weight_wEK.shape, dtype=torch.float32)
    sizes = (num_words, num_columns, num_channels)
    tile = _tile(weight_wEK)
    with torch.cuda.device_of(characters_UTE):
        back = tile | {"BU": WORDS_BACK, "BK": min(CHANNELS_BACK, tile["BK"])}
        back["Q"] = max(16, triton.next_power_of_2(tile["E"]))
        _characters_kernel[(triton.cdiv(num_words, WORDS_BACK), num_columns)](
            weight_wEK, place_UK, d_best_UK, d_characters, *sizes, **back, num_warps=4
        )
        _weights_kernel[(triton.cdiv(num_channels, tile["BK"]), splits)](
            characters_UTE, place_UK, d_best_UK, d_weights, *sizes, splits, **tile, num_warps=8
        )
    return d_characters, d_weights.sum(0).to(weight_wEK.dtype)


@best_backward.register_fake
def _(d_best_UK, characters_UTE, weight_wEK, place_UK):
    del d_best_UK, place_UK
    contiguous = torch.contiguous_format
    return tuple(torch.empty_like(part, memory_format=contiguous) for part in (characters_UTE, weight_wEK))


def _tile(weight_wEK: Tensor) -> dict[str, Any]:
    width, dim, channels = weight_wEK.shape
    precise = weight_wEK.dtype == torch.float32
    return {
        "W": width,
        "E": dim,
        "Q": max(16, triton.next_power_of_2(width * dim)),
        "BU": WORDS,
        "BK": max(16, min(FLOAT32_CHANNELS if precise else CHANNELS, triton.next_power_of_2(channels))),
        "PRECISE": precise,
    }


@triton.jit
def _dot(a, b, PRECISE: tl.constexpr):
    if PRECISE:
        return tl.dot(a, b, input_precision="ieee")
    else:
        return tl.dot(a, b)


@triton.jit
def _pool_kernel(
    characters, weight, best, place, num_words, num_columns, num_channels,
    W: tl.constexpr, E: tl.constexpr, Q: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    # Where a program's words begin is counted in 64 bits; places within them fit into 32.
    first = tl.program_id(0).to(tl.int64) * BU
    characters += first * num_columns * E
    u = tl.arange(0, BU)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    q = tl.arange(0, Q)
    exists = (first + u < num_words)[:, None]
    inside = exists & (q < W * E)[None, :]
    used = (q < W * E)[:, None] & (k < num_channels)[None, :]
    weight_QK = tl.load(weight + q[:, None] * num_channels + k[None, :], mask=used, other=0.0)
    best_UK = tl.full((BU, BK), float("-inf"), tl.float32)
    place_UK = tl.zeros((BU, BK), tl.int32)
    for position in range(0, num_columns - W + 1):
        window_UQ = tl.load(characters + (u[:, None] * num_columns + position) * E + q[None, :], mask=inside, other=0.0)
        value_UK = _dot(window_UQ, weight_QK, PRECISE)
        wins_UK = (value_UK > best_UK) | (value_UK != value_UK)  # a NaN stays, as with torch
        place_UK = tl.where(wins_UK, position, place_UK)
        best_UK = tl.where(wins_UK, value_UK, best_UK)
    best += first * num_channels
    place += first * num_channels
    where = u[:, None] * num_channels + k[None, :]
    valid = exists & (k < num_channels)[None, :]
    tl.store(best + where, best_UK.to(best.dtype.element_ty), mask=valid)
    tl.store(place + where, place_UK.to(tl.uint8), mask=valid)


@triton.jit
def _characters_kernel(
    weight, place, d_best, d_characters, num_words, num_columns, num_channels,
    W: tl.constexpr, E: tl.constexpr, Q: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * BU
    column = tl.program_id(1)
    place += first * num_channels
    d_best += first * num_channels
    u = tl.arange(0, BU)
    e = tl.arange(0, Q)
    exists = (first + u < num_words)[:, None]
    d_UE = tl.zeros((BU, Q), tl.float32)
    for block in range(0, num_channels, BK):
        k = block + tl.arange(0, BK)
        valid = exists & (k < num_channels)[None, :]
        where = u[:, None] * num_channels + k[None, :]
        place_UK = tl.load(place + where, mask=valid, other=255).to(tl.int32)
        d_UK = tl.load(d_best + where, mask=valid, other=0.0)
        used = (e < E)[None, :] & (k < num_channels)[:, None]
        for step in tl.static_range(W):  # as the step-th character of a window that won
            won_UK = tl.where(place_UK + step == column, d_UK, 0.0).to(weight.dtype.element_ty)
            taps = weight + (step * E + e)[None, :] * num_channels + k[:, None]
            d_UE += _dot(won_UK, tl.load(taps, mask=used, other=0.0), PRECISE)
    address = d_characters + (first + u[:, None]) * num_columns * E + column * E + e[None, :]
    tl.store(address, d_UE.to(d_characters.dtype.element_ty), mask=exists & (e < E)[None, :])


@triton.jit
def _weights_kernel(
    characters, place, d_best, d_weight, num_words, num_columns, num_channels, splits,
    W: tl.constexpr, E: tl.constexpr, Q: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    q = tl.arange(0, Q)
    d_weight_QK = tl.zeros((Q, BK), tl.float32)
    u = tl.arange(0, BU)
    for first in range(tl.program_id(1).to(tl.int64) * BU, num_words, splits * BU):
        exists = first + u < num_words
        valid = exists[:, None] & (k < num_channels)[None, :]
        where = u[:, None] * num_channels + k[None, :]
        place_UK = tl.load(place + first * num_channels + where, mask=valid, other=255).to(tl.int32)
        d_UK = tl.load(d_best + first * num_channels + where, mask=valid, other=0.0)
        inside = exists[None, :] & (q < W * E)[:, None]
        words = characters + first * num_columns * E
        for position in range(0, num_columns - W + 1):
            window_QU = tl.load(words + (u[None, :] * num_columns + position) * E + q[:, None], mask=inside, other=0.0)
            won_UK = tl.where(place_UK == position, d_UK, 0.0).to(characters.dtype.element_ty)
            d_weight_QK += _dot(window_QU, won_UK, PRECISE)
    where = (tl.program_id(1) * W * E + q[:, None]) * num_channels + k[None, :]
    tl.store(d_weight + where, d_weight_QK, mask=(q < W * E)[:, None] & (k < num_channels)[None, :])
