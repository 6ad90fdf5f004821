"""A linear-chain CRF: the score of a sequence of labels is a sum over its words and over its pairs of neighbours.

Scores of each word's labels arrive; the loss of whole sequences, or the best of them, leaves. Which label may follow
which is known beforehand: what is forbidden costs more than any path can gain. A word is one step for the whole batch,
and nothing is fetched from a GPU before the last one, so neither learning nor decoding waits for it in between.

Shapes: B sequences, W words, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Crf", "viterbi"]

FORBIDDEN = -10_000.0  # no path through the labels can gain this much elsewhere


class Crf(nn.Module):
    """Learned scores of neighbouring labels, and of labels at the ends.

    Arguments:
        may_start_K: whether a label may come first.
        may_follow_KK: whether the second label may follow the first.
        may_end_K: whether a label may come last.

    Example:
        >>> crf = Crf(torch.tensor([True, False]), torch.ones(2, 2, dtype=torch.bool), torch.tensor([True, True]))
        >>> crf.decode(torch.tensor([[[0.0, 50.0], [0.0, 50.0]]]), [2])
        [[0, 1]]
    """

    def __init__(self, may_start_K: Tensor, may_follow_KK: Tensor, may_end_K: Tensor) -> None:
        super().__init__()
        for name, allowed in (("start", may_start_K), ("follow", may_follow_KK), ("end", may_end_K)):
            self.register_parameter(name, nn.Parameter(torch.empty(allowed.shape).uniform_(-0.1, 0.1)))
            self.register_buffer(f"bars_{name}", ~allowed, persistent=False)

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of a first label (K), of a label after another (K, K) and of a last one (K), what is forbidden included."""
        start_K, follow_KK, end_K = (
            getattr(self, name).masked_fill(getattr(self, f"bars_{name}"), FORBIDDEN)
            for name in ("start", "follow", "end")
        )
        return start_K, follow_KK, end_K

    def loss(self, logits_BWK: Tensor, gold_BW: Tensor, mask_BW: Tensor) -> Tensor:
        """The sum over sequences of -log P(gold labels); every sequence has a word at least."""
        start_K, follow_KK, end_K = self.scores()
        last_B1 = mask_BW.sum(1, keepdim=True) - 1
        of_words_BW = logits_BWK.gather(2, gold_BW.unsqueeze(2)).squeeze(2)
        of_words_BW = of_words_BW + nn.functional.pad(follow_KK[gold_BW[:, :-1], gold_BW[:, 1:]], (1, 0))
        gold = (of_words_BW * mask_BW).sum() + start_K[gold_BW[:, 0]].sum() + end_K[gold_BW.gather(1, last_B1)].sum()
        # Taken apart at once: a word's part of the gradient is then put in place, not added to a whole tensor.
        first_BK, *others = logits_BWK.unbind(1)
        total_BK = start_K + first_BK
        for logits_BK, is_word_B in zip(others, mask_BW.unbind(1)[1:], strict=True):
            arriving_BK = (total_BK.unsqueeze(2) + follow_KK).logsumexp(1) + logits_BK
            total_BK = torch.where(is_word_B.unsqueeze(1), arriving_BK, total_BK)
        return (total_BK + end_K).logsumexp(1).sum() - gold

    def decode(self, logits_BWK: Tensor, lengths: Sequence[int]) -> list[list[int]]:
        """The best labels of each sequence."""
        return viterbi(logits_BWK, lengths, *self.scores())


def viterbi(
    scores_BWK: Tensor, lengths: Sequence[int], start_K: Tensor, follow_KK: Tensor, end_K: Tensor | None = None
) -> list[list[int]]:
    """The sequences of labels with the highest sum of scores; -inf bars what may not be.

    Arguments:
        scores_BWK: of each label of each word.
        lengths: words of each sequence, at least one.
        start_K: of a first label.
        follow_KK: of the second label after the first.
        end_K: of a last label, nothing if not given.

    Example:
        >>> bars = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])  # 1 never follows 0
        >>> viterbi(torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]), [2], torch.zeros(2), bars)
        [[0, 0]]
    """
    best_BK = scores_BWK[:, 0] + start_K
    bests, origins = [best_BK], []
    for place in range(1, max(lengths)):
        arriving_BK, origin_BK = (best_BK.unsqueeze(2) + follow_KK).max(1)
        best_BK = arriving_BK + scores_BWK[:, place]
        bests.append(best_BK)
        origins.append(origin_BK)
    bests_WBK = torch.stack(bests) if end_K is None else torch.stack(bests) + end_K
    lasts_WB = bests_WBK.argmax(2).cpu()
    origins_WBK = torch.stack(origins).cpu() if origins else None
    # Backwards over all sequences at once: each begins at its own last word.
    lengths_B = torch.tensor(lengths)
    labels_WB = torch.zeros_like(lasts_WB)
    for place in range(len(lasts_WB) - 1, -1, -1):
        label_B = lasts_WB[place]
        if origins_WBK is not None and place < len(origins_WBK):
            before_B = origins_WBK[place].gather(1, labels_WB[place + 1].unsqueeze(1)).squeeze(1)
            label_B = torch.where(lengths_B - 1 > place, before_B, label_B)
        labels_WB[place] = label_B
    rows = labels_WB.T.tolist()
    return [row[:length] for row, length in zip(rows, lengths, strict=True)]
