"""A few seconds of `make fuzz`, always the same ones; and that the hunt sees what it looks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz import Case, Outcome, judge, make_case
from specimens import Specimen

FOLDER = Path(__file__).parent
KINDS = ["native", "manylangs", "task-tag", "job", "growing"]  # those that take the least time to be made


def test_a_few_seconds_of_it(tmp_path):
    options = ["--seed", "14", "--cases", "32", "--keep", str(tmp_path), "--kinds", *KINDS]
    command = [sys.executable, str(FOLDER / "fuzz.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "32 cases" in done.stdout and "0 failures of 0 kinds" in done.stdout
    assert done.stdout.count("exit code 2") == len(KINDS), "some mutations of each kind should be refused"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def specimen(tmp_path):
    (tmp_path / "healthy" / "model").mkdir(parents=True)
    (tmp_path / "healthy" / "model" / "config.json").write_text('{"a": 1, "b": [1, 2, 3]}')
    return Specimen("native", tmp_path / "healthy", "model", (("info", "model"),))


def test_a_case_is_a_function_of_its_number(specimen, tmp_path):
    made = [make_case([specimen], 1, number, tmp_path / f"{place}-{number}") for place in "ab" for number in range(20)]
    assert [case.mutations for case in made[:20]] == [case.mutations for case in made[20:]]
    assert len({str(case.mutations) for case in made}) > 8


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (Outcome(0, "fine", ""), []),
        (Outcome(2, "", "elmo: model/config.json: a is 1.5: expected a whole number\n"), []),
        (Outcome(130, "", "elmo: stopped\n"), []),
        (Outcome(1, "", "elmo: disk full\n", problem="OutputError"), ["exit code 1"]),
        (Outcome(-11, "", ""), ["exit code -11"]),
        (Outcome(-1, "", "", hung=True), ["hangs"]),
        (Outcome(1, "", "elmo: unexpected KeyError: 'a'\n"), ["exit code 1", "unexpected"]),
        (Outcome(2, "", "elmo: one\nelmo: two\n"), ["2 lines of error"]),
        (Outcome(2, "", "\n"), ["0 lines of error", "no line of our own"]),
        (Outcome(0, "nan", "", has_nan=True), ["NaN in the result"]),
        (Outcome(2, "", "elmo: too large\n", peak=10**9), ["700 MB for a file of 1,000 bytes"]),
        (Outcome(2, "", "elmo: no such model\n", connected=True), ["connects"]),
    ],
)
def test_failures_are_seen(specimen, outcome, wrong):
    case = Case(1, specimen, ["info", "model"], ["model/config.json: set a"], num_bytes=1000)
    assert judge(case, outcome, healthy_peak=3 * 10**8) == wrong


def test_what_must_be_refused_is_not_taken(specimen):
    case = Case(1, specimen, ["info", "model"], ["model/config.json: !pipe"])
    assert judge(case, Outcome(0, "fine", ""), 0) == ["taken, not refused"]
    assert judge(case, Outcome(2, "", "elmo: config.json is a pipe\n"), 0) == []
