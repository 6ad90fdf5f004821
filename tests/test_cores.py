"""Cores that this process may use, and the threads of all that computes: one number, from the option to the kernels."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
import re
import subprocess
import sys

import pytest
import torch

from elmokit import cores
from elmokit.cli import _run, main
from elmokit.commands import COMMANDS, GROUPS
from elmokit.commands.base import Command, Computation
from elmokit.cores import count_cores, count_threads, use_threads
from elmokit.engines.cpp.threads import num_threads
from elmokit.errors import InputError
from elmokit.pretrain.corpus import encoding
from elmokit.pretrain.corpus.encoding import encode_corpus

ALL_COMMANDS: dict[str, type[Command]] = {
    **COMMANDS, **{f"{group} {name}": kind for group, (kinds, _) in GROUPS.items() for name, kind in kinds.items()},
}  # fmt: skip
COMPUTING = {name: kind for name, kind in ALL_COMMANDS.items() if issubclass(kind, Computation)}


@pytest.fixture
def eight_cores(monkeypatch):
    """A machine of eight cores without quotas, and torch's number as it was at the end."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(cores, "_read_quota", lambda: None)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_torch(eight_cores, monkeypatch):
    """A process that has not imported torch, and whose environment says nothing of threads."""
    monkeypatch.delitem(sys.modules, "torch")
    for name in (*cores.VARIABLES, *cores.WAITING):
        monkeypatch.setenv(name, "")  # so that it is as before at the end, whatever is put there
        monkeypatch.delenv(name)


VERSION_2, VERSION_1 = "0::/job/step\n", "4:memory:/job\n3:cpuset:/\n2:cpu,cpuacct:/job/step\n0::/\n"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (VERSION_2, {"job/step/cpu.max": "300000 100000"}, 3),
        (VERSION_2, {"job/step/cpu.max": "max 100000"}, 8),
        (VERSION_2, {"job/step/cpu.max": "300000 100000", "job/cpu.max": "200000 100000"}, 2),  # the whole job
        (VERSION_2, {"cpu.max": "400000 100000"}, 4),  # a container that is told its host's path
        (VERSION_2, {"job/step/cpu.max": "250000 100000"}, 2),
        (VERSION_2, {"job/step/cpu.max": "50000 100000"}, 1),
        (VERSION_2, {"job/step/cpu.max": "3200000 100000"}, 8),
        (VERSION_2, {"job/step/cpu.max": "what?"}, 8),
        (VERSION_1, {"cpu/job/step/cpu.cfs_quota_us": "300000", "cpu/job/step/cpu.cfs_period_us": "100000"}, 3),
        (VERSION_1, {"cpu/cpu.cfs_quota_us": "40000\n", "cpu/cpu.cfs_period_us": "10000\n"}, 4),
        (VERSION_1, {"cpu/job/step/cpu.cfs_quota_us": "-1", "cpu/job/step/cpu.cfs_period_us": "100000"}, 8),
        (VERSION_1, {"memory/job/cpu.max": "100000 100000"}, 8),
        (None, {}, 8),
    ],
)
def test_a_quota_bounds_the_cores(own, files, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(cores, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(cores, "GROUPS", tmp_path / "groups")
    if own is not None:
        (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    cores._read_quota.cache_clear()
    try:
        assert count_cores() == expected
    finally:
        cores._read_quota.cache_clear()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 8),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "99"}, 8),
        ({"OMP_NUM_THREADS": "many"}, 8),
        ({"OMP_NUM_THREADS": "0"}, 8),
        ({"MKL_NUM_THREADS": "2"}, 2),
    ],
)
def test_before_torch_is_there_the_environment_tells_how_many_threads(
    without_torch, monkeypatch, environment, expected
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert count_threads() == expected
    use_threads()
    assert [os.environ[name] for name in cores.VARIABLES] == [str(expected)] * 3


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        ([1], {"GOMP_SPINCOUNT": "1000"}),
        ([1, 9, 1, 1, 1], {"GOMP_SPINCOUNT": "1000"}),  # for a moment only
        ([7], {"GOMP_SPINCOUNT": "1000"}),
        ([8], {"OMP_WAIT_POLICY": "passive"}),
        ([9, 9, 1, 9, 9], {"OMP_WAIT_POLICY": "passive"}),
        ([20, 30, 40, 50, 60], {"OMP_WAIT_POLICY": "passive"}),
        (["many"], {"GOMP_SPINCOUNT": "1000"}),
        ([None], {"GOMP_SPINCOUNT": "1000"}),
    ],
)
def test_threads_sleep_where_others_have_the_cores(without_torch, monkeypatch, tmp_path, running, expected):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    looks = itertools.cycle(running)

    class Stat:
        def read_text(self, encoding):
            if (number := next(looks)) is None:
                raise FileNotFoundError
            return f"cpu  1 2 3\nprocesses 99\nprocs_running {number}\nprocs_blocked 0\n"

    monkeypatch.setattr(cores, "SYSTEM", Stat())
    use_threads(2)  # and there are seven or more others from procs_running 8 on
    assert {name: os.environ[name] for name in cores.WAITING if name in os.environ} == expected


@pytest.mark.parametrize("name", cores.WAITING)
def test_who_says_how_threads_wait_is_heard(without_torch, monkeypatch, name):
    monkeypatch.setenv(name, "active" if name == "OMP_WAIT_POLICY" else "1000")
    before = {each: os.environ.get(each) for each in cores.WAITING}
    use_threads(2)
    assert {each: os.environ.get(each) for each in cores.WAITING} == before


def test_with_torch_there_it_is_told_and_the_environment_left_alone(eight_cores):
    before = dict(os.environ)
    use_threads(5)
    assert (torch.get_num_threads(), num_threads(), count_threads()) == (5, 5, 5)
    torch.set_num_threads(7)
    use_threads()
    assert torch.get_num_threads() == 7
    assert dict(os.environ) == before


def test_torch_is_kept_from_more_threads_than_cores(eight_cores, monkeypatch):
    torch.set_num_threads(7)
    monkeypatch.setattr(cores, "_read_quota", lambda: 2)
    use_threads()
    assert (torch.get_num_threads(), num_threads()) == (2, 2)


@pytest.mark.parametrize("number", [0, -1, 9])
def test_a_number_that_cannot_be(eight_cores, number):
    with pytest.raises(InputError, match=f"threads={number}: expected 1 to 8, the cores that this process may use"):
        use_threads(number)


def test_the_command_line_says_it_in_its_words(eight_cores, tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "nothing.txt"), "--threads", "9"]) == 2
    assert capsys.readouterr().err == "elmo: --threads 9: expected 1 to 8, the cores that this process may use\n"
    assert main(["evaluate", "--help"]) == 0
    assert "--threads N" in capsys.readouterr().out


def test_every_command_that_computes_takes_the_option():
    assert set(ALL_COMMANDS) - set(COMPUTING) == {"info", "convert", "export", "sample", "completion"}


@pytest.mark.parametrize("name", COMPUTING)
def test_the_option_reaches_torch_and_the_kernels(name, eight_cores, monkeypatch):
    kind, seen = COMPUTING[name], []
    monkeypatch.setattr(kind, "run", lambda self: seen.append((torch.get_num_threads(), num_threads())))
    required = {field.name: "x" for field in dataclasses.fields(kind) if _is_required(field)}
    for threads in (3, 2):
        assert _run(kind(**required, threads=threads)) == 0
    assert seen == [(3, 3), (2, 2)]


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def test_a_command_sets_the_environment_before_torch_reads_it(tmp_path):
    """In a process of its own, whose OpenMP shows what it was told when it is loaded."""
    (tmp_path / "text.txt").write_text("She sat by the river bank.\n")
    unset = (*cores.VARIABLES, *cores.WAITING)
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", "embed", "text.txt", "-o", "-", "--layers", "0", "--threads", "1"],
        cwd=tmp_path,
        env={**environment, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if "OMP_WAIT_POLICY" not in done.stderr:
        pytest.skip("this torch has another OpenMP")
    assert "OMP_NUM_THREADS = '1'" in done.stderr
    spins = re.search(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    assert spins is not None and int(spins[1]) <= cores.SPINS  # 0 if the machine was busy


def test_text_is_split_by_as_many_processes_as_threads_compute(eight_cores, monkeypatch, tmp_path):
    (tmp_path / "text.txt").write_text("She sat by the river bank.\n" * 100)
    seen, segment_blocks = [], encoding.segment_blocks

    def count_workers(blocks, segmenting, *, workers):
        seen.append(workers)
        return segment_blocks(blocks, segmenting, workers=1)

    monkeypatch.setattr(encoding, "segment_blocks", count_workers)
    monkeypatch.setattr(encoding, "BLOCK_BYTES", 100)
    for threads in (3, 1):
        use_threads(threads)
        encode_corpus(tmp_path / "text.txt", tmp_path / f"corpus{threads}", min_count=1, progress=False)
    assert seen == [3, 1]


SEGMENTER = """
import os
class Environment:
    def __call__(self, text):
        return [[(f"{name}={os.environ.get(name)}", 0, 1) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")]]
"""


def test_a_process_that_splits_text_has_one_thread(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "segmenter_of_settings.py").write_text(SEGMENTER)
    (tmp_path / "text.txt").write_text("anything\n")
    segmenter = importlib.import_module("segmenter_of_settings").Environment()
    corpus = encode_corpus(
        tmp_path / "text.txt", tmp_path / "c", segmenter=segmenter, min_count=1, progress=False, workers=2
    )
    assert sorted(corpus.vocabulary[3:]) == ["OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"]
