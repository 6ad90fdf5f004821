"""What a model is made of: frozen dataclasses that cannot be wrong.

An `ElmoConfig` says how a word becomes a vector (`characters`, `words`, or both) and how the two language
models read a sentence (`lstm`). It holds sizes only, never vocabularies or weights, so it fits in a
`config.json` and two equal configs describe interchangeable networks. Presets are functions:
`ElmoConfig.original()` is the published 93.6 M parameter model.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from elmokit.errors import ConfigError
from elmokit.validation import Bounds, build_from, check_fields

__all__ = ["CharConfig", "ElmoConfig", "LstmConfig", "WordConfig"]

SchemeName = Literal["bytes", "unicode"]
Activation = Literal["relu", "tanh"]

PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
NUM_BYTE_SYMBOLS = 261  # 256 bytes, sentence begin and end, word begin and end, in-word padding

# Far above every model that was ever published, far below what a file may claim to make a machine allocate.
Width = Annotated[int, Bounds(1, 2**16)]  # of a vector; the widest published cell has 4,096
Depth = Annotated[int, Bounds(1, 128)]  # of layers
Columns = Annotated[int, Bounds(1, 1024)]  # characters of a word that are read; published models read 50
NumSymbols = Annotated[int, Bounds(1, 2**21)]  # Unicode has 1.1 million characters
NumWords = Annotated[int, Bounds(1, 2**28)]
NumHighways = Annotated[int, Bounds(0, 128)]
Filters = Annotated[tuple[tuple[Columns, Width], ...], Bounds(at_most=128)]
Clip = Annotated[float, Bounds(above=0)]


@dataclass(frozen=True)
class CharConfig:
    """How the characters of a word are read: the scheme, the convolutions and the highways."""

    scheme: SchemeName = "bytes"
    """What a character is: `"bytes"` (UTF-8 bytes, as published) or `"unicode"` (a learned alphabet of characters)."""
    max_length: Columns = 50
    """Columns of ids per word, its two markers included (50 as published)."""
    num_symbols: NumSymbols = NUM_BYTE_SYMBOLS
    """Rows of the character table, without the row for "no word" (261 for bytes)."""
    dim: Width = 16
    """Width of a character vector."""
    filters: Filters = PUBLISHED_FILTERS
    """One `(width, channels)` pair per convolution."""
    activation: Activation = "relu"
    """What follows the max-pooling: `"relu"` (all released models) or `"tanh"`."""
    num_highways: NumHighways = 2
    """Highway layers after the convolutions."""

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self, "characters")
        _check(self.max_length >= 3, f"characters.max_length is {self.max_length}: two markers and a character need 3")
        _check(
            self.scheme != "bytes" or self.num_symbols == NUM_BYTE_SYMBOLS,
            f"the byte scheme has {NUM_BYTE_SYMBOLS} symbols, not characters.num_symbols={self.num_symbols}",
        )
        _check(bool(self.filters), "characters.filters is empty: give at least one (width, channels) pair")
        for width, channels in self.filters:
            _check(
                width <= self.max_length,
                f"characters.filters has ({width}, {channels}): a width is 1 to max_length={self.max_length}",
            )

    @property
    def num_features(self) -> int:
        """Channels of all filters together, which is the width of the highways."""
        return sum(channels for _, channels in self.filters)


@dataclass(frozen=True)
class WordConfig:
    """A table with one vector per known word: for word-input models and, beside characters, ELMoForManyLangs.

    Arguments:
        num_words: rows of the table, without the row for "no word".
        dim: width of a word vector.
        max_length: characters of a word by which its row is found, `None` for all (ELMoForManyLangs cuts at 48).
    """

    num_words: NumWords
    dim: Width
    max_length: Columns | None = None

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self, "words")


@dataclass(frozen=True)
class LstmConfig:
    """One stack of LSTM layers with projection; a model has two of them, forward and backward."""

    num_layers: Depth = 2
    """Layers per direction."""
    cell_dim: Width = 4096
    """Width of the memory cell (4096 in the original)."""
    projection_dim: Width = 512
    """Width of a layer's output (512); equal to `cell_dim` means no projection matrix."""
    cell_clip: Clip | None = 3.0
    """Bound of the memory cell, `None` for no clipping."""
    projection_clip: Clip | None = 3.0
    """Bound of a layer's output, `None` for no clipping."""
    residual: bool = True
    """Add a layer's input to its output from the second layer on."""

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self, "lstm")

    @property
    def has_projection(self) -> bool:
        """Whether a projection matrix follows the cell."""
        return self.cell_dim != self.projection_dim


@dataclass(frozen=True)
class ElmoConfig:
    """A whole model: how words are read, and how sentences are.

    Arguments:
        characters: the character reader, `None` for a word-input model.
        words: the word table, `None` for a character-only model.
        lstm: the two stacks.
        projects_words: whether a linear map leads from the word features to `lstm.projection_dim`.

    Example:
        >>> ElmoConfig.original().dim
        1024
    """

    characters: CharConfig | None = field(default_factory=CharConfig)
    words: WordConfig | None = None
    lstm: LstmConfig = field(default_factory=LstmConfig)
    projects_words: bool = True

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self)
        _check(
            self.characters is not None or self.words is not None,
            "a model needs characters, words, or both: neither was given",
        )
        _check(
            self.projects_words or self.num_word_features == self.lstm.projection_dim,
            f"word features are {self.num_word_features} wide and lstm.projection_dim is {self.lstm.projection_dim}: "
            "without projects_words they must be equal",
        )

    @property
    def num_word_features(self) -> int:
        """Width of a word before its projection, word vector and character features side by side."""
        characters = self.characters.num_features if self.characters else 0
        return characters + (self.words.dim if self.words else 0)

    @property
    def dim(self) -> int:
        """Width of every layer's output, forward and backward side by side."""
        return 2 * self.lstm.projection_dim

    @property
    def num_layers(self) -> int:
        """Layers of a word, which are the context-free one and one for each LSTM layer."""
        return self.lstm.num_layers + 1

    @classmethod
    def tiny(cls) -> ElmoConfig:
        """The smallest useful model: for tests, teaching and minutes of training on a CPU."""
        filters = ((1, 16), (2, 16), (3, 32), (4, 64))
        return cls(CharConfig(filters=filters, num_highways=1), lstm=LstmConfig(cell_dim=256, projection_dim=64))

    @classmethod
    def small(cls) -> ElmoConfig:
        """The published small model: 13.6 M parameters, 256 wide."""
        return cls(CharConfig(num_highways=1), lstm=LstmConfig(cell_dim=1024, projection_dim=128))

    @classmethod
    def medium(cls) -> ElmoConfig:
        """The published medium model: 28.0 M parameters, 512 wide."""
        return cls(CharConfig(num_highways=1), lstm=LstmConfig(cell_dim=2048, projection_dim=256))

    @classmethod
    def original(cls) -> ElmoConfig:
        """The published original model: 93.6 M parameters, 1024 wide."""
        return cls()

    def to_dict(self) -> dict[str, Any]:
        """The config as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ElmoConfig:
        """The config of such values; an unknown or missing field is a `ConfigError` that names it."""
        return build_from(cls, values)

    def to_json(self) -> str:
        """The config as indented JSON."""
        return json.dumps(self.to_dict(), indent=2)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)
