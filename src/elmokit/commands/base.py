"""What every subcommand shares: the abstract `Command`, options that several have, and how results reach the screen."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from elmokit.errors import InputError, OutputError

__all__ = [
    "DEFAULT_MODEL",
    "MODEL_HELP",
    "Command",
    "Computation",
    "Device",
    "File",
    "MaybeFile",
    "Model",
    "Precision",
    "check_output",
    "read_texts",
    "say",
    "warn",
]

DEFAULT_MODEL = "en-small"

MODEL_HELP = "The model: its name (see elmo info), a folder, a .zip file, or a hub id such as 'someone/their-elmo'."
Model = Annotated[str, tyro.conf.arg(metavar="SOURCE", help=MODEL_HELP)]

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
    quiet: bool = False
    """Show no progress and no advice: nothing but results and errors."""

    @classmethod
    def suited_to(cls, arguments: Sequence[str]) -> type[Command]:
        """The command for these arguments; one of them may decide about the defaults of others."""
        return cls

    @abstractmethod
    def run(self) -> None:
        """Do the work; a problem is raised, never printed."""

    def advise(self, text: str) -> None:
        """Write one line of advice to standard error, unless the user wants none."""
        if not self.quiet:
            warn(text)


@dataclass(frozen=True, kw_only=True)
class Computation(Command):
    """A subcommand that computes with a model."""

    threads: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: OMP_NUM_THREADS, or all of them)")
    ] = None
    """Cores to compute with, of those that this process may use."""


def say(text: str = "") -> None:
    """Write one line of the result to standard output."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """Write one line of advice to standard error, where it cannot mix with results."""
    sys.stderr.write(f"elmo: {text}\n")


def read_texts(texts: Sequence[str]) -> list[str]:
    """Texts as they were typed, where `-` stands for the lines of standard input that are not blank."""
    if "-" not in texts:
        return list(texts)
    from elmokit.text.files import LONGEST_SENTENCE, LineReader

    reader = LineReader(["-"] * texts.count("-"), longest=LONGEST_SENTENCE)
    lines = [line.text() for line in reader if line.raw.strip()]
    if not lines:
        raise InputError("expected text on standard input, found none: one sentence per line")
    place = texts.index("-")
    return [*texts[:place], *lines, *texts[place + 1 :]]


def check_output(path: Path) -> None:
    """Refuse a file that could not be written, before torch is imported."""
    if path.is_dir() or not path.parent.is_dir():
        what = f"{path} is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise OutputError(f"cannot write {path}: {what}; name a file in a folder that exists")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"cannot write {path}: Permission denied; choose another place")
