"""The words nearby: what is drawn of a sentence, and the loss that is made of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from elmokit.errors import ConfigError
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.nearby import REACH, NearbyInputs, NearbySampler, NearbyWords, weigh_words
from elmokit.pretrain.recipes import TrainConfig
from elmokit.text.characters import WordScheme

V, P = 40, 6
COUNTS = np.arange(1, V + 1)[::-1].copy()


@pytest.fixture
def corpus(tmp_path):
    """Sentences of 1 to 30 words, each word of a sentence another one."""
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(30)]
    sentences = [" ".join(random.permutation(words)[:length]) for length in (*range(1, 31), 4, 4, 4)]
    (tmp_path / "text").write_text("\n".join(sentences))
    return encode_corpus([tmp_path / "text"], tmp_path / "c", tokenised=True, progress=False, workers=1, min_count=1)


def read_rows(batch) -> list[list[list[int]]]:
    """The targets of each row, of both directions: its words and the sentence's end."""
    starts = np.cumsum([0, *batch.batch_sizes])
    return [
        [
            [int(targets_N[starts[step] + row]) for step, size in enumerate(batch.batch_sizes) if row < size]
            for row in range(batch.num_rows)
        ]
        for targets_N in batch.targets_2N
    ]


def test_targets_are_other_words_of_the_sentence(corpus):
    sampler = NearbySampler(corpus.counts_V, seed=3)
    reader = SentenceReader(corpus, WordScheme(corpus.vocabulary), tokens_per_batch=30)
    drawn: Counter[int] = Counter()
    for epoch in range(20):
        for number, batch in enumerate(reader.one_epoch(epoch)):
            targets_2K = sampler.draw(batch, 100 * epoch + number)[0]
            sizes = batch.batch_sizes
            places = [(step, row) for step in range(2, len(sizes)) for row in range(sizes[step])]
            assert targets_2K.shape == (2, len(places))
            for direction, rows in enumerate(read_rows(batch)):
                for target, (step, row) in zip(targets_2K[direction].tolist(), places, strict=True):
                    words = rows[row][:-1]
                    place = words.index(target)  # a word of this sentence
                    distance = place - (step - 1)  # from the word just read
                    assert distance not in (0, 1) and -REACH <= distance <= REACH + 1
                    drawn[distance] += 1
    assert set(drawn) == {*range(-REACH, REACH + 2)} - {0, 1}  # and every place is drawn


def test_frequent_words_are_drawn_seldom(tmp_path):
    (tmp_path / "text").write_text("\n".join(f"the the the the the cat{number % 50} the the" for number in range(400)))
    corpus = encode_corpus([tmp_path / "text"], tmp_path / "c", tokenised=True, progress=False, workers=1, min_count=1)
    sampler = NearbySampler(corpus.counts_V)
    weights_V = weigh_words(corpus.counts_V)
    the = corpus.vocabulary.index("the")
    assert weights_V[the] < weights_V[corpus.vocabulary.index("cat1")] / 10
    reader = SentenceReader(corpus, WordScheme(corpus.vocabulary), tokens_per_batch=900)
    targets = np.concatenate([sampler.draw(batch, n)[0].ravel() for n, batch in enumerate(reader.one_epoch())])
    # One word of eight is a cat: drawn alike, and never where it is the word just read or the next, 0.12.
    assert 0.25 < (targets != the).mean() < 0.6


def test_draws_depend_on_the_place_in_the_global_batch_alone(corpus):
    sampler = NearbySampler(corpus.counts_V, seed=5)
    scheme = WordScheme(corpus.vocabulary)
    whole = SentenceReader(corpus, scheme, tokens_per_batch=60)
    parts = [SentenceReader(corpus, scheme, tokens_per_batch=60, rank=rank, world=2) for rank in range(2)]
    for number, batch in enumerate(whole.one_epoch()):
        expected = dict(zip(batch.keys_N[sum(batch.batch_sizes[:2]) :].tolist(), sampler.draw(batch, number)[0].T))
        found = {}
        for part in parts:
            own = next(part)
            found |= dict(zip(own.keys_N[sum(own.batch_sizes[:2]) :].tolist(), sampler.draw(own, number)[0].T))
        assert {key: pair.tolist() for key, pair in found.items()} == {k: p.tolist() for k, p in expected.items()}
    assert not np.array_equal(sampler.draw(batch, 1)[0], sampler.draw(batch, 2)[0])


def test_the_loss_is_that_of_a_sampled_softmax_over_projected_outputs():
    torch.manual_seed(0)
    counts_V = torch.from_numpy(COUNTS)
    nearby, softmax = NearbyWords(counts_V, P, weight=0.3), OutputLayer(V, P, counts_V=counts_V)
    torch.nn.init.normal_(nearby.projection.weight)
    sizes = [3, 3, 2, 1]
    outputs = [torch.randn(9, P, requires_grad=True) for _ in range(2)]
    targets_2K, negatives_S = torch.randint(3, V, (2, 3)), torch.tensor([5, 9, 30, 12])
    log_expected_S = torch.randn(4)
    loss = nearby(outputs, softmax, NearbyInputs(targets_2K, negatives_S, log_expected_S), sizes)
    expected = torch.zeros(())
    for direction in range(2):
        for place in range(6, 9):
            hidden_P = nearby.projection.weight @ outputs[direction][place]
            target = int(targets_2K[direction, place - 6])
            own = hidden_P @ softmax.weight[target] + nearby.bias_V[target]
            others = [
                hidden_P @ softmax.weight[word] + nearby.bias_V[word] - log_expected_S[number]
                for number, word in enumerate(negatives_S.tolist())
                if word != target
            ]
            expected = expected + torch.stack([own, *others]).logsumexp(0) - own
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(loss, [*outputs, nearby.projection.weight])
    for one, other in zip(found, torch.autograd.grad(expected, [*outputs, nearby.projection.weight]), strict=True):
        torch.testing.assert_close(one, other)
    loss = nearby(outputs, softmax, NearbyInputs(targets_2K, negatives_S, log_expected_S), sizes)
    loss.backward()
    assert softmax.weight.grad is None and softmax.bias.grad is None  # they stay those of the next word


def test_streams_cannot_know_the_sentence():
    with pytest.raises(ConfigError, match="nearby is 0.5, but streams do not know which words share a sentence"):
        TrainConfig(mode="streams", nearby=0.5)
