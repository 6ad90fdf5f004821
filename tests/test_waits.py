"""What is waited for: a bar on a terminal, lines elsewhere, and nothing for who wants nothing."""

from __future__ import annotations

import logging
import sys
import time

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
    assert lines and len(lines) <= 14
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


def test_evaluate_tells_how_far_it_is(tmp_path, capsys, waits_are_shown):
    (tmp_path / "in.txt").write_text("The bank lent money.\n" * 3, encoding="utf-8")
    assert main(["evaluate", str(tmp_path / "in.txt"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "elmo: evaluating: 0%" in shown.err and "elmo: " not in shown.out


def test_nearest_words_tell_how_far_they_are(random_model, tmp_path, capsys, waits_are_shown):
    (tmp_path / "words.txt").write_text("dog\ndogs\n", encoding="utf-8")
    asked = ["probe", "words", "doggy", "--vocabulary", str(tmp_path / "words.txt"), "--model", str(random_model)]
    assert main(asked) == 0
    assert "elmo: reading words: " in capsys.readouterr().err


def wait_for_lines(capsys, text: str, count: int) -> list[str]:
    """The lines with this text, once there are so many of them."""
    lines: list[str] = []
    until = time.monotonic() + 20
    while len(lines) < count and time.monotonic() < until:
        time.sleep(0.01)
        lines += [line for line in capsys.readouterr().err.splitlines() if text in line]
    return lines


def test_a_pipe_gets_lines_while_one_step_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(waits, "NEXT_LINE", 0.02)
    monkeypatch.setattr(waits, "LOOK_EVERY", 0.01)
    with show_waits(is_quiet=False):
        assert wait_for_lines(capsys, "elmo: at work for 0 s", 1)
        with show_progress(desc="reading", total=4) as outer:
            outer.update(1)
            with show_progress(desc="counting", total=7) as inner:
                inner.update(2)
                assert len(wait_for_lines(capsys, "elmo: counting: 29% 2/7 [", 2)) >= 2
            assert wait_for_lines(capsys, "elmo: reading: 25% 1/4 [", 1)
        assert wait_for_lines(capsys, "elmo: at work for", 1)
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""  # nobody speaks after the end


@pytest.mark.parametrize(("is_quiet", "is_terminal"), [(True, False), (False, True)])
def test_silence_stays_for_the_quiet_and_on_terminals(is_quiet, is_terminal, capsys, monkeypatch):
    monkeypatch.setattr(waits, "NEXT_LINE", 0.01)
    monkeypatch.setattr(waits, "LOOK_EVERY", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    with show_waits(is_quiet=is_quiet):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_lines_may_be_asked_for_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(waits, "FIRST_LINE", 0)
    monkeypatch.setattr(waits, "NEXT_LINE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show_waits(is_quiet=False), show_progress(total=4, desc="reading", as_lines=True) as bar:
        bar.update(1)
        bar.refresh()
    shown = capsys.readouterr().err
    assert "elmo: reading: 25% 1/4 [" in shown and "\r" not in shown
