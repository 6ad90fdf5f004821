"""What every subcommand shares: the abstract `Command`, options that several have, and how results reach the screen."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

__all__ = ["DEFAULT_MODEL", "Command", "Device", "File", "MaybeFile", "Model", "Precision", "say", "warn"]

DEFAULT_MODEL = "en-small"

Model = Annotated[
    str,
    tyro.conf.arg(
        metavar="SOURCE",
        help="The model: a bundled name, a folder, a .zip file, or a hub id such as 'someone/their-elmo'.",
    ),
]

Precision = Annotated[
    Literal["float32", "bfloat16", "int8"],
    tyro.conf.arg(help="How exactly to compute: bfloat16 needs a GPU, int8 a CPU, where it is the fastest."),
]

Device = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="cpu|cuda|cuda:N|mps", help="Where to compute.", help_behavior_hint="(default: a GPU if there is one)"
    ),
]

File = Annotated[str, tyro.conf.arg(metavar="FILE")]
MaybeFile = Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """One subcommand: its fields are the options, `run` does the work."""

    debug: bool = False
    """Show the full traceback when something goes wrong."""

    @classmethod
    def suited_to(cls, arguments: Sequence[str]) -> type[Command]:
        """The command for these arguments; one of them may decide about the defaults of others."""
        return cls

    @abstractmethod
    def run(self) -> None:
        """Do the work; a problem is raised, never printed."""


def say(text: str = "") -> None:
    """Write one line of the result to standard output."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """Write one line of advice to standard error, where it cannot mix with results."""
    sys.stderr.write(f"elmo: {text}\n")
