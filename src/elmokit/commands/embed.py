"""`elmo embed`: files of text in, one file of vectors out.

Lines arrive from files or standard input; each becomes one row of the output (with `--split`, one row a sentence).
The work is `embed_files`; here stand its options and the progress bar.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Command, Model, say, warn

__all__ = ["Embed"]


@dataclass(frozen=True, kw_only=True)
class Embed(Command):
    """Turn files of text into files of word vectors.

    Each line of the input is one sentence and becomes one row of the output; blank lines are kept as empty rows.
    The output appears only when it is complete. If the run is stopped, the same command with --resume goes on.

    Example: elmo embed corpus.txt -o vectors.parquet --model my-model
    """

    files: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE...", help_behavior_hint="(required)")]
    """Text files in UTF-8, one sentence a line; - reads standard input."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="OUT")]
    """Where the vectors go."""
    model: Model = DEFAULT_MODEL
    format: Annotated[
        Literal["parquet", "hdf5", "npy", "jsonl"] | None,
        tyro.conf.arg(metavar="parquet|hdf5|npy|jsonl", help_behavior_hint="(default: by the suffix of OUT)"),
    ] = None
    """Format of the output. hdf5 is AllenNLP's layout."""
    layers: Annotated[str, tyro.conf.arg(metavar="average|top|all|mix|N")] = "average"
    """Which layers: their average, the top one, all of them, the model's own mix, or one by its number (0 is the
    word without its sentence)."""
    dtype: Literal["float16", "float32"] = "float16"
    """How the vectors are stored; float16 halves the file."""
    batch_size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as many as fit a number of words)")
    ] = None
    """Sentences run at once."""
    state: Literal["zero", "carry", "canonical"] = "zero"
    """What the model remembers at the start of a sentence: nothing, the batch before (as the first ELMo programs
    did), or always the same warm start."""
    split: bool = False
    """Split each line into sentences: one row a sentence instead of one row a line."""
    tokenised: bool = False
    """The words of each line stand between spaces already; take them as they are."""
    resume: bool = False
    """Go on with a run that was stopped."""
    overwrite: bool = False
    """Replace OUT if it exists."""
    strict: bool = False
    """Stop at a word that must be cut (too long, or with a NUL byte) instead of counting it."""
    device: Annotated[
        str | None,
        tyro.conf.arg(metavar="cpu|cuda|cuda:N|mps", help_behavior_hint="(default: a GPU if there is one)"),
    ] = None
    """Where to compute."""
    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    """How exactly to compute."""

    def run(self) -> None:
        """Embed the files, showing progress when someone is watching."""
        from elmokit.embed.embedder import Embedder
        from elmokit.embed.files import embed_files

        embedder = Embedder.from_pretrained(
            self.model, device=self.device, precision=self.precision, state=self.state
        )
        with _Progress(self.files) as progress:
            report = embed_files(
                self.files,
                self.output,
                embedder=embedder,
                format=self.format,
                layers=int(self.layers) if self.layers.lstrip("-").isdigit() else self.layers,
                dtype=self.dtype,
                batch_size=self.batch_size,
                split=self.split,
                tokenised=self.tokenised,
                resume=self.resume,
                strict=self.strict,
                overwrite=self.overwrite,
                progress=progress,
            )
