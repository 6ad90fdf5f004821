"""How the learning rate moves during a run: pure functions from "how far are we" to a multiplier.

`done` counts what has been done when an update is made, this update included; steps or words, as long as `total` and
`warmup` count the same. A run that is resumed asks the same question and gets the same answer: there is no state.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from elmokit.errors import ConfigError

__all__ = ["Decay", "rate_at", "slanted_triangular"]

Decay = Literal["cosine", "linear", "constant", "inverse_sqrt", "slanted"]


def rate_at(
    done: float, *, decay: Decay, total: float, warmup: float = 0, floor: float = 0.0, hold: float = 0.0
) -> float:
    """The multiplier of the learning rate: up to 1 during the warm-up, then down to `floor`.

    Arguments:
        done: steps or words done, this update included.
        decay: `"cosine"`, `"linear"`, `"constant"` (never falls), `"inverse_sqrt"` (falls with the root of `done`), or
            `"slanted"`, ULMFiT's triangle, which has its own warm-up.
        total: where the decay ends.
        warmup: where the linear rise ends.
        floor: the multiplier below which it never falls after the warm-up.
        hold: share of the way after the warm-up that stays at 1 before a cosine or linear decay begins.

    Example:
        >>> [rate_at(step, decay="linear", warmup=2, total=6, floor=0.1) for step in (1, 2, 4, 6, 9)]
        [0.5, 1.0, 0.55, 0.1, 0.1]
    """
    if decay not in get_args(Decay):
        raise ConfigError(f"decay is {decay!r}: use one of {', '.join(get_args(Decay))}")
    if decay == "slanted":
        return max(floor, slanted_triangular(done, total))
    if done < warmup:
        return done / warmup
    if decay == "constant":
        return 1.0
    if decay == "inverse_sqrt":
        return max(floor, math.sqrt(max(warmup, 1) / max(done, warmup, 1)))
    way = (done - warmup) / (total - warmup) if total > warmup else 1.0
    way = min(1.0, max(0.0, (way - hold) / (1 - hold) if hold < 1 else 0.0))
    left = (1 + math.cos(math.pi * way)) / 2 if decay == "cosine" else 1 - way
    return floor + (1 - floor) * left


def slanted_triangular(done: float, total: float, *, peak: float = 0.1, ratio: float = 32) -> float:
    """ULMFiT's triangle (Howard & Ruder 2018): from 1/ratio up to 1 at the share `peak` of the way, and down again."""
    top = peak * total
    height = done / top if done < top else 1 - min(1.0, (done - top) / (total - top))
    return (1 + height * (ratio - 1)) / ratio
