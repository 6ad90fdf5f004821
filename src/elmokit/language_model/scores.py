"""What a language model says of a text, in numbers: perplexity of the whole, log-probabilities of a sentence.

Arrives: negative log-likelihoods of predictions. Leaves: a `Perplexity` or a `Score`.

Shapes: N predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import regex
import torch
from torch import Tensor

from elmokit.errors import CheckpointError, InputError

__all__ = ["Perplexity", "Score", "ScoredWord", "Tally", "count_bytes", "count_word_bytes"]

# Scripts whose writing has no spaces between words, and the punctuation that goes with them.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\u3000-\u303f\uff00-\uff65"
# Spaces that stand in tokenised text alone: beside such scripts, behind what opens, before what closes and before n't.
NOT_WRITTEN = regex.compile(
    rf"(?<=[{UNSPACED}(\[{{“‘«]) | (?=[{UNSPACED}.,;:!?)\]}}%…”’»]|(?i:n['’]t|['’](?:s|m|d|re|ve|ll))(?!\S))"
)


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text: e to the mean negative log-likelihood of a prediction.

    Arguments:
        forward: of the model that reads from the left.
        backward: of the model that reads from the right.
        mean: of both together, exp((NLL forward + NLL backward) / 2N): their geometric mean.
        tokens: N, predictions of one direction: the words, and one boundary per sentence.
        sentences: how many there were.
        oov_rate: fraction of the words (without boundaries) outside the vocabulary. They are read letter by letter like
            any other word, but scored as `<UNK>`.
        bits_per_byte: mean negative log-likelihood of the whole text in bits, over its bytes in UTF-8: those of
            everything between white space, and one for the white space or line end after it. Of words without
            their text, those that the text probably had.
    """

    forward: float
    backward: float
    mean: float
    tokens: int
    sentences: int
    oov_rate: float
    bits_per_byte: float

    @property
    def words(self) -> int:
        """Words of the text, without boundaries."""
        return self.tokens - self.sentences


class ScoredWord(NamedTuple):
    """A word of a sentence: its log-probability after the words before it, and before the words after it."""

    word: str
    forward: float
    backward: float


@dataclass(frozen=True)
class Score:
    """Log-probabilities of a sentence, natural logarithms.

    Arguments:
        words: those of each word.
        end: that of the sentence ending where it does, after all its words (forward).
        begin: that of its beginning where it does, before all its words (backward).
    """

    words: tuple[ScoredWord, ...]
    end: float
    begin: float

    @property
    def forward(self) -> float:
        """Log-probability of the sentence as the forward model reads it: its words and its end."""
        return math.fsum([word.forward for word in self.words] + [self.end])

    @property
    def backward(self) -> float:
        """Log-probability of the sentence as the backward model reads it: its words and its beginning."""
        return math.fsum([word.backward for word in self.words] + [self.begin])

    @property
    def mean(self) -> float:
        """The mean of both."""
        return (self.forward + self.backward) / 2


@dataclass
class Tally:
    """Sums over a text so far."""

    losses: np.ndarray = field(default_factory=lambda: np.zeros(2))
    num_tokens: int = 0
    num_sentences: int = 0
    num_unknown: int = 0
    num_bytes: int = 0

    def add_losses(self, losses: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Add the losses of batches, forward and backward."""
        sums = [torch.stack([losses_N.sum() for losses_N in pair]) for pair in losses]
        self.losses += torch.stack(sums).cpu().double().sum(0).numpy()  # a GPU is waited for here and nowhere else

    def result(self) -> Perplexity:
        """The perplexity of the text; an `InputError` if there was none, a `CheckpointError` if it is no number."""
        if not self.num_tokens:
            raise InputError("expected text to predict, found no sentence at all")
        if np.isnan(self.losses).any():
            raise CheckpointError(
                "the probabilities that this model gives are not numbers: some of its weights are far too large; "
                "fetch its files anew"
            )
        num_words = self.num_tokens - self.num_sentences
        with np.errstate(over="ignore"):  # a model that has diverged may be infinitely surprised
            forward, backward, mean = np.exp([*self.losses / self.num_tokens, self.losses.mean() / self.num_tokens])
        return Perplexity(
            forward=float(forward),
            backward=float(backward),
            mean=float(mean),
            tokens=self.num_tokens,
            sentences=self.num_sentences,
            oov_rate=self.num_unknown / num_words if num_words else 0.0,
            bits_per_byte=float(self.losses.mean()) / math.log(2) / self.num_bytes,
        )


def count_bytes(chunks: Iterable[str]) -> int:
    """Bytes of what stands between white space, and one for the white space after each.

    Example:
        >>> count_bytes("la  forêt".split())
        10
    """
    return sum(len(chunk.encode("utf-8", "ignore")) + 1 for chunk in chunks)


def count_word_bytes(words: Sequence[str]) -> int:
    """Bytes that a sentence of words has as people write it: no space before a full stop, none between Han characters.

    Example:
        >>> count_word_bytes(["She", "sat", "(", "here", ")", "."]), count_word_bytes(["我", "喜欢", "你", "。"])
        (16, 16)
    """
    text = " ".join(words)
    return len(text.encode("utf-8", "ignore")) + 1 - sum(1 for _ in NOT_WRITTEN.finditer(text))
