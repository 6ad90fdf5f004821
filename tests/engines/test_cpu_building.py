"""The C++ kernels are built once, by several processes at once if need be; where they cannot be, the reason is told."""

from __future__ import annotations

import os
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
    assert_packed_because("cpu: needs a C++ compiler, found none of g++, clang++, c++")


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


@pytest.mark.usefixtures("cpu_kernels")
def test_the_library_of_another_user_is_not_loaded(fresh, quick, monkeypatch):
    assert building.why_no_library() is None
    (library,) = fresh.iterdir()
    monkeypatch.setattr(os, "getuid", lambda: library.stat().st_uid + 1)
    if library.stat().st_uid == 0:
        monkeypatch.setattr(Path, "stat", lambda self, **options: os.stat_result((0, 0, 0, 0, 7, 0, 0, 0, 0, 0)))
    building._library_or_reason.cache_clear()
    assert "belongs to another user" in (building.why_no_library() or "")


@pytest.mark.usefixtures("cpu_kernels")
def test_it_is_built_once_and_again_for_other_sources_or_processors(fresh, quick, monkeypatch):
    built = []
    compile_ = building._compile
    monkeypatch.setattr(building, "_compile", lambda *others: built.append(1) or compile_(*others))

    def names() -> set[str]:
        building._library_or_reason.cache_clear()
        assert building.why_no_library() is None
        return {path.name for path in fresh.iterdir()}

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
    code = "import building; building.SIGNATURES = {}; print(building.why_no_library() or building._build())"
    command = [sys.executable, "-c", code]
    pipes = {"cwd": tmp_path / "sources", "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(4)]
    said = {process.communicate()[0].strip() for process in started}
    assert said == {str(path) for path in fresh.iterdir()} and len(said) == 1


def test_compiling_is_said_once(fresh, quick, caplog):
    with caplog.at_level("INFO", logger="elmokit.waits"):
        assert building.why_no_library() is None
        building._library_or_reason.cache_clear()
        assert building.why_no_library() is None
    assert caplog.text.count("compiling the C++ kernels for this machine, once") == 1
