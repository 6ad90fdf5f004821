"""Fixtures that tests of several folders share."""

from __future__ import annotations

import atexit
import errno
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests of several folders import `random_models` and what stands beside it.
sys.path.insert(0, str(Path(__file__).parent / "parity"))

# Triton decides when it is first imported whether its kernels run on a GPU or are interpreted, here on the CPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# The C++ kernels are built once for all tests, and the user's cache is left alone.
if "ELMOKIT_KERNELS" not in os.environ:
    os.environ["ELMOKIT_KERNELS"] = tempfile.mkdtemp(prefix="elmokit-kernels-")
    atexit.register(shutil.rmtree, os.environ["ELMOKIT_KERNELS"], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def renames_as_on_windows() -> Iterator[None]:
    """`Path.rename` refuses to replace a file, so that whoever means to says `Path.replace`, which works everywhere."""
    rename = Path.rename

    def strictly(self: Path, target: str | os.PathLike[str]) -> Path:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "exists, and Windows does not rename over it", str(target))
        return rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", strictly)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waits() -> Iterator[None]:
    """Commands do not say what they wait for: how long that is depends on what else the machine does."""
    from elmokit.waits import show_waits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.cli.show_waits", lambda *, is_quiet: show_waits(is_quiet=True))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """More threads than free cores wait for each other, and tests run side by side."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cpu_kernels() -> None:
    """The C++ kernels; tests of them are skipped where they cannot be built."""
    from elmokit.engines import why_no_library

    if (reason := why_no_library()) is not None:
        pytest.skip(f"no C++ kernels: {reason}")


@pytest.fixture(scope="session")
def interpreted_triton() -> None:
    """Kernels run by Triton's interpreter, mended for bfloat16: it multiplies the bit patterns, and cuts off bits."""
    if platform.system() != "Linux":
        pytest.skip("Triton is made for Linux only")
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    create_dot, cast_impl = interpreter.InterpreterBuilder.create_dot, interpreter.InterpreterBuilder.cast_impl

    def widened(handle: interpreter.TensorHandle) -> interpreter.TensorHandle:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def rounded(self: interpreter.InterpreterBuilder, src: interpreter.TensorHandle, dst_type: tl.dtype) -> Any:
        if (src.dtype.scalar, dst_type.scalar) != (tl.float32, tl.bfloat16):
            return cast_impl(self, src, dst_type)
        bits = np.ascontiguousarray(src.data).view(np.uint32)
        nearest = ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16).astype(np.uint16)
        return interpreter.TensorHandle(np.where(np.isnan(src.data), np.uint16(0x7FC0), nearest), dst_type.scalar)

    interpreter.InterpreterBuilder.create_dot = lambda self, a, b, *others: create_dot(
        self, widened(a), widened(b), *others
    )
    interpreter.InterpreterBuilder.cast_impl = rounded


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model in the native format; treat it as read-only."""
    from elmokit import Elmo, ElmoConfig

    folder = tmp_path_factory.mktemp("models") / "my-model"
    Elmo.random(ElmoConfig.tiny()).save_pretrained(folder)
    return folder
