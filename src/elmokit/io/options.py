"""`options.json` of bilm-tf and AllenNLP: read into an `ElmoConfig`, and written from one.

The same file serves training (261 characters, many extra fields) and prediction (262 characters, the extra one
being "no word"), fields may be missing, and a few facts stand in the weights only. So reading takes what the
weights told (`WeightFacts`), fills the gaps as bilm-tf does, and complains only where options and weights differ.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.config import NUM_BYTE_SYMBOLS, CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import CheckpointError, ConfigError

__all__ = ["WeightFacts", "options_to_config", "config_to_options"]

log = logging.getLogger(__name__)


class WeightFacts(NamedTuple):
    """What only the weights can tell: the width of their word table, and whether they project the CNN's output."""

    name: str
    has_characters: bool
    num_words: int | None
    projects_words: bool


def options_to_config(options: dict[str, Any], path: Path, facts: WeightFacts) -> ElmoConfig:
    """The config that these options and weights describe; `path` is for messages."""
    if options.get("bidirectional") is False:
        raise CheckpointError(
            f"{path}: expected a bidirectional language model, found bidirectional: false; "
            "a forward-only model has no backward layers to read"
        )
    has_characters = options.get("char_cnn") is not None
    if has_characters and not facts.has_characters:
        table = "a word table (embedding)" if facts.num_words else "neither char_embed nor embedding"
        raise CheckpointError(
            f"{path}: describes character input (char_cnn), but {facts.name} holds {table}; "
            "the two files belong to different models"
        )
    if not has_characters and facts.num_words is None:
        found = "a character table (char_embed)" if facts.has_characters else "neither embedding nor char_embed"
        raise CheckpointError(
            f"{path}: has no char_cnn, so word input was expected, but {facts.name} holds {found}; "
            "the two files belong to different models"
        )
    try:
        lstm = _read_lstm(_get_part(options, "lstm", path), path)
        if not has_characters:
            assert facts.num_words is not None
            words = WordConfig(num_words=facts.num_words, dim=lstm.projection_dim)
            return ElmoConfig(characters=None, words=words, lstm=lstm, projects_words=False)
        characters = _read_characters(_get_part(options, "char_cnn", path), path)
        # bilm-tf projects only where widths differ, AllenNLP always: where they are equal the weights decide.
        projects = facts.projects_words or characters.num_features != lstm.projection_dim
        return ElmoConfig(characters, lstm=lstm, projects_words=projects)
    except (ConfigError, TypeError, ValueError) as problem:
        if isinstance(problem, CheckpointError):
            raise
        raise CheckpointError(f"{path}: describes no model: {problem}") from problem


def config_to_options(config: ElmoConfig) -> dict[str, Any]:
    """The options with which old tools read this model; `CheckpointError` for one they cannot express."""
    lstm, characters = config.lstm, config.characters
    options: dict[str, Any] = {
        "lstm": {
            "cell_clip": lstm.cell_clip,
            "dim": lstm.cell_dim,
            "n_layers": lstm.num_layers,
            "proj_clip": lstm.projection_clip,
            "projection_dim": lstm.projection_dim,
            "use_skip_connections": lstm.residual,
        }
    }
    if characters is None:
        if config.projects_words or config.words is None:
            raise _inexpressible("its words are projected after the table")
        options["n_tokens_vocab"] = config.words.num_words
        return options
    if config.words is not None:
        raise _inexpressible("it reads words and characters together")
    if characters.scheme != "bytes":
        raise _inexpressible(f"it reads {characters.scheme} characters, and that layout knows bytes only")
    options["char_cnn"] = {
        "activation": characters.activation,
        "embedding": {"dim": characters.dim},
        "filters": [list(pair) for pair in characters.filters],
        "max_characters_per_token": characters.max_length,
        "n_characters": NUM_BYTE_SYMBOLS + 1,
        "n_highway": characters.num_highways,
    }
    return options


def _read_lstm(values: dict[str, Any], path: Path) -> LstmConfig:
    cell_dim, projection_dim = (
        _get_field(values, "dim", "lstm", path),
        _get_field(values, "projection_dim", "lstm", path),
    )
    return LstmConfig(
        num_layers=values.get("n_layers", 1),
        cell_dim=cell_dim,
        projection_dim=projection_dim,
        cell_clip=_read_clip(values.get("cell_clip")),
        # TensorFlow clips what it projects: a cell without projection matrix has no such clip.
        projection_clip=_read_clip(values.get("proj_clip")) if cell_dim != projection_dim else None,
        residual=bool(values.get("use_skip_connections")),
    )


def _read_characters(values: dict[str, Any], path: Path) -> CharConfig:
    count = values.get("n_characters")
    if count not in (None, NUM_BYTE_SYMBOLS, NUM_BYTE_SYMBOLS + 1):
        log.warning(
            "%s: n_characters is %r, expected 261 (training) or 262 (prediction); the weights decide", path, count
        )
    return CharConfig(
        max_length=values.get("max_characters_per_token", 50),
        dim=_get_field(_get_part(values, "embedding", path), "dim", "char_cnn.embedding", path),
        filters=tuple((width, channels) for width, channels in _get_field(values, "filters", "char_cnn", path)),
        activation=values.get("activation", "relu"),
        num_highways=values.get("n_highway") or 0,
    )


def _read_clip(value: float | None) -> float | None:
    return float(value) if value else None  # 0 and null both mean that nothing is clipped


def _get_part(values: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    part = values.get(name)
    if not isinstance(part, dict):
        raise CheckpointError(f"{path}: expected an object {name!r}, found {part!r:.60}; is this an ELMo options file?")
    return part


def _get_field(values: dict[str, Any], name: str, where: str, path: Path) -> Any:  # noqa: ANN401
    if name not in values:
        raise CheckpointError(f"{path}: expected {where}.{name}, found only {', '.join(sorted(values)) or 'nothing'}")
    return values[name]


def _inexpressible(reason: str) -> CheckpointError:
    return CheckpointError(f"this model cannot be written in AllenNLP's layout: {reason}; save it as native")
