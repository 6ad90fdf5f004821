"""The text beside the weights: JSON settings and lists of words, read as data from anyone.

A path arrives, a dictionary or a list of words leaves. Files are read up to a limit (a compressed list could
unpack to anything), must be UTF-8, and every failure is a `CheckpointError` that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import CheckpointError
from elmokit.text.files import open_text

__all__ = [
    "check_not_pointer",
    "explain_failures",
    "find_vocabulary",
    "read_json",
    "read_json_words",
    "read_words",
    "write_words",
]

# What JSON becomes takes up to twenty times the memory, and words ten times: so settings, which are short, may not be
# long, and lists are counted before they are taken apart.
LARGEST_JSON = 8 * 2**20
LARGEST_LIST = 512 * 2**20  # the published 793,471 words take 7 MB
LARGEST_RATIO, LARGEST_SLACK = 20, 16 * 2**20  # of a packed list: words shrink four times


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    values = _parse_json(_read_bytes(path, LARGEST_JSON), path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object {{...}}, found {_shorten(values)}")
    return values


def read_json_words(path: Path, num_rows: int | None) -> list[str]:
    """The JSON list of strings in a file, one for each row of a table, if it has one."""
    data = _read_bytes(path, LARGEST_LIST)
    least = data.count(b'"') // 2 - data.count(b"\\")  # a string may hold quotes behind a backslash
    if num_rows is not None and least > num_rows:
        raise _other_length(path, f"{least:,} or more", num_rows)
    words = _parse_json(data, path)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise CheckpointError(f"{path}: expected a JSON list of strings, found {_shorten(words)}")
    return words


def read_words(path: Path, *, num_rows: int | None = None, strips: bool = False) -> list[str]:
    """The lines of a word list, packed or not.

    Arguments:
        path: the file.
        num_rows: of the table that it goes with; a list of another length is refused.
        strips: take blanks off the ends of lines, as bilm-tf does.
    """
    with open_text(path, error=CheckpointError) as (file, _):
        limit = min(LARGEST_LIST, LARGEST_RATIO * path.stat().st_size + LARGEST_SLACK)
        data = bytearray()
        while len(data) <= limit and (piece := file.read(2**20)):
            data += piece
    if len(data) > limit:
        raise CheckpointError(f"{path}: a list of words should be below {limit // 2**20} MiB, found more")
    count = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if num_rows is not None and count != num_rows:
        raise _other_length(path, f"{count:,}", num_rows)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise CheckpointError(f"{path}: expected UTF-8 text, found byte {problem.start} to be none") from problem
    # Not splitlines(): it also splits at U+2028 and its like, which are words of real vocabularies.
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.strip(" \t\r") for line in lines] if strips else lines


def write_words(path: Path, words: list[str]) -> None:
    """Write one word per line."""
    for word in words:
        if "\n" in word:
            raise CheckpointError(
                f"{path.name}: {_shorten(word)} holds a line break and cannot be a line of a word list"
            )
    path.write_bytes("".join(word + "\n" for word in words).encode("utf-8"))


def find_vocabulary(folder: Path) -> Path | None:
    """The `vocab*.txt` or `vocab*.txt.gz` of a folder; the plain name wins, two others are an error."""
    found = sorted(path for pattern in ("vocab*.txt", "vocab*.txt.gz") for path in folder.glob(pattern))
    for name in ("vocab.txt", "vocab.txt.gz"):
        if folder / name in found:
            return folder / name
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise CheckpointError(f"{folder}: expected one vocabulary, found {names}; leave one, or name it vocab.txt")
    return found[0] if found else None


def check_not_pointer(path: Path) -> None:
    """Refuse the small text that Git LFS leaves where a large file has not been fetched."""
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs"):
            raise CheckpointError(
                f"{path}: expected weights, found a Git LFS pointer; fetch the file with: git lfs pull"
            )


@contextmanager
def explain_failures(path: Path, damaged: str) -> Iterator[None]:
    """Turn what goes wrong inside into a `CheckpointError`; `damaged` says what is amiss with contents that fail."""
    try:
        yield
    except FileNotFoundError as problem:
        raise CheckpointError(f"{path}: the file is missing; the model is incomplete") from problem
    except OSError as problem:
        raise CheckpointError(f"{path}: cannot be read: {problem.strerror or problem}") from problem
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, CheckpointError):
            raise
        raise CheckpointError(f"{path}: {damaged} ({problem}); fetch it anew") from problem


def _read_bytes(path: Path, limit: int) -> bytes:
    with explain_failures(path, "cannot be read"):
        if path.stat().st_size > limit:
            raise CheckpointError(f"{path}: such a JSON file should be below {limit // 2**20} MiB, found more")
        return path.read_bytes()


def _parse_json(data: bytes, path: Path) -> Any:  # noqa: ANN401
    with explain_failures(path, "expected JSON, found something else"):
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_constant)


def _other_length(path: Path, count: str, num_rows: int) -> CheckpointError:
    return CheckpointError(
        f"{path}: has {count} words and its table {num_rows:,} rows: they should be equal; "
        "the list belongs to another model"
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
