"""`elmo bench`: elmokit beside its peers on this machine, against what the machine allows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from elmokit.commands.base import Computation, Switch, say
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.bench.plan import Plan

__all__ = ["Bench"]

ONLY_ON_A_CPU = ("text", "peer", "peer_setup", "weights", "batch_sizes", "parts")


@dataclass(frozen=True, kw_only=True)
class Bench(Computation):
    """Measure elmokit beside every peer that is installed, as ratios, and how its cost grows.

    Contestants take turns on the same text, which none of them has seen; beside them stand floors, computed from the
    model's sizes and this machine's rates. A peer in another environment is named with that environment's Python.
    On a GPU: from ids to layers, without peers.

    Example: elmo bench --text corpus.txt --peer allennlp=old-env/bin/python -o benchmarks/today
    """

    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: sampled words)")] = None
    """Text in UTF-8 (.gz, .bz2, .xz, .zst too): some thousand sentences."""
    peer: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME=PYTHON")] = ()
    """A peer (allennlp, simple_elmo, manylangs, bert, minilm) and the Python that has it; may be given again."""
    peer_setup: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME=FILE")] = ()
    """A Python file that is run, and whose install() is called, before that peer is imported."""
    sizes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SIZE...")] = ("small", "original")
    """Models to measure: tiny, small, medium, original."""
    weights: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="SIZE=FOLDER")] = ()
    """AllenNLP's files for a size; random weights of that size if not given."""
    batch_sizes: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N...")] = (1, 32, 128)
    """Sentences per call."""
    runs: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Turns that each contestant takes; medians are shown."""
    parts: Annotated[tuple[Literal["table", "growth"], ...], tyro.conf.arg(help_behavior_hint="(default: both)")] = ()
    """What to measure on a CPU: 'table' against peers, 'growth' of the cost."""
    quick: Switch = False
    """Few runs of small batches: shows that everything works, tells nothing to quote."""
    device: Annotated[str, tyro.conf.arg(metavar="cpu|cuda")] = "cpu"
    """Where to measure; on a GPU elmokit alone, with --sizes and --runs."""
    output: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="PREFIX", help_behavior_hint="(default: the screen alone)")
    ] = None
    """Also write PREFIX.md, PREFIX.json and, with matplotlib, PREFIX.svg."""
    picture: Literal["svg", "png", "pdf"] = "svg"
    """Kind of the picture."""

    def run(self) -> None:
        """Measure and print the tables."""
        from elmokit.bench.measuring import measure, run_bench

        if self.device == "cpu":
            plan = self.plan()
            page = run_bench(lambda say, keep: measure(plan, say), output=self.output, picture=self.picture)
        else:
            self._refuse_what_a_cpu_measures()
            from elmokit.bench.device import measure_on_device

            asked = {"sizes": self.sizes, "runs": self.runs, "quick": self.quick}
            page = run_bench(
                lambda say, keep: measure_on_device(self.device, **asked, say=say, keep=keep),
                output=self.output,
                picture=self.picture,
            )
        say(page.rstrip())

    def _refuse_what_a_cpu_measures(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        options = [f"--{name.replace('_', '-')}" for name in given if name in ONLY_ON_A_CPU]
        if options:
            verb, them = ("is", "it") if len(options) == 1 else ("are", "them")
            raise InputError(f"{', '.join(options)} {verb} for a CPU: leave {them} out with --device {self.device}")

    def plan(self) -> Plan:
        """What is measured on a CPU."""
        from elmokit.bench.plan import Plan, find_peers
        from elmokit.cores import count_threads

        parts = self.parts or ("table", "growth")
        plan = Plan(
            text=self.text,
            peers=find_peers(self.peer, self.peer_setup) if "table" in parts else (),
            sizes=self.sizes,
            weights=tuple(map(_read_weights, self.weights)),
            batch_sizes=self.batch_sizes,
            runs=self.runs,
            threads=self.threads or count_threads(),
            compares="table" in parts,
            grows="growth" in parts,
        )
        return plan.quickly() if self.quick else plan


def _read_weights(text: str) -> tuple[str, Path]:
    size, equals, folder = text.partition("=")
    if not equals:
        raise InputError(f"--weights is {text!r}: expected SIZE=FOLDER")
    return size, Path(folder)
