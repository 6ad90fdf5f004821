"""Recipes: functions that return a complete, typed description of a training run.

A `TrainConfig` holds everything that decides what a run computes; where its text lies and where its model goes is said
to `train` itself. `elmo train --recipe small --dropout 0.05` takes a recipe and replaces fields of it.
Nothing heavy is imported here, so that the command can explain every field at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from elmokit.config import ElmoConfig
from elmokit.errors import ConfigError
from elmokit.pretrain.optim.schedules import Decay, rate_at

__all__ = ["RECIPES", "TrainConfig", "bilm_tf", "medium", "original", "recipe_named", "small", "tiny_cpu"]

Mode = Literal["sentences", "streams"]
Input = Literal["characters", "words"]
Output = Literal["full", "sampled"]
Sampler = Literal["unigram", "log_uniform", "head_and_tail"]
Optimiser = Literal["muon", "adamw", "adagrad"]
Precision = Literal["auto", "float32", "bfloat16"]

CHOICES = {
    "mode": Mode,
    "input": Input,
    "output": Output,
    "sampler": Sampler,
    "optimiser": Optimiser,
    "decay": Decay,
    "precision": Precision,
}
POSITIVE = (
    "tokens", "tokens_per_batch", "unroll", "num_negatives", "min_count", "learning_rate", "muon_learning_rate",
    "clip_norm", "layer_decay", "output_rate", "evaluate_every", "checkpoint_every", "log_every",
)  # fmt: skip
AT_LEAST_0 = ("head_tokens", "unfreeze_every", "average_tokens")
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
    vocabulary_size: int = 100_000
    """Words the output layer predicts, most frequent first, the three special ones included."""
    min_count: int = 2
    """Words rarer than this stay outside the vocabulary."""
    mode: Mode = "sentences"
    """Whole `"sentences"` from zero state (how most people use the vectors), or endless `"streams"` with carried state
    and truncated gradients, as bilm-tf trained."""
    tokens: int = 1_000_000_000
    """Words to see in all, over again if the text is shorter; the learning rate decays towards this number."""
    tokens_per_batch: int = 20_480
    """Words per step, both directions counted once."""
    unroll: int = 20
    """Words per window in `"streams"`."""
    dropout: float = 0.1
    """Probability with which dropout zeroes what each LSTM layer and the output layer read."""
    output: Output = "full"
    """How words are predicted: by a `"full"` softmax or a `"sampled"` one (faster with many words)."""
    num_negatives: int = 8192
    """Words that a sampled softmax compares with."""
    sampler: Sampler = "unigram"
    """Where a sampled softmax takes its words from: `"unigram"` (frequency to the power `sampler_power`),
    `"log_uniform"` (by rank, as in bilm-tf), or `"head_and_tail"` (half of them the most frequent words, and the others
    as `"unigram"`; the loss is then nearly that of the full softmax)."""
    sampler_power: float = 0.75
    """The exponent of `"unigram"`."""
    optimiser: Optimiser = "muon"
    """How weights move: `"muon"` on matrices with AdamW on the rest, `"adamw"`, or bilm-tf's `"adagrad"`."""
    learning_rate: float = 8e-3
    """How far AdamW or Adagrad goes in a step, at most."""
    muon_learning_rate: float = 4e-3
    """The same for Muon."""
    weight_decay: float = 0.0
    """How strongly AdamW and Muon pull matrices towards 0."""
    warmup_tokens: int = 6_000_000
    """Words over which the learning rate rises from 0; at most a quarter of the run is used for it."""
    decay: Decay = "linear"
    """How the learning rate falls after the warm-up."""
    final_learning_rate: float = 0.001
    """The fraction of the learning rate that is left at the end."""
    hold: float = 0.5
    """Fraction of the run after the warm-up during which the learning rate stays at its height before a cosine or
    linear decay begins."""
    output_rate: float = 1.0
    """The output layer learns at so many times the learning rate."""
    second_beta: float = 0.999
    """How slowly AdamW's estimate of a gradient's size changes; nearer to 1 is slower."""
    average_tokens: int = 0
    """The model that is evaluated and saved is the mean of the weights over about so many last words; 0 for the weights
    themselves."""
    layer_decay: float = 1.0
    """Each layer group (words, each LSTM layer, output) learns at a rate so many times smaller than the one above it;
    2.6 in ULMFiT, 1 for the same rate everywhere."""
    head_tokens: int | None = None
    """Words during which the output layer learns alone, when a model is gone on from; unset, a twentieth of all if it
    is new, else none."""
    unfreeze_every: int = 0
    """Words after which the next layer group below learns too (gradual unfreezing); 0 for all at once."""
    clip_norm: float = 1.0
    """Bound of the norm of all gradients together, against steps that go astray."""
    precision: Precision = "auto"
    """What encoder and LSTMs compute in; `"auto"` is bfloat16 on a GPU and float32 on a CPU."""
    evaluate_every: int = 50_000_000
    """Words between held-out perplexities; there is always one at the end."""
    checkpoint_every: int = 50_000_000
    """Words between checkpoints, which is what a killed run can lose."""
    log_every: int = 1_000_000
    """Words between lines of the log."""
    seed: int = 1
    """Where everything random begins: the same seed gives the same run."""

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        for name, kind in CHOICES.items():
            value = getattr(self, name)
            if value not in get_args(kind):
                raise ConfigError(f"{name} is {value!r}: use one of {', '.join(get_args(kind))}")
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: expected a number above 0")
        for name in ("weight_decay", "warmup_tokens", "final_learning_rate", "sampler_power", "seed", *AT_LEAST_0):
            if not (getattr(self, name) or 0) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: expected 0 or more")
        if self.vocabulary_size < 4:
            raise ConfigError(f"vocabulary_size is {self.vocabulary_size}: three special words and one real one need 4")
        for name in ("dropout", "hold", "second_beta"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: expected 0 or more, and less than 1")

    @property
    def widest_filter(self) -> int:
        """Width of the widest convolution; 1 for a model of words."""
        characters = self.model.characters
        return max(width for width, _ in characters.filters) if characters and self.input == "characters" else 1

    def rate(self, tokens: int) -> float:
        """The multiplier of the learning rates of the step that makes it so many words."""
        return rate_at(
            tokens,
            decay=self.decay,
            total=self.tokens,
            warmup=min(self.warmup_tokens, LARGEST_WARMUP * self.tokens),
            floor=self.final_learning_rate,
            hold=self.hold,
        )

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values, ready for JSON."""
        return dataclasses.asdict(self)


def unclipped(model: ElmoConfig) -> ElmoConfig:
    """The same model without clipping."""
    return dataclasses.replace(model, lstm=dataclasses.replace(model.lstm, cell_clip=None, projection_clip=None))


def tiny_cpu() -> TrainConfig:
    """Minutes on two CPU cores: a model small enough to watch it learn."""
    return TrainConfig(
        model=unclipped(ElmoConfig.tiny()),
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
    """The published small size (13.6 M parameters): the recipe of the bundled English model.

    Without dropout, which learned most in trials; a run of many passes over its text wants some (LOG.md).
    """
    return TrainConfig(model=unclipped(ElmoConfig.small()), dropout=0.0)


def medium() -> TrainConfig:
    """The published medium size (28.0 M parameters)."""
    return TrainConfig(model=unclipped(ElmoConfig.medium()), output="sampled")


def original() -> TrainConfig:
    """The published original size (93.6 M parameters) with a sampled softmax."""
    return TrainConfig(model=unclipped(ElmoConfig.original()), output="sampled", learning_rate=4e-3)


def bilm_tf() -> TrainConfig:
    """The original size as bilm-tf trained it, constant for constant: ten passes over the 1 Billion Word Benchmark."""
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
        decay="constant",
        hold=0.0,
    )


RECIPES = {"tiny_cpu": tiny_cpu, "small": small, "medium": medium, "original": original, "bilm_tf": bilm_tf}


def recipe_named(name: str) -> TrainConfig:
    """The recipe of that name; an unknown one is an error that lists the known."""
    if name not in RECIPES:
        raise ConfigError(f"no recipe is called {name!r}: use one of {', '.join(RECIPES)}")
    return RECIPES[name]()
