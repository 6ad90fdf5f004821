"""Recipes: functions that return a complete, typed description of a training run.

A `TrainConfig` holds everything that decides what a run computes; where its text lies and where its model goes is said
to `train` itself. `elmo train --recipe small --dropout 0.05` takes a recipe and replaces fields of it.
Nothing heavy is imported here, so that the command can explain every field at once.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from elmokit.config import ElmoConfig
from elmokit.errors import ConfigError, suggest
from elmokit.validation import Bounds, check_fields

__all__ = ["RECIPES", "TrainConfig", "bilm_tf", "medium", "original", "recipe_named", "small", "tiny_cpu"]

Mode = Literal["sentences", "streams"]
Input = Literal["characters", "words"]
Output = Literal["full", "sampled"]
SamplerName = Literal["unigram", "log_uniform"]
OptimiserName = Literal["muon", "adamw", "adagrad"]
PrecisionName = Literal["auto", "float32", "bfloat16"]

Words = Annotated[int, Bounds(1, 2**48)]
Rate = Annotated[float, Bounds(above=0)]
Share = Annotated[float, Bounds(at_least=0, below=1)]
LARGEST_WARMUP = 0.25  # of the run: one that is cut short for a try still reaches its full learning rate


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes.

    "Words" counts predictions of one direction: the words of the text and one sentence end each.
    """

    model: ElmoConfig = field(default_factory=ElmoConfig.small)
    """The sizes of the network. Models trained here do not clip unless told: clipping guards old optimisers against
    runaway cells, and GPUs run unclipped LSTMs several times faster."""
    input: Input = "characters"
    """What the model reads of a word: its `"characters"`, or the whole `"words"` of the vocabulary, each with a
    vector of its own."""
    vocabulary_size: Annotated[int, Bounds(at_most=2**28)] = 100_000
    """Words the output layer predicts, most frequent first, the three special ones included."""
    min_count: Words = 2
    """Words rarer than this stay outside the vocabulary."""
    mode: Mode = "sentences"
    """Whole `"sentences"` from zero state (how most people use the vectors), or endless `"streams"` with carried state
    and truncated gradients, as bilm-tf trained."""
    tokens: Words = 1_000_000_000
    """Words to see in all, over again if the text is shorter; the learning rate decays towards this number."""
    tokens_per_batch: Annotated[int, Bounds(1, 2**31)] = 20_480
    """Words per step, both directions counted once."""
    unroll: Annotated[int, Bounds(1, 2**20)] = 20
    """Words per window in `"streams"`."""
    dropout: Share = 0.1
    """Probability with which dropout zeroes what each LSTM layer and the output layer read."""
    input_dropout: Share | None = None
    """The same for the first LSTM layer alone, which reads the words; unset, it is --dropout."""
    output_dropout: Share | None = None
    """The same for the output layer alone; unset, it is --dropout. A text that is read several times wants more of it
    here and less at the words."""
    output: Output = "full"
    """How words are predicted: by a `"full"` softmax or a `"sampled"` one (faster with many words)."""
    full_after: Annotated[float, Bounds(0, 1)] = 1.0
    """Fraction of the run after which a sampled softmax gives way to the full one; with 1 it never does."""
    num_negatives: Annotated[int, Bounds(1, 2**28)] = 8192
    """Words that a sampled softmax compares with."""
    sampler: SamplerName = "unigram"
    """Where a sampled softmax takes its words from: `"unigram"` (frequency to the power of 0.75), or `"log_uniform"`
    (by rank, as in bilm-tf)."""
    nearby: Annotated[float, Bounds(at_least=0)] = 0.0
    """Weight of a second task: each output also predicts another word of its sentence, some places away, which teaches
    it what the text is about; 0 for none."""
    optimiser: OptimiserName = "muon"
    """How weights move: `"muon"` on matrices with AdamW on the rest, `"adamw"`, or bilm-tf's `"adagrad"`."""
    learning_rate: Rate = 8e-3
    """How far AdamW or Adagrad goes in a step, at most."""
    muon_learning_rate: Rate = 4e-3
    """The same for Muon."""
    weight_decay: Annotated[float, Bounds(at_least=0)] = 0.0
    """How strongly AdamW and Muon pull matrices towards 0."""
    warmup_tokens: Annotated[int, Bounds(0, 2**48)] = 6_000_000
    """Words over which the learning rate rises from 0; at most a quarter of the run is used for it."""
    hold: Share = 0.5
    """Fraction of the run after the warm-up during which the learning rate stays at its height; then it falls
    linearly."""
    final_learning_rate: Annotated[float, Bounds(at_least=0)] = 0.001
    """The fraction of the learning rate that is left at the end; with 1 it never falls."""
    clip_norm: Rate = 1.0
    """Bound of the norm of all gradients together, against steps that go astray."""
    precision: PrecisionName = "auto"
    """What encoder and LSTMs compute in; `"auto"` is bfloat16 on a GPU and float32 on a CPU."""
    evaluate_every: Words = 50_000_000
    """Words between held-out perplexities; there is always one at the end."""
    checkpoint_every: Words = 50_000_000
    """Words between checkpoints, which is what a killed run can lose."""
    log_every: Words = 1_000_000
    """Words between lines of the log."""
    seed: Annotated[int, Bounds(0, 2**62)] = 1
    """Where everything random begins: the same seed gives the same run."""

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        check_fields(self)
        if self.vocabulary_size < 4:
            raise ConfigError(f"vocabulary_size is {self.vocabulary_size}: three special words and one real one need 4")
        if self.nearby and self.mode != "sentences":
            raise ConfigError(
                f"nearby is {self.nearby:g}, but streams do not know which words share a sentence: set it to 0, or "
                "take mode sentences"
            )
        if self.optimiser == "adagrad" and self.weight_decay:
            raise ConfigError(
                f"weight_decay is {self.weight_decay:g}, but Adagrad has none: set it to 0, or take another optimiser"
            )

    @property
    def widest_filter(self) -> int:
        """Width of the widest convolution; 1 for a model of words."""
        characters = self.model.characters
        return max(width for width, _ in characters.filters) if characters and self.input == "characters" else 1

    def dropouts(self) -> list[float]:
        """The dropout of what each LSTM layer reads, and of what the output layer reads.

        Example:
            >>> TrainConfig(dropout=0.2, output_dropout=0.4).dropouts()
            [0.2, 0.2, 0.4]
        """
        first, last = (self.dropout if own is None else own for own in (self.input_dropout, self.output_dropout))
        return [first, *[self.dropout] * (self.model.lstm.num_layers - 1), last]

    def rate(self, tokens: int) -> float:
        """The multiplier of the learning rates in the step after which `tokens` words have been seen.

        It rises to 1, stays there and falls linearly, as a pure function: a resumed run gets the same answer.

        Example:
            >>> config = TrainConfig(tokens=100, warmup_tokens=20, hold=0.5, final_learning_rate=0.1)
            >>> [round(config.rate(tokens), 2) for tokens in (10, 20, 60, 80, 100, 120)]
            [0.5, 1.0, 1.0, 0.55, 0.1, 0.1]
        """
        warmup = min(self.warmup_tokens, LARGEST_WARMUP * self.tokens)
        if tokens < warmup:
            return tokens / warmup
        done = (tokens - warmup) / (self.tokens - warmup)
        fallen = min(1.0, max(0.0, (done - self.hold) / (1 - self.hold)))
        return self.final_learning_rate + (1 - self.final_learning_rate) * (1 - fallen)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values, ready for JSON."""
        return dataclasses.asdict(self)


def tiny_cpu() -> TrainConfig:
    """Minutes on two CPU cores: a model small enough to watch it learn."""
    return TrainConfig(
        model=without_clipping(ElmoConfig.tiny()),
        vocabulary_size=20_000,
        tokens=3_000_000,
        tokens_per_batch=1_024,
        output="sampled",
        num_negatives=1_024,
        warmup_tokens=100_000,
        evaluate_every=1_000_000,
        checkpoint_every=500_000,
        log_every=20_000,
    )


def small() -> TrainConfig:
    """The published small size (13.6 M parameters), with the settings of the last run behind the bundled English model.

    That model took three runs (its card has the commands); rates, dropout and plateau are those of the last, of 1.1
    billion words. 1.6 times these rates learned faster in 20 million words and diverged at 377 million (LOG.md).
    """
    model = without_clipping(ElmoConfig.small())
    return TrainConfig(
        model=model, dropout=0.05, hold=0.3, learning_rate=5e-3, muon_learning_rate=scale_muon_rate(model)
    )


def medium() -> TrainConfig:
    """The published medium size (28.0 M parameters) with a sampled softmax.

    Its rates are those of `small`, Muon's scaled by the width; no long run of this size was made.
    """
    model = without_clipping(ElmoConfig.medium())
    return TrainConfig(model=model, output="sampled", learning_rate=5e-3, muon_learning_rate=scale_muon_rate(model))


def original() -> TrainConfig:
    """The published original size (93.6 M parameters), with the settings of the first run of `elmokit-en-original`.

    A sampled softmax sees twice as many words per second as a full one, which learns more from each: the run begins
    with the one and ends with the other. Without weight decay, and at higher rates, gradients of this size stopped
    being finite after 220 million words (LOG.md). The package's card has the commands of the two runs that followed.
    """
    return TrainConfig(
        model=without_clipping(ElmoConfig.original()),
        vocabulary_size=108_000,
        tokens=445_000_000,
        tokens_per_batch=40_960,
        dropout=0.0,
        output="sampled",
        full_after=0.6,
        learning_rate=5e-3,
        muon_learning_rate=2.5e-3,
        weight_decay=0.05,
        hold=0.0,
        evaluate_every=100_000_000,
        checkpoint_every=100_000_000,
    )


def bilm_tf() -> TrainConfig:
    """The original size as bilm-tf trained it: ten passes over the 1 Billion Word Benchmark, with its constants.

    Four things differ: both directions share the negatives of a step (bilm-tf draws for each), the biases of the
    output layer begin with the logarithms of frequencies (with 0 there), a GPU computes in bfloat16 (float32 there,
    `--precision float32`), and an update is made of 2,560 words (of 7,680 there, on three GPUs).
    """
    return TrainConfig(
        model=ElmoConfig.original(),
        vocabulary_size=793_471,
        min_count=3,
        mode="streams",
        tokens=10 * 768_648_884,
        tokens_per_batch=128 * 20,
        output="sampled",
        sampler="log_uniform",
        optimiser="adagrad",
        learning_rate=0.2,
        clip_norm=10.0,
        warmup_tokens=0,
        hold=0.0,
        final_learning_rate=1.0,
    )


RECIPES = {"tiny_cpu": tiny_cpu, "small": small, "medium": medium, "original": original, "bilm_tf": bilm_tf}


def recipe_named(name: str) -> TrainConfig:
    """The recipe of that name; an unknown one is an error that lists the known."""
    if name not in RECIPES:
        raise ConfigError(f"no recipe is called {name!r}: use one of {', '.join(RECIPES)}{suggest(name, RECIPES)}")
    return RECIPES[name]()


def without_clipping(model: ElmoConfig) -> ElmoConfig:
    """The same model without clipping."""
    return dataclasses.replace(model, lstm=dataclasses.replace(model.lstm, cell_clip=None, projection_clip=None))


def scale_muon_rate(model: ElmoConfig) -> float:
    """The rate at which Muon changes the gates of an LSTM by as much per step, in spectral norm, as in `small`.

    An update of Muon has the spectral norm 0.2 √columns × rate, and each gate as many columns as the LSTM has cells.
    """
    return 2.5e-3 * math.sqrt(1024 / model.lstm.cell_dim)
