"""Files of models: a source becomes a `Checkpoint`, a `Checkpoint` becomes files; nothing here knows a network.

- `loading`: `load` and `save`
- `source`: what the user named → a folder (of `packages`, local, unpacked by `archive`, from the hub) and its family
- `hub`: a `Checkpoint` → a repository of the hub
- `packages`: models by name, those that come with elmokit and those of installed packages
- `native`: config.json (`native_config`) + model.safetensors (`safe_tensors`), whose header `safe_header` reads first
- `allennlp`: AllenNLP and bilm-tf, options.json (`options`) + *.hdf5 (read and written by `hdf5`)
- `manylangs`: ELMoForManyLangs, config.json + *.dic + *.pkl
- `checkpoint`: what they all return, and the shapes that a config implies
- `torch_files`: files of `torch.save`
- `inside`: names inside a folder stay inside it
- `text_files`: the JSON and the word lists beside the weights
- `atomic`: a file, or a folder, appears complete or not at all
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.io.checkpoint import Checkpoint, expected_shapes, num_output_words, num_parameters
    from elmokit.io.hub import push
    from elmokit.io.loading import load, save
    from elmokit.io.packages import model_names

__all__ = ["Checkpoint", "expected_shapes", "load", "model_names", "num_output_words", "num_parameters", "push", "save"]

_HOMES = {
    "elmokit.io.checkpoint": ("Checkpoint", "expected_shapes", "num_output_words", "num_parameters"),
    "elmokit.io.hub": ("push",),
    "elmokit.io.loading": ("load", "save"),
    "elmokit.io.packages": ("model_names",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name on its first use: a list of models needs no torch."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'elmokit.io' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value
