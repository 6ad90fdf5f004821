"""Attention between two sequences of words, as the task models use it; pure tensors, no text.

Two padded sequences with their masks arrive; for each word of the first leaves what it finds in the second. Padding
never gives nor takes weight, so a row's result does not depend on its company. Scores are computed without ever
spreading out all pairs of words over the features.

Shapes: B batch, W words of the first sequence, V words of the second, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["AttentionFlow", "SelfAttention", "TrilinearScores", "masked_softmax", "align_softly"]


class TrilinearScores(nn.Module):
    """Scores of all pairs: u·a + v·b + w·(a ⊙ b), with u, v and w learned (Seo et al. 2017).

    Arguments:
        dim: width of both sequences.

    Example:
        >>> TrilinearScores(8)(torch.ones(2, 5, 8), torch.ones(2, 3, 8)).shape
        torch.Size([2, 5, 3])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1, bias=False)
        self.second = nn.Linear(dim, 1, bias=False)
        self.product = nn.Parameter(torch.empty(dim))
        bound = (6 / (3 * dim + 1)) ** 0.5  # Xavier's, for a vector of all three parts
        for weight in (self.first.weight, self.second.weight, self.product):
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, first_BWD: Tensor, second_BVD: Tensor) -> Tensor:
        """The scores (B, W, V)."""
        scores_BWV = (first_BWD * self.product) @ second_BVD.transpose(1, 2)
        return scores_BWV + self.first(first_BWD) + self.second(second_BVD).transpose(1, 2)


class AttentionFlow(nn.Module):
    """A passage reads a question, and what matters of itself in its light (Seo et al. 2017; Clark and Gardner 2018).

    A word h of the passage finds a in the question; q sums up the passage, each word weighted by its best score.
    The word leaves as [h; a; h ⊙ a; q ⊙ a], four times as wide.

    Arguments:
        dim: width of both sequences.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = TrilinearScores(dim)

    def forward(self, passage_BWD: Tensor, question_BVD: Tensor, passage_BW: Tensor, question_BV: Tensor) -> Tensor:
        """The passage after reading (B, W, 4D); `passage_BW` and `question_BV` say which words are real."""
        scores_BWV = self.scores(passage_BWD, question_BVD)
        found_BWD = masked_softmax(scores_BWV, question_BV.unsqueeze(1)) @ question_BVD
        best_BW = scores_BWV.masked_fill(~question_BV.unsqueeze(1), torch.finfo(scores_BWV.dtype).min).amax(2)
        summary_B1D = masked_softmax(best_BW, passage_BW).unsqueeze(1) @ passage_BWD
        return torch.cat([passage_BWD, found_BWD, passage_BWD * found_BWD, summary_B1D * found_BWD], dim=2)


class SelfAttention(nn.Module):
    """A passage reads itself, each word all others but not itself (Clark and Gardner 2018).

    A word h finds c and leaves as [h; c; h ⊙ c], three times as wide; a passage of one word finds nothing, zeros.

    Arguments:
        dim: width of the passage.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = TrilinearScores(dim)

    def forward(self, passage_BWD: Tensor, passage_BW: Tensor) -> Tensor:
        """The passage after reading itself (B, W, 3D)."""
        itself_WW = torch.eye(passage_BWD.shape[1], dtype=torch.bool, device=passage_BWD.device)
        others_BWW = passage_BW.unsqueeze(1) & ~itself_WW
        found_BWD = masked_softmax(self.scores(passage_BWD, passage_BWD), others_BWW) @ passage_BWD
        return torch.cat([passage_BWD, found_BWD, passage_BWD * found_BWD], dim=2)


def align_softly(first_BWD: Tensor, second_BVD: Tensor, first_BW: Tensor, second_BV: Tensor) -> tuple[Tensor, Tensor]:
    """What each word finds in the other sequence by plain dot products: (B, W, D) and (B, V, D) (Chen et al. 2017).

    Example:
        >>> words, every = torch.eye(2).unsqueeze(0) * 100, torch.ones(1, 2, dtype=torch.bool)
        >>> align_softly(words, words.flip(1), every, every)[0].tolist()  # each finds its like
        [[[100.0, 0.0], [0.0, 100.0]]]
    """
    scores_BWV = first_BWD @ second_BVD.transpose(1, 2)
    for_first_BWD = masked_softmax(scores_BWV, second_BV.unsqueeze(1)) @ second_BVD
    for_second_BVD = masked_softmax(scores_BWV.transpose(1, 2), first_BW.unsqueeze(1)) @ first_BWD
    return for_first_BWD, for_second_BVD


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension among what the mask allows; zeros where it allows nothing."""
    # The least finite number, not -inf: a row without any choice must not turn into nan.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask
