"""ELMo today: the public surface of elmokit, and nothing else.

Names are imported when they are first used, so `import elmokit` costs next to nothing and pulls in neither torch
nor a file format; the modules behind them may change, these names do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
    from elmokit.embed.documents import Document
    from elmokit.embed.embedder import Embedder
    from elmokit.errors import (
        CheckpointError,
        ConfigError,
        ElmoError,
        EngineError,
        InputError,
        LayerError,
        MissingExtra,
        OutputError,
        TrainingError,
    )
    from elmokit.language_model.model import LanguageModel, Perplexity
    from elmokit.model import Elmo, ElmoOutput, word_ids
    from elmokit.nn.bilm import BilmState
    from elmokit.nn.scalar_mix import ScalarMix
    from elmokit.text.sample import sample
    from elmokit.text.segmenters import Segmenter, Word, sentences, words

    __version__: str

__all__ = [
    "BilmState",
    "CharConfig",
    "CheckpointError",
    "ConfigError",
    "Document",
    "Elmo",
    "ElmoConfig",
    "ElmoError",
    "ElmoOutput",
    "Embedder",
    "EngineError",
    "InputError",
    "LanguageModel",
    "LayerError",
    "LstmConfig",
    "MissingExtra",
    "OutputError",
    "Perplexity",
    "ScalarMix",
    "Segmenter",
    "TrainingError",
    "Word",
    "WordConfig",
    "__version__",
    "sample",
    "sentences",
    "word_ids",
    "words",
]

_HOMES = {
    "elmokit.config": ("CharConfig", "ElmoConfig", "LstmConfig", "WordConfig"),
    "elmokit.embed.documents": ("Document",),
    "elmokit.embed.embedder": ("Embedder",),
    "elmokit.errors": (
        "CheckpointError",
        "ConfigError",
        "ElmoError",
        "EngineError",
        "InputError",
        "LayerError",
        "MissingExtra",
        "OutputError",
        "TrainingError",
    ),
    "elmokit.language_model.model": ("LanguageModel", "Perplexity"),
    "elmokit.model": ("Elmo", "ElmoOutput", "word_ids"),
    "elmokit.nn.bilm": ("BilmState",),
    "elmokit.nn.scalar_mix": ("ScalarMix",),
    "elmokit.text.sample": ("sample",),
    "elmokit.text.segmenters": ("Segmenter", "Word", "sentences", "words"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name on its first use (PEP 562)."""
    if name == "__version__":
        from elmokit.version import find_version

        value: object = find_version()
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
