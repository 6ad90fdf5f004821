"""One batch of tokenised sentences becomes arrays: encoded, read in both directions, the layers asked for taken out.

Arrives: sentences of words (one may be without any), a choice of layers, the state that each row starts from. Leaves:
one float32 array per sentence, (W, D) or (K, W, D) for all layers, and the state after each row.

Shapes: K layers asked for, N words of a batch with boundaries, P width of a direction, D = 2P.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from elmokit.devices import is_out_of_memory
from elmokit.embed.layers import Layers, choose_layers
from elmokit.errors import EngineError
from elmokit.nn.bilm import BilmState
from elmokit.nn.packing import join_directions
from elmokit.reading.cache import Token
from elmokit.reading.encoder import TextEncoder

__all__ = ["embed_batch"]


def embed_batch(
    encoder: TextEncoder, sentences: Sequence[Sequence[Token]], layers: Layers, state: BilmState | None
) -> tuple[list[np.ndarray], BilmState]:
    """The arrays of a batch and the state after each of its rows.

    What the memory does not hold is done in two halves; rows do not see each other, so both agree.
    """
    try:
        with encoder.spare_threads():
            return _read(encoder, sentences, layers, state)
    except (MemoryError, RuntimeError) as problem:
        if not is_out_of_memory(problem):
            raise
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    device = encoder.elmo.device
    # Only here, past the `except`, are the tensors of the failed attempt free.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if len(sentences) == 1:
        raise EngineError(
            f"out of memory on {device} with a single sentence of {len(sentences[0])} words ({reason}): "
            "split the sentence, or compute where there is more memory"
        )
    half = len(sentences) // 2
    first, second = (None, None) if state is None else state.split(half)
    first_arrays, first_after = embed_batch(encoder, sentences[:half], layers, first)
    second_arrays, second_after = embed_batch(encoder, sentences[half:], layers, second)
    return first_arrays + second_arrays, first_after.join(second_after)


@torch.inference_mode()
def _read(
    encoder: TextEncoder, sentences: Sequence[Sequence[Token]], layers: Layers, state: BilmState | None
) -> tuple[list[np.ndarray], BilmState]:
    text = encoder.encode(sentences)
    reading = encoder.elmo.bilm.read(text, state=state)
    # Layers are chosen while each direction lies apart: what nobody asked for is never put together.
    mix = encoder.elmo.stored_mix if layers == "mix" else None
    halves = [choose_layers(half, layers, mix=mix) for half in zip(*reading.layers, strict=True)]
    chosen = [
        join_directions(pair, reading.positions_2N, len(text.words_T)).cpu().numpy()
        for pair in zip(*halves, strict=True)
    ]
    # Copies, so that keeping one sentence does not keep its whole batch in memory.
    spans = zip((text.starts_B + 1).tolist(), (text.starts_B + text.lengths_B - 1).tolist(), strict=True)
    if layers == "all":
        return [np.stack([layer_ND[start:end] for layer_ND in chosen]) for start, end in spans], reading.state
    return [chosen[0][start:end].copy() for start, end in spans], reading.state
