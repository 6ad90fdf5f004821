"""The page of commands: what each command's help says, as Markdown that `conf.py` puts into `reference/commands.md`."""

import contextlib
import inspect
import io
import os
import re
from typing import NamedTuple
from unittest import mock

from elmokit.cli import COMMANDS, GROUPS, main
from elmokit.commands.settings import find_settings, show_value
from elmokit.tasks import TASKS, find_task

WIDE = "4000"  # columns of a terminal on which no line of a help is wrapped


class Box(NamedTuple):
    """A part of a help: what it says of all its options, and for each option what it says."""

    about: list[str]
    options: dict[str, str]


class Help(NamedTuple):
    """The help of one command."""

    usage: str
    paragraphs: list[str]
    boxes: list[Box]

    @property
    def options(self):
        return {option: told for box in self.boxes for option, told in box.options.items()}


def list_commands():
    """The words of every command that runs, as they are typed after `elmo`."""
    for name in COMMANDS:
        yield (name,)
    for group, (commands, _) in GROUPS.items():
        for name in commands:
            yield (group, name)


def read_help(command):
    """The help of a command, taken apart; into a file it has no frames, and its indentation says what a line is."""
    printed = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": WIDE}), contextlib.redirect_stdout(printed):
        assert main([*command, "--help"]) == 0
    said, *parts = re.split(r"^ (?=\S.*\n -+ *$)", printed.getvalue(), flags=re.MULTILINE)
    usage, *paragraphs = [" ".join(paragraph.split()) for paragraph in said.split("\n\n") if paragraph.strip()]
    return Help(usage.removeprefix("usage: "), paragraphs, [_read_box(part) for part in parts])


def _read_box(text):
    """After the title and a line: words on the options and another line, where there are any; then the options."""
    box = Box([], {})
    for line in text.splitlines()[2:]:
        indent = len(line) - len(line.lstrip())
        if line.strip() and not line.strip().strip("-"):
            box.about.extend(box.options)
            box.options.clear()
        elif indent == 2:
            option, _, told = line.strip().partition("  ")
            box.options[option] = told.strip()
        elif line.strip():
            option = next(reversed(box.options))
            box.options[option] = f"{box.options[option]} {line.strip()}".strip()
    return box


def describe_commands():
    """Markdown: what all commands take, then each command with what it does, examples and its options."""
    helps = {command: read_help(command) for command in list_commands()}
    shared = dict.fromkeys(set.intersection(*(set(found.options.items()) for found in helps.values())))
    common = [(option, told) for option, told in next(iter(helps.values())).options.items() if (option, told) in shared]
    text = ["## Every command", "", *_describe_options(common)]
    group = None
    for command, found in helps.items():
        if len(command) > 1 and command[0] != group:
            group = command[0]
            text += [f"## elmo {group}", "", _escape(GROUPS[group][1].partition("\n")[0]), ""]
        text += [f"{'#' * (len(command) + 1)} elmo {' '.join(command)}", ""]
        for paragraph in found.paragraphs:
            is_example = paragraph.startswith("Example: ")
            example = ["```bash", paragraph.removeprefix("Example: "), "```", ""]
            text += example if is_example else [_escape(paragraph), ""]
        for box in found.boxes:
            text += [_escape(line) + "\n" for line in box.about]
            text += _describe_options([item for item in box.options.items() if item not in shared])
        if "--set NAME=VALUE..." in found.options:
            text += _describe_tasks()
    return "\n".join(text)


def _describe_tasks():
    """What `--set` takes, task by task."""
    text = []
    for task in TASKS:
        text += [f"`--set` for the task `{task}`:", ""]
        config = find_task(task).Config
        settings = find_settings(config, leaves_out=("inputs",))
        told, usual = _read_arguments(config), config()
        text += _describe_options(
            (f"{each.name}={each.metavar}", f"{told[each.name]} (default: {show_value(getattr(usual, each.name))})")
            for each in settings
        )
    return text


def _read_arguments(kind):
    """What the docstring of a class says of each argument, without code marks."""
    _, _, listed = inspect.getdoc(kind).partition("Arguments:\n")
    found = re.findall(r"^    (\w+): (.*?)(?=^    \w|^\w|\Z)", listed, re.MULTILINE | re.DOTALL)
    return {name: " ".join(re.sub('[`"]', "", text).split()) for name, text in found}


def _describe_options(options):
    text = []
    for option, told in options:
        shown = told.replace("(default: )", "").strip()
        text += [f"`{option}`", f": {_escape(shown)}", ""]
    return text


def _escape(text):
    """Plain words, of which Markdown is to read none as a mark; options as code, where two dashes stay two."""
    marked = re.sub(r"([\\`*_\[\]<>#$|~{}])", r"\\\1", text)
    return re.sub(r"(?<!\S)(--[a-z][\w.-]*\w)", r"`\1`", marked)
