"""Characters of words → features, without products: what `char_cnn.cpp` adds up is laid out and remembered here.

Arrives: ids (N, C), the table of character vectors, the filters. Leaves: features (N, F), activation applied. A filter
of width w becomes w tables with a row a symbol: the product of the symbol's vector with the filter at that offset.
For the published models they are 13 MB; an alphabet so large that they would pass `MOST_BYTES` is left to torch.

Shapes: N words, C columns of ids, S symbols with "no word" before them, E character width, K channels, w filter width,
F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_long, c_void_p

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines.kernels.cpu.building import library
from elmokit.engines.kernels.cpu.packing import Packed, can_run, remembered
from elmokit.engines.kernels.cpu.threads import num_threads

__all__ = ["MOST_BYTES", "Filter", "character_features", "has_tables"]

MOST_BYTES = 64 * 2**20

Filter = tuple[Tensor, Tensor]  # weight (K, E, w) and bias (K)


def has_tables(embedding_SE: Tensor, filters: Sequence[Filter]) -> bool:
    """Whether words can go through tables: on a CPU, in float32, without gradients, tables not too large."""
    if not can_run(embedding_SE, *(tensor for pair in filters for tensor in pair)):
        return False
    block = library().elmokit_char_block()
    rows = sum(-(-weight.shape[0] // block) * block * weight.shape[2] for weight, _ in filters)
    return 4 * rows * (len(embedding_SE) + 1) <= MOST_BYTES


def character_features(ids_NC: Tensor, embedding_SE: Tensor, filters: Sequence[Filter], *, rectifies: bool) -> Tensor:
    """Features (N, F) of words, filter after filter: maxima rectified, or their tanh; only where `has_tables`."""
    ids_NC = ids_NC.to(torch.int64).contiguous()
    assert all(weight.shape[2] <= ids_NC.shape[1] for weight, _ in filters), "a filter is wider than the words"
    owners = [embedding_SE, *(weight for weight, _ in filters)]
    tables = remembered(owners, "float32", lambda: _tables(embedding_SE, filters))
    biases = [bias_K.contiguous() for _, bias_K in filters]
    num_features = sum(weight.shape[0] for weight, _ in filters)
    features_NF = torch.empty(len(ids_NC), num_features)
    not_found = library().elmokit_char_features(
        ids_NC.data_ptr(),
        *ids_NC.shape,
        len(embedding_SE) + 1,
        len(filters),
        (c_void_p * len(tables))(*(table.memory.data_ptr() for table in tables)),
        (c_void_p * len(biases))(*(bias_K.data_ptr() for bias_K in biases)),
        (c_long * len(filters))(*(weight.shape[2] for weight, _ in filters)),
        (c_long * len(filters))(*(weight.shape[0] for weight, _ in filters)),
        int(rectifies),
        features_NF.data_ptr(),
        num_threads(),
    )
    if not_found:
        raise IndexError(f"character ids from {ids_NC.amin()} to {ids_NC.amax()}, expected 0 to {len(embedding_SE)}")
    return features_NF


def _tables(embedding_SE: Tensor, filters: Sequence[Filter]) -> tuple[Packed, ...]:
    """One table a filter, [block of channels][offset][symbol][channel]."""
    block = library().elmokit_char_block()
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        symbols_SE = F.pad(embedding_SE.detach(), (0, 0, 1, 0))
        return tuple(_table(symbols_SE, weight.detach(), block) for weight, _ in filters)


def _table(symbols_SE: Tensor, weight_KEw: Tensor, block: int) -> Packed:
    num_channels, _, width = weight_KEw.shape
    padded = F.pad(weight_KEw, (0, 0, 0, 0, 0, -num_channels % block))
    sums = torch.einsum("se,kew->wsk", symbols_SE, padded)
    table = sums.unflatten(2, (-1, block)).permute(2, 0, 1, 3).contiguous()
    return Packed(table, False, width, num_channels, 1)
