"""The settings of a run as text: any field of a `TrainConfig`, and of the sizes of its model, as `--field value`.

`elmo train` is the comfortable way in and takes names, explanations and the reading of values from here. `parsed` needs
only what training itself needs, for machines where nothing can be installed: `python -m elmokit.pretrain.train`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.config import CharConfig, LstmConfig
from elmokit.pretrain.recipes import RECIPES, TrainConfig, recipe_named
from elmokit.settings import Setting, read_value, settings_of

__all__ = ["configured", "parsed", "settings"]

MODEL_PARTS = {"characters": CharConfig, "lstm": LstmConfig}


def settings() -> list[Setting]:
    """All that can be set, in the order of their definition.

    Example:
        >>> [setting.option for setting in settings()][:3]
        ['--input', '--vocabulary-size', '--min-count']
    """
    found = settings_of(TrainConfig, leaves_out=("model",))
    return found + [each for name, part in MODEL_PARTS.items() for each in settings_of(part, prefix=f"{name}.")]


def configured(recipe: str, values: Mapping[str, str | None]) -> TrainConfig:
    """A recipe with some settings replaced; their values are text, and `None` leaves the recipe's.

    Example:
        >>> configured("tiny_cpu", {"tokens": "1e6", "lstm.cell_dim": "128"}).model.lstm.cell_dim
        128
    """
    config = recipe_named(recipe)
    kinds = {setting.name: setting for setting in settings()}
    given = {name: read_value(kinds[name], text) for name, text in values.items() if text is not None}
    for part in MODEL_PARTS:
        changed = {name.removeprefix(f"{part}."): value for name, value in given.items() if name.startswith(f"{part}.")}
        if changed:
            model = dataclasses.replace(
                config.model, **{part: dataclasses.replace(getattr(config.model, part), **changed)}
            )
            config = dataclasses.replace(config, model=model)
    return dataclasses.replace(config, **{name: value for name, value in given.items() if "." not in name})


def parsed(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, dict[str, Any]]:
    """The configuration that these arguments ask for, and the other arguments of `train`."""
    parser = argparse.ArgumentParser(prog="python -m elmokit.pretrain.train", allow_abbrev=False)
    parser.add_argument("texts", nargs="+", help="files, globs or - ; compressed ones are unpacked")
    parser.add_argument("-o", "--destination", required=True, help="the model's folder")
    parser.add_argument("--recipe", default="small", help=", ".join(RECIPES))
    parser.add_argument("--held-out", nargs="*", default=[], help="text for perplexity, never trained on")
    parser.add_argument("--tokenised", action="store_true", help="one sentence a line, words between spaces")
    parser.add_argument("--held-out-tokenised", action="store_true", default=None)
    parser.add_argument("--workers", type=int, default=None, help="processes that segment")
    parser.add_argument("--device", default=None, help="cpu, cuda, …")
    parser.add_argument("--minutes", type=float, default=None, help="stop with a checkpoint after so many minutes")
    parser.add_argument("--from", dest="start_from", default=None, metavar="SOURCE", help="a model to go on from")
    parser.add_argument("--vectors", default=None, metavar="FILE", help="word vectors that the word table begins with")
    parser.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard")
    for setting in settings():
        explained = setting.help.replace("%", "%%")
        parser.add_argument(setting.option, dest=setting.name, default=None, metavar=setting.metavar, help=explained)
    values = vars(parser.parse_args(arguments))
    changed = {setting.name: values.pop(setting.name) for setting in settings()}
    return configured(values.pop("recipe"), changed), values
