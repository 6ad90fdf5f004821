"""The CRF and its decoding, against every sequence of labels there is."""

from __future__ import annotations

import itertools

import torch

from elmokit.tasks.network.crf import FORBIDDEN, Crf, viterbi

LENGTHS = [4, 1, 3]


def some_crf(seed: int = 0) -> tuple[Crf, torch.Tensor]:
    torch.manual_seed(seed)
    may_follow = torch.tensor([[True, True, False], [True, True, True], [True, False, True]])
    crf = Crf(torch.tensor([True, True, False]), may_follow, torch.tensor([True, False, True]))
    for weight in crf.parameters():
        weight.data.normal_()
    return crf, torch.randn(len(LENGTHS), max(LENGTHS), 3)


def every_score(crf, logits_WK, length):
    """The score of each sequence of labels."""
    start, follow, end = crf.scores()
    return {
        way: start[way[0]]
        + end[way[-1]]
        + sum(logits_WK[place, label] for place, label in enumerate(way))
        + sum(follow[one, other] for one, other in itertools.pairwise(way))
        for way in itertools.product(range(3), repeat=length)
    }


def test_the_loss_is_that_of_whole_sequences():
    crf, logits = some_crf()
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
    gold = torch.tensor([[0, 1, 2, 0], [0, 2, 2, 2], [1, 1, 0, 1]])  # what stands in the padding does not count
    expected = 0
    for row, length in enumerate(LENGTHS):
        scores = every_score(crf, logits[row], length)
        right = scores[tuple(gold[row, :length].tolist())]
        expected = expected + torch.stack(list(scores.values())).logsumexp(0) - right
    torch.testing.assert_close(crf.loss(logits, gold, mask), expected, atol=1e-4, rtol=1e-5)


def test_the_best_labels_are_found():
    for seed in range(5):
        crf, logits = some_crf(seed)
        for row, (path, length) in enumerate(zip(crf.decode(logits, LENGTHS), LENGTHS, strict=True)):
            scores = every_score(crf, logits[row], length)
            assert tuple(path) == max(scores, key=lambda way: scores[way].item())
            assert scores[tuple(path)] > FORBIDDEN / 2


def test_what_is_forbidden_learns_nothing():
    crf, logits = some_crf()
    mask = torch.ones(3, 4, dtype=torch.bool)
    crf.loss(logits, torch.zeros(3, 4, dtype=torch.int64), mask).backward()
    assert crf.follow.grad[0, 2] == 0
    assert crf.start.grad[2] == crf.end.grad[1] == 0
    assert crf.follow.grad[0, 0] != 0


def test_sequences_of_one_word():
    scores = torch.tensor([[[0.0, 2.0, 1.0]], [[5.0, 2.0, 1.0]]])
    start = torch.tensor([0.0, -torch.inf, 0.0])
    assert viterbi(scores, [1, 1], start, torch.zeros(3, 3)) == [[2], [0]]
    crf, _ = some_crf()
    gold, mask = torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1, dtype=torch.bool)
    first, _, last = crf.scores()
    expected = -(scores[:, 0] + first + last).log_softmax(1)[:, 0].sum()
    torch.testing.assert_close(crf.loss(scores, gold, mask), expected)
    assert viterbi(scores, [1, 1], start, torch.zeros(3, 3), torch.tensor([-9.0, 0.0, 0.0])) == [[2], [2]]
