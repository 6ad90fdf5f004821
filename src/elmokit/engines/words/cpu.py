"""Words encoded by the C++ kernels, for inference: equal to the reference within 1e-5 in float32, near it in int8.

Convolutions are sums of table rows: a filter of width w becomes w tables with a row per symbol, the matmul of the
symbol's vector with the filter at that offset. What `char_cnn.cpp` adds up is laid out and remembered here. An alphabet
so large that the tables would pass `choice.TABLE_BYTES` is convolved by torch. Highways and the projection are matmuls
with packed weights.

Shapes: N words, C columns of ids, S symbols with "no word" before them, E character width, K channels, w filter width,
F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_long, c_void_p
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.config import Activation
from elmokit.engines.choice import fits_tables
from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.linear import apply_highway, apply_linear
from elmokit.engines.cpp.packing import Packed, Storage, remember
from elmokit.engines.cpp.threads import num_threads
from elmokit.nn.operations import EncoderWeights, Linear, Precision, Request
from elmokit.nn.word_encoder import REFERENCE, Steps, join
from elmokit.nn.word_encoder import encode as encode_by_steps

__all__ = ["encode", "encode_in_int8"]

_RECTIFIES = {"relu": 1, "tanh": 0}  # all the activations that `char_cnn.cpp` has


def encode(weights: EncoderWeights, blocks: Sequence[Tensor], *, trim: bool = True) -> Tensor:
    """Vectors (N, P) of the words in these blocks of ids."""
    return _encode(weights, blocks, trim, "float32")


def encode_in_int8(weights: EncoderWeights, blocks: Sequence[Tensor], *, trim: bool = True) -> Tensor:
    """The same with int8 matmuls in highways and projection."""
    return _encode(weights, blocks, trim, "int8")


def _encode(weights: EncoderWeights, blocks: Sequence[Tensor], trim: bool, precision: Precision) -> Tensor:
    highway, linear = partial(apply_highway, precision=precision), partial(apply_linear, precision=precision)
    return encode_by_steps(weights, blocks, trim=trim, steps=Steps(_convolve, highway, linear))


def _convolve(weights: EncoderWeights, blocks: Sequence[Tensor], trim: bool) -> Tensor:
    assert weights.symbols_SE is not None
    filters = tuple((weight_KEw.shape[2], len(weight_KEw)) for weight_KEw, _ in weights.filters)
    widest = max(width for width, _ in filters)
    symbols = {"num_symbols": len(weights.symbols_SE), "filters": filters}
    request = Request("words", weights.symbols_SE.device, weights.symbols_SE.dtype, **symbols)
    if any(block.shape[1] < widest for block in blocks) or not fits_tables(request):
        return REFERENCE.convolve(weights, blocks, trim)
    return join([_sum_tables(block, weights.symbols_SE, weights.filters, weights.activation) for block in blocks])


def _sum_tables(ids_NC: Tensor, symbols_SE: Tensor, filters: Sequence[Linear], activation: Activation) -> Tensor:
    """Features (N, F) of words, filter after filter: the largest sums, activated."""
    ids_NC = ids_NC.to(torch.int64).contiguous()
    owners = [symbols_SE, *(weight for weight, _ in filters)]
    tables = remember(owners, "float32", lambda: _make_tables(symbols_SE, filters))
    biases = [bias_K.contiguous() for _, bias_K in filters]
    num_features = sum(weight.shape[0] for weight, _ in filters)
    features_NF = torch.empty(len(ids_NC), num_features)
    not_found = library().elmokit_char_features(
        ids_NC.data_ptr(),
        *ids_NC.shape,
        len(symbols_SE) + 1,
        len(filters),
        (c_void_p * len(tables))(*(table.memory.data_ptr() for table in tables)),
        (c_void_p * len(biases))(*(bias_K.data_ptr() for bias_K in biases)),
        (c_long * len(filters))(*(weight.shape[2] for weight, _ in filters)),
        (c_long * len(filters))(*(weight.shape[0] for weight, _ in filters)),
        _RECTIFIES[activation],
        features_NF.data_ptr(),
        num_threads(),
    )
    if not_found:
        raise IndexError(f"character ids from {ids_NC.amin()} to {ids_NC.amax()}, expected 0 to {len(symbols_SE)}")
    return features_NF


def _make_tables(symbols_SE: Tensor, filters: Sequence[Linear]) -> tuple[Packed, ...]:
    """One table per filter, [block of channels][offset][symbol][channel]."""
    block = library().elmokit_char_block()
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        symbols_SE = F.pad(symbols_SE.detach(), (0, 0, 1, 0))
        return tuple(_make_table(symbols_SE, weight.detach(), block) for weight, _ in filters)


def _make_table(symbols_SE: Tensor, weight_KEw: Tensor, block: int) -> Packed:
    num_channels, _, width = weight_KEw.shape
    padded = F.pad(weight_KEw, (0, 0, 0, 0, 0, -num_channels % block))
    sums = torch.einsum("se,kew->wsk", symbols_SE, padded)
    table = sums.unflatten(2, (-1, block)).permute(2, 0, 1, 3).contiguous()
    return Packed(table, Storage.FLOATS, width, num_channels, 1)
