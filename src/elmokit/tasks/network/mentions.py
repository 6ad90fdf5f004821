"""The network of coreference: spans of a document become vectors, few of them mentions, and these find antecedents.

The words of a document in context arrive, all sentences one after the other; a vector for each span up to a width, a
score that it is a mention, and scores of pairs leave. Pure tensors, no text. After Lee et al. 2017 and 2018: a span is
known by its first word, its last word, a weighted sum of its words (its "head") and its width. All four enter through
one linear layer, which is computed for each word once and only then gathered, so spans cost no matmul.

Shapes: T words of a document, D width of a word, V widest span, S width of a span's vector, K spans that are kept, A
antecedents that are considered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["AntecedentScores", "SpanVectors", "link", "keep_best_spans", "find_spans"]

DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # where buckets of distances between mentions begin
RARE = -3.0  # the first score of a mention: few spans are one
STEEPEST = 10.0  # of the scores of head words: their exponentials can then be summed without a maximum


class SpanVectors(nn.Module):
    """A vector for each span of up to V words, and a score that it is a mention.

    Arguments:
        dim: D.
        span_dim: S.
        max_width: V.
        dropout: of the vectors.

    Example:
        >>> vectors, scores = SpanVectors(6, 4, max_width=3, dropout=0.1)(torch.zeros(5, 6))
        >>> vectors.shape, scores.shape
        (torch.Size([5, 3, 4]), torch.Size([5, 3]))
    """

    def __init__(self, dim: int, span_dim: int, *, max_width: int, dropout: float) -> None:
        super().__init__()
        self.max_width = max_width
        self.parts = nn.Linear(dim, 3 * span_dim)
        self.head = nn.Linear(dim, 1)
        self.width = nn.Embedding(max_width, span_dim)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Sequential(
            nn.Linear(span_dim, span_dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(span_dim, 1)
        )
        _begin(self)
        nn.init.constant_(self.score[-1].bias, RARE)  # pyright: ignore[reportArgumentType]

    def forward(self, words_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (T, V, S) and scores (T, V): row t and column v speak of the v + 1 words from t on."""
        first_TS, last_TS, inner_TS = self.parts(words_TD).chunk(3, dim=-1)
        weights_T = (self.head(words_TD).squeeze(-1) / STEEPEST).tanh().mul(STEEPEST).exp()
        weights_TV = self._windows(weights_T)
        heads_TVS = (weights_TV.unsqueeze(2) * self._windows(inner_TS)).cumsum(1)
        # Windows reach beyond the end, where weights are 0: the first word's keeps the sum above it.
        heads_TVS = heads_TVS / weights_TV.cumsum(1).unsqueeze(2)
        vectors_TVS = first_TS.unsqueeze(1) + self._windows(last_TS) + heads_TVS + self.width.weight
        vectors_TVS = self.dropout(vectors_TVS.relu())
        return vectors_TVS, self.score(vectors_TVS).squeeze(-1)

    def _windows(self, values_TS: Tensor) -> Tensor:
        """(T, V) or (T, V, S): what stands at t, t + 1, …; zeros beyond the end."""
        padding = [0, 0] * (values_TS.dim() - 1) + [0, self.max_width - 1]
        windows = functional.pad(values_TS, padding).unfold(0, self.max_width, 1)
        return windows if values_TS.dim() == 1 else windows.transpose(1, 2)


class AntecedentScores(nn.Module):
    """For each mention, scores of the likeliest mentions before it: coarse for all pairs, finer for the best of them.

    Arguments:
        span_dim: S.
        num_antecedents: A at most.
        dropout: inside the finer score.
    """

    def __init__(self, span_dim: int, *, num_antecedents: int, dropout: float) -> None:
        super().__init__()
        self.num_antecedents = num_antecedents
        self.coarse = nn.Linear(span_dim, span_dim, bias=False)
        self.mention = nn.Linear(span_dim, span_dim)
        self.antecedent = nn.Linear(span_dim, span_dim, bias=False)
        self.likeness = nn.Linear(span_dim, span_dim, bias=False)
        self.distance = nn.Embedding(len(DISTANCES), span_dim)
        self.score = nn.Sequential(
            nn.ReLU(), nn.Dropout(dropout), nn.Linear(span_dim, span_dim), nn.ReLU(), nn.Linear(span_dim, 1)
        )
        self.register_buffer("starts", torch.tensor(DISTANCES[1:]), persistent=False)
        _begin(self)

    def forward(self, spans_KS: Tensor, mention_scores_K: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (K, A) that a mention means the same as one before it, -inf where none is; and which ones (K, A)."""
        places_K = torch.arange(len(spans_KS), device=spans_KS.device)
        distances_KK = places_K.unsqueeze(1) - places_K
        scores_KK = self.coarse(spans_KS) @ spans_KS.T / spans_KS.shape[1] ** 0.5
        scores_KK = scores_KK + mention_scores_K.unsqueeze(1) + mention_scores_K
        scores_KK = scores_KK.masked_fill(distances_KK <= 0, -torch.inf)
        coarse_KA, best_KA = scores_KK.topk(min(self.num_antecedents, len(spans_KS)), dim=1)
        buckets_KA = torch.bucketize(distances_KK.gather(1, best_KA), self.starts, right=True)  # pyright: ignore
        pairs_KAS = (
            self.mention(spans_KS).unsqueeze(1)
            + self.antecedent(spans_KS)[best_KA]
            + self.likeness(spans_KS.unsqueeze(1) * spans_KS[best_KA])
            + self.distance(buckets_KA)
        )
        return coarse_KA + self.score(pairs_KAS).squeeze(-1), best_KA


def _begin(module: nn.Module) -> None:
    """First weights: what is added to words' parts (widths, distances) must not drown them."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.1)


def find_spans(lengths: Sequence[int], max_width: int) -> Tensor:
    """(T, V) true where a span ends in the sentence in which it begins.

    Example:
        >>> find_spans([2, 1], max_width=2).tolist()
        [[True, True], [True, False], [True, False]]
    """
    left_T = torch.cat([torch.arange(length, 0, -1) for length in lengths])
    return torch.arange(1, max_width + 1) <= left_T.unsqueeze(1)


def keep_best_spans(scores_TV: Tensor, is_span_TV: Tensor, count: int) -> list[tuple[int, int]]:
    """The best-scored spans (first word, last word) of which none crosses another, in the order of the text.

    Arguments:
        scores_TV: scores of spans by first word and width.
        is_span_TV: which of them there are.
        count: how many at most.
    """
    max_width = scores_TV.shape[1]
    order = scores_TV.masked_fill(~is_span_TV, -torch.inf).flatten().argsort(descending=True, stable=True)
    num_words = len(scores_TV)
    last_end = [-1] * num_words  # by first word, the last end of a kept span
    first_start = [num_words] * num_words  # by last word, the first start
    kept: list[tuple[int, int]] = []
    places: list[int] = order[: int(is_span_TV.sum())].tolist()
    for place in places:
        if len(kept) == count:
            break
        start, more = divmod(place, max_width)
        end = start + more
        crosses = more and (max(last_end[start + 1 : end + 1]) > end or min(first_start[start:end]) < start)
        if not crosses:
            kept.append((start, end))
            last_end[start] = max(end, last_end[start])
            first_start[end] = min(start, first_start[end])
    return sorted(kept)


def link(antecedents: Sequence[int | None]) -> list[list[int]]:
    """Clusters of mentions, from the mention before it that each one was linked to; single ones too.

    Example:
        >>> link([None, None, 0, 2])
        [[0, 2, 3], [1]]
    """
    clusters: list[list[int]] = []
    cluster_of: list[int] = []
    for mention, antecedent in enumerate(antecedents):
        if antecedent is None:
            cluster_of.append(len(clusters))
            clusters.append([])
        else:
            cluster_of.append(cluster_of[antecedent])
        clusters[cluster_of[mention]].append(mention)
    return clusters
