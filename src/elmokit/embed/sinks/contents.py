"""What an output holds, the same for every row: which layers, how wide, how stored."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Contents"]


@dataclass(frozen=True)
class Contents:
    """The shape of an output.

    Arguments:
        dim: width of a vector.
        dtype: `"float16"` or `"float32"`.
        num_layers: layers of each word, `None` when each word has one vector (everything but `layers="all"`).
        split: whether a row is a sentence of a line and not a whole line.
        metadata: what made it, as plain strings.
    """

    dim: int
    dtype: str
    num_layers: int | None = None
    split: bool = False
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the vectors of a row where each layer has its own: `vectors`, or `layer_0`, `layer_1` and so on."""
        return ["vectors"] if self.num_layers is None else [f"layer_{number}" for number in range(self.num_layers)]

    @property
    def word_shape(self) -> tuple[int, ...]:
        """Shape of what one word has: (dim,) or (layers, dim)."""
        return (self.dim,) if self.num_layers is None else (self.num_layers, self.dim)

    def column(self, vectors: np.ndarray, number: int) -> np.ndarray:
        """The vectors (words, dim) of one column out of those of a part."""
        return vectors if self.num_layers is None else vectors[:, number]
