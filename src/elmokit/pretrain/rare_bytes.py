"""Bytes that the training text hardly has: their embeddings keep a random size while those of the letters shrink.

After a long run they can be 20 times as long as a letter's, and one such byte, of an emoji or of another script, drowns
everything else that a word says. A model is saved with calm ones: no word without such a byte changes. Where runs are
shorter, the letters have shrunk less; then a byte that no word of the vocabulary has need not be so much longer.

Shapes: S rows of the table of characters, E their width.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["calm_rare_bytes"]

NUM_BYTES = 256
LETTERS = range(ord("a"), ord("z") + 1)
LEADS = range(0xC2, 0xF0)  # begin a character of two or three bytes
LARGER, MUCH_LARGER = 1.5, 6  # times the length of the letters' embeddings: for bytes that no word has, and for any


def calm_rare_bytes(table_SE: Tensor, words: Iterable[str]) -> Tensor:
    """The table with rows that are too long replaced by the mean of the other leading bytes.

    Arguments:
        table_SE: the embeddings.
        words: the vocabulary.
    """
    lengths_S, seen = table_SE.float().norm(dim=1), set("".join(words).encode())
    limits_S = torch.tensor([MUCH_LARGER if byte in seen else LARGER for byte in range(len(table_SE))])
    is_rare_S = lengths_S > limits_S * lengths_S[list(LETTERS)].median()
    is_rare_S[NUM_BYTES:] = False  # what begins and ends words and sentences is in every text
    others = [byte for byte in LEADS if not is_rare_S[byte]] or list(LETTERS)
    mean_E = table_SE[others].float().mean(dim=0).to(table_SE.dtype)
    return torch.where(is_rare_S.unsqueeze(1), mean_E, table_SE)
