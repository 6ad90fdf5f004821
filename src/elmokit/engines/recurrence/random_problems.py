"""Random recurrences, on which engines are compared with the reference and timed: for tests and benchmarks.

Shapes as in `nn/operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from elmokit.nn.operations import LayerState, LstmpWeights, Recurrence

__all__ = ["draw_recurrence", "list_tensors", "map_tensors"]


def draw_recurrence(
    seed: int,
    *,
    num_words: int,
    num_rows: int,
    input_dim: int,
    cell_dim: int,
    output_dim: int,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> Recurrence:
    """A recurrence of normal numbers, the same for the same seed; without a projection if cell and output are as wide.

    At scale 1 a matmul with the weights leaves the variance as it was.

    Example:
        >>> draw_recurrence(0, num_words=6, num_rows=2, input_dim=3, cell_dim=5, output_dim=4).inputs_ND.shape
        torch.Size([6, 3])
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, size: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype) * size

    projection = None if cell_dim == output_dim else draw(cell_dim, output_dim, size=scale * cell_dim**-0.5)
    weights = LstmpWeights(
        draw(input_dim, 4 * cell_dim, size=scale * input_dim**-0.5),
        draw(output_dim, 4 * cell_dim, size=scale * output_dim**-0.5),
        draw(4 * cell_dim),
        projection,
    )
    state = LayerState(draw(num_rows, output_dim), draw(num_rows, cell_dim))
    return Recurrence(draw(num_words, input_dim), weights, state)


def list_tensors(recurrence: Recurrence) -> list[Tensor]:
    """All tensors of a recurrence: inputs, weights, state."""
    parts = (recurrence.inputs_ND, *recurrence.weights, *recurrence.state)
    return [part for part in parts if part is not None]


def map_tensors(recurrence: Recurrence, function: Callable[[Tensor], Tensor]) -> Recurrence:
    """The recurrence with each of its tensors replaced by what the function makes of it."""
    inputs_ND, weights, state = recurrence
    changed = [None if part is None else function(part) for part in weights]
    return Recurrence(function(inputs_ND), LstmpWeights(*changed), LayerState(*map(function, state)))  # pyright: ignore[reportArgumentType]
