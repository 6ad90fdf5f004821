"""The arithmetic of a model: what a word costs at least, from its sizes alone, and how fast a machine can be then.

A config and rates of the machine (`rates.py`) arrive; words a second leave, that no program which does this work can
pass. Two bounds hold: every product must be multiplied, and the recurrent weights must be read once a step, for all
sentences of the batch together; the lower one counts. Computing each distinct word once, or leaving out columns that
no character needs, is less work than counted here: a program that does may pass "everything computed".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from elmokit.config import ElmoConfig

__all__ = ["Work", "floors", "work_of"]

BYTES = {"float32": 4, "int8": 1}


class Work(NamedTuple):
    """What one word costs: operations (a multiplication and an addition are two) and weights read a step.

    Arguments:
        encoder: operations of the characters, at all columns, and their projection.
        lstm: operations of both stacks.
        step_weights: recurrent and projection weights of all layers and directions, which each step reads.
    """

    encoder: int
    lstm: int
    step_weights: int


def work_of(config: ElmoConfig) -> Work:
    """The work of one word.

    Example:
        >>> work = work_of(ElmoConfig.original())
        >>> round(work.lstm / 1e6), round(work.encoder / 1e6)
        (151, 53)
    """
    characters, lstm = config.characters, config.lstm
    encoder = 0
    if characters is not None:
        columns, width = characters.max_length, characters.num_features
        encoder += sum(2 * (columns - w + 1) * w * characters.dim * k for w, k in characters.filters)
        encoder += characters.num_highways * 2 * 2 * width * width
    if config.projects_words:
        encoder += 2 * config.num_word_features * lstm.projection_dim
    inputs = lstm.projection_dim * 4 * lstm.cell_dim
    recurrent = inputs + (lstm.cell_dim * lstm.projection_dim if lstm.has_projection else 0)
    stacks = 2 * lstm.num_layers
    return Work(encoder, stacks * 2 * (inputs + recurrent), stacks * recurrent)


def floors(config: ElmoConfig, rates: dict[str, Any], batch_size: int) -> dict[str, float]:
    """Words a second at best, by what is computed, for batches of so many sentences.

    Arguments:
        config: the model.
        rates: of `machine_rates`, with the bytes of this model's `step_weights` in float32 and int8 among those read.
        batch_size: sentences that share a step.
    """
    work, found = work_of(config), {}
    for precision, size in BYTES.items():
        rate = rates[precision]
        read = rates["read"].get(str(work.step_weights * size))
        if rate is None or read is None:
            continue
        reading = batch_size * read / (work.step_weights * size)
        found[f"{precision}, everything computed"] = min(rate / (work.encoder + work.lstm), reading)
        found[f"{precision}, words known"] = min(rate / work.lstm, reading)
    return found
