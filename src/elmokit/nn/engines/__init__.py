"""Engines: interchangeable ways to run one LSTM-with-projection layer over packed sentences.

`README.md` beside this file holds the contract. `best_for` chooses the engine of a device; the choice is a
pure function, so the same model on the same machine always takes the same path, and `elmo info` can show it.

Shapes: N packed words, B rows (sentences), D input width, H cell width, P output width.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from elmokit.errors import EngineError

__all__ = ["Choice", "Clips", "LayerState", "LstmpWeights", "Recurrence", "best_for", "engine_named"]


class LstmpWeights(NamedTuple):
    """The weights of one layer in one direction, used as `x @ W`; gates lie in the order i, j, f, o."""

    input_D4H: Tensor
    recurrent_P4H: Tensor
    bias_4H: Tensor  # the forget gate's +1 is already in it
    projection_HP: Tensor | None  # None: the output is the gated cell itself


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; `None` clips nothing."""

    cell: float | None
    projection: float | None


class LayerState(NamedTuple):
    """What a layer remembers of each row: its last output and its cell."""

    hidden_BP: Tensor
    cell_BH: Tensor


class Recurrence(NamedTuple):
    """One layer in one direction with everything it needs: words in the order in which it reads them."""

    inputs_ND: Tensor
    weights: LstmpWeights
    state: LayerState


ENGINES = ("cudnn", "packed", "reference", "triton")
Run = Callable[[Sequence[Recurrence], Sequence[int], Clips], list[tuple[Tensor, LayerState]]]


class Choice(NamedTuple):
    """An engine and why it was taken."""

    name: str
    reason: str

    def __str__(self) -> str:
        """The line that `elmo info` and the log show."""
        return f"engine={self.name} ({self.reason})"


def best_for(device: torch.device, dtype: torch.dtype, clips: Clips) -> Choice:
    """The fastest engine that is exact for this device, dtype and clipping."""
    name = str(dtype).removeprefix("torch.")
    clipped = clips.cell is not None or clips.projection is not None
    if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        return Choice("triton", f"{name} on cuda")
    if device.type == "cuda" and not clipped:
        return Choice("cudnn", f"{name} on cuda, nothing clipped; triton: not installed")
    if dtype == torch.float32:
        return Choice("packed", f"float32 on {device.type}" + (", cudnn: cannot clip" if device.type == "cuda" else ""))
    return Choice("reference", f"packed: proved for float32 only, found {name}")


def engine_named(name: str) -> Run:
    """The engine of that name; an unknown name is an `EngineError` that lists the known ones."""
    if name not in ENGINES:
        raise EngineError(f"no engine is called {name!r}: use one of {', '.join(ENGINES)}")
    return cast(Run, importlib.import_module(f"elmokit.nn.engines.{name}").run)
