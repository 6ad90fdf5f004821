"""The C++ beside this file becomes a library of this machine: compiled at first use, tried out, remembered.

Arrives: nothing but the sources. Leaves: the library as `ctypes` sees it, or the reason why there is none; nothing here
ever fails because a compiler does. The library is stored under a name made of the sources, the compiler and the
processor, so another machine that shares the folder never loads it. A new one is called once in a process of its own
before it gets that name: instructions that this machine does not have end that process, not the user's.

A library is code, and a damaged one ends the process that loads it. So a stored one is loaded only if it and its folder
belong to this user (or root), nobody else may write them, and its bytes have the checksum that is stored beside it;
else it is compiled again, which is said.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from elmokit.cores import count_threads
from elmokit.waits import WAITS

__all__ = ["FOLDER_VARIABLE", "library", "why_no_library"]

# Where libraries are kept, if not in the user's cache folder.
FOLDER_VARIABLE = "ELMOKIT_KERNELS"

COMPILERS = ("g++", "clang++", "c++")
# Strict C++ would forbid a * b + c in one step (fp-contract), which is what the machine does best.
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-fPIC", "-pthread")
BUILD_SECONDS, TRIAL_SECONDS = 300, 60
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MISSING = "there are none yet"
# Each function of the library: what it returns, what it takes (v nothing, i int, l long, p address, f float, s text).
SIGNATURES = {
    "elmokit_instructions": ("s", ""),
    "elmokit_reads_halves": ("i", ""),
    "elmokit_packed_bytes": ("l", "illl"),
    "elmokit_pack": ("v", "illlpllpp"),
    "elmokit_maps": ("v", "plplpi"),
    "elmokit_lstmp": ("v", "iplllllpllffi"),
    "elmokit_log_sums": ("v", "ppllplpi"),
    "elmokit_char_block": ("l", ""),
    "elmokit_encode_words": ("l", "plllpliplpi"),
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


class _BadFolderError(_NoLibraryError):
    """Why none is kept in this folder; the user can choose another."""


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
        path = _find_or_build()
    except _NoLibraryError as error:
        if isinstance(error, _BadFolderError):
            WAITS.warning(f"the C++ kernels are not used, which makes this slow: {error}")
        return None, str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"could not be built: {error}"
    try:
        return _declare(ctypes.CDLL(str(path))), None
    except (OSError, AttributeError) as error:
        # Whole by its checksum, and still not ours. This process cannot load another of that name; the next one can.
        path.unlink(missing_ok=True)
        return None, f"{path} was no library of ours ({error}), and is removed: the next start compiles it"


def _declare(found: ctypes.CDLL) -> ctypes.CDLL:
    """The same library; integers are passed as C's `long`, addresses as pointers, in full width."""
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(found, name)
        function.restype = _TYPES[result]
        function.argtypes = [_TYPES[letter] for letter in arguments]
    return found


def _find_or_build() -> Path:
    """The file of the library, made now if there is none that can be trusted."""
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CXX"), *COMPILERS)))), None)
    if compiler is None:
        raise _NoLibraryError(f"needs a C++ compiler, found none of {', '.join(COMPILERS)}")
    sources = sorted(Path(__file__).parent.glob("*.[ch]pp"))
    path = _folder() / f"elmokit-{_key(compiler, sources)}.so"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_folder(path.parent)
        if _find_fault(path) is None:
            return path
        lock = path.with_suffix(".lock")
        with FileLock(lock, timeout=2 * BUILD_SECONDS):
            try:
                if (fault := _find_fault(path)) is not None:  # still: another process may have mended it meanwhile
                    if fault != MISSING:
                        WAITS.warning(f"the compiled kernels are not taken, {fault}: they are compiled again")
                    _build(compiler, sources, path)
            finally:
                lock.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise _NoLibraryError(f"cannot write to {path.parent} ({reason}): set {FOLDER_VARIABLE} to a folder") from error
    return path


def _build(compiler: str, sources: list[Path], path: Path) -> None:
    """Compile the library, try it out, and store it with its checksum."""
    prefix = f"building-{path.stem}-"
    for stale in path.parent.glob(f"{prefix}*"):  # of a process that was killed: we alone hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=prefix) as folder:
        new = Path(folder) / path.name
        WAITS.info("compiling the C++ kernels for this machine, once: about 15 seconds …")
        _compile(compiler, [source for source in sources if source.suffix == ".cpp"], new)
        _try_out(new)
        checksum = _checksum_of(new)
        checksum.write_text(hashlib.sha256(new.read_bytes()).hexdigest() + "\n", encoding="ascii")
        for file, mode in ((checksum, 0o644), (new, 0o755)):  # whatever the umask is
            file.chmod(mode)
            file.replace(path.with_name(file.name))  # the library last: when it is there, all is


def _close_folder(folder: Path) -> None:
    """Refuse a folder in which others can put files; in the user's cache, take that right away from them."""
    if getattr(os, "ST_NOEXEC", 0) & _flags_of_disk(folder):
        raise _BadFolderError(f"{folder} is on a disk from which nothing may run: set {FOLDER_VARIABLE} to a folder")
    if not hasattr(os, "getuid"):
        return
    for facts in (os.lstat(folder), os.stat(folder)):  # of a link: whose it is, and where it leads
        if facts.st_uid not in (os.getuid(), 0):
            raise _BadFolderError(f"{folder} belongs to another user: set {FOLDER_VARIABLE} to a folder of your own")
    facts = os.stat(folder)
    if facts.st_mode & OTHERS_WRITE:
        if facts.st_uid != os.getuid() or FOLDER_VARIABLE in os.environ:  # it may be meant for more than this
            raise _BadFolderError(f"others may write to {folder}: set {FOLDER_VARIABLE} to a folder of your own")
        WAITS.warning(f"others could write to {folder}, which holds compiled code: from now on they cannot")
        folder.chmod(stat.S_IMODE(facts.st_mode) & ~OTHERS_WRITE)


def _flags_of_disk(folder: Path) -> int:
    return os.statvfs(folder).f_flag if hasattr(os, "statvfs") else 0


def _find_fault(path: Path) -> str | None:
    """Why a stored library is not loaded; `None` if it is whole, ours, and closed to others."""
    checksum = _checksum_of(path)
    if not os.path.lexists(path):
        return MISSING
    for file in (path, checksum):
        try:
            facts = os.lstat(file)
        except FileNotFoundError:
            return f"{file} is missing"
        if not stat.S_ISREG(facts.st_mode):
            return f"{file} is no plain file"
        if hasattr(os, "getuid") and facts.st_uid not in (os.getuid(), 0):
            return f"{file} belongs to another user"
        if hasattr(os, "getuid") and facts.st_mode & OTHERS_WRITE:
            return f"others may write to {file}"
    if hashlib.sha256(path.read_bytes()).hexdigest().encode() != checksum.read_bytes().strip():
        return f"{path} is damaged"
    return None


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


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


def _compile(compiler: str, sources: list[Path], new: Path) -> None:
    objects = [str(new.with_name(f"{source.stem}.o")) for source in sources]
    commands = [["-c", str(source), "-o", made] for source, made in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor(count_threads()) as threads:
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
