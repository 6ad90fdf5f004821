"""What every reader of a task's data gives: examples with their place.

A path arrives at a reader; frozen `Example`s leave, each with the file and line it came from. What cannot be used goes
to `Problems` (`text/labelled.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from elmokit.errors import InputError
from elmokit.text.labelled import Problems, is_csv, read_csv, read_lines, split_blocks
from elmokit.text.segmenters import Segmenter

__all__ = [
    "Example",
    "Problems",
    "is_csv",
    "parse_json_lines",
    "read_csv",
    "read_lines",
    "split_blocks",
    "split_words",
]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One labelled thing to learn from; every task adds its own fields.

    Arguments:
        source: where it stands, `file:line`.
    """

    source: str = "unnamed"


def parse_json_lines(
    path: str | os.PathLike[str], lines: Iterable[tuple[int, str]], problems: Problems, *, holding: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of lines that hold one each, with the number of the line; `holding` is what messages say of them."""
    for number, text in lines:
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if isinstance(values, dict):
            yield number, values
        else:
            problems.add(path, number, f"expected a JSON object with {holding}, found {text[:60]!r}")


def split_words(text: str, segmenter: Segmenter, *, what: str = "sentence") -> list[str]:
    """The words of a typed text; an `InputError` that says what was expected if it has none."""
    words = [word.text for sentence in segmenter(text) for word in sentence]
    if not words:
        raise InputError(f"expected a {what}, found no words in {text!r}")
    return words
