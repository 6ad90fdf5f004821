"""Convolution over characters and maximum over the word in one kernel: what lies between never reaches memory.

Written plainly, a convolution of 1024 channels writes every position of every word, and the maximum reads it all
back; with gradients, several times over. Here a program keeps a running maximum in registers and stores only that and
its position. A window of w characters is w * E numbers in a row of memory, so each position is one small matrix
product, and going back only the winning positions are left in it.

Shapes: U words, T columns, E character width, w filter width, Q = w * E rounded up to a power of two, K channels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["convolve_and_pool"]

WORDS, CHANNELS, SPLITS = 64, 128, 40
WORDS_BACK = 16  # of a program that goes back to the characters: few words, so that there are programs enough


def convolve_and_pool(characters_UTE: Tensor, weight_KEw: Tensor, bias_K: Tensor) -> Tensor:
    """The largest value (U, K) of each channel over all positions of a word, bias added.

    Arguments:
        characters_UTE: character vectors of U words.
        weight_KEw: a filter in `nn.Conv1d`'s layout.
        bias_K: its bias.
    """
    weight_wEK = weight_KEw.permute(2, 1, 0).contiguous()
    return _ConvolveAndPool.apply(characters_UTE.contiguous(), weight_wEK) + bias_K  # type: ignore[operator]


class _ConvolveAndPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, characters_UTE: Tensor, weight_wEK: Tensor):  # noqa: ANN001, ANN205
        num_words, num_columns, _ = characters_UTE.shape
        num_channels = weight_wEK.shape[2]
        best_UK = torch.empty(num_words, num_channels, dtype=characters_UTE.dtype, device=characters_UTE.device)
        place_UK = torch.empty(num_words, num_channels, dtype=torch.uint8, device=characters_UTE.device)
        tile = _tile(weight_wEK)
        grid = (triton.cdiv(num_words, WORDS), triton.cdiv(num_channels, tile["BK"]))
        _forward_kernel[grid](
            characters_UTE, weight_wEK, best_UK, place_UK, num_words, num_columns, num_channels, **tile, num_warps=8
        )
        ctx.save_for_backward(characters_UTE, weight_wEK, place_UK)
        return best_UK

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_best_UK: Tensor):  # noqa: ANN001, ANN205
        characters_UTE, weight_wEK, place_UK = ctx.saved_tensors
        num_words, num_columns, _ = characters_UTE.shape
        num_channels = weight_wEK.shape[2]
        d_best_UK = d_best_UK.contiguous()
        d_characters = torch.zeros_like(characters_UTE, dtype=torch.float32)
        tile = _tile(weight_wEK)
        back = tile | {"BU": WORDS_BACK}
        _characters_kernel[(triton.cdiv(num_words, WORDS_BACK),)](
            weight_wEK, place_UK, d_best_UK, d_characters, num_words, num_columns, num_channels, **back, num_warps=4
        )
        # Each split sums its share of the words; the splits are summed in a fixed order, so a step is reproducible.
        splits = min(SPLITS, triton.cdiv(num_words, WORDS))
        d_weights = torch.empty(splits, *weight_wEK.shape, dtype=torch.float32, device=weight_wEK.device)
        grid = (triton.cdiv(num_channels, tile["BK"]), splits)
        _weights_kernel[grid](
            characters_UTE, place_UK, d_best_UK, d_weights, num_words, num_columns, num_channels, splits, **tile, num_warps=8
        )
        return d_characters.to(characters_UTE.dtype), d_weights.sum(0).to(weight_wEK.dtype)


def _tile(weight_wEK: Tensor) -> dict[str, object]:
    width, dim, channels = weight_wEK.shape
    return {
        "W": width,
        "E": dim,
        "Q": max(16, triton.next_power_of_2(width * dim)),
        "BU": WORDS,
        "BK": max(16, min(CHANNELS, triton.next_power_of_2(channels))),
        "PRECISE": weight_wEK.dtype == torch.float32,
    }


@triton.jit
def _dot(a, b, PRECISE: tl.constexpr):
    if PRECISE:
        return tl.dot(a, b, input_precision="ieee")
    else:
        return tl.dot(a, b)


@triton.jit
def _forward_kernel(
    characters, weight, best, place, num_words, num_columns, num_channels,
    W: tl.constexpr, E: tl.constexpr, Q: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    u = tl.program_id(0) * BU + tl.arange(0, BU)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    q = tl.arange(0, Q)
    inside = (u < num_words)[:, None] & (q < W * E)[None, :]
    weight_QK = tl.load(
        weight + q[:, None] * num_channels + k[None, :], mask=(q < W * E)[:, None] & (k < num_channels)[None, :], other=0.0
    )
    best_UK = tl.full((BU, BK), float("-inf"), tl.float32)
    place_UK = tl.zeros((BU, BK), tl.int32)
    for position in range(0, num_columns - W + 1):
        window_UQ = tl.load(characters + (u[:, None] * num_columns + position) * E + q[None, :], mask=inside, other=0.0)
        value_UK = _dot(window_UQ, weight_QK, PRECISE)
        place_UK = tl.where(value_UK > best_UK, position, place_UK)
        best_UK = tl.maximum(best_UK, value_UK)
    where = u[:, None] * num_channels + k[None, :]
    valid = (u < num_words)[:, None] & (k < num_channels)[None, :]
    tl.store(best + where, best_UK.to(best.dtype.element_ty), mask=valid)
    tl.store(place + where, place_UK.to(tl.uint8), mask=valid)


@triton.jit
def _characters_kernel(
    weight, place, d_best, d_characters, num_words, num_columns, num_channels,
    W: tl.constexpr, E: tl.constexpr, Q: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    u = tl.program_id(0) * BU + tl.arange(0, BU)
    q = tl.arange(0, Q)
    inside = (u < num_words)[:, None] & (q < W * E)[None, :]
    for position in range(0, num_columns - W + 1):
        d_window_UQ = tl.zeros((BU, Q), tl.float32)
        for block in range(0, num_channels, BK):
            k = block + tl.arange(0, BK)
            valid = (u < num_words)[:, None] & (k < num_channels)[None, :]
            where = u[:, None] * num_channels + k[None, :]
            won_UK = tl.load(place + where, mask=valid, other=255).to(tl.int32) == position
            d_UK = tl.where(won_UK, tl.load(d_best + where, mask=valid, other=0.0), 0.0).to(weight.dtype.element_ty)
            weight_KQ = tl.load(
                weight + q[None, :] * num_channels + k[:, None],
                mask=(q < W * E)[None, :] & (k < num_channels)[:, None], other=0.0,
            )  # fmt: skip
            d_window_UQ += _dot(d_UK, weight_KQ, PRECISE)
        # Windows overlap, but this program alone owns these words: the next position waits for this one.
        address = d_characters + (u[:, None] * num_columns + position) * E + q[None, :]
        tl.store(address, tl.load(address, mask=inside, other=0.0) + d_window_UQ, mask=inside)
        tl.debug_barrier()


@triton.jit
def _weights_kernel(
    characters, place, d_best, d_weight, num_words, num_columns, num_channels, splits,
    W: tl.constexpr, E: tl.constexpr, Q: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    q = tl.arange(0, Q)
    d_weight_QK = tl.zeros((Q, BK), tl.float32)
    for block in range(tl.program_id(1) * BU, num_words, splits * BU):
        u = block + tl.arange(0, BU)
        valid = (u < num_words)[:, None] & (k < num_channels)[None, :]
        where = u[:, None] * num_channels + k[None, :]
        place_UK = tl.load(place + where, mask=valid, other=255).to(tl.int32)
        d_UK = tl.load(d_best + where, mask=valid, other=0.0)
        inside = (u < num_words)[None, :] & (q < W * E)[:, None]
        for position in range(0, num_columns - W + 1):
            window_QU = tl.load(characters + (u[None, :] * num_columns + position) * E + q[:, None], mask=inside, other=0.0)
            won_UK = tl.where(place_UK == position, d_UK, 0.0).to(characters.dtype.element_ty)
            d_weight_QK += _dot(window_QU, won_UK, PRECISE)
    where = (tl.program_id(1) * W * E + q[:, None]) * num_channels + k[None, :]
    tl.store(d_weight + where, d_weight_QK, mask=(q < W * E)[:, None] & (k < num_channels)[None, :])
