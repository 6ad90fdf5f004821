"""`elmo info`: what a model is made of, read from its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from elmokit.commands.base import Command, Model, say

if TYPE_CHECKING:
    from elmokit.config import ElmoConfig
    from elmokit.model import Elmo

__all__ = ["Info"]


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Show what a model is made of: its format, sizes, layers and how it reads words.

    Example: elmo info my-model
    """

    source: tyro.conf.Positional[Model]

    def run(self) -> None:
        """Load the model and print one line a fact."""
        raise NotImplementedError
