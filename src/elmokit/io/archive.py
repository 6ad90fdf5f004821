"""A model in a `.zip`: checked against the tricks of hostile archives, then unpacked beside nobody.

A path arrives; the files that a model can consist of leave, in a folder of the caller's choice. Nothing is written
before every entry has been looked at: absolute paths, `..`, links, encrypted entries and sizes out of proportion
are refused. `zipfile` itself never unpacks more than an entry's declared size. `pack` makes such an archive of a
folder, for programs that store a model among other things.
"""

from __future__ import annotations

import io
import re
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from elmokit.errors import CheckpointError

__all__ = ["pack", "unpack"]

MODEL_FILES = (".json", ".hdf5", ".h5", ".txt", ".gz", ".safetensors", ".dic", ".pkl", ".md")
MOST_ENTRIES = 10_000
LARGEST_TOTAL = 32 * 2**30  # the original with its softmax takes 2 GB
LARGEST_RATIO = 100  # weights hardly shrink, and text shrinks four times
LARGEST_SLACK = 64 * 2**20


def unpack(path: Path, folder: Path) -> list[str]:
    """Unpack the model's files into `folder`; give the names of all files in the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check_sizes(path, entries)
            for entry in entries:
                _check_entry(path, entry)
            for entry in entries:
                if entry.filename.lower().endswith(MODEL_FILES) and not entry.filename.startswith("__MACOSX/"):
                    target = folder.joinpath(*PurePosixPath(entry.filename).parts)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as packed, target.open("xb") as file:
                        shutil.copyfileobj(packed, file, 2**20)
            return [entry.filename for entry in entries]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as problem:
        if isinstance(problem, CheckpointError):
            raise
        raise CheckpointError(
            f"{path}: expected a complete zip archive, found one that cannot be read ({problem!s:.200}); fetch it anew"
        ) from problem
    except OSError as problem:
        raise CheckpointError(
            f"{path}: cannot be unpacked: {problem.strerror or problem}; unpack it yourself and give the folder"
        ) from problem


def pack(folder: Path) -> bytes:
    """The files of a folder as a zip archive, which `unpack` takes; weights hardly shrink, so nothing is compressed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in filter(Path.is_file, sorted(folder.rglob("*"))):
            archive.write(file, file.relative_to(folder))
    return packed.getvalue()


def _check_sizes(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise CheckpointError(f"{path}: expected a model of a few files, found {len(entries):,}; refused")
    total, packed = sum(entry.file_size for entry in entries), path.stat().st_size
    if total > min(LARGEST_TOTAL, LARGEST_RATIO * packed + LARGEST_SLACK):
        raise CheckpointError(
            f"{path}: {packed / 1e6:,.1f} MB claim to unpack to {total / 1e6:,.1f} MB: no model shrinks so; refused"
        )


def _check_entry(path: Path, entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    parts = PurePosixPath(name).parts
    outside = name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or re.match(r"[A-Za-z]:", name)
    if outside or not parts:
        raise CheckpointError(f"{path}: the entry {name!r} would be written outside its folder; refused")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise CheckpointError(f"{path}: the entry {name!r} is a link or a device, expected a file; refused")
    if entry.flag_bits & 1:
        raise CheckpointError(f"{path}: the entry {name!r} is encrypted; unpack it yourself and give the folder")
