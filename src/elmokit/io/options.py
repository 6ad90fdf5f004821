"""`options.json` of bilm-tf and AllenNLP: read into an `ElmoConfig`, and written from one.

The same file serves training (261 characters, many extra fields) and prediction (262 characters, the extra one
being "no word"), fields may be missing, and a few facts stand in the weights only. So reading takes what the
weights told (`WeightFacts`), fills the gaps as bilm-tf does, and complains only where options and weights differ.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from elmokit.config import (
    NUM_BYTE_SYMBOLS,
    Activation,
    CharConfig,
    Columns,
    Depth,
    ElmoConfig,
    Filters,
    LstmConfig,
    NumHighways,
    NumSymbols,
    Width,
    WordConfig,
)
from elmokit.errors import CheckpointError, ConfigError
from elmokit.validation import Bounds, build_from

__all__ = ["Options", "WeightFacts", "config_to_options", "options_to_config", "read_options"]

log = logging.getLogger(__name__)


class WeightFacts(NamedTuple):
    """What only the weights can tell: the width of their word table, and whether they project the CNN's output."""

    name: str
    has_characters: bool
    num_words: int | None
    projects_words: bool


@dataclass(frozen=True)
class LstmOptions:
    """The part `lstm`; a clip of 0 means none."""

    ignores_others: ClassVar[bool] = True
    dim: Width
    projection_dim: Width
    n_layers: Depth = 1
    cell_clip: Annotated[float, Bounds(at_least=0)] | None = None
    proj_clip: Annotated[float, Bounds(at_least=0)] | None = None
    use_skip_connections: bool | None = None


@dataclass(frozen=True)
class EmbeddingOptions:
    """The part `char_cnn.embedding`."""

    ignores_others: ClassVar[bool] = True
    dim: Width


@dataclass(frozen=True)
class CharacterOptions:
    """The part `char_cnn`."""

    ignores_others: ClassVar[bool] = True
    embedding: EmbeddingOptions
    filters: Filters
    max_characters_per_token: Columns = 50
    activation: Activation = "relu"
    n_highway: NumHighways | None = None
    n_characters: NumSymbols | None = None


@dataclass(frozen=True)
class Options:
    """What is read of an options.json."""

    ignores_others: ClassVar[bool] = True
    lstm: LstmOptions
    char_cnn: CharacterOptions | None = None
    bidirectional: bool | None = None


def read_options(values: dict[str, Any], path: Path) -> Options:
    """The options in these values; `path` is for messages."""
    if not isinstance(values.get("lstm"), dict):
        found = f"found {values.get('lstm')!r:.60}"
        raise CheckpointError(f"{path}: expected an object 'lstm', {found}; is this an ELMo options file?")
    try:
        options = build_from(Options, values)
    except ConfigError as problem:
        raise CheckpointError(f"{path}: describes no model: {problem}") from problem
    if options.bidirectional is False:
        raise CheckpointError(
            f"{path}: expected a bidirectional language model, found bidirectional: false; "
            "a forward-only model has no backward layers to read"
        )
    return options


def options_to_config(options: Options, path: Path, facts: WeightFacts) -> ElmoConfig:
    """The config that these options and weights describe; `path` is for messages."""
    if options.char_cnn is not None and not facts.has_characters:
        table = "a word table (embedding)" if facts.num_words else "neither char_embed nor embedding"
        raise CheckpointError(
            f"{path}: describes character input (char_cnn), but {facts.name} holds {table}; "
            "the two files belong to different models"
        )
    if options.char_cnn is None and facts.num_words is None:
        found = "a character table (char_embed)" if facts.has_characters else "neither embedding nor char_embed"
        raise CheckpointError(
            f"{path}: has no char_cnn, so word input was expected, but {facts.name} holds {found}; "
            "the two files belong to different models"
        )
    try:
        lstm = _read_lstm(options.lstm)
        if options.char_cnn is None:
            assert facts.num_words is not None
            words = WordConfig(num_words=facts.num_words, dim=lstm.projection_dim)
            return ElmoConfig(characters=None, words=words, lstm=lstm, projects_words=False)
        characters = _read_characters(options.char_cnn, path)
        # bilm-tf projects only where widths differ, AllenNLP always: where they are equal the weights decide.
        projects = facts.projects_words or characters.num_features != lstm.projection_dim
        return ElmoConfig(characters, lstm=lstm, projects_words=projects)
    except ConfigError as problem:
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


def _read_lstm(options: LstmOptions) -> LstmConfig:
    return LstmConfig(
        num_layers=options.n_layers,
        cell_dim=options.dim,
        projection_dim=options.projection_dim,
        cell_clip=_read_clip(options.cell_clip),
        # TensorFlow clips what it projects: a cell without projection matrix has no such clip.
        projection_clip=_read_clip(options.proj_clip) if options.dim != options.projection_dim else None,
        residual=bool(options.use_skip_connections),
    )


def _read_characters(options: CharacterOptions, path: Path) -> CharConfig:
    if options.n_characters not in (None, NUM_BYTE_SYMBOLS, NUM_BYTE_SYMBOLS + 1):
        log.warning(
            "%s: n_characters is %r, expected 261 (training) or 262 (prediction); the weights decide",
            path,
            options.n_characters,
        )
    return CharConfig(
        max_length=options.max_characters_per_token,
        dim=options.embedding.dim,
        filters=options.filters,
        activation=options.activation,
        num_highways=options.n_highway or 0,
    )


def _read_clip(value: float | None) -> float | None:
    return float(value) if value else None  # 0 and null both mean that nothing is clipped


def _inexpressible(reason: str) -> CheckpointError:
    return CheckpointError(f"this model cannot be written in AllenNLP's layout: {reason}; save it as native")
