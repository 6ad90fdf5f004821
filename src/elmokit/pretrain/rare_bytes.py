"""Bytes that the training text hardly has: their embeddings keep a random size while those of the letters shrink.

After a long run they can be 20 times as long as a letter's, and one such byte, of an emoji or of another script, drowns
everything else that a word says. A model is saved with calm ones: no word without such a byte changes.

Shapes: S rows of the table of characters, E their width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["calm_rare_bytes"]

NUM_BYTES = 256
LETTERS = range(ord("a"), ord("z") + 1)
LEADS = range(0xC2, 0xF0)  # begin a character of two or three bytes
MUCH_LARGER = 6  # times the length of the letters' embeddings


def calm_rare_bytes(table_SE: Tensor) -> Tensor:
    """The table with rows that are much longer than the letters' replaced by the mean of the other leading bytes."""
    lengths_S = table_SE.float().norm(dim=1)
    is_rare_S = lengths_S > MUCH_LARGER * lengths_S[list(LETTERS)].median()
    is_rare_S[NUM_BYTES:] = False  # what begins and ends words and sentences is in every text
    others = [byte for byte in LEADS if not is_rare_S[byte]] or list(LETTERS)
    mean_E = table_SE[others].float().mean(dim=0).to(table_SE.dtype)
    return torch.where(is_rare_S.unsqueeze(1), mean_E, table_SE)
