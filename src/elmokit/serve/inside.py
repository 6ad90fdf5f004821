"""How a model reads one word, step by step, from its live weights: what the explorer draws.

Shapes: C columns of ids, E width of a character's vector, K channels of a filter of width w, F features.
"""

from __future__ import annotations

from typing import Any

import torch

from elmokit.model import Elmo
from elmokit.nn.word_encoder import REFERENCE, look_up_characters
from elmokit.serve.errors import RequestError
from elmokit.text.characters import BEGIN_WORD, END_WORD, PADDING

__all__ = ["trace_word"]

STRONGEST = 5  # channels of each filter width that are shown
MARKERS = {BEGIN_WORD: "begin", END_WORD: "end"}


@torch.inference_mode()
def trace_word(elmo: Elmo, word: str) -> dict[str, Any]:
    """The symbols of a word, the windows to which the filters answer most, and the widths it passes through."""
    characters = elmo.config.characters
    if characters is None:
        raise RequestError("this model reads words from a table: there is nothing inside to show")
    ids_1C = elmo.word_ids([[word]])[0]
    if elmo.config.words is not None:
        ids_1C = ids_1C[:, 1:]
    symbols = [int(number) - 1 for number in ids_1C[0]]
    weights = elmo.encoder.weights()
    vectors_1CE = look_up_characters(weights, [ids_1C.to(elmo.device)], torch.nn.functional.embedding, trim=False)[0]
    used = next((place for place, symbol in enumerate(symbols) if symbol == PADDING), len(symbols))
    filters = []
    for weight_KEw, bias_K in weights.filters:
        answers_KC = torch.nn.functional.conv1d(vectors_1CE.transpose(1, 2), weight_KEw)[0] + bias_K.unsqueeze(1)
        best_K, places_K = answers_KC.max(dim=1)
        strongest = best_K.topk(min(STRONGEST, len(best_K))).indices.tolist()
        filters.append(
            {
                "width": weight_KEw.shape[2],
                "channels": weight_KEw.shape[0],
                "strongest": [
                    {"channel": channel, "value": float(best_K[channel]), "begin": int(places_K[channel])}
                    for channel in strongest
                ],
            }
        )
    features_1F = REFERENCE.convolve(weights, [ids_1C.to(elmo.device)], True)
    opened = []
    for gate, transform in weights.highways:
        opened.append(float(torch.nn.functional.linear(features_1F, *gate).sigmoid().mean()))
        features_1F = REFERENCE.pass_highway(features_1F, gate, transform)
    lstm = elmo.config.lstm
    return {
        "scheme": characters.scheme,
        "symbols": [_show_symbol(symbol, characters.scheme) for symbol in symbols[:used]],
        "columns": len(symbols),
        "activation": characters.activation,
        "filters": filters,
        "highways": opened,
        "widths": {
            "character": vectors_1CE.shape[2],
            "features": features_1F.shape[1],
            "word": lstm.projection_dim,
            "cell": lstm.cell_dim,
            "direction": lstm.projection_dim,
            "vector": elmo.config.dim,
        },
        "lstm_layers": lstm.num_layers,
    }


def _show_symbol(symbol: int, scheme: str) -> dict[str, Any]:
    if scheme == "bytes" and symbol < 256:
        return {"id": symbol, "hex": f"{symbol:02x}", "text": chr(symbol) if 32 < symbol < 127 else ""}
    return {"id": symbol, "hex": "", "text": "", "marker": MARKERS.get(symbol, "")}
