"""The options of `elmo bench` as plain values, for both of its commands: `elmo bench` and `python -m elmokit.bench`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.bench.plan import SIZES, Plan, found_peers
from elmokit.devices import count_cores
from elmokit.errors import InputError

__all__ = ["CPU_PARTS", "DEVICE_PARTS", "Options", "parsed"]

CPU_PARTS, DEVICE_PARTS = ("table", "growth"), ("layers", "engines", "training")


@dataclass(frozen=True)
class Options:
    """What was asked for on a command line; `plan` and `run_bench` say what it means.

    Arguments:
        text: a file of sentences (packed or not) that is embedded; sampled words if not given.
        peers: `NAME=PYTHON`, the interpreter of an environment that has the peer.
        setups: `NAME=FILE`, run before that peer is imported.
        sizes: models.
        weights: `SIZE=FOLDER` with AllenNLP's files; random weights for the others.
        batch_sizes: sentences a call.
        runs: turns of each contestant.
        threads: cores to use; all if not given.
        parts: on a CPU `table` (against peers), `growth`; on a GPU `layers`, `engines`, `training`. All if none.
        quick: few runs of small batches, to see that it works.
        device: `cpu`, or a GPU such as `cuda`, where other questions are asked.
        output: where results go: OUTPUT.md, OUTPUT.json and a picture; the screen alone if not given.
        picture: suffix of the picture.
    """

    text: Path | None = None
    peers: tuple[str, ...] = ()
    setups: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ("small", "original")
    weights: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (1, 32, 128)
    runs: int = 5
    threads: int | None = None
    parts: tuple[str, ...] = ()
    quick: bool = False
    device: str = "cpu"
    output: Path | None = None
    picture: str = "svg"

    def chosen_parts(self) -> tuple[str, ...]:
        """The parts to measure on this device, in their order."""
        known = CPU_PARTS if self.device == "cpu" else DEVICE_PARTS
        for part in self.parts:
            if part not in known:
                raise InputError(f"asked for the part {part!r} on {self.device}: use one of {', '.join(known)}")
        return tuple(part for part in known if part in (self.parts or known))

    def plan(self) -> Plan:
        """The plan for a CPU."""
        parts = self.chosen_parts()
        plan = Plan(
            text=self.text,
            peers=found_peers(self.peers, self.setups) if "table" in parts else (),
            sizes=self.sizes,
            weights=tuple(map(_weights, self.weights)),
            batch_sizes=self.batch_sizes,
            runs=self.runs,
            threads=count_cores() if self.threads is None else self.threads,
            compares="table" in parts,
            grows="growth" in parts,
        )
        return plan.quickly() if self.quick else plan


def parsed(arguments: Sequence[str] | None = None) -> Options:
    """The options in these arguments, those of the process if none are given.

    Example:
        >>> parsed(["--sizes", "tiny", "--runs", "3"]).sizes
        ('tiny',)
    """
    parser = argparse.ArgumentParser(prog="python -m elmokit.bench", allow_abbrev=False)
    default = Options()
    parser.add_argument("--text", type=Path, metavar="FILE")
    parser.add_argument("--peer", dest="peers", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--peer-setup", dest="setups", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--sizes", nargs="+", default=default.sizes, metavar="|".join(SIZES))
    parser.add_argument("--weights", action="append", default=[], metavar="SIZE=FOLDER")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=default.batch_sizes, metavar="N")
    parser.add_argument("--runs", type=int, default=default.runs, metavar="N")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--parts", nargs="+", default=default.parts, choices=CPU_PARTS + DEVICE_PARTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default=default.device)
    parser.add_argument("-o", "--output", type=Path, metavar="PREFIX")
    parser.add_argument("--picture", default=default.picture, choices=("svg", "png", "pdf"))
    values: dict[str, Any] = vars(parser.parse_args(arguments))
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Options(**values)


def _weights(text: str) -> tuple[str, Path]:
    size, equals, folder = text.partition("=")
    if not equals:
        raise InputError(f"--weights is {text!r}: expected SIZE=FOLDER")
    return size, Path(folder)
