"""All filters of a character encoder over all blocks of words, as one step for autograd; `char_cnn.py` computes each.

Going back, what comes to the characters from all filters, and to a filter from all blocks, is added in one launch for
many tensors; left to autograd it would be a launch for every pair.

Shapes: U words of a block, N of all blocks, T columns, E character width, w filter width, K channels, F of all filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.engines.kernels import char_cnn

__all__ = ["fits", "pooled"]


def fits(words: Sequence[Tensor], filters: Sequence[Tensor]) -> bool:
    """Whether the kernels are made for these blocks (U, T, E) and filters (K, E, w)."""
    return all(char_cnn.fits(characters_UTE, weight_KEw) for characters_UTE in words for weight_KEw in filters)


def pooled(words: Sequence[Tensor], filters: Sequence[Tensor]) -> Tensor:
    """The largest value (N, F) of each channel of each filter over all positions of a word.

    Arguments:
        words: blocks (U, T, E) of character vectors.
        filters: in `nn.Conv1d`'s layout (K, E, w), of the same dtype.
    """
    weights = [weight_KEw.permute(2, 1, 0).contiguous() for weight_KEw in filters]
    return cast(Tensor, _Pooled.apply(len(words), *words, *weights))


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, num_blocks: int, *tensors: Tensor) -> Tensor:  # noqa: ANN401
        words, filters = tensors[:num_blocks], tensors[num_blocks:]
        found = [[char_cnn.best(characters_UTE, weight_wEK) for weight_wEK in filters] for characters_UTE in words]
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
            [char_cnn.best_backward(d_best[f][b], words[b], filters[f], places[b][f]) for f in range(num_filters)]
            for b in range(ctx.num_blocks)
        ]
        d_words = _summed([[found[b][f][0] for b in range(ctx.num_blocks)] for f in range(num_filters)])
        d_filters = _summed([[found[b][f][1] for f in range(num_filters)] for b in range(ctx.num_blocks)])
        return None, *d_words, *d_filters


def _summed(lists: Sequence[list[Tensor]]) -> list[Tensor]:
    """The sum of the first tensors of these lists, of the second, and so on; the first list is overwritten."""
    for other in lists[1:]:
        torch._foreach_add_(lists[0], other)  # pyright: ignore[reportPrivateImportUsage]
    return lists[0]
