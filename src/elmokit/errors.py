"""The exceptions of elmokit: what can go wrong for a caller, and nothing else.

    ElmoError                 everything below; catch this to catch them all
    ├── ConfigError           a configuration that cannot describe a model
    ├── CheckpointError       a file or folder that is not what it claims to be
    ├── LayerError            a layer this model does not have
    ├── InputError            text or ids that this model cannot take
    ├── OutputError           a result that cannot be written where it was asked for
    │   └── BusyError         … because another job writes it (says which)
    ├── TrainingError         a training run that cannot continue (says which checkpoint is kept)
    ├── EngineError           an engine that cannot run here (says why, and which can)
    └── MissingExtra          a framework that is not installed (says the command)

Each message says what was expected, what came, and what to do. All but `OutputError`, `TrainingError`
and `MissingExtra` are also `ValueError`s, so code that never heard of elmokit still catches them. A message about an
unknown name ends with the known one that `suggest` finds nearest; one about a wrong value has `describe` say what came.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "BusyError",
    "CheckpointError",
    "ConfigError",
    "ElmoError",
    "EngineError",
    "InputError",
    "LayerError",
    "MissingExtra",
    "OutputError",
    "TrainingError",
    "describe",
    "suggest",
]


class ElmoError(Exception):
    """Base of every exception that elmokit raises on purpose."""


class ConfigError(ElmoError, ValueError):
    """A configuration that cannot describe a model."""


class CheckpointError(ElmoError, ValueError):
    """A model file or folder that is not what it claims to be: names the file, the tensor and both shapes."""


class LayerError(ElmoError, ValueError):
    """A layer this model does not have."""


class InputError(ElmoError, ValueError):
    """Text, ids or settings that cannot be taken."""


class OutputError(ElmoError, OSError):
    """A result that cannot be written where it was asked for."""


class BusyError(OutputError):
    """A result that another job is writing at this moment; the message says which, and what to do."""


class TrainingError(ElmoError, RuntimeError):
    """A training run that cannot continue; the message says which checkpoint is kept."""


class EngineError(ElmoError, ValueError):
    """An engine that cannot run here: says why, and which one can."""


class MissingExtra(ElmoError, ImportError):
    """A framework that is not installed; the message holds the command that installs it."""


def describe(thing: object) -> str:
    """What came, for an error message.

    Example:
        >>> describe(7), describe(b"bank"), describe(None)
        ('int 7', "bytes b'bank'", 'None')
    """
    return "None" if thing is None else f"{type(thing).__name__} {thing!r:.40}"


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or nothing.

    Example:
        >>> suggest("en_small", ["en-small", "de-small"])
        '; did you mean en-small?'
        >>> suggest("bert", ["en-small"])
        ''
    """
    by_folded = {each.casefold(): each for each in known}
    near = get_close_matches(name.casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[near[0]]}?" if near else ""
