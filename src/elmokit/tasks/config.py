"""The settings of a task model and of its training: frozen dataclasses that cannot be wrong.

`InputConfig` says what a word's features are, `TaskConfig` (one subclass per task) what the model over them is,
`TrainingConfig` how it learns. All are plain values that go through JSON; none needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from elmokit.errors import ConfigError
from elmokit.validation import Bounds, check_fields

__all__ = [
    "InputConfig", "Labels", "NumLayers", "NumWords", "Place", "Rate", "Schedule", "TaskConfig", "TrainingConfig",
    "Width",
]  # fmt: skip

Place = Literal["none", "input", "output", "both"]
Schedule = Literal["plateau", "constant", "slanted"]

Width = Annotated[int, Bounds(1, 2**14)]  # of vectors inside a task model
NumLayers = Annotated[int, Bounds(1, 128)]
NumWords = Annotated[int, Bounds(1, 2**20)]  # of a text or a part of it
Rate = Annotated[float, Bounds(at_least=0, below=1)]  # such as a rate of dropout
AtLeast0 = Annotated[float, Bounds(at_least=0)]
Above0 = Annotated[float, Bounds(above=0)]
AtLeast1 = Annotated[int, Bounds(1, 2**40)]
Labels = Annotated[Sequence[str], Bounds(1, 10_000)]  # a CRF has a score for each pair of them


@dataclass(frozen=True)
class InputConfig:
    """What a task model is told about each word."""

    vectors: str | None = None
    """A file of word vectors: GloVe or word2vec text, packed or not."""
    train_vectors: bool = False
    """Whether those vectors learn."""
    character_filters: Annotated[int, Bounds(0, 2**14)] = 0
    """Channels of a small character CNN that learns with the task, 0 for none."""
    elmo: str | None = None
    """An ELMo model: a model's name, a folder, a .zip or a hub id."""
    elmo_at: Place = "input"
    """Where its vectors come in: `"input"` of the contextual layer, its `"output"`, `"both"`, or `"none"`."""
    elmo_layers: str = "mix"
    """Which of its layers: `"mix"` (learned weights), `"average"`, `"top"`, or a layer number."""
    elmo_l2: AtLeast0 = 0.001
    """Strength of the penalty that holds the weights of a mix near equal (1 or 0.001 in the paper)."""
    elmo_dropout: Rate = 0.5
    """Dropout of ELMo's vectors."""
    random_elmo: bool = False
    """Take the architecture of `elmo` with fresh weights, to see what pretraining brings."""
    tune_elmo: bool = False
    """Let the biLM learn too, by ULMFiT's schedule; its layers then have to be computed in every step."""

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        object.__setattr__(self, "elmo_layers", str(self.elmo_layers))
        if self.elmo_at == "none":
            object.__setattr__(self, "elmo", None)
        check_fields(self)
        layer = self.elmo_layers
        if layer not in ("mix", "average", "top") and not (layer.isascii() and layer.isdigit() and len(layer) < 4):
            raise ConfigError(f"elmo_layers is {layer!r:.60}: use mix, average, top or a layer number")
        if not (self.vectors or self.character_filters or (self.elmo and self.elmo_at in ("input", "both"))):
            raise ConfigError(
                "a task model needs something to know words by at its input: give vectors, character filters or an "
                "ELMo model at the input"
            )

    @property
    def elmo_in(self) -> bool:
        """Whether ELMo's vectors are part of the input."""
        return self.elmo is not None and self.elmo_at in ("input", "both")

    @property
    def elmo_out(self) -> bool:
        """Whether ELMo's vectors join the output of the contextual layer."""
        return self.elmo is not None and self.elmo_at in ("output", "both")


@dataclass(frozen=True)
class TaskConfig:
    """What every task model has; a task adds its own sizes in a subclass.

    Arguments:
        inputs: what is known about each word.
    """

    inputs: InputConfig = field(default_factory=lambda: InputConfig(character_filters=64))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values, ready for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TrainingConfig:
    """How a task model learns."""

    epochs: AtLeast1 = 30
    """Passes over the training examples at most."""
    patience: AtLeast1 = 8
    """Epochs without a better score on the development set after which training stops."""
    batch_size: AtLeast1 = 32
    """Examples per step, at most."""
    batch_words: AtLeast1 = 4000
    """Words per step, at most, padding included."""
    learning_rate: Above0 = 1e-3
    """Learning rate of Adam."""
    elmo_learning_rate: Above0 = 2e-4
    """Learning rate of the top layer of a biLM that learns too."""
    weight_decay: AtLeast0 = 0.0
    """Weight decay of Adam (decoupled)."""
    clip_norm: AtLeast0 = 5.0
    """Bound of the norm of all gradients together, 0 for none."""
    schedule: Schedule = "plateau"
    """How the learning rate changes: `"plateau"` (halved when the score stops rising), `"constant"`, or
    `"slanted"` (ULMFiT's triangle)."""
    plateau: AtLeast1 = 3
    """Epochs without a better score after which the learning rate is halved."""
    average: Rate = 0.0
    """Decay of a running average of the weights that is used for scores; 0 for none."""
    minutes: AtLeast0 = 0.0
    """Minutes a run may take: no epoch begins that would probably end later; 0 for no limit."""
    share: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    """Fraction of the training examples to learn from, drawn by the seed."""
    seed: Annotated[int, Bounds(0, 2**62)] = 0
    """Decides every random number."""

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        check_fields(self)
