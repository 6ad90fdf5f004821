"""A second task beside the next word: from the same output, predict other words of its sentence.

The next word follows from the last few; what a text is about tells it little, and outputs keep little of it. Yet the
topic is what tells a bank by a river from one with an account. So every output also predicts one word of its
sentence, up to `REACH` places before the word just read or behind the next one, as word2vec does; never these two
themselves. Of a few candidates the one is likelier that word2vec would keep more often: frequent words are drawn
seldom. The output reaches the rows of the output layer through a matrix of its own, which is thrown away after
training, and the rows are only read: they stay those of the next word.

`NearbySampler` draws on the CPU, ahead of the step; what it draws follows from the seed, the number of the step and the
place of a word in the global batch, so ranks and resumed runs draw the same. `NearbyWords` makes the loss.

Shapes: N packed words, T steps, B rows, K = N less the first two words of each row, from which nothing is predicted;
J candidates, S negatives, V words, P width; 2 stands for forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from elmokit.nn.operations import Sample, find_engine
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.batches.batch import Batch
from elmokit.pretrain.batches.sampling import Sampler
from elmokit.pretrain.corpus.encoded import UNKNOWN

__all__ = ["NearbyInputs", "NearbySampler", "NearbyWords", "weigh_words"]

REACH = 10  # places before the word just read, and as many behind the next
FIRST = 2  # words of a row that are read before it predicts: <S> and one word have no other behind them
CANDIDATES = 4  # words of the sentence among which one is chosen, the rarer the likelier
FREQUENT = 1e-5  # fraction of the text above which word2vec keeps a word less often
NUM_NEGATIVES = 4096
RIVALS = 512  # draws of the other candidates, by which it is estimated how often a word is the one


class NearbyInputs(NamedTuple):
    """What a step predicts besides: rows of the vocabulary (2, K), and the words (S) to tell them from."""

    targets_2K: Tensor
    negatives_S: Tensor
    log_expected_S: Tensor


class NearbyWords(nn.Module):
    """The loss of the words nearby.

    Arguments:
        counts_V: how often each word of the vocabulary occurs.
        width: P.
        weight: of this loss, beside 1 for that of the next word.
    """

    bias_V: Tensor

    def __init__(self, counts_V: Tensor, width: int, *, weight: float) -> None:
        super().__init__()
        self.weight = weight
        # Begun without a random number: the other weights are those of a run without the second task.
        self.projection = nn.Linear(width, width, bias=False, device="meta").to_empty(device="cpu")
        nn.init.zeros_(self.projection.weight)  # predicts frequencies, and at first teaches the outputs nothing
        self.register_buffer(
            "bias_V", torch.from_numpy(_expect_draws(counts_V.numpy())).log().float(), persistent=False
        )

    def forward(
        self, outputs: Sequence[Tensor], softmax: OutputLayer, inputs: NearbyInputs, batch_sizes: Sequence[int]
    ) -> Tensor:
        """The summed negative log-likelihood of both directions.

        Arguments:
            outputs: of both directions (N, P).
            softmax: whose rows stand for the words.
            inputs: what to predict.
            batch_sizes: rows that read a word at each step.
        """
        start = sum(batch_sizes[:FIRST])
        outputs_MP = torch.cat([each_NP[start:] for each_NP in outputs])
        hidden_MP = nn.functional.linear(outputs_MP, self.projection.weight.to(outputs_MP.dtype))
        losses = find_engine("loss", softmax.engine_for(hidden_MP).name)
        sample = Sample(inputs.negatives_S, inputs.log_expected_S, None)
        return losses(hidden_MP, softmax.weight.detach(), self.bias_V, inputs.targets_2K.flatten(), sample)[0]


class NearbySampler:
    """Draws what a step predicts besides.

    Arguments:
        counts_V: how often each word of the vocabulary occurs.
        seed: of the run.
    """

    def __init__(self, counts_V: ArrayLike, *, seed: int = 0) -> None:
        counts_V = np.asarray(counts_V)
        self._weights_V = weigh_words(counts_V)
        number = min(NUM_NEGATIVES, len(counts_V) // 2)  # the rarest of all words would be waited for too long
        self._negatives = Sampler.unigram(counts_V, num_samples=number, seed=seed + 1)  # not those of the softmax
        self._seed = seed

    def draw(self, batch: Batch, number: int) -> list[NDArray]:
        """Targets (2, K), negatives (S) and the logarithms of their expected counts, for the step of that number."""
        drawn = self._negatives.draw(number)
        return [self._draw_targets(batch, number), drawn.ids_S, drawn.log_expected_S]

    def _draw_targets(self, batch: Batch, number: int) -> NDArray[np.int64]:
        sizes_T = np.array(batch.batch_sizes, np.int64)
        start, starts_T = int(sizes_T[:FIRST].sum()), sizes_T.cumsum() - sizes_T
        step_K = np.repeat(np.arange(len(sizes_T)), sizes_T)[start:]
        row_K = np.arange(start, batch.num_tokens) - starts_T[step_K]
        # At step s stands word s of the row, counted from 1 behind <S>, and its target is word s + 1: the sentence's
        # words are the targets of the steps before its last, which is that of </S>.
        lengths_B = (sizes_T[:, None] > np.arange(batch.num_rows)).sum(0)
        first_K = np.maximum(step_K - 1 - REACH, 0)
        last_K = np.minimum(step_K + REACH, lengths_B[row_K] - 2)
        own_K = step_K - 1
        count_K = last_K - first_K - (last_K >= step_K)  # less the word just read and, where there is one, the next
        uniform_JK = _draw_uniform(batch.keys_N[start:], (self._seed, number), 2 * CANDIDATES)
        places_JK, clocks_JK = uniform_JK[:CANDIDATES], uniform_JK[CANDIDATES:]
        source_JK = first_K + (places_JK * count_K).astype(np.int64)
        source_JK += 2 * (source_JK >= own_K)
        candidates_2JK = batch.targets_2N[:, starts_T[source_JK] + row_K]
        # The first of J clocks to ring, each at the rate of its weight, is chosen in proportion to the weights.
        times_2JK = -np.log1p(-clocks_JK) / self._weights_V[candidates_2JK]
        return np.take_along_axis(candidates_2JK, times_2JK.argmin(1)[:, None], axis=1)[:, 0]


def weigh_words(counts_V: ArrayLike) -> NDArray[np.float64]:
    """How likely word2vec keeps a word: sqrt(FREQUENT / its fraction of the text), at most 1.

    Special words are taken only where no candidate is another.

    Example:
        >>> weigh_words([0, 1_000, 10, 5_000_000, 50, 3]).round(4).tolist()
        [0.0, 0.0, 0.0, 0.0032, 1.0, 1.0]
    """
    counts = np.maximum(np.asarray(counts_V, dtype=np.float64), 1.0)
    weights_V = np.minimum(np.sqrt(FREQUENT * counts.sum() / counts), 1.0)
    weights_V[: UNKNOWN + 1] = 1e-9
    return weights_V


def _expect_draws(counts_V: NDArray[np.int64]) -> NDArray[np.floating]:
    """How often each word is the one to predict: that of its candidates, which the text gives, whose clock rings first.

    Example:
        >>> _expect_draws(np.array([0, 0, 0, 900_000, 100_000])).round(2).tolist()
        [0.0, 0.0, 0.0, 0.81, 0.19]
    """
    fraction_V = np.maximum(counts_V, 1) / np.maximum(counts_V, 1).sum()
    weights_V = weigh_words(counts_V)
    rivals = np.random.default_rng(0).choice(len(fraction_V), (RIVALS, CANDIDATES - 1), p=fraction_V)
    chance_V = np.zeros(len(fraction_V))
    for others in weights_V[rivals].sum(1):  # one after the other: together they would be a large table
        chance_V += weights_V / (weights_V + others)
    drawn_V = fraction_V * chance_V
    return drawn_V / drawn_V.sum()


def _draw_uniform(keys_K: NDArray[np.int64], seeds: tuple[int, int], count: int) -> NDArray[np.floating]:
    """(count, K) numbers from 0 to 1 that follow from key, seeds and place alone: splitmix64, a counter's hash."""
    streams_J = np.random.SeedSequence(seeds).generate_state(count, np.uint64)
    mixed = (keys_K.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))[None] + streams_J[:, None]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
