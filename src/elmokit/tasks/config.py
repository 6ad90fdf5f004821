"""The settings of a task model and of its training: frozen dataclasses that cannot be wrong.

`InputConfig` says what a word's features are, `TaskConfig` (one subclass per task) what the model over them is,
`TrainingConfig` how it learns. All are plain values that go through JSON; none needs torch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from elmokit.errors import ConfigError

__all__ = ["InputConfig", "Place", "Schedule", "TaskConfig", "TrainingConfig", "check", "check_sizes", "from_values"]

Place = Literal["none", "input", "output", "both"]
Schedule = Literal["plateau", "constant", "slanted"]
Kind = TypeVar("Kind")


def check(holds: bool, message: str) -> None:
    """A `ConfigError` unless something holds."""
    if not holds:
        raise ConfigError(message)


def check_sizes(config: object, *names: str) -> None:
    """The settings of these names are 1 or more, and `dropout`, where there is one, is a rate of dropout."""
    for name in names:
        check(getattr(config, name) >= 1, f"{name} is {getattr(config, name)}: expected 1 or more")
    dropout = getattr(config, "dropout", 0.0)
    check(0 <= dropout < 1, f"dropout is {dropout}: expected 0 or more, below 1")


@dataclass(frozen=True)
class InputConfig:
    """What a task model is told about each word."""

    vectors: str | None = None
    """A file of word vectors: GloVe or word2vec text, packed or not."""
    train_vectors: bool = False
    """Whether those vectors learn."""
    character_filters: int = 0
    """Channels of a small character CNN that learns with the task, 0 for none."""
    elmo: str | None = None
    """An ELMo model: a model's name, a folder, a .zip or a hub id."""
    elmo_at: Place = "input"
    """Where its vectors come in: `"input"` of the contextual layer, its `"output"`, `"both"`, or `"none"`."""
    elmo_layers: str = "mix"
    """Which of its layers: `"mix"` (learned weights), `"average"`, `"top"`, or a layer number."""
    elmo_l2: float = 0.001
    """Strength of the penalty that holds the weights of a mix near equal (1 or 0.001 in the paper)."""
    elmo_dropout: float = 0.5
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
        check(self.elmo_at in get_args(Place), f"elmo_at is {self.elmo_at!r}: use one of {', '.join(get_args(Place))}")
        layer = self.elmo_layers
        check(
            layer in ("mix", "average", "top") or layer.isdigit(),
            f"elmo_layers is {layer!r}: use mix, average, top or a layer number",
        )
        check(self.character_filters >= 0, f"character_filters is {self.character_filters}: expected 0 or more")
        check(0 <= self.elmo_dropout < 1, f"elmo_dropout is {self.elmo_dropout}: expected 0 or more, below 1")
        check(self.elmo_l2 >= 0, f"elmo_l2 is {self.elmo_l2}: expected 0 or more")
        check(
            bool(self.vectors or self.character_filters or (self.elmo and self.elmo_at in ("input", "both"))),
            "a task model needs something to know words by at its input: give vectors, character filters or an ELMo "
            "model at the input",
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

    epochs: int = 30
    """Passes over the training examples at most."""
    patience: int = 8
    """Epochs without a better score on the development set after which training stops."""
    batch_size: int = 32
    """Examples per step, at most."""
    batch_words: int = 4000
    """Words per step, at most, padding included."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    elmo_learning_rate: float = 2e-4
    """Learning rate of the top layer of a biLM that learns too."""
    weight_decay: float = 0.0
    """Weight decay of Adam (decoupled)."""
    clip_norm: float = 5.0
    """Bound of the norm of all gradients together, 0 for none."""
    schedule: Schedule = "plateau"
    """How the learning rate changes: `"plateau"` (halved when the score stops rising), `"constant"`, or
    `"slanted"` (ULMFiT's triangle)."""
    plateau: int = 3
    """Epochs without a better score after which the learning rate is halved."""
    average: float = 0.0
    """Decay of a running average of the weights that is used for scores; 0 for none."""
    minutes: float = 0.0
    """Minutes a run may take: no epoch begins that would probably end later; 0 for no limit."""
    share: float = 1.0
    """Fraction of the training examples to learn from, drawn by the seed."""
    seed: int = 0
    """Decides every random number."""

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        check_sizes(self, "epochs", "patience", "batch_size", "batch_words", "plateau")
        for name in ("learning_rate", "elmo_learning_rate"):
            check(getattr(self, name) > 0, f"{name} is {getattr(self, name)}: expected a number above 0")
        for name in ("weight_decay", "clip_norm", "minutes"):
            check(getattr(self, name) >= 0, f"{name} is {getattr(self, name)}: expected 0 or more")
        check(0 < self.share <= 1, f"share is {self.share}: expected above 0, at most 1")
        check(0 <= self.average < 1, f"average is {self.average}: expected 0 or more, below 1")
        names = get_args(Schedule)
        check(self.schedule in names, f"schedule is {self.schedule!r}: use one of {', '.join(names)}")


def from_values(kind: type[Kind], values: dict[str, Any], where: str) -> Kind:
    """The dataclass of such values, parts of it included; an unknown field is a `ConfigError` that names it."""
    known = {each.name: each for each in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    check(
        isinstance(values, dict), f"{where} should be an object with the fields {sorted(known)}, found {values!r:.60}"
    )
    unknown = sorted(set(values) - set(known))
    check(not unknown, f"{where} has the unknown fields {unknown}; known are {sorted(known)}")
    values = dict(values)
    if isinstance(values.get("inputs"), dict):
        values["inputs"] = from_values(InputConfig, values["inputs"], f"{where}.inputs")
    for name, value in values.items():
        if str(known[name].type).startswith("tuple") and isinstance(value, list):
            values[name] = tuple(value)
    try:
        return kind(**values)
    except TypeError as problem:
        raise ConfigError(f"{where} cannot be read: {problem}") from problem
