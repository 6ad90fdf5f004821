"""`elmo completion`: the Tab key in three shells."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import pytest

from elmokit.cli import main
from elmokit.commands import COMMANDS, GROUPS
from elmokit.commands.completion import list_options

KINDS = {
    **COMMANDS,
    **{f"{group} {name}": kind for group, (kinds, _) in GROUPS.items() for name, kind in kinds.items()},
}
FIRST = [*COMMANDS, *GROUPS]

# What stands on the line, the last word being completed; what must be offered.
LINES = [
    ("elmo co", ["compare", "completion", "convert"]),
    ("elmo embed --l", ["--layers"]),
    ("elmo embed --format ", ["hdf5", "jsonl", "npy", "parquet"]),
    ("elmo task ", ["evaluate", "predict", "train"]),
    ("elmo task train ta", ["tag"]),
    ("elmo task train tag --elmo-l", ["--elmo-l2", "--elmo-layers", "--elmo-learning-rate"]),
    ("elmo train --recipe ti", ["tiny_cpu"]),
    ("elmo train --lstm.c", ["--lstm.cell-clip", "--lstm.cell-dim"]),
    ("elmo completion ", ["bash", "fish", "zsh"]),
]


@pytest.mark.parametrize("name", ["embed", "train", "task train"])
def test_the_options_are_those_of_the_help(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    flags = re.findall(r"^. (-.*?)(?:  |$)", capsys.readouterr().out, re.M)
    shown = {flag for line in flags for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*(?![\w.…-])", line)}
    assert shown == {flag for option in list_options(KINDS[name]) for flag in option.flags if flag[:2] == "--"}


def test_every_option_is_explained():
    assert [flag for kind in KINDS.values() for flag, *_, text in list_options(kind) if not text] == []


def script_of(shell, tmp_path, capsys):
    assert main(["completion", shell]) == 0
    path = tmp_path / f"elmo.{shell}"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def test_bash(tmp_path, capsys):
    program = f"source {script_of('bash', tmp_path, capsys)}\n"
    for line, _ in [*LINES, ("elmo embed corp", []), ("elmo embed corpus.txt -o ou", []), ("elmo ", [])]:
        words = shlex.split(line) + [""] * line.endswith(" ")
        program += f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _elmo; echo ${{COMPREPLY[*]}}\n"
    done = subprocess.run(["bash", "-c", program], check=True, capture_output=True, text=True)
    *offered, first_file, second_file, first_words = [sorted(line.split()) for line in done.stdout.splitlines()]
    assert offered == [expected for _, expected in LINES]
    assert (first_file, second_file) == ([], [])  # the shell then completes names of files
    assert first_words == sorted([*FIRST, "--version", "--help"])
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(tmp_path, capsys):
    script = script_of("fish", tmp_path, capsys)
    for line, expected in LINES:
        command = ["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert sorted(offer.split("\t")[0] for offer in done.stdout.splitlines()) == expected, line


def test_zsh_takes_the_functions_of_bash(tmp_path, capsys):
    for_bash, for_zsh = (script_of(shell, tmp_path, capsys).read_text("utf-8") for shell in ("bash", "zsh"))
    assert for_zsh.endswith(for_bash)
    assert "bashcompinit" in for_zsh


def test_another_shell(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "use one of bash, fish, zsh" in capsys.readouterr().err
