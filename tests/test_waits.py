"""What is waited for: a bar on a terminal, lines elsewhere, and nothing for who wants nothing."""

from __future__ import annotations

import logging

import pytest

from elmokit import waits
from elmokit.cli import main
from elmokit.waits import WAITS, show_progress, show_waits


@pytest.fixture
def waits_are_shown(monkeypatch) -> None:
    """By commands too, at once."""
    monkeypatch.setattr("elmokit.cli.show_waits", show_waits)
    monkeypatch.setattr(waits, "FIRST_LINE", 0.0)
    monkeypatch.setattr(waits, "NEXT_LINE", 0.0)


def count_to(number: int) -> None:
    with show_progress(desc="counting", total=number, unit=" steps", mininterval=0) as bar:
        for _ in range(number):
            bar.update(1)


def test_a_pipe_gets_lines_after_a_while_and_not_too_many(capsys, monkeypatch):
    moments = iter(range(1000))
    monkeypatch.setattr(waits.time, "monotonic", lambda: next(moments))
    with show_waits(is_quiet=False):
        count_to(100)
    lines = capsys.readouterr().err.splitlines()
    assert lines and len(lines) <= 6
    assert all(line.startswith("elmo: counting: ") and "|" not in line for line in lines)


def test_a_short_wait_says_nothing(capsys):
    with show_waits(is_quiet=False):
        count_to(3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_terminal", [False, True])
def test_quiet_says_nothing(is_terminal, capsys, monkeypatch):
    monkeypatch.setattr(waits, "FIRST_LINE", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    with show_waits(is_quiet=True):
        count_to(3)
        WAITS.info("compiling")
    assert capsys.readouterr().err == ""


def test_a_library_says_nothing_unless_asked(capsys, monkeypatch, caplog):
    monkeypatch.setattr(waits, "FIRST_LINE", 0.0)
    count_to(3)
    assert capsys.readouterr().err == ""
    with caplog.at_level(logging.INFO, logger="elmokit.waits"):
        count_to(3)
    assert "counting" in caplog.text


def test_a_command_shows_its_waits_unless_quiet(random_model, tmp_path, capsys, waits_are_shown):
    text = tmp_path / "in.txt"
    text.write_text("The bank lent money.\n" * 3, encoding="utf-8")
    asked = ["embed", str(text), "-o", str(tmp_path / "out.npy"), "--model", str(random_model), "--overwrite"]
    assert main(asked) == 0
    assert "words/s" in capsys.readouterr().err
    assert main([*asked, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert WAITS.handlers == [] and WAITS.level == logging.NOTSET


def test_nearest_words_tell_how_far_they_are(random_model, tmp_path, capsys, waits_are_shown):
    (tmp_path / "words.txt").write_text("dog\ndogs\n", encoding="utf-8")
    asked = ["probe", "words", "doggy", "--vocabulary", str(tmp_path / "words.txt"), "--model", str(random_model)]
    assert main(asked) == 0
    assert "elmo: reading words: " in capsys.readouterr().err
