"""`elmo train`: raw text in, a model out.

Files of text arrive; a model folder leaves, and beside it a folder from which a stopped run continues. The work is
`pretrain.train`; the settings are the fields of a `TrainConfig`, and a recipe decides about those that are not given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import tyro

from elmokit.commands.base import Command, Computation, Device, Switch
from elmokit.commands.settings import Setting, find_settings, make_options, replace_fields, show_value
from elmokit.config import CharConfig, LstmConfig
from elmokit.errors import ConfigError
from elmokit.pretrain.recipes import RECIPES, TrainConfig, recipe_named
from elmokit.text.files import find_files

__all__ = ["Train", "change_recipe", "train_settings"]

DEFAULT_RECIPE = "small"
MODEL_PARTS = {"characters": CharConfig, "lstm": LstmConfig}


def train_settings() -> list[Setting]:
    """All that a recipe decides and an option can change, in the order of their definition.

    Example:
        >>> [setting.option for setting in train_settings()][:3]
        ['--input', '--vocabulary-size', '--min-count']
    """
    found = find_settings(TrainConfig, leaves_out=("model",))
    return found + [each for name, part in MODEL_PARTS.items() for each in find_settings(part, prefix=f"{name}.")]


def change_recipe(recipe: str, given: Mapping[str, str]) -> TrainConfig:
    """A recipe with some settings replaced, whose values are given as text.

    Example:
        >>> change_recipe("tiny_cpu", {"tokens": "1e6", "lstm.cell_dim": "128"}).model.lstm.cell_dim
        128
    """
    config = recipe_named(recipe)
    parts = {part: replace_fields(getattr(config.model, part), given, prefix=f"{part}.") for part in MODEL_PARTS}
    return replace_fields(replace(config, model=replace(config.model, **parts)), given)


def _options_with(recipe: str) -> Any:  # noqa: ANN401
    """The options of the settings, which show this recipe's values."""
    config = recipe_named(recipe)

    def hint(setting: Setting) -> str:
        owner = config.model if "." in setting.name else config
        return f"{recipe}: {show_value(reduce(getattr, setting.name.split('.'), owner))}"

    return make_options(train_settings(), hint)


@dataclass(frozen=True, kw_only=True)
class Train(Computation):
    """Train a model on text, from nothing to a folder that every other command takes.

    The text is split into sentences and words, encoded once, and read as often as --tokens asks. The model appears in
    DIR at the end; DIR.training holds the encoded text, the log and the checkpoints. The same command continues a run
    that was stopped. torchrun --nproc-per-node N -m elmokit train … divides the work among N processes.

    Example: elmo train wiki-*.txt.gz -o my-model --recipe tiny_cpu --held-out other.txt
    """

    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TEXT...", help_behavior_hint="(required)")
    ]
    """Text files in UTF-8 or globs in quotes (.gz, .bz2, .xz, .zst too); - reads standard input."""
    destination: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """Where the model goes: a new folder."""
    recipe: Annotated[str, tyro.conf.arg(metavar="|".join(RECIPES))] = DEFAULT_RECIPE
    """What to begin from: tiny_cpu learns in minutes on a laptop; the others are for a GPU."""
    start_from: Annotated[
        str | None, tyro.conf.arg(name="from", metavar="SOURCE", help_behavior_hint="(default: nothing)")
    ] = None
    """A model to continue from, of any family; its sizes are kept, and its output layer where words are shared."""
    vectors: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """Word vectors (GloVe or word2vec text, packed or not) for the table of a model of words to begin with."""
    held_out: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT...", help_behavior_hint="(default: none)")] = ()
    """Text that is never trained on: its perplexity tells how well the model predicts what it has not seen."""
    tokenised: Switch = False
    """Each line is one sentence whose words stand between spaces; take them as they are."""
    held_out_tokenised: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: like --tokenised)")] = False
    """The same for the held-out text alone."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: until it is done)")] = (
        None
    )
    """Stop with a checkpoint after so many minutes; the same command continues."""
    patience: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 600
    """With several processes: how long one waits for the others before it gives up."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: like --threads)")] = None
    """Processes that split the text into words."""
    device: Device = None
    tensorboard: Switch = False
    """Also write the log for TensorBoard, to DIR.training/tensorboard."""
    settings: _options_with(DEFAULT_RECIPE) = field(default_factory=dict)  # pyright: ignore[reportInvalidTypeForm]
    """What is computed: each replaces what the recipe says. --characters.… and --lstm.… are the model's sizes."""

    @classmethod
    def suited_to(cls, arguments: Sequence[str]) -> type[Command]:
        """The command that shows the values of the recipe among the arguments."""
        words = [part for argument in arguments for part in argument.split("=", 1)]
        named = [value for option, value in pairwise(words) if option == "--recipe" and value in RECIPES]
        if not named:
            return cls
        settings = ("settings", _options_with(named[-1]), field(default_factory=dict))
        return make_dataclass("TrainWithRecipe", [settings], bases=(cls,), frozen=True, kw_only=True)

    def run(self) -> None:
        """Train and report progress."""
        self._refuse_what_would_be_ignored()
        config = change_recipe(self.recipe, self.settings)
        if not self.destination.with_name(f"{self.destination.name}.training").exists():
            # A new run. One that continues may have its text encoded already; `train` knows.
            for files in (self.files, self.held_out, [str(self.vectors)] if self.vectors else []):
                if files and not os.path.isfile(Path(files[0], "corpus.json")):
                    find_files(files)
        from elmokit.pretrain.train import train

        train(
            self.files,
            self.destination,
            config,
            held_out=self.held_out,
            tokenised=self.tokenised,
            held_out_tokenised=self.held_out_tokenised or None,
            start_from=self.start_from,
            vectors=self.vectors,
            workers=self.workers,
            device=self.device,
            minutes=self.minutes,
            patience=self.patience,
            tensorboard=self.tensorboard,
            quiet=self.quiet,
        )

    def _refuse_what_would_be_ignored(self) -> None:
        """Settings that were typed and that a model or a table of vectors decides instead."""
        options = {setting.name: setting.option for setting in train_settings()}
        sizes = [options[name] for name in self.settings if "." in name or name == "input"]
        if self.start_from is not None and sizes:
            raise ConfigError(
                f"{', '.join(sizes)} would change nothing: --from {self.start_from} keeps that model's sizes, clips "
                "and input; type the command without it, or train a new model without --from"
            )
        if self.vectors is not None and self.settings.get("input", "words") != "words":
            raise ConfigError(
                "--vectors begins a model of words, and --input characters asks for one of characters: leave out one "
                "of the two"
            )
