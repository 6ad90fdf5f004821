"""The words nearby: what is drawn of a sentence, and the loss that is made of it."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from elmokit.engines.loss import chunked
from elmokit.errors import ConfigError
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.nearby import REACH, NearbyInputs, NearbySampler, NearbyWords, weigh_words
from elmokit.pretrain.network import build_network
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.start import choose_start
from elmokit.pretrain.train import train
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


def read_draws(sampler, batch, number) -> dict[int, list[int]]:
    """What is drawn for both directions, by the key of the place."""
    keys = batch.keys_N[sum(batch.batch_sizes[:2]) :].tolist()
    return dict(zip(keys, sampler.draw(batch, number)[0].T.tolist(), strict=True))


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
        found: dict[int, list[int]] = {}
        for part in parts:
            found |= read_draws(sampler, next(part), number)
        assert found == read_draws(sampler, batch, number)
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


def test_a_run_tells_the_mean_loss_of_its_second_task_and_learns_it(texts, tiny, tmp_path, losses):
    # Twenty words in a ring: which stand near is certain, where is not.
    config = tiny(nearby=1.0, tokens=24_000, log_every=1_000, learning_rate=0.02, muon_learning_rate=0.02)
    train([texts[0]], tmp_path / "m", config, tokenised=True, workers=1, quiet=True)
    told = [line["nearby"] for line in losses(tmp_path / "m") if line["kind"] == "train"]
    assert told[0] == pytest.approx(np.log(20), abs=0.25)  # it begins by expecting each word as often as it is drawn
    assert told[-1] < np.log(12)  # up to eight words stand near, and the sentence does not tell which is drawn


def test_a_second_task_leaves_the_first_weights_as_they_are(texts, tiny, tmp_path):
    corpus = encode_corpus([texts[0]], tmp_path / "c", tokenised=True, progress=False, workers=1, min_count=2)
    config = tiny()
    model, _ = choose_start(config).choose_model(corpus)
    plain, both = (
        build_network(dataclasses.replace(config, nearby=weight), model, corpus, torch.device("cpu")).state_dict()
        for weight in (0.0, 0.5)
    )
    assert set(both) - set(plain) == {"nearby.projection.weight"}
    for name, weight in plain.items():
        assert torch.equal(weight, both[name]), name


def test_few_words_of_which_many_are_rare_have_negatives():
    counts_V = np.array([0, 0, 0, *[100_000] * 2_000, *[2] * 2_000])
    negatives_S = NearbySampler(counts_V)._negatives.draw(1).ids_S
    assert len(np.unique(negatives_S)) == len(negatives_S) == len(counts_V) // 2


def test_rows_that_are_only_read_get_no_gradients_made():
    torch.manual_seed(0)
    hidden_NP, weight_VP, bias_V = torch.randn(5, P, requires_grad=True), torch.randn(V, P), torch.randn(V)
    total, _ = chunked.losses(hidden_NP, weight_VP, bias_V, torch.randint(0, V, (5,)))
    _, weight, bias = total.grad_fn.saved_tensors
    assert weight is None and bias is None
    (found_NP,) = torch.autograd.grad(total, hidden_NP)
    assert found_NP.abs().sum() > 0
