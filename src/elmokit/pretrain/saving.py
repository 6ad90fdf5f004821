"""What a run leaves on disk: checkpoints to continue from, and at the end the model.

A checkpoint is one file of tensors and plain values, in which every record has a checksum. It appears by rename, so a
killed run leaves the one before it whole; the last two are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit import io
from elmokit.errors import CheckpointError, ConfigError, OutputError
from elmokit.io.atomic import explain_failure, replace_file, sweep_partial
from elmokit.io.inside import check_entries
from elmokit.io.torch_files import read_torch
from elmokit.model import Elmo
from elmokit.pretrain.basis import change_basis, level_words, shorten_directions
from elmokit.pretrain.corpus.encoded import UNKNOWN, EncodedCorpus
from elmokit.pretrain.journal import GuardState, MeterState
from elmokit.pretrain.network import LanguageModelNetwork
from elmokit.pretrain.rare_bytes import calm_rare_bytes
from elmokit.validation import Count

__all__ = ["Checkpoints", "TrainingState", "save_model"]

KEPT = 2
CHARACTERS = "encoder.characters.embedding"
SAMPLE_SENTENCES = 800  # of the training text, over which the directions of the outputs are measured
ADVICE = "remove the file to continue from the checkpoint before it"


@dataclass(frozen=True)
class TrainingState:
    """What a checkpoint holds: everything that is needed to continue. Older ones have no guard."""

    network: dict[str, Tensor]
    optimizer: dict[str, Any]
    reader: dict[str, Any]
    step: Count
    tokens: Count
    evaluations: list[dict[str, float]]
    state: tuple[Tensor, Tensor] | None
    meter: MeterState
    guard: GuardState | None = None


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
        check_entries(self.folder)
        return read_torch(paths[-1], device=device, checks_sums=True, advice=ADVICE)

    @contextmanager
    def explain_misfit(self) -> Iterator[None]:
        """What does not fit while a run continues from the last checkpoint is a `CheckpointError` that names it."""
        try:
            yield
        except CheckpointError:
            raise
        except ConfigError as problem:
            raise CheckpointError(f"{self.latest_path}: {problem}") from problem
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError, StopIteration) as problem:
            reason = f"{type(problem).__name__}: {explain_failure(problem)}"
            raise CheckpointError(f"{self.latest_path}: does not fit this run ({reason}); {ADVICE}") from problem

    @property
    def latest_path(self) -> Path:
        """The file of the last checkpoint, of which there is one."""
        return self._paths()[-1]

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
    corpus: EncodedCorpus,
    facts: Mapping[str, str],
) -> None:
    """Write the trained network as a native model folder: weights, canonical state, output layer, vocabulary, card."""
    vocabulary = corpus.vocabulary
    states = network.body.state_dict(), network.softmax.state_dict(prefix="softmax.")
    body, output = ({name: value.detach().float().cpu() for name, value in state.items()} for state in states)
    tensors, softmax = change_basis(network.config.lstm, body, output)
    characters = network.config.characters
    if characters is not None and characters.scheme == "bytes":
        tensors[CHARACTERS] = calm_rare_bytes(tensors[CHARACTERS], vocabulary)
    checkpoint = io.Checkpoint(network.config, tensors, metadata=dict(facts), **scheme_parts)
    numbers = range(0, corpus.num_sentences, -(-corpus.num_sentences // SAMPLE_SENTENCES))
    checkpoint.tensors, softmax = shorten_directions(checkpoint, softmax, [corpus.sentence(each) for each in numbers])
    checkpoint.tensors = tensors = level_words(checkpoint, vocabulary[UNKNOWN + 1 :])
    state = Elmo.from_checkpoint(checkpoint).canonical_state
    tensors["canonical.hidden"], tensors["canonical.cell"] = state.hidden[:, :, 0], state.cell[:, :, 0]
    checkpoint.softmax, checkpoint.output_words = softmax, list(vocabulary)
    sweep_partial(folder)  # the same run may have been killed here before
    io.save(checkpoint, folder)
