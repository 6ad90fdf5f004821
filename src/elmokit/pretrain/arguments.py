"""The settings of a run as text: any field of a `TrainConfig`, and of the sizes of its model, as `--field value`.

`elmo train` is the comfortable way in and takes names, explanations and the reading of values from here. `parsed` needs
only what training itself needs, for machines where nothing can be installed: `python -m elmokit.pretrain.train`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from elmokit.config import Activation, CharConfig, LstmConfig, Scheme
from elmokit.errors import ConfigError
from elmokit.pretrain.recipes import CHOICES, RECIPES, TrainConfig, recipe_named

__all__ = ["Setting", "configured", "parsed", "settings"]

MODEL_PARTS = {"characters": CharConfig, "lstm": LstmConfig}
MODEL_CHOICES = {"characters.scheme": Scheme, "characters.activation": Activation}
METAVARS = {"int": "N", "int | None": "N", "float": "X", "float | None": "X|none", "bool": "yes|no"}


class Setting(NamedTuple):
    """One field that can be set: `dropout`, or `lstm.cell_dim` for a field of a part of the model."""

    name: str
    kind: str
    help: str

    @property
    def option(self) -> str:
        """As it is written on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def metavar(self) -> str:
        """What values look like."""
        choices = {**CHOICES, **MODEL_CHOICES}.get(self.name)
        return "|".join(get_args(choices)) if choices else METAVARS.get(self.kind, "JSON")


def settings() -> list[Setting]:
    """All that can be set, in the order of their definition.

    Example:
        >>> [setting.option for setting in settings()][:3]
        ['--input', '--vocabulary-size', '--min-count']
    """
    parts: dict[str, type] = {"": TrainConfig, **{f"{name}.": part for name, part in MODEL_PARTS.items()}}
    found = []
    for prefix, part in parts.items():
        texts = _explanations(part)
        fields = [field for field in dataclasses.fields(part) if field.name != "model"]
        found += [Setting(prefix + field.name, str(field.type), texts[field.name]) for field in fields]
    return found


def configured(recipe: str, values: Mapping[str, str | None]) -> TrainConfig:
    """A recipe with some settings replaced; their values are text, and `None` leaves the recipe's.

    Example:
        >>> configured("tiny_cpu", {"tokens": "1e6", "lstm.cell_dim": "128"}).model.lstm.cell_dim
        128
    """
    config = recipe_named(recipe)
    kinds = {setting.name: setting for setting in settings()}
    given = {name: _value(kinds[name], text) for name, text in values.items() if text is not None}
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


def _value(setting: Setting, text: str) -> object:
    """The text as a value of the setting's type; numbers may be written 1e9 or 1_000_000."""
    kind = setting.kind
    if setting.metavar not in (*METAVARS.values(), "JSON"):
        return text
    if kind == "bool" and text.lower() in ("yes", "no", "true", "false"):
        return text.lower() in ("yes", "true")
    if kind == "float | None" and text.lower() == "none":
        return None
    try:
        value = json.loads(text if kind.startswith("tuple") else text.replace("_", ""))
    except json.JSONDecodeError:
        value = None
    if kind.startswith("tuple") and isinstance(value, list):
        return value
    if kind.startswith(("int", "float")) and isinstance(value, (int, float)) and not isinstance(value, bool):
        if kind.startswith("int") and value != int(value):
            raise ConfigError(f"{setting.option} is {text!r}: expected a whole number")
        return int(value) if kind.startswith("int") else float(value)
    raise ConfigError(f"{setting.option} is {text!r}: expected {setting.metavar}")


def _explanations(part: type) -> dict[str, str]:
    """What the docstring of a configuration says about each of its fields."""
    lines = (part.__doc__ or "").split("Arguments:")[-1].splitlines()
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        begins = re.match(r" {8}(\w+(?:, \w+)*): (.*)", line)
        names = begins[1].split(", ") if begins else names
        words = begins[2] if begins else line.strip()
        texts |= {name: f"{texts.get(name, '')} {words}".strip() for name in names if words}
    return {name: text.replace("`", "").replace('"', "") for name, text in texts.items()}
