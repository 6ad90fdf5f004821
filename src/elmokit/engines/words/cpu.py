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
    symbols_SE, filters = weights.symbols_SE, weights.filters
    assert symbols_SE is not None
    owners = [symbols_SE, *(part for linear in filters for part in linear)]
    tables = remember(owners, "float32", lambda: _make_tables(symbols_SE, filters))
    widest = max((table.inner for table in tables), default=0)
    if not tables or any(block.shape[1] < widest for block in blocks):
        return REFERENCE.convolve(weights, blocks, trim)
    return join([_sum_tables(block, tables, symbols_SE.shape[0], weights.activation) for block in blocks])


def _sum_tables(ids_NC: Tensor, tables: Sequence[Packed], num_symbols: int, activation: Activation) -> Tensor:
    """Features (N, F) of words, filter after filter: the largest sums, activated."""
    ids_NC = ids_NC.to(torch.int64).contiguous()
    channels = [table.columns for table in tables]
    features_NF = torch.empty(ids_NC.shape[0], sum(channels))
    not_found = library().elmokit_char_features(
        ids_NC.data_ptr(),
        *ids_NC.shape,
        num_symbols + 1,
        len(tables),
        (c_void_p * len(tables))(*[table.memory.data_ptr() for table in tables]),
        (c_long * len(tables))(*[table.inner for table in tables]),
        (c_long * len(tables))(*channels),
        _RECTIFIES[activation],
        features_NF.data_ptr(),
        num_threads(),
    )
    if not_found:
        raise IndexError(f"character ids from {ids_NC.amin()} to {ids_NC.amax()}, expected 0 to {num_symbols}")
    return features_NF


def _make_tables(symbols_SE: Tensor, filters: Sequence[Linear]) -> tuple[Packed, ...]:
    """One table per filter, [block of channels][offset][symbol][channel], and its bias behind it; none if too large."""
    sizes = tuple((weight_KEw.shape[2], weight_KEw.shape[0]) for weight_KEw, _ in filters)
    shapes = {"num_symbols": symbols_SE.shape[0], "filters": sizes}
    if not fits_tables(Request("words", symbols_SE.device, symbols_SE.dtype, **shapes)):
        return ()
    block = library().elmokit_char_block()
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        symbols_SE = F.pad(symbols_SE.detach(), (0, 0, 1, 0))
        return tuple(_make_table(symbols_SE, weight.detach(), bias.detach(), block) for weight, bias in filters)


def _make_table(symbols_SE: Tensor, weight_KEw: Tensor, bias_K: Tensor, block: int) -> Packed:
    num_channels, _, width = weight_KEw.shape
    missing = -num_channels % block
    sums = torch.einsum("se,kew->wsk", symbols_SE, F.pad(weight_KEw, (0, 0, 0, 0, 0, missing)))
    table = sums.unflatten(2, (-1, block)).permute(2, 0, 1, 3)
    memory = torch.cat([table.flatten(), F.pad(bias_K, (0, missing))])
    return Packed(memory, Storage.FLOATS, width, num_channels, 1)
