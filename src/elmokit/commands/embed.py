"""`elmo embed`: files of text in, one file of vectors out; with `--engine ray` a folder of files, by many machines.

Lines arrive from files or standard input; each becomes one row of the output (with `--split`, one row per sentence).
The work is `embed_files`, or `embed_on_ray`; here stand their options and the progress bar.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Computation, Device, Model, Precision, Switch, say
from elmokit.errors import InputError, OutputError
from elmokit.outputs import check_output

if TYPE_CHECKING:
    from elmokit.embed.files import EmbedReport
    from elmokit.embed.progress import Progress

__all__ = ["Embed"]

# Those of `embed.sinks.FORMATS`, like their names below: importing that takes seconds; a test compares them.
SUFFIXES = (".parquet", ".hdf5", ".h5", ".npy", ".jsonl")


@dataclass(frozen=True, kw_only=True)
class Embed(Computation):
    """Turn files of text into files of word vectors.

    Each line of the input is one sentence and becomes one row of the output; blank lines are kept as empty rows.
    The output appears only when it is complete. If the run is stopped, the same command with --resume continues.

    Example: elmo embed corpus.txt -o vectors.parquet --model my-model
    """

    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE...", help_behavior_hint="(required)")
    ]
    """Text files in UTF-8, one sentence per line (.gz, .bz2, .xz, .zst too); - reads standard input."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="OUT")]
    """Where the vectors go; - is standard output, as JSON lines."""
    model: Model = DEFAULT_MODEL
    format: Annotated[
        Literal["parquet", "hdf5", "npy", "jsonl"] | None,
        tyro.conf.arg(metavar="parquet|hdf5|npy|jsonl", help_behavior_hint="(default: by the suffix of OUT)"),
    ] = None
    """Format of the output. hdf5 is AllenNLP's layout."""
    # Help of two lines stands in `help=`: tyro keeps the line breaks of a docstring.
    layers: Annotated[
        str,
        tyro.conf.arg(
            metavar="average|top|all|mix|N",
            help="Which layers: their average, the top one, all of them, the model's own mix, or one by its number "
            "(0 is the word without its sentence).",
        ),
    ] = "average"
    dtype: Annotated[
        Literal["float16", "float32"] | None,
        tyro.conf.arg(metavar="float16|float32", help_behavior_hint="(default: float16, but float32 for hdf5)"),
    ] = None
    """How the vectors are stored; float16 halves the file."""
    batch_size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as many as fit a number of words)")
    ] = None
    """Sentences run at once."""
    state: Annotated[
        Literal["zero", "carry", "canonical"],
        tyro.conf.arg(
            help="What the model remembers at the start of a sentence: nothing, the batch before (as the first ELMo "
            "programs did), or always the same warm start."
        ),
    ] = "zero"
    split: Switch = False
    """Split each line into sentences: one row per sentence instead of one row per line."""
    tokenised: Switch = False
    """The words of each line stand between spaces already; take them as they are."""
    resume: Switch = False
    """Continue a run that was stopped."""
    overwrite: Switch = False
    """Replace OUT if it exists."""
    strict: Switch = False
    """Stop at a word that must be cut (too long, or with a NUL byte) instead of counting it."""
    device: Device = None
    precision: Precision = "float32"
    engine: Annotated[
        Literal["local", "ray"],
        tyro.conf.arg(
            help="Where: in this process, or on a Ray cluster, which takes folders and Parquet files too and makes OUT "
            "a folder of Parquet files."
        ),
    ] = "local"
    address: Annotated[
        str | None,
        tyro.conf.arg(metavar="HOST:PORT|auto", help_behavior_hint="(default: RAY_ADDRESS, or this machine)"),
    ] = None
    """With --engine ray: the cluster."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as many as fit)")] = None
    """With --engine ray: processes that embed, each with a GPU or --threads cores (1 unless told)."""
    column: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: text)")] = None
    """With --engine ray: the column of Parquet files that has the text."""

    def run(self) -> None:
        """Embed the files, showing progress when someone is watching."""
        if self.engine == "ray":
            self._tell(self._write_on_ray())
            return
        for name in ("address", "workers", "column"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} is for a Ray cluster only: say --engine ray, too")
        from elmokit.text.files import find_files

        find_files(self.files)
        if str(self.output) == "-":
            self._write_to_standard_output()
            return
        check_output(self.output)
        if self.output.exists() and not (self.resume or self.overwrite):
            raise OutputError(f"{self.output} exists already: choose another name, or replace it with --overwrite")
        if self.format is None and self.output.suffix.lower() not in SUFFIXES:
            known = f"use one of {', '.join(SUFFIXES)}, or say --format"
            raise InputError(f"cannot tell the format of {self.output} from its suffix: {known}")
        self._tell(self._write_file())

    def _tell(self, report: EmbedReport) -> None:
        for warning in report.warnings:
            self.advise(warning)
        if not report.was_complete:
            lines = "1 line" if report.num_lines == 1 else f"{report.num_lines:,} lines"
            words = "1 word" if report.num_words == 1 else f"{report.num_words:,} words"
            say(f"{self.output}: {lines}, {words}, {report.seconds:.1f} s")
            if not report.num_words:
                self.advise(f"there is no word in {', '.join(map(str, self.files))}: the output holds no vector")

    def _write_on_ray(self) -> EmbedReport:
        if self.format not in (None, "parquet") or str(self.output) == "-":
            raise InputError("--engine ray writes a folder of Parquet files: name a folder, and leave --format out")
        from elmokit.integrations.ray import embed_on_ray

        # Ray's workers report part by part, and its own notes would break a bar.
        with _bar(hidden=False, as_lines=True) as show:
            return embed_on_ray(
                self.files,
                self.output,
                model=self.model,
                address=self.address,
                workers=self.workers,
                threads=self.threads or 1,
                column=self.column or "text",
                state=self.state,
                resume=self.resume,
                overwrite=self.overwrite,
                device=self.device,
                precision=self.precision,
                **{**self._options(), "dtype": self.dtype or "float16"},
                progress=show,
            )

    def _write_to_standard_output(self) -> None:
        """JSON lines, while they are computed."""
        if self.format not in (None, "jsonl"):
            raise InputError(f"--output - writes JSON lines, but --format is {self.format}: name a file for it")
        if self.resume:
            raise InputError("--output - leaves nothing that --resume could continue: name a file")
        if sys.__stdout__ is None:
            raise OutputError("standard output is closed, and --output - writes there: name a file")
        from elmokit.embed.files import stream_files

        stream = partial(stream_files, self.files, sys.stdout.buffer)
        # What reads a pipe may write to the same terminal, where a bar would stand in the middle of its lines.
        report = self._embed(stream, hidden=sys.stdout.isatty(), as_lines=_is_pipe(sys.stdout))
        for warning in report.warnings:
            self.advise(warning)

    def _write_file(self) -> EmbedReport:
        from elmokit.embed.files import embed_files

        return self._embed(
            partial(
                embed_files,
                self.files,
                self.output,
                format=self.format,
                resume=self.resume,
                overwrite=self.overwrite,
            )
        )

    def _embed(self, embed: Callable[..., EmbedReport], *, hidden: bool = False, as_lines: bool = False) -> EmbedReport:
        """Load the model and run `embed` with the options that every output has."""
        from elmokit.embed.embedder import Embedder

        embedder = Embedder.from_pretrained(self.model, device=self.device, precision=self.precision, state=self.state)
        with _bar(hidden=hidden, as_lines=as_lines) as show:
            return embed(embedder=embedder, **self._options(), progress=show)

    def _options(self) -> dict[str, Any]:
        """What every way to embed is told."""
        return {
            "layers": int(self.layers) if self.layers.isdecimal() else self.layers,
            "dtype": self.dtype,
            "batch_size": self.batch_size,
            "split": self.split,
            "tokenised": self.tokenised,
            "strict": self.strict,
        }


def _is_pipe(stream: TextIO) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except OSError:  # what takes its place in a program may be no file
        return False


@contextmanager
def _bar(*, hidden: bool, as_lines: bool) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on standard error, or lines where that is no terminal."""
    from tqdm import tqdm

    from elmokit.waits import show_progress

    # 80 by 24 for a terminal that claims to have no size at all: tqdm would believe it.
    columns, rows = shutil.get_terminal_size()
    layout = "{percentage:3.0f}%|{bar:20}| {desc}"
    look = {"total": 1, "leave": False, "ncols": columns, "nrows": rows, "bar_format": layout}
    with show_progress(hidden=hidden, as_lines=as_lines, **look) as bar:

        def show(moment: Progress) -> None:
            left = moment.seconds_left
            time_left = "" if left is None else f", {tqdm.format_interval(left)} left"
            if moment.bytes_total:
                bar.total, bar.n = moment.bytes_total, min(moment.bytes_done, moment.bytes_total)
            else:
                bar.bar_format = "{desc}"
            speed = f"{moment.words_per_second:,.0f} words/s"
            bar.set_description_str(f"{moment.lines:,} lines, {speed}{time_left}", refresh=False)
            bar.refresh()

        yield show
