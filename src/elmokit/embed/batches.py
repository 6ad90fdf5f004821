"""One batch of tokenised sentences becomes arrays: encoded, read in both directions, the layers asked for taken out.

Arrives: sentences of words (one may be without any), a choice of layers, the state that each row starts from. Leaves:
one float32 array per sentence, (W, D) or (K, W, D) for all layers, and the state after each row.

Shapes: K layers asked for, T positions of a batch with boundaries, P width of a direction, D = 2P.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from elmokit.devices import is_out_of_memory
from elmokit.embed.layers import Layers, choose_layers
from elmokit.errors import EngineError
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState
from elmokit.nn.packing import BoundedText, join_directions
from elmokit.reading.cache import Token
from elmokit.reading.encoder import TextEncoder

__all__ = ["ReadRows", "Result", "Row", "embed_sentences", "read_in_halves", "read_layers"]

Row = TypeVar("Row")
Result = TypeVar("Result")
ReadRows = Callable[[Sequence[Row], BilmState | None], tuple[list[Result], BilmState]]


def embed_sentences(
    encoder: TextEncoder,
    layers: Layers,
    sentences: Sequence[Sequence[Token]],
    state: BilmState | None,
    *,
    keeps_state: bool,
) -> tuple[list[np.ndarray], BilmState]:
    """The arrays of the sentences of a batch, and the state after each of them (see `read_layers`)."""
    text = encoder.encode(sentences)
    joined, after = read_layers(encoder.elmo, text, layers, state, keeps_state=keeps_state)
    chosen = [layer_TD.cpu().numpy() for layer_TD in joined]
    # Copies, so that keeping one sentence does not keep its whole batch in memory.
    spans = zip((text.starts_B + 1).tolist(), (text.starts_B + text.lengths_B - 1).tolist(), strict=True)
    if layers == "all":
        return [np.stack([layer_TD[start:end] for layer_TD in chosen]) for start, end in spans], after
    return [chosen[0][start:end].copy() for start, end in spans], after


def read_layers(
    elmo: Elmo, text: BoundedText, layers: Layers, state: BilmState | None, *, keeps_state: bool
) -> tuple[list[Tensor], BilmState]:
    """The layers asked for, each (T, D) in float32 on the model's device, and the state after each sentence.

    Where nobody keeps that state, each direction stops at its last word: what it would make of the boundary behind it
    is no vector of a word.
    """
    reading = elmo.bilm.read(text, state=state, for_prediction=not keeps_state)
    # Layers are chosen while each direction lies apart: what nobody asked for is never put together.
    mix = elmo.stored_mix if layers == "mix" else None
    halves = [choose_layers(half, layers, mix=mix) for half in zip(*reading.layers, strict=True)]
    joined = [join_directions(pair, reading.positions_2N, len(text.words_T)) for pair in zip(*halves, strict=True)]
    return joined, reading.state


def read_in_halves(
    encoder: TextEncoder,
    read: ReadRows[Row, Result],
    rows: Sequence[Row],
    state: BilmState | None,
    *,
    count_words: Callable[[Row], int],
) -> tuple[list[Result], BilmState]:
    """What `read` makes of these rows, and the state after them.

    What the memory does not hold is done in two halves; rows do not see each other, so both agree.

    Arguments:
        encoder: of the model that reads.
        read: takes rows and the state before them.
        rows: at least one.
        state: before each of them; `None` for zeros.
        count_words: how many words a row has, for the message about one that is too long.
    """
    try:
        with encoder.spare_threads(), torch.inference_mode():
            return read(rows, state)
    except (MemoryError, RuntimeError) as problem:
        if not is_out_of_memory(problem):
            raise
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    device = encoder.elmo.device
    # Only here, past the `except`, are the tensors of the failed attempt free.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if len(rows) == 1:
        raise EngineError(
            f"out of memory on {device} with a single sentence of {count_words(rows[0])} words ({reason}): "
            "split the sentence, or compute where there is more memory"
        )
    half = len(rows) // 2
    first, second = (None, None) if state is None else state.split(half)
    first_results, first_after = read_in_halves(encoder, read, rows[:half], first, count_words=count_words)
    second_results, second_after = read_in_halves(encoder, read, rows[half:], second, count_words=count_words)
    return first_results + second_results, first_after.join(second_after)
