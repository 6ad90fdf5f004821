"""The training command without a command-line library: any field of a `TrainConfig` as `--field value`.

`elmo train` is the comfortable way in; this one needs only what training itself needs, for machines where nothing can be
installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from elmokit.errors import ConfigError
from elmokit.pretrain.recipes import TrainConfig, recipe_named

__all__ = ["parsed"]


def parsed(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, dict[str, Any]]:
    """The configuration that these arguments ask for, and the other arguments of `train`."""
    parser = argparse.ArgumentParser(prog="python -m elmokit.pretrain.train", description=__doc__)
    parser.add_argument("texts", nargs="+", help="files, globs or - ; compressed ones are unpacked")
    parser.add_argument("-o", "--destination", required=True, help="the model's folder")
    parser.add_argument("--recipe", default="small", help="tiny_cpu, small, medium or original")
    parser.add_argument("--held-out", nargs="*", default=[], help="text for perplexity, never trained on")
    parser.add_argument("--tokenised", action="store_true", help="one sentence a line, words between spaces")
    parser.add_argument("--held-out-tokenised", action="store_true", default=None)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--device", default=None)
    parser.add_argument("--minutes", type=float, default=None, help="stop with a checkpoint after so many minutes")
    fields = [each for each in dataclasses.fields(TrainConfig) if each.name != "model"]
    for each in fields:
        parser.add_argument("--" + each.name.replace("_", "-"), default=None, metavar="VALUE")
    values = vars(parser.parse_args(arguments))
    config = recipe_named(values.pop("recipe"))
    changed = {each.name: values.pop(each.name) for each in fields}
    changed = {name: _like(getattr(config, name), text, name) for name, text in changed.items() if text is not None}
    return dataclasses.replace(config, **changed), values


def _like(example: object, text: str, name: str) -> object:
    """The text as a value of the same type as the example; numbers may be written 1e9 or 1_000_000."""
    if isinstance(example, str):
        return text
    try:
        value = json.loads(text.replace("_", ""))
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, (int, float)):
        raise ConfigError(f"--{name.replace('_', '-')} is {text!r}: expected a number")
    if isinstance(example, int):
        if value != int(value):
            raise ConfigError(f"--{name.replace('_', '-')} is {text!r}: expected a whole number")
        return int(value)
    return float(value)
