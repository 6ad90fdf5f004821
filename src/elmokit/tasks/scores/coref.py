"""Coreference scored as in CoNLL-2012: MUC, B³ and CEAF with φ4, and the mean of their F1.

Clusters of mentions arrive, gold and predicted, document by document; precision, recall and F1 leave. A mention is
anything hashable, here (first word, last word). Clusters are taken as they come: with clusters of one mention on either
side, B³ and CEAF count them (MUC cannot see them). Definitions as in Pradhan et al. 2014, "Scoring Coreference
Partitions of Predicted Mentions"; sums run over all documents before anything is divided.

Shapes: K gold clusters, R predicted ones.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np

__all__ = ["Clusters", "assign", "coreference_scores"]

Clusters = Sequence[Collection[Hashable]]


def coreference_scores(gold: Iterable[Clusters], predicted: Iterable[Clusters]) -> dict[str, float]:
    """MUC, B³ and CEAFφ4 with their precision and recall, and their mean `conll_f1`; from 0 to 1.

    Also `mentions_…`: whether the mentions were found at all, in whatever cluster.

    Arguments:
        gold: the clusters of each document.
        predicted: of as many documents, in the same order.

    Example:
        >>> scores = coreference_scores([[{"a", "b", "c"}, {"d", "e", "f", "g"}]], [[{"a", "b"}, {"c", "d"}]])
        >>> f"{scores['muc_recall']:.2f} {scores['b3_recall']:.2f}"
        '0.20 0.27'
    """
    measures = {"muc": _muc, "b3": _b_cubed, "ceaf": _ceaf, "mentions": _mentions}
    sums = {name: np.zeros(4) for name in measures}  # right and all of the gold side, right and all of the predicted
    for gold_clusters, predicted_clusters in zip(gold, predicted, strict=True):
        for name, measure in measures.items():
            sums[name] += measure(gold_clusters, predicted_clusters)
    scores: dict[str, float] = {}
    for name, (found, num_gold, right, num_predicted) in sums.items():
        recall = float(found / num_gold) if num_gold else 0.0
        precision = float(right / num_predicted) if num_predicted else 0.0
        both = precision + recall
        scores |= {f"{name}_precision": precision, f"{name}_recall": recall}
        scores[f"{name}_f1"] = 2 * precision * recall / both if both else 0.0
    scores["conll_f1"] = (scores["muc_f1"] + scores["b3_f1"] + scores["ceaf_f1"]) / 3
    return scores


def assign(gains_KR: np.ndarray) -> list[tuple[int, int]]:
    """The pairing of rows with columns, each at most once, whose gains add up to most (Kuhn 1955, Munkres 1957).

    Shortest augmenting paths with potentials, O(K² R); every row is paired where there are enough columns.

    Example:
        >>> assign(np.array([[2.0, 3.0], [0.0, 2.5]]))
        [(0, 0), (1, 1)]
    """
    if gains_KR.shape[0] > gains_KR.shape[1]:
        return sorted((row, column) for column, row in assign(gains_KR.T))
    num_rows, num_columns = gains_KR.shape
    costs = np.zeros((num_rows + 1, num_columns + 1))
    costs[1:, 1:] = -gains_KR
    row_potential, column_potential = np.zeros(num_rows + 1), np.zeros(num_columns + 1)
    row_of = np.zeros(num_columns + 1, dtype=np.int64)  # by column; row and column 0 stand for "none"
    for row in range(1, num_rows + 1):
        row_of[0], column = row, 0
        slack, came_from = np.full(num_columns + 1, np.inf), np.zeros(num_columns + 1, dtype=np.int64)
        is_free = np.ones(num_columns + 1, dtype=bool)
        while row_of[column]:
            is_free[column] = False
            here = row_of[column]
            reduced = costs[here] - row_potential[here] - column_potential
            is_better = is_free & (reduced < slack)
            slack[is_better], came_from[is_better] = reduced[is_better], column
            nearest = int(np.where(is_free, slack, np.inf).argmin())
            step = slack[nearest]
            row_potential[row_of[~is_free]] += step
            column_potential[~is_free] -= step
            slack[is_free] -= step
            column = nearest
        while column:
            row_of[column] = row_of[came_from[column]]
            column = int(came_from[column])
    return sorted((int(row) - 1, column - 1) for column, row in enumerate(row_of) if column and row)


def _muc(gold: Clusters, predicted: Clusters) -> np.ndarray:
    """Links: a cluster of n mentions needs n - 1, less one for each piece into which the other side tears it."""
    return np.array([*_links(gold, _cluster_of(predicted)), *_links(predicted, _cluster_of(gold))], dtype=float)


def _links(clusters: Clusters, other: Mapping[Hashable, int]) -> tuple[int, int]:
    kept = needed = 0
    for cluster in clusters:
        pieces = len({other[mention] for mention in cluster if mention in other})
        strays = sum(mention not in other for mention in cluster)
        kept += len(cluster) - pieces - strays
        needed += len(cluster) - 1
    return kept, needed


def _b_cubed(gold: Clusters, predicted: Clusters) -> np.ndarray:
    """By mention: the fraction of its cluster that is also in its cluster of the other side."""
    overlaps_KR = _overlaps(gold, predicted)
    gold_sizes_K, predicted_sizes_R = _sizes(gold), _sizes(predicted)
    squares_KR = overlaps_KR**2
    found = (squares_KR.sum(1) / gold_sizes_K).sum()
    right = (squares_KR.sum(0) / predicted_sizes_R).sum()
    return np.array([found, gold_sizes_K.sum(), right, predicted_sizes_R.sum()])


def _ceaf(gold: Clusters, predicted: Clusters) -> np.ndarray:
    """By entity: the best one-to-one pairing of clusters, a pair worth φ4 = 2 |K ∩ R| / (|K| + |R|)."""
    overlaps_KR = _overlaps(gold, predicted)
    likeness_KR = 2 * overlaps_KR / (_sizes(gold)[:, None] + _sizes(predicted)[None, :])
    paired = sum(likeness_KR[pair] for pair in assign(likeness_KR))
    return np.array([paired, len(gold), paired, len(predicted)], dtype=float)


def _mentions(gold: Clusters, predicted: Clusters) -> np.ndarray:
    wanted, found = set(_cluster_of(gold)), set(_cluster_of(predicted))
    return np.array([len(wanted & found), len(wanted), len(wanted & found), len(found)], dtype=float)


def _overlaps(gold: Clusters, predicted: Clusters) -> np.ndarray:
    """(K, R) how many mentions two clusters share."""
    overlaps_KR = np.zeros((len(gold), len(predicted)))
    other = _cluster_of(predicted)
    for number, cluster in enumerate(gold):
        for mention in cluster:
            if mention in other:
                overlaps_KR[number, other[mention]] += 1
    return overlaps_KR


def _sizes(clusters: Clusters) -> np.ndarray:
    return np.array([len(cluster) for cluster in clusters], dtype=float)


def _cluster_of(clusters: Clusters) -> dict[Hashable, int]:
    return {mention: number for number, cluster in enumerate(clusters) for mention in cluster}
