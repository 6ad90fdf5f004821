"""The biLM with its output layer: perplexity, scores, predictions, substitutes.

Nothing is imported until it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.language_model.model import LanguageModel
    from elmokit.language_model.scores import Perplexity

__all__ = ["LanguageModel", "Perplexity"]

_HOMES = {"LanguageModel": "model", "Perplexity": "scores"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
