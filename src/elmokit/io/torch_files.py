"""One file of `torch.save`, read as data from anyone: no code in it runs, and it takes no more memory than its size.

A path arrives; tensors and plain values leave. `weights_only=True` refuses a pickle that names a function to call
before anything in it runs. A file of today is a zip: records that are compressed would unpack to any size, and torch
does not look at the checksum that each record has, so both are looked at here first.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from elmokit.errors import CheckpointError
from elmokit.io.text_files import check_not_pointer, explain_failures

__all__ = ["read_torch"]


def read_torch(
    path: Path,
    *,
    device: torch.device | str = "cpu",
    checks_sums: bool = False,
    advice: str = "unpack the archive again",
) -> Any:  # noqa: ANN401
    """What a file of `torch.save` holds.

    Arguments:
        path: the file.
        device: where its tensors go.
        checks_sums: whether the checksum of every record is compared; a file of others may have none.
        advice: what to do about a damaged file.
    """
    with explain_failures(path, "cannot be read"):
        check_not_pointer(path)
    try:
        if zipfile.is_zipfile(path):
            _check_records(path, checks_sums=checks_sums)
        return torch.load(path, map_location=device, weights_only=True)
    except UnpicklingError as problem:
        raise CheckpointError(
            f"{path} is damaged or asks for code to be run, and nothing in it was: expected a pickle of tensors alone. "
            f"Get the file anew from a source you trust, or {advice} ({_first_line(problem)})"
        ) from problem
    except Exception as problem:  # a damaged file makes torch raise a dozen kinds of error, none of them its own
        raise CheckpointError(
            f"{path} is damaged or no file of torch: expected a pickle of tensors; {advice} ({_first_line(problem)})"
        ) from problem


def _check_records(path: Path, *, checks_sums: bool) -> None:
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
        if any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise ValueError("its records are compressed, which torch never does")
        if sum(record.file_size for record in records) > path.stat().st_size:
            raise ValueError("its records claim more bytes than the file has")
        damaged = archive.testzip() if checks_sums else None
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} does not fit its bytes")


def _first_line(problem: BaseException) -> str:
    return f"{(str(problem) or type(problem).__name__).splitlines()[0]:.200}"
