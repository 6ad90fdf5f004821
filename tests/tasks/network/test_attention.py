import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.network.attention import (
    AttentionFlow,
    SelfAttention,
    TrilinearScores,
    align_softly,
    masked_softmax,
)


def mask_of(lengths, width):
    return torch.arange(width) < torch.tensor(lengths).unsqueeze(1)


def test_trilinear_scores_are_those_of_spread_out_pairs():
    torch.manual_seed(0)
    scores = TrilinearScores(4)
    first, second = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
    pairs = (first.unsqueeze(2).expand(2, 5, 3, 4), second.unsqueeze(1).expand(2, 5, 3, 4))
    weight = torch.cat([scores.first.weight[0], scores.second.weight[0], scores.product])
    expected = torch.cat([*pairs, pairs[0] * pairs[1]], dim=3) @ weight
    torch.testing.assert_close(scores(first, second), expected, atol=1e-6, rtol=1e-5)


def test_masked_softmax_gives_zeros_where_nothing_is_allowed():
    weights = masked_softmax(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[True, False], [False, False]]))
    assert weights.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_self_attention_never_finds_the_word_itself():
    torch.manual_seed(0)
    attention = SelfAttention(3)
    words = torch.randn(1, 4, 3, requires_grad=True)
    found = attention(words, mask_of([4], 4))[0, :, 3:6]
    others = words[0].detach()
    scores = attention.scores(words, words)[0].detach()
    for place in range(4):
        rest = [other for other in range(4) if other != place]
        expected = scores[place, rest].softmax(0) @ others[rest]
        torch.testing.assert_close(found[place].detach(), expected, atol=1e-6, rtol=1e-5)


def test_self_attention_of_one_word_finds_nothing():
    out = SelfAttention(3)(torch.ones(1, 1, 3), mask_of([1], 1))
    assert out[0, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_attention_flow_by_hand():
    flow = AttentionFlow(2)
    with torch.no_grad():
        flow.scores.first.weight.zero_()
        flow.scores.second.weight.zero_()
        flow.scores.product.fill_(1000.0)  # so sharp that each word finds one
    passage, question = torch.tensor([[[1.0, 0.0], [0.0, 0.5]]]), torch.tensor([[[0.0, 2.0], [3.0, 0.0]]])
    read = flow(passage, question, mask_of([2], 2), mask_of([2], 2))[0]
    # Word 0 finds (3, 0), word 1 (0, 2); word 0 has the best score of all, so it sums up the passage.
    assert read.tolist() == [[1, 0, 3, 0, 3, 0, 3, 0], [0, 0.5, 0, 2, 0, 1, 0, 0]]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**31))
def test_padding_changes_nothing(num_first, num_second, padding, seed):
    torch.manual_seed(seed)
    first, second = torch.randn(1, num_first, 4), torch.randn(1, num_second, 4)
    masks = mask_of([num_first], num_first), mask_of([num_second], num_second)
    padded = [torch.cat([words, torch.randn(1, padding, 4)], dim=1) for words in (first, second)]
    padded_masks = mask_of([num_first], num_first + padding), mask_of([num_second], num_second + padding)
    flow, itself = AttentionFlow(4), SelfAttention(4)
    for plain, wide in (
        (flow(first, second, *masks), flow(*padded, *padded_masks)),
        (itself(first, masks[0]), itself(padded[0], padded_masks[0])),
        *zip(align_softly(first, second, *masks), align_softly(*padded, *padded_masks), strict=True),
    ):
        torch.testing.assert_close(plain, wide[:, : plain.shape[1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_score_is_too_large(dtype):
    words = torch.full((1, 2, 4), 60.0, dtype=dtype, requires_grad=True)
    aligned, _ = align_softly(words, words, mask_of([2], 2), mask_of([1], 2))
    aligned.sum().backward()
    assert aligned.isfinite().all()
    assert words.grad.isfinite().all()
