"""What callers pass to an Embedder: sentences or vectors, told apart and checked.

Arrives: anything. Leaves: an error that says what was expected, or vectors as one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from elmokit.errors import InputError, describe

__all__ = ["Vectors", "check_sentences", "check_tokenised", "find_vectors"]

Vectors = np.ndarray | Tensor | Sequence[np.ndarray] | Sequence[Tensor]


def check_sentences(sentences: object) -> None:
    """An `InputError` that says what to pass if this is neither a sentence nor an iterable that may hold some."""
    if isinstance(sentences, (bytes, bytearray)):
        raise InputError("expected a sentence or a list of sentences, found bytes: decode them to a string first")
    if isinstance(sentences, Mapping):
        raise InputError(
            f"expected a sentence or a list of sentences, found {describe(sentences)}: pass its values, "
            "list(sentences.values())"
        )
    shape = getattr(sentences, "shape", ())
    if hasattr(sentences, "columns") or len(shape) > 1:  # iterating over a DataFrame gives the names of its columns
        raise InputError(
            f"expected a sentence or a list of sentences, found a table of shape {tuple(shape)}: choose a column, "
            'e.g. table["text"]'
        )
    try:
        iter(sentences)  # type: ignore[call-overload]
    except TypeError:
        raise InputError(
            f"expected a sentence or a list of sentences, found {describe(sentences)}: "
            "a sentence is a string or a list of words"
        ) from None


def check_tokenised(sentences: Sequence[Sequence[str]]) -> None:
    """An `InputError` if these are strings: code that expects words would take each character for one."""
    strings = [sentences] if isinstance(sentences, str) else [each for each in sentences if isinstance(each, str)]
    if strings:
        raise InputError(
            f"expected a list of sentences, each a list of words, found {describe(strings[0])}: split it into words"
        )


def find_vectors(given: object) -> np.ndarray | None:
    """The vectors, if these are vectors and no sentences."""
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], (np.ndarray, Tensor)):
        given = np.stack([find_vectors(vector) for vector in given])  # type: ignore[list-item]
    if isinstance(given, Tensor):
        given = given.detach().float().cpu().numpy()
    return given if isinstance(given, np.ndarray) and given.dtype.kind in "fiu" else None
