"""Finished pieces of a job: the folder `<output>.partial`, its manifest and its parts.

Arrives: the rows of one segment of the input with their vectors. Leaves: a `.safetensors` file that holds them, there
completely or not at all, and later a `Part` that maps its arrays from it. What a part is about (counts, and which lines
of input it came from) stands in the metadata of the file. A kill at any moment leaves only whole files and one stale
`.tmp`. The manifest holds whatever can change a byte of the output, the weights as a hash and the input by its size,
head and tail, so that a job is resumed only as it was started.

An output that can grow (`sinks.py`) is written only once: the rows of a part are appended to the file `growing`, and
the part says which of its bytes they are. What a kill leaves behind the last part is overwritten.
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
from typing import Any, NamedTuple

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

__all__ = ["EncodedRows", "Part", "PartialFolder", "check_same_job", "make_manifest", "pack_strings"]

JOB_VERSION = 5  # of the files in the folder of an unfinished job
MANIFEST = "manifest.json"
ASSEMBLY = "assembly"
GROWING = "growing"
CHUNK_BYTES = 1 << 24  # read at a time
CHECKSUM_KEY = "crc32"
METADATA_KEY = "elmokit"  # one key alone: safetensors writes several in any order, and equal parts have equal bytes


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` holds: `settings` and `input` to be compared, `about` for the metadata of the output."""

    settings: dict[str, Any]
    input: list[FileIdentity]
    about: dict[str, str]


class EncodedRows(NamedTuple):
    """The rows of a part as bytes of the output, in pieces, and their CRC-32."""

    pieces: Sequence[bytes | memoryview]
    checksum: int


class Part:
    """One finished segment, read from its file when asked for.

    Arrays of every part: `lines` (rows), `offsets` (rows + 1, where the words of each row start), `texts` (for formats
    that want them) and `words` as packed strings, `vectors` (words, dim) or (words, layers, dim). Where the output
    grows, these lie in it, and a part has `extent` instead: the first byte of its rows, the one behind the last, their
    CRC-32; and what the format needs to find them again. In carry mode every part has `hidden` and `cell`, too.
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

    @property
    def has_grown(self) -> bool:
        """Whether its rows are in the growing output."""
        return "extent" in self

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
        if self.has_grown:
            start, stop, expected = self.array("extent").tolist()
            try:
                found = _find_file_checksum(self.path.with_name(GROWING), start, stop)
            except OSError as problem:
                raise self.damage(problem.strerror or str(problem)) from problem
            if found != expected:
                raise self.damage(f"its rows in the file {GROWING} are not those that were written")

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

    def rows(self) -> Iterator[tuple[int, list[str], np.ndarray]]:
        """Line number, words and vectors of each row."""
        offsets = self.array("offsets").tolist()
        words, vectors = self.strings("words"), self.array("vectors")
        lines = self.array("lines").tolist()
        for line, start, end in zip(lines, offsets, offsets[1:], strict=False):
            yield line, words[start:end], vectors[start:end]


class PartialFolder:
    """The folder of an unfinished job.

    It exists, with its manifest, exactly as long as the job is unfinished: it is made under another name and renamed,
    and when the output is in place it is renamed away before it is deleted.

    Arguments:
        output: the file that the job is to make.
        beginning: the first bytes of an output that grows; `None` for one that is assembled at the end.

    Attributes:
        was_started: whether it was made here, and not by a run before this one.
    """

    def __init__(self, output: Path, *, beginning: bytes | None = None) -> None:
        self.output, self.was_started = output, False
        self._beginning = beginning
        self._grown_to: int | None = None
        self.path = output.with_name(f"{output.name}.partial")
        self._new = output.with_name(f"{output.name}.partial.new")
        self._old = output.with_name(f"{output.name}.partial.old")

    def exists(self) -> bool:
        """Whether an unfinished job lies here."""
        return os.path.exists(self.path)  # unlike Path.exists, False for a name that no file can have

    @property
    def growing(self) -> Path:
        """The file that grows."""
        return self.path / GROWING

    def is_in_place(self) -> bool:
        """Whether the output has been put in place, and only the folder was not removed any more."""
        return self._beginning is not None and not self.growing.exists() and self.output.exists()

    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not self._part_path(0).exists()

    def start(self, manifest: dict[str, Any]) -> None:
        """Make the folder with its manifest; an older one is thrown away."""
        self.discard()
        self._new.mkdir()
        if self._beginning is not None:
            (self._new / GROWING).write_bytes(self._beginning)
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

    def add(
        self, number: int, header: dict[str, Any], arrays: dict[str, np.ndarray], rows: EncodedRows | None = None
    ) -> None:
        """Write one finished part, and first its rows to an output that grows."""
        if rows is not None:
            arrays = {**arrays, "extent": self._grow(rows)}
        with replace_file(self._part_path(number)) as temporary:
            try:
                about = {**header, CHECKSUM_KEY: find_checksum(arrays)}
                save_file(arrays, temporary, metadata={METADATA_KEY: json.dumps(about)})
            except SafetensorError as problem:  # such as a full disk
                raise OSError(str(problem)) from problem

    def end_growing(self, ending: bytes) -> None:
        """Write what ends an output that grows, behind its last part."""
        self._append([ending], self._find_end())

    def _grow(self, rows: EncodedRows) -> np.ndarray:
        start = self._find_end()
        self._grown_to = self._append(rows.pieces, start)
        flush_to_disk(self.growing)
        return np.array([start, self._grown_to, rows.checksum], np.int64)

    def _find_end(self) -> int:
        """Where the rows of the last part end; asked once, when all parts were found whole."""
        if self._grown_to is None:
            parts = self.parts()
            assert self._beginning is not None
            self._grown_to = int(parts[-1].array("extent")[1]) if parts else len(self._beginning)
        return self._grown_to

    def _append(self, pieces: Sequence[bytes | memoryview], start: int) -> int:
        with self.growing.open("r+b", buffering=0) as file:
            file.truncate(start)
            file.seek(start)
            for piece in pieces:
                rest = memoryview(piece)
                while len(rest):
                    rest = rest[file.write(rest) :]
            return file.tell()

    def assembly(self) -> Path:
        """An empty folder for the files of the output, on the same disk as their final place."""
        folder = self.path / ASSEMBLY
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        return folder

    def finish(self, names: Sequence[str]) -> None:
        """Put the files in place, the last name last, and remove the folder."""
        made = [self.path / ASSEMBLY / name for name in names] if self._beginning is None else [self.growing]
        for path in made:
            flush_to_disk(path)
        for path, name in zip(made, names, strict=True):
            os.replace(path, self.output.with_name(name))
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


def _find_file_checksum(path: Path, start: int, stop: int) -> int:
    checksum, left = 0, stop - start
    with path.open("rb") as file:
        file.seek(start)
        while left > 0 and (data := file.read(min(left, CHUNK_BYTES))):
            checksum, left = zlib.crc32(data, checksum), left - len(data)
    return checksum


def find_checksum(arrays: Mapping[str, np.ndarray]) -> int:
    """CRC-32 of arrays, their names, dtypes and shapes."""
    checksum = 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        checksum = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(array.data, checksum)
    return checksum


def pack_strings(name: str, strings: Sequence[str]) -> dict[str, np.ndarray]:
    """Strings as two arrays: their UTF-8 bytes end to end, and where each starts (n + 1)."""
    encoded = [string.encode("utf-8") for string in strings]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(part) for part in encoded], out=offsets[1:])
    return {f"{name}.data": np.frombuffer(b"".join(encoded), np.uint8), f"{name}.offsets": offsets}
