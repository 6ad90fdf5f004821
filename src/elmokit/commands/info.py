"""`elmo info`: what a model is made of, read from its files, and which engine would run it; or a list of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elmokit.commands.base import MODEL_HELP, Command, Switch, say
from elmokit.errors import CheckpointError

if TYPE_CHECKING:
    from elmokit.config import ElmoConfig
    from elmokit.io import Checkpoint

__all__ = ["Info"]


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Show what a model is made of: its format, sizes, layers and how it reads words. Without one, list the models.

    Example: elmo info my-model
    """

    source: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(metavar="[SOURCE]", help=MODEL_HELP, help_behavior_hint="(default: list those with a name)"),
    ] = None
    json: Switch = False
    """Print one JSON object instead of lines."""

    def run(self) -> None:
        """Load the model and print one line per fact; or list the models."""
        if self.source is None:
            self._list_models()
            return
        from elmokit.io import load

        checkpoint = load(self.source, softmax="shape")
        if self.json:
            say(json.dumps(_to_json(checkpoint), ensure_ascii=False))
            return
        facts = list(_facts(checkpoint))
        width = max(len(name) for name, _ in facts) + 2
        for name, value in facts:
            say(f"{name:<{width}}{value}")

    def _list_models(self) -> None:
        models = _describe_models()
        if self.json:
            say(json.dumps({"models": models}, ensure_ascii=False))
            return
        width = max(len(model["name"]) for model in models) + 2
        for model in models:
            say(f"{model['name']:<{width}}{model['state']}")
            if model["description"]:
                say(f"{'':<{width}}{model['description']}")


def _describe_models() -> list[dict[str, str]]:
    """Those that are here and those that could be, with what is known of them."""
    from elmokit.io.native_config import inspect_native
    from elmokit.io.packages import KNOWN, find_models, install_command

    models = []
    for name, package, folder in find_models():
        state = f"package {package}" if package else "comes with elmokit"
        metadata: dict[str, str] | None = None
        if folder is not None:
            with suppress(CheckpointError):
                metadata = inspect_native(folder)
        state += "" if metadata is not None else ", broken: elmo info NAME says why"
        description = (metadata or {}).get("description", "")
        models.append({"name": name, "state": state, "folder": str(folder or ""), "description": description})
    here = {model["name"] for model in models}
    for name in sorted(set(KNOWN) - here):
        models.append(
            {
                "name": name,
                "state": f"not installed; in a checkout: {install_command(name)}",
                "folder": "",
                "description": "",
            }
        )
    return models


def _to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    from elmokit.io import num_output_words, num_parameters

    config = checkpoint.config
    return {
        "source": str(checkpoint.path),
        "format": checkpoint.format,
        "parameters": num_parameters(config),
        "layers": config.num_layers,
        "dim": config.dim,
        "output_words": None if checkpoint.softmax is None else num_output_words(checkpoint.softmax),
        "engine": _engine_here(config),
        "config": config.to_dict(),
        "metadata": checkpoint.metadata,
    }


def _facts(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    from elmokit.io import num_output_words, num_parameters

    config, lstm = checkpoint.config, checkpoint.config.lstm
    clips = [f"{name} ±{clip:g}" for name, clip in (("cell", lstm.cell_clip), ("output", lstm.projection_clip)) if clip]
    yield "source", str(checkpoint.path)
    yield "format", checkpoint.format
    yield "parameters", f"{num_parameters(config):,}"
    yield "layers", f"{config.num_layers} (0 is the word alone, 1 to {lstm.num_layers} are LSTM layers)"
    yield "vectors", f"{config.dim} wide ({lstm.projection_dim} in each direction)"
    yield "cells", f"{lstm.cell_dim} wide, {'with' if lstm.residual else 'without'} residual connections"
    yield "clips", ", ".join(clips) or "none"
    yield "words", _how_words_are_read(config)
    yield "mix", checkpoint.metadata.get("mix") or _stored_mix(checkpoint)
    yield "warm start", "stored" if "canonical.hidden" in checkpoint.tensors else "computed when first needed"
    yield (
        "softmax",
        "none at hand" if checkpoint.softmax is None else f"{num_output_words(checkpoint.softmax):,} words",
    )
    yield "engine", _engine_here(config)
    yield "precision", _precisions_here()
    yield from ((name.replace("_", " "), value) for name, value in sorted(checkpoint.metadata.items()) if name != "mix")


def _how_words_are_read(config: ElmoConfig) -> str:
    ways = []
    if config.words:
        ways.append(f"a table of {config.words.num_words:,} words")
    if config.characters:
        characters = config.characters
        what = "UTF-8 bytes" if characters.scheme == "bytes" else f"{characters.num_symbols:,} Unicode symbols"
        ways.append(f"{what}, up to {characters.max_length - 2} per word, {characters.num_highways} highway layer(s)")
    return " and ".join(ways)


def _stored_mix(checkpoint: Checkpoint) -> str:
    if "mix.weights" not in checkpoint.tensors:
        return "none stored (the average is used)"
    weights = ", ".join(f"{weight:.3f}" for weight in checkpoint.tensors["mix.weights"].softmax(0).tolist())
    return f"{weights}; gamma {checkpoint.tensors['mix.gamma'].item():.3f}"


def _engine_here(config: ElmoConfig) -> str:
    import torch

    from elmokit.devices import find_device
    from elmokit.engines import choose
    from elmokit.nn.operations import Clips, Request

    lstm = config.lstm
    details = {"clips": Clips(lstm.cell_clip, lstm.projection_clip), "has_projection": lstm.has_projection}
    choice = choose(Request("recurrence", find_device(), torch.float32, **details))
    return f"{choice.name} ({choice.reason})"


def _precisions_here() -> str:
    from typing import get_args

    from elmokit.devices import find_device
    from elmokit.engines.precision import PrecisionName, why_not

    reasons = {name: why_not(name, find_device()) for name in get_args(PrecisionName)}
    found = ", ".join(name for name, reason in reasons.items() if reason is None)
    return "; ".join([found, *(f"no {name}: {reason}" for name, reason in reasons.items() if reason is not None)])
