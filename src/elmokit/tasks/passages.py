"""Sentences joined to the texts they come from: a biLM reads sentence by sentence, a task the whole passage.

The features of all sentences of some passages arrive, one sentence a row; the same features leave with one passage a
row. Places are worked out by numpy for the whole batch, and words move in a single gather.

Shapes: S sentences, W words of the longest sentence, B passages, T words of the longest passage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elmokit.tasks.inputs import WordBatch

__all__ = ["joined_sentences"]


def joined_sentences(words: WordBatch, counts: Sequence[int]) -> WordBatch:
    """The words of passages whose sentences follow each other in a batch.

    Arguments:
        words: of all sentences.
        counts: how many sentences each passage has.

    Example:
        >>> mask = torch.tensor([[True, True], [True, False], [True, True]])
        >>> words = WordBatch(torch.arange(6.0).reshape(3, 2, 1), None, mask, [2, 1, 2])
        >>> joined_sentences(words, [2, 1]).features_BWF.squeeze(2).tolist()
        [[0.0, 1.0, 2.0], [4.0, 5.0, 0.0]]
    """
    places_BT, lengths = _places(np.asarray(words.lengths), counts, words.mask_BW.shape[1])
    places = torch.from_numpy(places_BT).to(words.mask_BW.device)
    mask_BT = places >= 0

    def moved(features: Tensor) -> Tensor:
        rows = features.flatten(0, 1).index_select(0, places.clamp(min=0).flatten())
        return rows.view(*places.shape, -1) * mask_BT.unsqueeze(2)

    output = None if words.output_BWE is None else moved(words.output_BWE)
    return WordBatch(moved(words.features_BWF), output, mask_BT, lengths)


def _places(lengths_S: np.ndarray, counts: Sequence[int], width: int) -> tuple[np.ndarray, list[int]]:
    """Where each word of each passage stands among the S × W places, -1 for none; and the words of each passage."""
    passage_S = np.repeat(np.arange(len(counts)), counts)
    lengths_B = np.bincount(passage_S, weights=lengths_S, minlength=len(counts)).astype(np.int64)
    ends_S = np.cumsum(lengths_S)
    # Word n of all stands n minus the words of the sentences before it into its own sentence's row.
    shifts_S = np.arange(len(lengths_S)) * width - (ends_S - lengths_S)
    flat_N = np.arange(ends_S[-1] if len(ends_S) else 0) + np.repeat(shifts_S, lengths_S)
    places_BT = np.full((len(counts), max(1, int(lengths_B.max(initial=1)))), -1, np.int64)
    places_BT[np.arange(places_BT.shape[1]) < lengths_B[:, None]] = flat_N
    return places_BT, lengths_B.tolist()
