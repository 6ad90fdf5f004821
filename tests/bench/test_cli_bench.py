"""`elmo bench` as a command, with a process of its own for elmokit."""

from __future__ import annotations

from elmokit.cli import main
from elmokit.waits import show_waits


def test_the_command_measures_and_prints(capsys, monkeypatch):
    monkeypatch.setattr("elmokit.cli.show_waits", show_waits)
    arguments = ["bench", "--quick", "--sizes", "tiny", "--parts", "table", "--threads", "1"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "| elmokit float32 |" in shown.out
    assert "*floor: float32, words known*" in shown.out
    assert "Command: `elmo bench --sizes tiny" in shown.out
    assert "run 2 of 2" in shown.err


def test_bad_options_are_one_line(capsys, tmp_path):
    assert main(["bench", "--sizes", "huge"]) == 2
    assert capsys.readouterr().err == ("elmo: asked for the size 'huge': use one of tiny, small, medium, original\n")
    assert main(["bench", "--text", str(tmp_path / "nothing.txt")]) == 2
    assert "nothing.txt" in capsys.readouterr().err
