"""What the parity tests share: our model run as the originals are run, and the largest difference from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from elmokit import Elmo
from elmokit.nn.bilm import BilmState

__all__ = ["DATA", "TOLERANCE", "largest_difference", "read_rows"]

DATA = Path(__file__).parent / "data"
# Absolute. The originals and the float64 reference differ by less than 2e-6 on these models.
TOLERANCE = 1e-5


@torch.no_grad()
def read_rows(
    elmo: Elmo, sentences: Sequence[Sequence[str]], state: BilmState | None = None
) -> tuple[list[np.ndarray], BilmState]:
    """Layers (L + 1, words, D) of each sentence, and the state after them.

    Row r of the state goes to sentence r; rows are added when there are too few, and those that are not used are kept.
    """
    count = len(sentences)
    out = elmo(elmo.word_ids(sentences), None if state is None else state.resize(count))
    after = out.state
    if state is not None and state.num_rows > count:
        parts = zip(after, state, strict=True)
        after = BilmState(*(torch.cat([new, old[:, :, count:]], dim=2) for new, old in parts))
    assert not out.layers[:, ~out.mask].any(), "positions without a word should be zero"
    return [layers[:, mask].numpy() for layers, mask in zip(out.layers.unbind(1), out.mask, strict=True)], after


def largest_difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Over all sentences; their shapes must be equal."""
    assert [array.shape for array in ours] == [array.shape for array in theirs]
    pairs = zip(ours, theirs, strict=True)
    return max((float(np.abs(our - their).max(initial=0)) for our, their in pairs), default=0.0)
