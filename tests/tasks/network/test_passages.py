import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.network.inputs import WordBatch

PASSAGES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4)


@settings(max_examples=50, deadline=None)
@given(PASSAGES)
def test_sentences_follow_each_other(passages):
    lengths = [length for passage in passages for length in passage]
    width = max(1, *lengths, 1)
    features = torch.arange(1.0, len(lengths) * width * 2 + 1).reshape(len(lengths), width, 2)
    mask = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    joined = WordBatch(features, features * 2, mask, lengths).join_sentences([len(each) for each in passages])
    first = 0
    for row, passage in enumerate(passages):
        expected = [features[first + place, :length] for place, length in enumerate(passage)]
        words = torch.cat(expected)
        assert torch.equal(joined.features_BWF[row, : len(words)], words)
        assert torch.equal(joined.output_BWE[row, : len(words)], words * 2)
        assert not joined.features_BWF[row, len(words) :].any()
        assert joined.lengths[row] == len(words) == joined.mask_BW[row].sum()
        first += len(passage)


def test_gradients_reach_every_word_once():
    features = torch.ones(2, 3, 1, requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    joined = WordBatch(features, None, mask, [2, 3]).join_sentences([2])
    assert joined.output_BWE is None
    joined.features_BWF.sum().backward()
    assert torch.equal(features.grad.squeeze(2), mask.float())
