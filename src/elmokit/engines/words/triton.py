"""Words encoded on a GPU: Triton kernels for what lies between the large matmuls, torch for these.

Kernels: `char_table.py` (the gradient of the character table), `char_cnn.py` (convolution and maximum in one),
`highway.py` (bias and relu; highways). Shapes that a kernel was not made for are left to the reference's step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines.words import char_cnn
from elmokit.engines.words.char_table import look_up
from elmokit.engines.words.highway import add_and_rectify, highway
from elmokit.nn.operations import EncoderWeights
from elmokit.nn.word_encoder import Steps, convolve_and_pool, look_up_characters
from elmokit.nn.word_encoder import encode as encode_by_steps

__all__ = ["encode"]


def encode(weights: EncoderWeights, blocks: Sequence[Tensor], *, trim: bool = True) -> Tensor:
    """Vectors (N, P) of the words in these blocks of ids."""
    return encode_by_steps(weights, blocks, trim=trim, steps=Steps(_convolve, highway, F.linear))


def _convolve(weights: EncoderWeights, blocks: Sequence[Tensor], trim: bool) -> Tensor:
    assert weights.symbols_SE is not None
    words = look_up_characters(weights, blocks, look_up if weights.symbols_SE.requires_grad else F.embedding, trim=trim)
    filters = [weight_KEw for weight_KEw, _ in weights.filters]
    pool = char_cnn.convolve_and_pool if char_cnn.fits(words, filters) else convolve_and_pool
    bias_F = torch.cat([bias_K for _, bias_K in weights.filters])
    if weights.activation == "relu":
        return add_and_rectify(pool(words, filters), bias_F)
    assert weights.activation == "tanh", f"expected relu or tanh, found {weights.activation}"
    return (pool(words, filters) + bias_F).tanh()
