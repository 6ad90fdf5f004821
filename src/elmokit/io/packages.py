"""Models by name: those that come with elmokit, and those of installed packages.

A name arrives; the folder with the model's files leaves. A package of a model is a distribution with an entry point in
the group `elmokit.models`: the name of the entry point is the model's, its value a Python package whose folder holds
the files of the native format. That package is found and not imported: nothing of it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import CheckpointError

__all__ = ["KNOWN", "NamedModel", "find_model", "find_models", "install_command", "model_names"]

BUNDLED = Path(__file__).parents[1] / "models"
GROUP = "elmokit.models"
KNOWN = ("en-original", "ko-small", "zh-small")  # models of this project, each a package: packages/elmokit-NAME
FILES = ("config.json", "model.safetensors")


class NamedModel(NamedTuple):
    """A model that can be called by its name here.

    Arguments:
        name: what it is called.
        package: the distribution that brings it and its version; empty for a model that comes with elmokit.
        folder: where its files are; `None` where the distribution has lost them.
    """

    name: str
    package: str
    folder: Path | None


def find_models() -> list[NamedModel]:
    """The models that are here, by name: those that come with elmokit first, then those of packages.

    Example:
        >>> [model.name for model in find_models() if not model.package]
        ['en-small']
    """
    found = list(_find_bundled())
    names = {model.name for model in found}
    found += [_locate(point) for point in sorted(entry_points(group=GROUP)) if point.name not in names]
    return found


def model_names() -> list[str]:
    """The names of the models that are here."""
    return [model.name for model in find_models()]


def find_model(name: str) -> Path | None:
    """The folder of the model with this name, if there is one here; a package that lacks its files is an error."""
    for model in _find_bundled():
        if model.name == name:
            return model.folder
    found = [_locate(point) for point in entry_points(group=GROUP, name=name)]
    if not found:
        return None
    if len(found) > 1:
        packages = " and ".join(sorted(model.package for model in found))
        raise CheckpointError(f"{name}: {packages} both bring a model of this name; uninstall one of them")
    _, package, folder = found[0]
    again = f"; install it again with: {install_command(name, again=True)}" if name in KNOWN else "; install it again"
    if folder is None:
        raise CheckpointError(f"{name}: the package {package} is registered, but its files are gone{again}")
    missing = [file for file in FILES if not (folder / file).is_file()]
    if missing:
        raise CheckpointError(
            f"{name}: the package {package} was installed without {' and '.join(missing)} (in {folder}): fetch the "
            f"model's files into the folder it was built from{again}"
        )
    return folder


def install_command(name: str, *, again: bool = False) -> str:
    """What installs a model of this project, typed in a checkout."""
    return f"pip install {'--force-reinstall --no-deps ' if again else ''}./packages/elmokit-{name}"


def _find_bundled() -> Iterator[NamedModel]:
    for path in sorted(BUNDLED.glob("*/config.json")):
        yield NamedModel(path.parent.name, "", path.parent)


def _locate(point: EntryPoint) -> NamedModel:
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
    outer, *inner = point.module.split(".")
    try:
        spec = find_spec(outer)  # of the outermost package: to find one inside it, Python would import it
    except (ImportError, ValueError):
        spec = None
    places = spec.submodule_search_locations if spec is not None else None
    folders = [Path(place, *inner) for place in places or () if Path(place, *inner).is_dir()]
    return NamedModel(point.name, package, folders[0] if folders else None)
