"""Words encoded by the C++ kernels, for inference: equal to the reference within 1e-5 in float32, near it in int8.

Convolutions are sums of table rows: a filter of width w becomes w tables with a row per symbol, the matmul of the
symbol's vector with the filter at that offset. What `char_cnn.cpp` adds up is laid out and remembered here. An alphabet
so large that the tables would pass `choice.TABLE_BYTES` is convolved by torch. Highways and the projection are matmuls
with packed weights. A model without a word table goes through all of them in one call, because Python between kernels
is slow: it is no longer in the caches.

Shapes: N words, C columns of ids, S symbols with "no word" before them, E character width, K channels, w filter width,
F features.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines.choice import fits_tables
from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.linear import Map, apply_highway, apply_linear, pack_highway, pack_linear
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


class _Filter(ctypes.Structure):
    """`Filter` of `char_cnn.cpp`."""

    _fields_ = [("table", ctypes.c_void_p), ("width", ctypes.c_long), ("channels", ctypes.c_long)]


class _Stages(NamedTuple):
    """What one call of the C++ goes through, and the memory that it points to."""

    filters: ctypes.Array[_Filter]
    maps: ctypes.Array[Map]
    widest: int  # filter: a word must have as many columns
    output_dim: int
    memory: list[Packed]


def _encode(weights: EncoderWeights, blocks: Sequence[Tensor], trim: bool, precision: Precision) -> Tensor:
    convolve = partial(_convolve, precision=precision)
    if weights.words_VE is None and weights.symbols_SE is not None:
        stages = remember(weights.tensors(), precision, lambda: _lay_out(weights, precision))
        if stages is not None and all(block.shape[1] >= stages.widest for block in blocks):
            return join([_run(stages, block, weights) for block in blocks])
        convolve = REFERENCE.convolve
    highway, linear = partial(apply_highway, precision=precision), partial(apply_linear, precision=precision)
    return encode_by_steps(weights, blocks, trim=trim, steps=Steps(convolve, highway, linear))


def _convolve(weights: EncoderWeights, blocks: Sequence[Tensor], trim: bool, *, precision: Precision) -> Tensor:
    """The features of the characters alone, which a model with a word table puts beside those of the words."""
    alone = EncoderWeights(symbols_SE=weights.symbols_SE, filters=weights.filters, activation=weights.activation)
    return _encode(alone, blocks, trim, precision)


def _run(stages: _Stages, ids_NC: Tensor, weights: EncoderWeights) -> Tensor:
    """The vectors (N, P) of a block of words."""
    assert weights.symbols_SE is not None
    num_symbols = weights.symbols_SE.shape[0]
    ids_NC = ids_NC.to(torch.int64).contiguous()
    outputs_NP = torch.empty(ids_NC.shape[0], stages.output_dim)
    not_found = library().elmokit_encode_words(
        ids_NC.data_ptr(), *ids_NC.shape, num_symbols + 1, stages.filters, len(stages.filters),
        _RECTIFIES[weights.activation], stages.maps, len(stages.maps), outputs_NP.data_ptr(), num_threads(),
    )  # fmt: skip
    if not_found:
        raise IndexError(f"character ids from {ids_NC.amin()} to {ids_NC.amax()}, expected 0 to {num_symbols}")
    return outputs_NP


def _lay_out(weights: EncoderWeights, precision: Precision) -> _Stages | None:
    """The weights of a model without a word table; `None` if its tables would be too large."""
    symbols_SE, filters = weights.symbols_SE, weights.filters
    assert symbols_SE is not None
    owners = [symbols_SE, *(part for linear in filters for part in linear)]
    tables = remember(owners, "float32", lambda: _make_tables(symbols_SE, filters))
    if not tables:
        return None
    maps = [pack_highway(*each, precision=precision) for each in weights.highways]
    if weights.projection is not None:
        maps.append(pack_linear(*weights.projection, precision=precision))
    entries = [(table.memory.data_ptr(), table.inner, table.columns) for table in tables]
    return _Stages(
        (_Filter * len(tables))(*entries),
        (Map * len(maps))(*map(Map.of, maps)),
        widest=max(table.inner for table in tables),
        output_dim=maps[-1].columns if maps else sum(table.columns for table in tables),
        memory=[*tables, *maps],
    )


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
