"""One job per output: who holds the lock is told, the dead hold nothing, and nothing of it stays on the disk."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import subprocess
import sys
import threading

import pytest

from elmokit.bench.measuring import run_bench
from elmokit.cli import main
from elmokit.embed.parts import PartialFolder
from elmokit.errors import BusyError, OutputError
from elmokit.io.locks import lock_output

HOLD = "lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); sys.stdin.read()"


def test_the_second_is_told_who_the_first_is_and_harms_nothing(tmp_path):
    output = tmp_path / "out.npy"
    with lock_output(output):
        for _ in range(2):
            with pytest.raises(BusyError, match="is being written by another job") as caught, lock_output(output):
                raise AssertionError
        assert re.search(rf"\(process {os.getpid()} on .+, since \d{{4}}-\d\d-\d\d [\d:]+\): wait", str(caught.value))
        with lock_output(tmp_path / "other.npy"):
            assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == []
    with lock_output(output):
        pass


def test_the_dead_hold_nothing(tmp_path):
    output, path = tmp_path / "out.npy", tmp_path / "out.npy.elmo-lock"
    command = [sys.executable, "-c", f"import filelock, sys; {HOLD}", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as other:
        assert other.stdout is not None and other.stdout.read(4) == b"held"
        with pytest.raises(BusyError), lock_output(output):
            raise AssertionError
        other.kill()
    assert path.exists()
    with lock_output(output):
        assert path.read_text().startswith(f"process {os.getpid()} ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_disk_without_locks_is_told_of_and_used(tmp_path, monkeypatch, caplog, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, logger="elmokit.waits"), lock_output(tmp_path / "out.npy"):
        assert os.listdir(tmp_path) == []
    assert "has no locks: see to it yourself" in caplog.text


def test_what_it_makes_goes_again_and_what_others_write_stays(tmp_path):
    with lock_output(tmp_path / "a" / "b" / "out"):
        assert (tmp_path / "a" / "b").is_dir()
    assert os.listdir(tmp_path) == []
    with lock_output(tmp_path / "a" / "out"):
        (tmp_path / "a" / "out").write_text("x")
    assert (tmp_path / "a" / "out").read_text() == "x"


def test_a_lock_that_cannot_be_made(tmp_path):
    (tmp_path / "out.elmo-lock").mkdir()
    told = "cannot write .*out: out.elmo-lock cannot be made: Is a directory"
    with pytest.raises(OutputError, match=told), lock_output(tmp_path / "out"):
        raise AssertionError
    assert os.listdir(tmp_path) == ["out.elmo-lock"]


@pytest.mark.parametrize("note", [b"", b"\xff\x1b[2J", b"process \x1b[2J"])
def test_a_note_that_is_none_is_not_shown(tmp_path, note):
    with lock_output(tmp_path / "out"):
        (tmp_path / "out.elmo-lock").write_bytes(note)
        with pytest.raises(BusyError, match=r"another job \(it does not say which\)"), lock_output(tmp_path / "out"):
            raise AssertionError


def test_who_shares_a_result_waits_for_it(tmp_path):
    order, is_held, may_go = [], threading.Event(), threading.Event()

    def first():
        with lock_output(tmp_path / "out"):
            is_held.set()
            may_go.wait(10)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    is_held.wait(10)
    threading.Timer(0.4, may_go.set).start()
    with lock_output(tmp_path / "out", waits=True):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_many_that_come_and_go_are_never_two_at_once(tmp_path):
    """The file is removed while others wait for it: a lock on a removed file would be worth nothing."""
    inside, most = [], []

    def come_and_go():
        for _ in range(30):
            with lock_output(tmp_path / "out", waits=True):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 120 and max(most) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("out.parquet", "embed in.txt -o out.parquet --resume"),
        ("out.parquet", "embed in.txt -o out.parquet --overwrite"),
        ("new", "convert {model} new"),
        ("new", "train in.txt -o new --recipe tiny_cpu"),
        ("new", "task train classify --train in.tsv --dev in.tsv -o new --elmo {model}"),
        ("out.json", "probe weights results.json -o out.json"),
    ],
)
def test_every_long_job_locks_its_output(tmp_path, monkeypatch, capsys, random_model, output, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a line\n")
    (tmp_path / "in.tsv").write_text("good\ta fine film\nbad\ta dull one\n")
    (tmp_path / "results.json").write_text(json.dumps({"task": "t", "mixes": {"a": {"weights": [1], "gamma": 1}}}))
    folder = PartialFolder(tmp_path / "out.parquet")
    folder.start({"settings": {}})  # of the job that runs: it has no part yet
    model = ["--model", str(random_model)] if command.startswith("embed") else []
    before = sorted(os.listdir(tmp_path))
    with lock_output(tmp_path / output):
        assert main([*command.format(model=random_model).split(), *model]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"elmo: {output} is being written by another job (process {os.getpid()} on")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_measurement_locks_its_files(tmp_path):
    with lock_output(tmp_path / "today"), pytest.raises(BusyError):
        run_bench(lambda say, keep: pytest.fail("it was measured"), output=tmp_path / "today")
