"""What every subcommand shares: the abstract `Command`, options that several have, and how results reach the screen."""

from __future__ import annotations

import os
import re
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
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
    "Switch",
    "check_task_folder",
    "escape_controls",
    "read_texts",
    "refuse_files",
    "say",
    "warn",
]

DEFAULT_MODEL = "en-small"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and line ends

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

# Off unless it is given: its help needs no default.
Switch = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
File = Annotated[str, tyro.conf.arg(metavar="FILE")]
MaybeFile = Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """One subcommand: its fields are the options, `run` does the work."""

    debug: Switch = False
    """Show the full traceback when something goes wrong."""
    quiet: Switch = False
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
    try:
        sys.stdout.write((escape_controls(text) if sys.stdout.isatty() else text) + "\n")
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise OutputError(f"standard output cannot be written: {problem.strerror or problem}") from problem


def warn(text: str) -> None:
    """Write one line of advice to standard error, where it cannot mix with results."""
    with suppress(OSError):  # a full disk takes no complaint either
        sys.stderr.write(f"elmo: {escape_controls(text) if sys.stderr.isatty() else text}\n")


def escape_controls(text: str) -> str:
    r"""Text without power over a terminal: what labels and words hold may come from anywhere.

    Example:
        >>> escape_controls("\tred\x1b[31m\n")
        '\tred\\x1b[31m\n'
    """
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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


def refuse_files(texts: Sequence[str], *, command: str) -> None:
    """An `InputError` if a text is the name of a file here, which would be read as a sentence of one word.

    Arguments:
        texts: as they were typed.
        command: takes the lines of a file if its name is put behind.
    """
    if file := next((text for text in texts if os.path.isfile(text)), None):
        raise InputError(f"{file} is a file: give sentences in quotes, or its lines by `{command} {shlex.quote(file)}`")


def check_task_folder(folder: Path) -> None:
    """An `InputError` if this is not even a folder, as every task model is."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"the folder {folder} {what}: expected a task model that `elmo task train` wrote")
