"""The C++ kernels are built once, by several processes at once if need be; where they cannot be, the reason is told."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elmokit.engines import choose
from elmokit.engines.cpp import building
from elmokit.nn.operations import Clips, Request


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A process that knows no library yet, with a folder of its own."""
    monkeypatch.setenv(building.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    building._library_or_reason.cache_clear()
    yield tmp_path / "kernels"
    building._library_or_reason.cache_clear()


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Sources that compile in no time: a library with nothing but its check."""

    def write(body: str) -> None:
        (tmp_path / "sources").mkdir(exist_ok=True)
        (tmp_path / "sources" / "check.cpp").write_text(body, encoding="utf-8")
        monkeypatch.setattr(building, "__file__", str(tmp_path / "sources" / "building.py"))
        monkeypatch.setattr(building, "SIGNATURES", {"elmokit_check": ("i", "")})

    write('extern "C" int elmokit_check() { return 0; }')
    return write


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def assert_packed_because(reason: str) -> None:
    choice = choose(Request("recurrence", torch.device("cpu"), torch.float32, clips=Clips(3.0, 3.0)))
    assert choice.name == "packed" and reason in choice.reason, choice


def test_no_compiler(fresh, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert_packed_because("C++: needs a C++ compiler, found none of g++, clang++, c++")


def test_a_compiler_that_fails(fresh, quick, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", script(tmp_path / "broken", "echo 'a.cpp:1: error: out of luck' >&2; exit 1"))
    assert_packed_because("could not compile it: a.cpp:1: error: out of luck")
    assert list(fresh.iterdir()) == []


def test_a_compiler_that_says_and_makes_nothing(fresh, quick, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", script(tmp_path / "silent", "exit 0"))
    assert_packed_because("could not compile it: said nothing")


def test_a_compiler_that_cannot_be_started(fresh, quick, monkeypatch, tmp_path):
    path = tmp_path / "compiler"
    path.write_bytes(b"\x7fELF no program")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    assert_packed_because("could not be built")


@pytest.mark.usefixtures("cpu_kernels")
@pytest.mark.parametrize(
    ("body", "how"), [("__builtin_trap();", "signal 4"), ("return 3;", "status 3")], ids=["instruction", "result"]
)
def test_a_library_that_does_not_work_ends_another_process(fresh, quick, body, how):
    quick(f'extern "C" int elmokit_check() {{ {body} return 0; }}')
    assert_packed_because(f"does not work on this machine (its trial ended with {how})")
    assert list(fresh.iterdir()) == []


@pytest.mark.usefixtures("cpu_kernels")
def test_a_folder_that_cannot_be_written(fresh, quick):
    fresh.write_text("a file, not a folder", encoding="utf-8")
    assert_packed_because(f"cannot write to {fresh}")
    assert_packed_because(f"set {building.FOLDER_VARIABLE} to a folder")


@pytest.mark.usefixtures("cpu_kernels")
@pytest.mark.skipif(hasattr(os, "getuid") and os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(fresh, quick):
    fresh.mkdir(mode=0o500)
    assert_packed_because(f"cannot write to {fresh} (Permission denied)")


@pytest.fixture
def stored(fresh, quick) -> Path:
    """A library of an earlier process: this one has not loaded it."""
    return building._find_or_build()


def pretend(monkeypatch, path: Path, **changes: int) -> None:
    """Let a file or folder look as if it had another owner or mode: only root could really give it away."""
    originals = {name: getattr(os, name) for name in ("stat", "lstat")}

    def look(function):
        def changed(asked, *arguments, **options):
            facts = function(asked, *arguments, **options)
            if str(asked) != str(path):
                return facts
            values = list(facts)[:10]
            values[0] = changes.get("mode", values[0])
            values[4] = changes.get("owner", values[4])
            return os.stat_result(values)

        return changed

    for name, function in originals.items():
        monkeypatch.setattr(os, name, look(function))


def damage(library: Path, how: str, folder: Path) -> None:
    """What can be wrong with a stored library."""
    data, checksum = library.read_bytes(), library.with_name(f"{library.name}.sha256")
    if how == "truncated":
        library.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        library.write_bytes(b"")
    elif how == "one byte":
        library.write_bytes(data[:4000] + bytes([data[4000] ^ 1]) + data[4001:])
    elif how == "garbage":
        library.write_bytes(b"no library at all")
    elif how == "another library":
        library.write_bytes(Path(torch.__file__).with_name("lib").joinpath("libtorch_global_deps.so").read_bytes())
    elif how == "no checksum":
        checksum.unlink()
    elif how == "open to all":
        library.chmod(0o666)
    elif how == "open checksum":
        checksum.chmod(0o666)
    elif how == "a link":
        library.rename(folder / "elsewhere.so")
        library.symlink_to(folder / "elsewhere.so")
    else:
        raise AssertionError(how)


DAMAGES = [
    ("truncated", "is damaged"),
    ("empty", "is damaged"),
    ("one byte", "is damaged"),
    ("garbage", "is damaged"),
    ("another library", "is damaged"),
    ("no checksum", "sha256 is missing"),
    ("open to all", r"others may write to .*\.so:"),
    ("open checksum", r"others may write to .*\.sha256:"),
    ("a link", "is no plain file"),
]


@pytest.mark.usefixtures("cpu_kernels")
@pytest.mark.parametrize(("how", "told"), DAMAGES, ids=[how for how, _ in DAMAGES])
def test_a_stored_library_that_cannot_be_trusted_is_compiled_again_and_that_is_said_once(
    stored, caplog, tmp_path, how, told
):
    whole = stored.read_bytes()
    damage(stored, how, tmp_path)
    for _ in range(2):
        building._library_or_reason.cache_clear()
        assert building.why_no_library() is None
        assert building.library().elmokit_check() == 0
    assert caplog.text.count("the compiled kernels are not taken") == 1 and re.search(told, caplog.text)
    assert stored.read_bytes() == whole and not stored.is_symlink()
    assert {path.stat().st_mode & 0o022 for path in stored.parent.iterdir()} == {0}
    assert {path.suffix for path in stored.parent.iterdir()} == {".so", ".sha256"}


@pytest.mark.usefixtures("cpu_kernels")
def test_the_library_of_another_user_is_compiled_again(stored, caplog, monkeypatch):
    before = stored.stat().st_ino
    pretend(monkeypatch, stored, owner=os.getuid() + 7)
    building.why_no_library()
    assert f"{stored} belongs to another user" in caplog.text
    assert stored.stat().st_ino != before


@pytest.mark.usefixtures("cpu_kernels")
@pytest.mark.parametrize(
    ("changes", "told"),
    [({"owner": 7 + os.getuid()}, "belongs to another user"), ({"mode": 0o40777}, "others may write to")],
)
def test_a_folder_of_others_is_not_used_and_that_is_said_once(stored, monkeypatch, caplog, changes, told):
    pretend(monkeypatch, stored.parent, **changes)
    assert_packed_because(told)
    assert caplog.text.count("the C++ kernels are not used, which makes this slow") == 1
    assert_packed_because(f"set {building.FOLDER_VARIABLE} to a folder of your own")


@pytest.mark.usefixtures("cpu_kernels")
def test_the_users_own_cache_is_closed_to_others(fresh, quick, monkeypatch, tmp_path, caplog):
    monkeypatch.delenv(building.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "elmokit" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    for _ in range(2):
        building._library_or_reason.cache_clear()
        assert building.why_no_library() is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert caplog.text.count("from now on they cannot") == 1


@pytest.mark.usefixtures("cpu_kernels")
def test_an_open_umask_opens_nothing(fresh, quick):
    before = os.umask(0)
    try:
        assert building.why_no_library() is None
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o022 for path in (fresh, *fresh.iterdir())} == {0}


@pytest.mark.usefixtures("cpu_kernels")
def test_a_library_with_a_checksum_but_without_our_functions_is_removed(stored, monkeypatch):
    monkeypatch.setattr(building, "SIGNATURES", {"elmokit_missing": ("i", "")})
    assert_packed_because("was no library of ours")
    assert not stored.exists()


def test_a_disk_from_which_nothing_runs_is_told_before_anything_is_compiled(fresh, quick, monkeypatch):
    monkeypatch.setattr(building, "_flags_of_disk", lambda folder: os.ST_NOEXEC)
    monkeypatch.setattr(building, "_compile", lambda *arguments: pytest.fail("it was compiled"))
    assert_packed_because("is on a disk from which nothing may run")


@pytest.mark.usefixtures("cpu_kernels")
def test_what_a_killed_compiler_left_is_swept_and_what_others_compile_is_not(stored):
    stored.unlink()
    ours, others = (stored.parent / name for name in (f"building-{stored.stem}-1234", "building-elmokit-other-1234"))
    ours.mkdir()
    others.mkdir()
    assert building._find_or_build() == stored
    assert not ours.exists() and others.exists()


@pytest.mark.usefixtures("cpu_kernels")
def test_it_is_built_once_and_again_for_other_sources_or_processors(fresh, quick, monkeypatch):
    built = []
    compile_ = building._compile
    monkeypatch.setattr(building, "_compile", lambda *others: built.append(1) or compile_(*others))

    def names() -> set[str]:
        building._library_or_reason.cache_clear()
        assert building.why_no_library() is None
        return {path.name for path in fresh.glob("*.so")}

    first = names()
    assert names() == first and len(first) == len(built) == 1
    quick('extern "C" int elmokit_check() { return 0; }  // changed')
    assert len(names()) == len(built) == 2
    monkeypatch.setattr(building, "_processor", lambda: "another one")
    assert len(names()) == len(built) == 3


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv(building.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert building._folder() == tmp_path / "elmokit" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert building._folder() == tmp_path / ".cache" / "elmokit" / "kernels"


@pytest.mark.usefixtures("cpu_kernels")
def test_processes_that_build_at_once_end_up_with_one_library(fresh, quick, tmp_path):
    shutil.copy(building.library.__code__.co_filename, tmp_path / "sources" / "building.py")
    code = "import building; building.SIGNATURES = {}; print(building.why_no_library() or building._find_or_build())"
    command = [sys.executable, "-c", code]
    pipes = {"cwd": tmp_path / "sources", "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(4)]
    said = {process.communicate()[0].strip() for process in started}
    assert said == {str(path) for path in fresh.glob("*.so")} and len(said) == 1
    assert {path.suffix for path in fresh.iterdir()} == {".so", ".sha256"}


def test_compiling_is_said_once(fresh, quick, caplog):
    with caplog.at_level("INFO", logger="elmokit.waits"):
        assert building.why_no_library() is None
        building._library_or_reason.cache_clear()
        assert building.why_no_library() is None
    assert caplog.text.count("compiling the C++ kernels for this machine, once") == 1
