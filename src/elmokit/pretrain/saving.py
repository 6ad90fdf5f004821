"""What a run leaves on disk: checkpoints to continue from, and at the end the model.

A checkpoint is one file of tensors and plain values, read with `weights_only=True`. It appears by rename, so a killed
run leaves the one before it whole; the last two are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from elmokit import io
from elmokit.errors import CheckpointError, OutputError
from elmokit.io.atomic import explain_failure, replace_file, sweep_partial
from elmokit.model import Elmo
from elmokit.pretrain.basis import change_basis
from elmokit.pretrain.network import LanguageModelNetwork

__all__ = ["Checkpoints", "save_model"]

KEPT = 2


class Checkpoints:
    """The checkpoints of a run.

    Arguments:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, values: Mapping[str, Any]) -> None:
        """Write a checkpoint; the one before stays until this one is whole."""
        path = self.folder / f"step-{step:09d}.pt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as temporary, temporary.open("wb") as file:
                torch.save(dict(values), file)
        except (OSError, RuntimeError) as problem:  # torch reports a full disk as a RuntimeError
            raise OutputError(
                f"{path} could not be written ({explain_failure(problem)}): the checkpoints before it are kept; "
                "make room, and continue with the same command"
            ) from problem
        for old in self._paths()[:-KEPT]:
            old.unlink()

    def latest(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint, or `None` before the first."""
        paths = self._paths()
        if not paths:
            return None
        try:
            return torch.load(paths[-1], map_location=device, weights_only=True)
        except Exception as problem:
            raise CheckpointError(
                f"{paths[-1]}: expected a checkpoint of this program, found something else "
                f"({explain_failure(problem)}); remove the file to continue from the one before"
            ) from problem

    @property
    def last_step(self) -> int | None:
        """The step of the last checkpoint, or `None` before the first."""
        paths = self._paths()
        return int(paths[-1].stem.removeprefix("step-")) if paths else None

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.pt"))


def save_model(
    folder: Path,
    network: LanguageModelNetwork,
    scheme_parts: Mapping[str, Any],
    vocabulary: Sequence[str],
    facts: Mapping[str, str],
) -> None:
    """Write the trained network as a native model folder: weights, canonical state, output layer, vocabulary, card."""
    states = network.body.state_dict(), network.softmax.state_dict(prefix="softmax.")
    body, output = ({name: value.detach().float().cpu() for name, value in state.items()} for state in states)
    tensors, softmax = change_basis(network.config.lstm, body, output)
    checkpoint = io.Checkpoint(network.config, tensors, metadata=dict(facts), **scheme_parts)
    state = Elmo.from_checkpoint(checkpoint).canonical_state
    tensors["canonical.hidden"], tensors["canonical.cell"] = state.hidden[:, :, 0], state.cell[:, :, 0]
    checkpoint.softmax, checkpoint.output_words = softmax, list(vocabulary)
    sweep_partial(folder)  # the same run may have been killed here before
    io.save(checkpoint, folder)
