"""What every reader of a task's data gives: examples with their place.

A path arrives at a reader; frozen `Example`s leave, each with the file and line it came from. What cannot be used goes
to `Problems` (`elmokit/labelled.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.text.labelled import Problems, blocks, text_lines

__all__ = ["Example", "Problems", "blocks", "text_lines"]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One labelled thing to learn from; every task adds its own fields.

    Arguments:
        source: where it stands, `file:line`.
    """

    source: str = "unnamed"
