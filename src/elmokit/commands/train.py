"""`elmo train`: raw text in, a model out.

Files of text arrive; a model folder leaves, and beside it a folder from which a stopped run goes on. The work is
`pretrain.train`; the settings, their explanations and the reading of their values are those of `pretrain.arguments`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, make_dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import tyro

from elmokit.commands.base import Command, option_of
from elmokit.pretrain.arguments import configured, settings
from elmokit.pretrain.recipes import RECIPES
from elmokit.settings import Setting

__all__ = ["Train"]


DEFAULT_RECIPE = "small"


def _shown(setting: Setting) -> str:
    """The default recipe's value, as it would be written on the command line."""
    config = RECIPES[DEFAULT_RECIPE]()
    value = reduce(getattr, setting.name.split("."), config.model if "." in setting.name else config)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value) if isinstance(value, tuple) else str(value).lower()


OPTIONS = {setting.name: option_of(setting, hint=f"{DEFAULT_RECIPE}: {_shown(setting)}") for setting in settings()}
Settings: Any = make_dataclass("Settings", OPTIONS.values(), frozen=True)
Settings.__doc__ = "The settings of a TrainConfig and of its model, as text."


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a model on text, from nothing to a folder that every other command takes.

    The text is split into sentences and words, encoded once, and read as often as --tokens asks. The model appears in
    DIR at the end; DIR.training holds the encoded text, the log and the checkpoints. A run that was stopped goes on
    with the same command. torchrun --nproc-per-node N -m elmokit.pretrain.train shares the work among N processes.

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
    """A model to go on from, of any family; its sizes are kept, and its output layer where words are shared."""
    vectors: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none)")] = None
    """Word vectors (GloVe or word2vec text, packed or not) for the table of a model of words to begin with."""
    held_out: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT...")] = ()
    """Text that is never trained on: its perplexity tells how well the model predicts what it has not seen."""
    tokenised: bool = False
    """Each line is one sentence whose words stand between spaces; take them as they are."""
    held_out_tokenised: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: like --tokenised)")] = False
    """The same for the held-out text alone."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: until it is done)")] = (
        None
    )
    """Stop with a checkpoint after so many minutes; the same command goes on."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all cores)")] = None
    """Processes that split the text into words."""
    device: Annotated[
        str | None,
        tyro.conf.arg(metavar="cpu|cuda|cuda:N", help_behavior_hint="(default: a GPU if there is one)"),
    ] = None
    """Where to compute."""
    tensorboard: bool = False
    """Also write the log for TensorBoard, to DIR.training/tensorboard."""
    settings: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)  # pyright: ignore[reportInvalidTypeForm]
    """What is computed: each replaces what the recipe says. --characters.… and --lstm.… are the model's sizes."""

    def run(self) -> None:
        """Train, telling how it goes."""
        given = {name: getattr(self.settings, option) for name, (option, _, _) in OPTIONS.items()}
        config = configured(self.recipe, given)
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
            tensorboard=self.tensorboard,
        )
