"""Recipes: functions that return a complete, typed description of a training run.

A `TrainConfig` holds everything that decides what a run computes; where its text lies and where its model goes is said
to `train` itself. `elmo train --recipe small --dropout 0.05` takes a recipe and replaces fields of it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from elmokit.config import ElmoConfig, WordConfig
from elmokit.errors import ConfigError
from elmokit.pretrain.corpus import EncodedCorpus
from elmokit.pretrain.counting import build_alphabet
from elmokit.pretrain.schedules import Decay

__all__ = ["RECIPES", "TrainConfig", "medium", "original", "recipe_named", "small", "tiny_cpu"]

Mode = Literal["sentences", "streams"]
Input = Literal["characters", "words"]
Output = Literal["full", "sampled", "adaptive"]
Sampler = Literal["unigram", "log_uniform"]
Optimiser = Literal["muon", "adamw", "adagrad"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes.

    Arguments:
        model: the sizes of the network. Models trained here do not clip unless told: clipping guards old
            optimisers against runaway cells, and GPUs run unclipped LSTMs several times faster.
        input: `"characters"`, or `"words"`: a table with one vector a word of the vocabulary instead.
        vocabulary_size: words the output layer predicts, most frequent first, the three special ones included.
        min_count: words rarer than this stay outside the vocabulary.
        mode: whole `"sentences"` from zero state (how most people use the vectors), or endless `"streams"` with
            carried state and truncated gradients, as bilm-tf trained.
        tokens: words to see in all; the learning rate decays towards this number.
        tokens_per_batch: words of a step, both directions counted once.
        unroll: words of a window in `"streams"`.
        dropout: share of zeros in what each LSTM layer and the output layer read.
        output: `"full"` softmax, `"sampled"`, or `"adaptive"`.
        num_negatives: words that a sampled softmax compares with.
        sampler: where they come from: `"unigram"` (frequency to the power `sampler_power`) or bilm-tf's `"log_uniform"`.
        sampler_power: the exponent of `"unigram"`.
        optimiser: `"muon"` on matrices with AdamW on the rest, `"adamw"`, or bilm-tf's `"adagrad"`.
        learning_rate: of AdamW or Adagrad.
        muon_learning_rate: of Muon.
        weight_decay: of AdamW and Muon, on matrices only.
        warmup_tokens: words over which the learning rate rises from 0.
        decay: how it falls afterwards.
        final_learning_rate: the share of it that is left at the end.
        clip_norm: bound of the global gradient norm.
        precision: of encoder and LSTMs; `"auto"` is bfloat16 on a GPU and float32 on a CPU.
        evaluate_every: words between held-out perplexities.
        checkpoint_every: words between checkpoints.
        seed: of everything random.
    """

    model: ElmoConfig = field(default_factory=ElmoConfig.small)
    input: Input = "characters"
    vocabulary_size: int = 100_000
    min_count: int = 2
    mode: Mode = "sentences"
    tokens: int = 1_000_000_000
    tokens_per_batch: int = 20_480
    unroll: int = 20
    dropout: float = 0.1
    output: Output = "full"
    num_negatives: int = 8192
    sampler: Sampler = "unigram"
    sampler_power: float = 0.75
    optimiser: Optimiser = "muon"
    learning_rate: float = 8e-3
    muon_learning_rate: float = 4e-3
    weight_decay: float = 0.0
    warmup_tokens: int = 6_000_000
    decay: Decay = "cosine"
    final_learning_rate: float = 0.02
    clip_norm: float = 1.0
    precision: Precision = "auto"
    evaluate_every: int = 50_000_000
    checkpoint_every: int = 50_000_000
    seed: int = 1

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        choices = {"mode": Mode, "input": Input, "output": Output, "sampler": Sampler, "optimiser": Optimiser, "decay": Decay}
        for name, kind in (choices | {"precision": Precision}).items():
            value = getattr(self, name)
            if value not in get_args(kind):
                raise ConfigError(f"{name} is {value!r}: use one of {', '.join(get_args(kind))}")
        for name in ("tokens", "tokens_per_batch", "unroll", "num_negatives", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: expected 1 or more")
        if self.vocabulary_size < 4:
            raise ConfigError(f"vocabulary_size is {self.vocabulary_size}: three special words and one real one need 4")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}: expected 0 or more, and less than 1")
        if not self.learning_rate > 0 or not self.muon_learning_rate > 0:
            raise ConfigError("learning rates must be above 0")

    @property
    def widest_filter(self) -> int:
        """Width of the widest convolution; 1 for a model of words."""
        characters = self.model.characters
        return max(width for width, _ in characters.filters) if characters and self.input == "characters" else 1

    def model_for(self, corpus: EncodedCorpus) -> tuple[ElmoConfig, dict[str, Any]]:
        """The model's sizes once its corpus is known, and the lists that its scheme needs (alphabet or vocabulary)."""
        if self.input == "words":
            words = WordConfig(corpus.vocabulary_size, self.model.lstm.projection_dim)
            model = ElmoConfig(None, words, self.model.lstm, projects_words=False)
            return model, {"vocabulary": corpus.vocabulary}
        characters = self.model.characters
        if characters is None or characters.scheme == "bytes":
            return self.model, {}
        counted = zip(corpus.vocabulary, corpus.counts_V.tolist(), strict=True)
        alphabet = build_alphabet(counted, characters.num_symbols)
        characters = dataclasses.replace(characters, num_symbols=len(alphabet))
        return dataclasses.replace(self.model, characters=characters), {"alphabet": alphabet}

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
        tokens_per_batch=2_048,
        output="sampled",
        num_negatives=1_024,
        warmup_tokens=100_000,
        evaluate_every=1_000_000,
        checkpoint_every=500_000,
    )


def small() -> TrainConfig:
    """The published small size (13.6 M parameters): the recipe of the bundled English model."""
    return TrainConfig(model=unclipped(ElmoConfig.small()))


def medium() -> TrainConfig:
    """The published medium size (28.0 M parameters)."""
    return TrainConfig(model=unclipped(ElmoConfig.medium()), output="sampled")


def original() -> TrainConfig:
    """The published original size (93.6 M parameters) with a sampled softmax."""
    return TrainConfig(model=unclipped(ElmoConfig.original()), output="sampled", learning_rate=4e-3)


RECIPES = {"tiny_cpu": tiny_cpu, "small": small, "medium": medium, "original": original}


def recipe_named(name: str) -> TrainConfig:
    """The recipe of that name; an unknown one is an error that lists the known."""
    if name not in RECIPES:
        raise ConfigError(f"no recipe is called {name!r}: use one of {', '.join(RECIPES)}")
    return RECIPES[name]()
