"""What a job was started with: the settings that a later run must share, and what the output says of itself.

Arrives: an Embedder and the caller's choices. Leaves: a dictionary that lies as `manifest.json` beside the parts.
Whatever can change a byte of the output is in it, the weights as a hash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import elmokit
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError

__all__ = ["check_same_settings", "job_manifest"]

JOB_VERSION = 3  # of the files in the folder of an unfinished job


def job_manifest(embedder: Embedder, *, tokenised: bool, **choices: str | int | bool | None) -> dict[str, Any]:
    """The manifest of a job: `settings` to be compared, `about` for the metadata of the output.

    Arguments:
        embedder: the model and how it is run.
        tokenised: whether the segmenter is left out.
        choices: the other settings of the job by name; `layers` is one of them.
    """
    segmenter = embedder.segmenter
    kind = type(segmenter)
    name = getattr(segmenter, "__qualname__", kind.__qualname__)  # a function has a name of its own
    model_hash, version = embedder.elmo.fingerprint(), elmokit.__version__
    settings = {
        "job_version": JOB_VERSION,
        "elmokit": version,
        "model": model_hash,
        "tokenised": tokenised,
        "segmenter": None if tokenised else f"{segmenter.__module__}.{name}",
        "state": embedder.state,
        "cache_words": embedder.cache_words,
        "device": embedder.device.type,
        "precision": embedder.precision,
        **choices,
    }
    about = {
        "version": version,
        "model": Path(embedder.source).name,
        "fingerprint": model_hash,
        "layers": str(choices["layers"]),
        "state": embedder.state,
        "precision": embedder.precision,
    }
    return {"settings": settings, "about": about}


def check_same_settings(before: dict[str, Any], now: dict[str, Any], *, folder: Path) -> None:
    """An `InputError` that names every setting in which a resumed job differs from the one that was started."""
    changes = [
        f"{name} was {before.get(name)!r}, now {value!r}" for name, value in now.items() if before.get(name) != value
    ]
    if changes:
        raise InputError(
            f"the unfinished job in {folder} was started differently ({'; '.join(changes)}): resume it with the same "
            "settings, or start again with --overwrite (overwrite=True)"
        )
