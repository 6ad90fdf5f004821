"""Finished pieces of a job: the folder `<output>.partial`, its manifest and its parts.

Arrives: the rows of one segment of the input with their vectors. Leaves: a `.safetensors` file that holds them, there
completely or not at all, and later a `Part` that maps its arrays from it. What a part is about (counts, and which lines
of input it came from) stands in the metadata of the file. A kill at any moment leaves only whole files and one stale
`.tmp`. The manifest holds whatever can change a byte of the output, the weights as a hash and the input by its size,
head and tail, so that a job is resumed only as it was started.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from elmokit.embed.embedder import Embedder
from elmokit.errors import CheckpointError, ConfigError, InputError
from elmokit.io.atomic import flush_to_disk, replace_file, replace_text
from elmokit.io.inside import check_entries
from elmokit.io.text_files import read_json
from elmokit.text.files import FileIdentity, identify_files
from elmokit.validation import build_from
from elmokit.version import find_version

__all__ = ["Part", "PartialFolder", "check_same_job", "make_manifest", "pack_strings"]

JOB_VERSION = 4  # of the files in the folder of an unfinished job
MANIFEST = "manifest.json"
ASSEMBLY = "assembly"
CHECKSUM_KEY = "crc32"
METADATA_KEY = "elmokit"  # one key alone: safetensors writes several in any order, and equal parts have equal bytes


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` holds: `settings` and `input` to be compared, `about` for the metadata of the output."""

    settings: dict[str, Any]
    input: list[FileIdentity]
    about: dict[str, str]


class Part:
    """One finished segment, read from its file when asked for.

    Arrays of every part: `lines` (rows), `offsets` (rows + 1, where the words of each row start), `texts` and `words`
    as packed strings, `vectors` (words, dim) or (words, layers, dim); in carry mode `hidden` and `cell` too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with safe_open(path, framework="pt") as file:
                self.header: dict[str, Any] = json.loads((file.metadata() or {})[METADATA_KEY])
                self._names = frozenset(file.keys())
        except (SafetensorError, OSError, KeyError, ValueError) as problem:
            raise self.damage(" ".join(str(problem).split())) from problem

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def array(self, name: str) -> np.ndarray:
        """An array, mapped from the file: pages are read when they are touched."""
        with safe_open(self.path, framework="pt") as file:  # for numpy, safetensors would read the whole array
            mapped = file.get_tensor(name).numpy()
        mapped.flags.writeable = False
        return mapped

    def verify(self) -> None:
        """Refuse a part whose arrays are not those that were written."""
        if find_checksum({name: self.array(name) for name in self._names}) != self.header.get(CHECKSUM_KEY):
            raise self.damage("its checksum does not fit its numbers")

    def damage(self, reason: str) -> CheckpointError:
        """What to say of a part that cannot be what was written."""
        return CheckpointError(
            f"{self.path}: this part of the unfinished job is damaged ({reason:.200}); start again with --overwrite "
            "(overwrite=True)"
        )

    def strings(self, name: str) -> list[str]:
        """Packed strings as a list."""
        data = self.array(f"{name}.data").tobytes()
        offsets = self.array(f"{name}.offsets").tolist()
        return [data[start:end].decode("utf-8") for start, end in zip(offsets, offsets[1:], strict=False)]

    def rows(self) -> Iterator[tuple[int, str, list[str], np.ndarray]]:
        """Line number, text, words and vectors of each row."""
        offsets = self.array("offsets").tolist()
        words, vectors = self.strings("words"), self.array("vectors")
        lines = self.array("lines").tolist()
        for line, text, start, end in zip(lines, self.strings("texts"), offsets, offsets[1:], strict=False):
            yield line, text, words[start:end], vectors[start:end]


class PartialFolder:
    """The folder of an unfinished job.

    It exists, with its manifest, exactly as long as the job is unfinished: it is made under another name and renamed,
    and when the output is in place it is renamed away before it is deleted.

    Arguments:
        output: the file that the job is to make.

    Attributes:
        was_started: whether it was made here, and not by a run before this one.
    """

    def __init__(self, output: Path) -> None:
        self.output, self.was_started = output, False
        self.path = output.with_name(f"{output.name}.partial")
        self._new = output.with_name(f"{output.name}.partial.new")
        self._old = output.with_name(f"{output.name}.partial.old")

    def exists(self) -> bool:
        """Whether an unfinished job lies here."""
        return os.path.exists(self.path)  # unlike Path.exists, False for a name that no file can have

    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not self._part_path(0).exists()

    def start(self, manifest: dict[str, Any]) -> None:
        """Make the folder with its manifest; an older one is thrown away."""
        self.discard()
        self._new.mkdir()
        replace_text(self._new / MANIFEST, json.dumps(manifest, indent=2))
        os.replace(self._new, self.path)
        self.was_started = True
        flush_to_disk(self.output.parent)

    def manifest(self) -> dict[str, Any]:
        """What the job was started with."""
        try:
            check_entries(self.path)
            return read_json(self.path / MANIFEST)
        except (OSError, CheckpointError) as problem:
            raise CheckpointError(
                f"{self.path} is not the folder of an unfinished job ({problem}): remove it, or start again with "
                "--overwrite (overwrite=True)"
            ) from problem

    def parts(self) -> list[Part]:
        """The finished parts in order; a stale temporary file is removed."""
        for stale in self.path.glob("*.tmp"):
            stale.unlink()
        parts = []
        while (path := self._part_path(len(parts))).exists():
            parts.append(Part(path))
        return parts

    def add(self, number: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write one finished part."""
        with replace_file(self._part_path(number)) as temporary:
            try:
                about = {**header, CHECKSUM_KEY: find_checksum(arrays)}
                save_file(arrays, temporary, metadata={METADATA_KEY: json.dumps(about)})
            except SafetensorError as problem:  # such as a full disk
                raise OSError(str(problem)) from problem

    def assembly(self) -> Path:
        """An empty folder for the files of the output, on the same disk as their final place."""
        folder = self.path / ASSEMBLY
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        return folder

    def finish(self, names: Sequence[str]) -> None:
        """Put the assembled files in place, the last name last, and remove the folder."""
        for name in names:
            flush_to_disk(self.path / ASSEMBLY / name)
        for name in names:
            os.replace(self.path / ASSEMBLY / name, self.output.with_name(name))
        flush_to_disk(self.output.parent)
        self.discard()

    def discard(self) -> None:
        """Throw the folder away, and whatever a kill left half-deleted."""
        for leftover in (self._old, self._new):
            if leftover.exists():
                shutil.rmtree(leftover)
        if self.path.exists():
            os.replace(self.path, self._old)
            shutil.rmtree(self._old)

    def _part_path(self, number: int) -> Path:
        return self.path / f"part-{number:08d}.safetensors"


def make_manifest(
    embedder: Embedder, files: Sequence[str], *, tokenised: bool, **choices: str | int | bool | None
) -> dict[str, Any]:
    """The manifest of a job: `settings` and `input` to be compared, `about` for the metadata of the output.

    Arguments:
        embedder: the model and how it is run.
        files: the input.
        tokenised: whether the segmenter is left out.
        choices: the other settings of the job by name; `layers` is one of them.
    """
    segmenter = embedder.segmenter
    kind = type(segmenter)
    name = getattr(segmenter, "__qualname__", kind.__qualname__)  # a function has a name of its own
    model_hash, version = embedder.elmo.fingerprint(), find_version()
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
    return {"settings": settings, "input": [file._asdict() for file in identify_files(files)], "about": about}


def check_same_job(before: dict[str, Any], now: dict[str, Any], *, folder: Path) -> None:
    """An `InputError` that names every setting, or the file, in which a resumed job differs from the one that began.

    Arguments:
        before: the manifest of the job that was started.
        now: that of the one which resumes it. Its files may have moved: what tells files apart is what they hold.
        folder: where the job lies.
    """
    try:
        started, resumed = build_from(Manifest, before), build_from(Manifest, now)
    except ConfigError as problem:
        raise CheckpointError(
            f"{folder}/{MANIFEST}: {problem}; it is damaged: start again with --overwrite (overwrite=True)"
        ) from problem
    old, new = started.settings, resumed.settings
    changes = [f"{name} was {old.get(name)!r}, now {value!r}" for name, value in new.items() if old.get(name) != value]
    if changes:
        raise InputError(
            f"the unfinished job in {folder} was started differently ({'; '.join(changes)}): resume it with the same "
            "settings, or start again with --overwrite (overwrite=True)"
        )
    for one, other in zip_longest(started.input, resumed.input):
        if one is None or other is None or one[1:] != other[1:]:
            raise InputError(
                f"the input has changed since the job in {folder} was started (then {one or 'no further file'}, now "
                f"{other or 'no further file'}): give the same input, or start again with --overwrite (overwrite=True)"
            )


def find_checksum(arrays: Mapping[str, np.ndarray]) -> int:
    """CRC-32 of arrays and their names."""
    checksum = 0
    for name in sorted(arrays):
        checksum = zlib.crc32(np.ascontiguousarray(arrays[name]).data, zlib.crc32(name.encode(), checksum))
    return checksum


def pack_strings(name: str, strings: Sequence[str]) -> dict[str, np.ndarray]:
    """Strings as two arrays: their UTF-8 bytes end to end, and where each starts (n + 1)."""
    encoded = [string.encode("utf-8") for string in strings]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return {f"{name}.data": np.frombuffer(b"".join(encoded), np.uint8), f"{name}.offsets": offsets}
