"""Full batches of sentences read by recorded passes: hundreds of launches that cost the host one.

On a GPU a step of the recurrence is a few launches, and those of a model of few cells take the host longer than the
device: without recordings it is the host that bounds such a model. A recording (CUDA graph) repeats launches with the
same shapes and the same places in memory. So sentences are padded to one of a few widths, a batch has as many rows as
the token budget allows for its width, and what a pass reads and makes lies in memory that stays. Rows do not see each
other, and a row has read all its words before its padding, so vectors are what they are without. Batches that are not
full are read as usual; which ones these are depends on the segment alone.

Arrives: a text of exactly so many rows. Leaves: the layers asked for at its words. The first full batch has all widths
recorded. Where that fails, it is said once, and everything is read as usual.

Shapes: B rows, W width (steps), N = W · B, n words without boundaries, P width of a direction, D = 2P.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.devices import move_to_device, record_launches
from elmokit.embed.layers import Layers, choose_layers
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState
from elmokit.nn.packing import NUM_BOUNDARIES, BoundedText, join_ranges

__all__ = ["RecordedReader"]

log = logging.getLogger(__name__)

# With boundaries. Finer steps would pad less and record more.
WIDTHS = np.array([8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128])
MOST_CELLS = 1024  # of a layer: larger ones keep the device busy, and padding would only cost them time


class _Recording(NamedTuple):
    """A recorded pass and the memory that it reads and fills."""

    replay: Callable[[], None]
    inputs_2NP: Tensor
    outputs: list[Tensor]  # (2, N, P) of each layer asked for
    state: BilmState


class RecordedReader:
    """Reads full batches from the same state.

    Arguments:
        elmo: the model, which must stay where it is.
        layers: those asked for.
        start: the state of one row that every sentence starts from; `None` for zeros.
        budget: words of a batch, boundaries and padding counted.
    """

    def __init__(self, elmo: Elmo, layers: Layers, start: BilmState | None, budget: int) -> None:
        self._elmo, self._layers, self._start, self._budget = elmo, layers, start, budget
        self._weight = next(elmo.bilm.parameters())
        self._pool = torch.cuda.graph_pool_handle() if elmo.device.type == "cuda" else None
        self._memory: list[Tensor] = []  # of inputs and of each output, for the largest batch; all recordings share it
        self._recordings: dict[int, _Recording] = {}
        self._has_failed = False

    @classmethod
    def suits(cls, elmo: Elmo) -> bool:
        """Whether the passes of this model are worth recording."""
        return elmo.device.type == "cuda" and elmo.config.lstm.cell_dim <= MOST_CELLS

    @staticmethod
    def round_up(lengths_R: np.ndarray) -> np.ndarray:
        """The widths to which sentences of these lengths, boundaries included, are padded; the longest to none.

        Example:
            >>> RecordedReader.round_up(np.array([3, 12, 13, 500])).tolist()
            [8, 12, 16, 500]
        """
        padded_R = WIDTHS[np.searchsorted(WIDTHS, lengths_R).clip(max=len(WIDTHS) - 1)]
        return np.maximum(padded_R, lengths_R)

    def takes(self, lengths_B: np.ndarray) -> bool:
        """Whether sentences of these lengths, boundaries included, are a full batch of a recorded width."""
        width = int(self.round_up(lengths_B.max(keepdims=True))[0])
        return not self._has_failed and width <= WIDTHS[-1] and len(lengths_B) == self._budget // width

    def read(self, text: BoundedText) -> list[Tensor] | None:
        """Each layer asked for (n, D) of the words of such a batch; `None` where the pass cannot be recorded."""
        width = int(self.round_up(text.lengths_B.max(keepdims=True))[0])
        num_rows, device = len(text.lengths_B), self._elmo.device
        if not self._recordings and not self._try_to_record():
            return None
        recording = self._recordings[width]
        words_2N = move_to_device(_find_words(text, width), device)
        vectors_UP = text.vectors_UP.to(self._weight.dtype)
        torch.index_select(vectors_UP, 0, words_2N.flatten(), out=recording.inputs_2NP.flatten(0, 1))
        recording.replay()
        # The words of each row without its boundaries: where forward, and where backward stood when it had read them.
        counts_B = text.lengths_B - NUM_BOUNDARIES
        rows_n, steps_n = np.arange(num_rows).repeat(counts_B), join_ranges(np.ones_like(counts_B), counts_B)
        back_n = text.lengths_B.repeat(counts_B) - 1 - steps_n
        places_2n = move_to_device(np.stack([steps_n, back_n]) * num_rows + rows_n, device)
        return [
            torch.cat([half_NP[places_n] for half_NP, places_n in zip(output_2NP, places_2n, strict=True)], dim=1)
            for output_2NP in recording.outputs
        ]

    def _try_to_record(self) -> bool:
        """Record the passes of all widths, together: each recording lets the device run out of work."""
        try:
            self._recordings = {width: self._record(width, self._budget // width) for width in WIDTHS.tolist()}
        except RuntimeError as problem:
            self._has_failed = True
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            log.warning("passes cannot be recorded (%s): each launch is made by the host, which takes longer", reason)
        return not self._has_failed

    def _record(self, width: int, num_rows: int) -> _Recording:
        bilm, weight = self._elmo.bilm, self._weight
        mix = self._elmo.stored_mix if self._layers == "mix" else None
        num_outputs = self._elmo.config.num_layers if self._layers == "all" else 1
        size = 2 * self._budget * bilm.config.projection_dim
        if not self._memory:
            self._memory = [
                weight.new_empty(size),
                *(weight.new_empty(size, dtype=torch.float32) for _ in range(num_outputs)),
            ]
        shape = 2, width * num_rows, bilm.config.projection_dim
        inputs_2NP, *outputs = (memory[: np.prod(shape)].view(shape) for memory in self._memory)
        state = BilmState.zeros(bilm.config, num_rows, like=inputs_2NP)
        if self._start is not None:
            for part, first in zip(state, self._start.repeat(num_rows), strict=True):
                part.copy_(first)

        def run() -> None:
            words = list(inputs_2NP)
            with torch.autocast(weight.device.type, enabled=False):
                layers, _ = bilm.read_packed(words, [num_rows] * width, state)
            for direction in range(2):
                halves = choose_layers([pair[direction] for pair in [words, *layers]], self._layers, mix=mix)
                for output_2NP, half_NP in zip(outputs, halves, strict=True):
                    output_2NP[direction] = half_NP

        inputs_2NP.zero_()
        run()  # compiles and loads what must not be loaded while launches are recorded
        return _Recording(record_launches(run, self._pool), inputs_2NP, outputs, state)


def _find_words(text: BoundedText, width: int) -> np.ndarray:
    """The words (2, N) of the text in the order in which each direction reads them; the last one is read as padding."""
    steps_W1, last_B = np.arange(width)[:, None], text.lengths_B - 1
    places_2WB = np.stack([np.minimum(steps_W1, last_B), np.maximum(last_B - steps_W1, 0)]) + text.starts_B
    return text.words_T[places_2WB.reshape(2, -1)]
