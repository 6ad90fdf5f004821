"""The C++ beside this file becomes a library of this machine: compiled at first use, tried out, remembered.

Arrives: nothing but the sources. Leaves: the library as `ctypes` sees it, or the reason why there is none; nothing here
ever fails because a compiler does. The library is stored under a name made of the sources, the compiler and the
processor, so another machine that shares the folder never loads it. A new one is called once in a process of its own
before it gets that name: instructions that this machine does not have end that process, not the user's.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["FOLDER_VARIABLE", "library", "why_no_library"]

# Where libraries are kept, if not in the user's cache folder.
FOLDER_VARIABLE = "ELMOKIT_KERNELS"

COMPILERS = ("g++", "clang++", "c++")
# Strict C++ would forbid a * b + c in one step (fp-contract), which is what the machine does best.
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-fPIC", "-pthread")
BUILD_SECONDS, TRIAL_SECONDS = 300, 60
# Each function of the library: what it returns, what it takes (v nothing, i int, l long, p address, f float, s text).
SIGNATURES = {
    "elmokit_instructions": ("s", ""),
    "elmokit_packed_bytes": ("l", "illl"),
    "elmokit_pack": ("v", "illlpllpp"),
    "elmokit_linear": ("v", "illpplipi"),
    "elmokit_highway": ("v", "ilpplpi"),
    "elmokit_lstmp": ("v", "iplllllpllffi"),
    "elmokit_char_block": ("l", ""),
    "elmokit_char_features": ("l", "pllllppppipi"),
}
_TYPES = {
    "v": None,
    "i": ctypes.c_int,
    "l": ctypes.c_long,
    "f": ctypes.c_float,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
}
TRIAL = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).elmokit_check())"


class _NoLibraryError(Exception):
    """Why there is no library."""


def why_no_library() -> str | None:
    """What keeps the C++ kernels from running here; `None` if nothing does. The first call may compile them."""
    return _library_or_reason()[1]


def library() -> ctypes.CDLL:
    """The library; only where `why_no_library` gives no reason."""
    found, reason = _library_or_reason()
    assert found is not None, reason
    return found


@functools.cache
def _library_or_reason() -> tuple[ctypes.CDLL | None, str | None]:
    try:
        return _declare(ctypes.CDLL(str(_build()))), None
    except _NoLibraryError as error:
        return None, str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"could not be built: {error}"


def _declare(found: ctypes.CDLL) -> ctypes.CDLL:
    """The same library; integers are passed as C's `long`, addresses as pointers, in full width."""
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(found, name)
        function.restype = _TYPES[result]
        function.argtypes = [_TYPES[letter] for letter in arguments]
    return found


def _build() -> Path:
    """The file of the library, made now if there is none."""
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), *COMPILERS)))), None)
    if compiler is None:
        raise _NoLibraryError(f"needs a C++ compiler, found none of {', '.join(COMPILERS)}")
    sources = sorted(Path(__file__).parent.glob("*.[ch]pp"))
    path = _folder() / f"elmokit-{_key(compiler, sources)}.so"
    if path.exists():
        _check_owner(path)
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="building-") as folder:
            new = Path(folder) / path.name
            logging.getLogger("elmokit.waits").info(
                "compiling the C++ kernels for this machine, once: about 15 seconds …"
            )
            _compile(compiler, [source for source in sources if source.suffix == ".cpp"], new)
            _try_out(new)
            new.replace(path)  # at once: a process that builds the same finds either nothing or all of it
    except OSError as error:
        reason = error.strerror or str(error)
        raise _NoLibraryError(f"cannot write to {path.parent} ({reason}): set {FOLDER_VARIABLE} to a folder") from error
    return path


def _folder() -> Path:
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "elmokit" / "kernels"


def _key(compiler: str, sources: list[Path]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=TRIAL_SECONDS).stdout
    parts = [version, " ".join(FLAGS).encode(), _processor().encode()]
    parts += [part for source in sources for part in (source.name.encode(), source.read_bytes())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _processor() -> str:
    """What `-march=native` depends on: the machine, its model and its instructions."""
    facts = [platform.system(), platform.machine(), platform.processor()]
    info = Path("/proc/cpuinfo")
    if info.exists():
        wanted = ("flags", "Features", "model name", "cpu family", "model", "CPU part")
        lines = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        facts += [line for line in lines if line.split("\t")[0].strip(" :") in wanted]
    return "\n".join(facts)


def _check_owner(path: Path) -> None:
    """A library is code: it is not taken from a file that somebody else put there."""
    owner = path.stat().st_uid
    if hasattr(os, "getuid") and owner not in (os.getuid(), 0):
        raise _NoLibraryError(f"{path} belongs to another user: set {FOLDER_VARIABLE} to a folder of your own")


def _compile(compiler: str, sources: list[Path], new: Path) -> None:
    objects = [str(new.with_name(f"{source.stem}.o")) for source in sources]
    commands = [["-c", str(source), "-o", made] for source, made in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda command: _run(compiler, *FLAGS, *command), commands))
    _run(compiler, *FLAGS, "-shared", *objects, "-o", str(new))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=BUILD_SECONDS)
    if done.returncode or not Path(command[-1]).exists():
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["said nothing"]
        told = next((line for line in said if "error" in line), said[-1])
        raise _NoLibraryError(f"{command[0]} could not compile it: {told.strip()}")


def _try_out(new: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRIAL, str(new)], capture_output=True, timeout=TRIAL_SECONDS
    )
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise _NoLibraryError(f"the compiled library does not work on this machine (its trial ended with {how})")
