"""The subcommands of `elmo`, one file each: a dataclass whose fields are the options and whose `run` does the work.

Arguments arrive parsed (`cli.py` does that); results leave on the screen or in files. torch and the model code are
imported inside `run`, so that `--help` answers at once. The tables below say what is typed for each.
"""

from __future__ import annotations

from elmokit.commands.base import Command
from elmokit.commands.bench import Bench
from elmokit.commands.compare import Compare
from elmokit.commands.completion import Completion
from elmokit.commands.convert import Convert
from elmokit.commands.embed import Embed
from elmokit.commands.evaluate import Evaluate
from elmokit.commands.export import Export
from elmokit.commands.info import Info
from elmokit.commands.predict import Predict
from elmokit.commands.probe import PROBE_SUMMARY, PROBES
from elmokit.commands.sample import Sample
from elmokit.commands.serve import Serve
from elmokit.commands.task import TASK_COMMANDS, TASK_SUMMARY
from elmokit.commands.train import Train

__all__ = ["COMMANDS", "GROUPS"]

COMMANDS: dict[str, type[Command]] = {
    "compare": Compare,
    "embed": Embed,
    "info": Info,
    "convert": Convert,
    "export": Export,
    "evaluate": Evaluate,
    "predict": Predict,
    "train": Train,
    "serve": Serve,
    "bench": Bench,
    "sample": Sample,
    "completion": Completion,
}
GROUPS: dict[str, tuple[dict[str, type[Command]], str]] = {
    "task": (TASK_COMMANDS, TASK_SUMMARY),
    "probe": (PROBES, PROBE_SUMMARY),
}
