"""The config.json of our own format (`native.py`), and whether the files beside it are whole; torch is not needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from elmokit.config import ElmoConfig
from elmokit.errors import CheckpointError, ConfigError
from elmokit.io.safe_header import read_shapes
from elmokit.io.text_files import read_json
from elmokit.validation import build_from

__all__ = ["FORMAT_VERSION", "NativeConfig", "inspect_native", "read_config"]

FORMAT_VERSION = 2


def inspect_native(folder: Path) -> dict[str, str]:
    """What the config.json in `folder` knows of its model; files that are missing or end early are an error.

    Only headers are read. Whether the weights are those of this config is seen when they are loaded.
    """
    metadata = read_config(folder).metadata
    read_shapes(folder / "model.safetensors", allows_int8=True)
    if (softmax := folder / "softmax.safetensors").exists():
        read_shapes(softmax, allows_int8=True)
    return metadata


@dataclass(frozen=True)
class NativeConfig:
    """What is read of a config.json; hubs and their tools add fields of their own."""

    ignores_others: ClassVar[bool] = True
    elmo: ElmoConfig
    swaps_markers: bool = False
    has_words: bool = False
    metadata: dict[str, str] = field(default_factory=dict)


def read_config(folder: Path) -> NativeConfig:
    """The config.json in `folder`; one that is of a later version, or describes no model, is an error."""
    path = folder / "config.json"
    values = read_json(path)
    version = values.get("format_version")
    if type(version) is not int or version < 1:
        raise CheckpointError(
            f"{path}: expected format_version 1 to {FORMAT_VERSION}, found {version!r:.60}; is this a model of elmokit?"
        )
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version {version} is newer than {FORMAT_VERSION}, the latest that this elmokit reads; "
            "upgrade with: pip install --upgrade elmokit"
        )
    try:
        return build_from(NativeConfig, values)
    except ConfigError as problem:
        if "task" in values:
            raise CheckpointError(
                f"{path}: expected a language model, found a task model, which `elmo task` takes"
            ) from None
        raise CheckpointError(f"{path}: describes no model: {problem}") from problem
