"""The command `elmo`: arguments come in, one subcommand runs, an exit code goes out.

Exit codes: 0 done, 1 a failure (disk full, out of memory), 2 bad input (arguments, files, text, an output that another
job writes), 130 stopped by the user, 141 the reader of a pipe went away. Each problem is one line on standard error;
`--debug` adds the traceback. torch is imported only by a subcommand that runs, so `elmo --help` answers at once.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from typing import TextIO

import tyro

from elmokit.commands import COMMANDS, GROUPS
from elmokit.commands.base import Command, Computation, warn
from elmokit.commands.completion import list_options
from elmokit.commands.embed import Embed
from elmokit.commands.train import Train
from elmokit.cores import use_threads
from elmokit.devices import is_out_of_memory
from elmokit.errors import BusyError, ElmoError, suggest
from elmokit.waits import show_waits, show_warnings

__all__ = ["main", "parse_arguments"]

SUMMARY = """ELMo: a vector for each word in its sentence.

elmo compare     how alike is one word across sentences
elmo embed       files of text in, files of vectors out
elmo info        what a model is made of
elmo convert     from one model format to another
elmo export      a model for machines without torch, and for browsers
elmo evaluate    how well a model predicts a text
elmo predict     next words, previous words, substitutes of a word
elmo train       a new model from your own text
elmo task        names, classes, answers … with a task model
elmo probe       what the layers of a model know
elmo serve       vectors and predictions through an address
elmo bench       how fast, beside other libraries and what the machine allows
elmo sample      small files of text and labels, to try the commands on
elmo completion  commands and options at the Tab key of your shell

`elmo COMMAND --help` explains a command; `elmo --version` tells the version."""

HINTS = {
    Embed: "; the same command with --resume continues",
    Train: "; the same command continues from its last checkpoint, if it has reached one (--checkpoint-every)",
}
BAD_INPUT, FAILURE, INTERRUPTED, BROKEN_PIPE = 2, 1, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run `elmo` with these arguments (those of the process if none are given) and return its exit code.

    Example:
        >>> main(["--version"])
        elmo 0.1.0
        0
    """
    _fill_closed_streams()
    code = 0
    try:
        code = _main(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except OSError as problem:
        # Python would complain once more when it flushes at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(problem, BrokenPipeError):
            return BROKEN_PIPE  # the reader (`| head`) has gone: that is its right
        if not code:
            warn(f"standard output cannot be written: {problem.strerror or problem}")
        return FAILURE


def _fill_closed_streams() -> None:
    """Put the null device where a standard stream is closed; else the next file that is opened would take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least number that is free
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _main(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        import elmokit  # whose version takes a quarter of the time of `elmo --help`, which does not need it

        sys.stdout.write(f"elmo {elmokit.__version__}\n")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(SUMMARY + "\n")
        return 0
    command = parse_arguments(arguments)
    return command if isinstance(command, int) else _run(command)


def parse_arguments(arguments: Sequence[str]) -> Command | int:
    """The chosen command with its options, or the exit code when there is nothing to run."""
    name, *rest = arguments
    if name not in GROUPS:
        return _parse_one_of(COMMANDS, arguments, program="elmo")
    commands, summary = GROUPS[name]
    if not rest or rest[0] in ("-h", "--help"):
        sys.stdout.write(summary + "\n")
        return 0
    return _parse_one_of(commands, rest, program=f"elmo {name}")


def _parse_one_of(commands: dict[str, type[Command]], arguments: Sequence[str], *, program: str) -> Command | int:
    name, *rest = arguments
    if name not in commands:
        known = [*commands, *GROUPS] if commands is COMMANDS else commands
        near = suggest(name, [*known, "--version"])
        warn(f"expected a command, one of {', '.join(known)}, found {name!r}{near or ';'} see {program} --help")
        return BAD_INPUT
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(_Wrapped(sys.stdout)):
            kind = commands[name].suited_to(rest)
            config, description = (tyro.conf.FlagCreatePairsOff,), _read_docstring(commands[name])
            return tyro.cli(kind, prog=f"{program} {name}", args=rest, config=config, description=description)
    except SystemExit as stop:
        if not stop.code:
            return 0  # --help was asked for and printed
        line = _find_unknown_option(rest, commands[name], f"{program} {name}") or _one_line(complaint.getvalue())
        warn(f"{line}{'' if line.endswith('?') else ';'} see {program} {name} --help")
        return BAD_INPUT


class _Wrapped(io.TextIOBase):
    """Help whose sentences end where the terminal does: tyro wraps its boxes and leaves the rest to the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Frames are for those whose terminal has them."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Colours are for those who see them."""
        return self._stream.isatty()

    def write(self, text: str) -> int:
        """Wrap lines of plain sentences; examples stay on one line, to be copied."""
        width = max(20, shutil.get_terminal_size().columns)
        lines = [
            textwrap.fill(line, width) if re.match("[A-Z`]", line) and not line.startswith("Example:") else line
            for line in text.split("\n")
        ]
        self._stream.write("\n".join(lines))
        return len(text)


def _read_docstring(kind: type[Command]) -> str | None:
    """What explains a command; for `python -OO`, which has no docstrings, from the source."""
    if sys.flags.optimize < 2:
        return inspect.getdoc(kind)
    # `ast.parse` would also leave docstrings out, from Python 3.14 on.
    tree = compile(inspect.getsource(kind), "command", "exec", flags=ast.PyCF_ONLY_AST, optimize=0)
    assert isinstance(tree, ast.Module)
    (definition,) = tree.body
    return ast.get_docstring(definition) if isinstance(definition, ast.ClassDef) else None


def _run(command: Command) -> int:
    try:
        with show_waits(is_quiet=command.quiet), show_warnings(is_quiet=command.quiet):
            if isinstance(command, Computation):
                use_threads(command.threads)
            command.run()
        return 0
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        warn(f"stopped{next((hint for kind, hint in HINTS.items() if isinstance(command, kind)), '')}")
        return INTERRUPTED
    except Exception as problem:
        if command.debug:
            traceback.print_exc()
        code, line = _explain(problem)
        warn(_in_options(line, command))
        return code


def _explain(problem: Exception) -> tuple[int, str]:
    """Exit code and one line for a problem."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    if isinstance(problem, ElmoError):
        return (BAD_INPUT if isinstance(problem, (ValueError, BusyError)) else FAILURE), text
    if isinstance(problem, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return BAD_INPUT, f"{problem.filename}: {problem.strerror}"
    if isinstance(problem, OSError):
        return FAILURE, text
    if is_out_of_memory(problem):
        return FAILURE, f"out of memory ({text}): try a smaller --batch-size"
    return FAILURE, f"unexpected {type(problem).__name__}: {text}; --debug shows where"


def _in_options(text: str, command: Command) -> str:
    """A message for Python users in the words of the command line: `layers='top'` becomes `--layers top`."""
    options = {field.name: "--" + field.name.replace("_", "-") for field in dataclasses.fields(command)}
    for name, option in options.items():
        text = text.replace(f" ({name}=True)", "")  # the option stands beside it already
        text = re.sub(rf"(?<![\w.-]){name}=(?:'([^']*)'|\"([^\"]*)\"|(\w*))", rf"{option} \1\2\3", text)
        if "_" in name:  # no word of a sentence
            text = re.sub(rf"(?<![\w.-]){name}(?![\w.(-])", option, text)
    if found := re.match(r"(\w+) and (\w+) exclude each other", text):
        one, other = (options.get(name, name) for name in found.groups())
        text = f"{one} and {other}{text[found.end(2) :]}"
    return text.replace(", or None", "").strip()


def _find_unknown_option(arguments: Sequence[str], kind: type[Command], program: str) -> str | None:
    """A complaint about a mistyped option, which tyro mentions only when nothing else is wrong."""
    known = [flag for option in list_options(kind) for flag in option.flags]
    given = (argument.partition("=")[0] for argument in arguments if re.match(r"--[a-z]", argument))
    unknown = next((option for option in given if option.replace("_", "-") not in known), None)
    if unknown is None:
        return None
    if unknown == "--model" and any(field.name == "source" for field in dataclasses.fields(kind)):
        return f"there is no option --model, the model comes without an option: {program} {_put_model_first(arguments)}"
    # Every complaint ends with --help.
    return f"there is no option {unknown}{suggest(unknown, [flag for flag in known if flag != '--help'])}"


def _put_model_first(arguments: Sequence[str]) -> str:
    """The arguments with `--model SOURCE` or `--model=SOURCE` as the first argument."""
    place = next(number for number, argument in enumerate(arguments) if argument.partition("=")[0] == "--model")
    _, equals, source = arguments[place].partition("=")
    before, after = list(arguments[:place]), list(arguments[place + 1 :])
    if not equals:
        source = after.pop(0) if after and not after[0].startswith("-") else "SOURCE"
    return shlex.join([source, *before, *after])


def _one_line(box: str) -> str:
    """The box that tyro draws around a complaint about arguments, as one sentence in our words."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│| ") for line in box.splitlines()]
    # The first line is a title, lines of dashes divide; where there are no box characters, dashes are the frame too.
    text = " ".join(line for line in lines[1:] if line and not re.fullmatch(r"[-─╭╮╰╯+]+", line))
    if found := re.search(r"Unrecognized options: (.*?)(?= For full| Perhaps| Arguments similar|$)", text):
        given = found[1].split(", ")
        unknown = next((word for word in given if word.startswith("-")), None)
        if unknown is None:
            return f"{given[0]!r} is one argument too many: put text with spaces in quotes"
        return f"there is no option {unknown}"
    if found := re.search(r"Missing from .*?: (.*) \(required\)", text):
        missing = re.findall(r"((?:-\w \S+, )?(?:--[\w.-]+ )?\S+) (.*?)(?: \(required\) |$)", found[1])
        told = f": {missing[0][1].rstrip('.')}" if len(missing) == 1 else ""
        return f"missing {', '.join(name for name, _ in missing)}{told}"
    if found := re.search(r"Missing value for argument '(.*?)'", text):
        return f"{found[1]} needs a value"
    if found := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)", text):
        known = [name for name in sorted(re.findall(r"'(.*?)'", found[3])) if name != "None"]
        return f"{found[2]} is {found[1]!r}: use one of {', '.join(known)}{suggest(found[1], known)}"
    # tyro says it in words of its own, and in Python's where the option has a metavar of ours.
    own, python = r".*?(INT|FLOAT)\b.*?\[", "(?:invalid literal for|could not convert string to) (int|float).*?: "
    matches = (re.search(rf"Error parsing (--\S+): {words}'(.*?)'", text) for words in (own, python))
    if found := next(filter(None, matches), None):
        return f"{found[1]} is {found[3]!r}: expected a {'whole ' if found[2].lower() == 'int' else ''}number"
    complaint = re.split(r"For full helptext|Perhaps you meant|Argument helptext", text)[0].strip().rstrip(".")
    return complaint or " ".join(box.split())
