"""Listeners of a run's log: the same lines for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.errors import MissingExtra
from elmokit.pretrain.journal import Report

__all__ = ["to_tensorboard"]


def to_tensorboard(folder: Path, *, then: Report | None = None) -> Report:
    """A listener that writes every number of the log for TensorBoard, by words seen, then tells the next one."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as problem:
        raise MissingExtra(
            "TensorBoard is not installed: pip install 'elmokit[train]', or leave out --tensorboard"
        ) from problem
    writers: list[SummaryWriter] = []

    def report(line: dict[str, Any]) -> None:
        if not writers:  # from the first line on, what an interrupted run had written beyond it is hidden
            writers.append(SummaryWriter(str(folder), purge_step=line["tokens"]))
        for name, value in line.items():
            if name not in ("kind", "step", "tokens") and isinstance(value, (int, float)):
                writers[0].add_scalar(f"{line['kind']}/{name}", value, line["tokens"])
        writers[0].flush()
        if then is not None:
            then(line)

    return report
