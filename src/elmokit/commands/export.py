"""`elmo export`: a model in a form that needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from elmokit.commands.base import Command, Model, Switch, say

__all__ = ["Export"]


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a model for machines without torch: ONNX graphs, and a program that needs numpy and onnxruntime alone.

    The folder has run_elmo.py, which takes text and returns vectors; its README.md says how.

    Example: elmo export en-small -o en-small-onnx
    """

    source: tyro.conf.Positional[Model]
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """The folder to write, new or empty."""
    precision: Literal["float32", "int8"] = "float32"
    """How weights are stored: int8 takes a quarter of the room and rounds them. Either is computed in float32."""
    state: Literal["zero", "canonical"] = "zero"
    """What each sentence starts from: nothing, or the model's warm start."""
    browser: Switch = False
    """Also write a page that runs the model in a browser, where npm has installed onnxruntime-web beside it."""
    overwrite: Switch = False
    """Replace DIR if it holds an exported model and nothing else."""

    def run(self) -> None:
        """Write the folder and say how to use it."""
        from elmokit.export import export_model
        from elmokit.io.atomic import sweep_partial
        from elmokit.io.locks import lock_output

        options = {"precision": self.precision, "state": self.state, "browser": self.browser}
        with lock_output(self.output):
            sweep_partial(self.output)
            export_model(self.source, self.output, overwrite=self.overwrite, **options)
        size = sum(path.stat().st_size for path in self.output.rglob("*") if path.is_file())
        say(f"{self.output}: {size / 1e6:.1f} MB; to run it: pip install numpy onnxruntime")
        say(f"python {self.output / 'run_elmo.py'} 'She sat by the river bank.'")
        if self.browser:
            say(f"in a browser: cd {self.output} && npm install && python -m http.server")
