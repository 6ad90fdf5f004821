"""`elmo sample`: small files of text and labels, on which the commands of README and of the how-to pages run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from elmokit.commands.base import Command, Switch, say

__all__ = ["Sample"]


@dataclass(frozen=True, kw_only=True)
class Sample(Command):
    """Write small files of text and labels, to try the other commands on.

    A story, questions, names, roles and more, about 100 KB; README.md among them says what each is. Files that exist
    already and have not been changed stay as they are.

    Example: elmo sample sample
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """Where they go: a new folder, or one that exists."""
    overwrite: Switch = False
    """Also replace files of these names that have been changed."""

    def run(self) -> None:
        """Write the files and say what they are."""
        from elmokit.text.sample import sample

        folder = sample(self.folder, overwrite=self.overwrite)
        about = (folder / "README.md").read_text(encoding="utf-8")
        say("\n".join(line for line in about.splitlines() if line.startswith(("- ", "  "))))
        say(f"These files are in {folder}. Try one:")
        say(f"  elmo embed {folder / 'story.txt'} -o vectors.parquet")
