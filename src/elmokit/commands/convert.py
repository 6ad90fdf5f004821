"""`elmo convert`: any model this library can read goes in; our format or AllenNLP's layout comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from elmokit.commands.base import Command, Model, Switch, say

__all__ = ["Convert"]


@dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Rewrite a model in another file format.

    Reads any format that elmokit recognises and writes a new folder, in one step: it is there whole or not at all.

    Example: elmo convert weights-and-options/ my-model/
    """

    source: tyro.conf.Positional[Model]
    dest: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DEST")]
    """The folder to write, new or empty."""
    format: Literal["native", "allennlp"] = "native"
    """'native' is config.json + model.safetensors; 'allennlp' is options.json + weights.hdf5, for older tools."""
    dtype: Literal["float32", "float16", "int8"] = "float32"
    """How numbers are stored (native format only): float16 halves the file and rounds each weight, int8 quarters it."""
    overwrite: Switch = False
    """Replace DEST if it holds a model of the same format and nothing else."""

    def run(self) -> None:
        """Load, then save."""
        from elmokit.io import load, save
        from elmokit.io.atomic import sweep_partial
        from elmokit.io.locks import lock_output

        with lock_output(self.dest):
            sweep_partial(self.dest)
            checkpoint = load(self.source, softmax=True)
            save(checkpoint, self.dest, format=self.format, dtype=self.dtype, overwrite=self.overwrite)
        say(f"{checkpoint.format} → {self.format}: {self.dest}")
