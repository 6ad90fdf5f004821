"""The site's reference leaves nothing out: every public name, every command, every option with its default."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import elmokit
from elmokit.cli import COMMANDS, GROUPS
from elmokit.commands.settings import find_settings
from elmokit.commands.task import task_settings
from elmokit.commands.train import train_settings
from elmokit.tasks import TASKS, find_task

ROOT = Path(__file__).parents[2]
KINDS = {(name,): kind for name, kind in COMMANDS.items()} | {
    (group, name): kind for group, (kinds, _) in GROUPS.items() for name, kind in kinds.items()
}
SETTINGS = {("train",): train_settings, ("task", "train"): task_settings}


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("command_reference", ROOT / "docs/command_reference.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def sections(reference):
    """For the title of each section of the page its text."""
    parts = re.split(r"^#{2,3} (.*)$", reference.describe_commands(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def option_of(kind: type, field: dataclasses.Field) -> str:
    """As it is typed, or what stands for a positional argument."""
    hint = get_type_hints(kind, include_extras=True)[field.name]
    details = getattr(hint, "__metadata__", ())
    told = [detail for detail in details if hasattr(detail, "metavar")]
    if any("POSITIONAL" in repr(detail).upper() for detail in details):
        choices = "{" + ",".join(map(str, get_args(get_args(hint)[0]))) + "}"
        return next((detail.metavar for detail in told), choices)
    named = next((detail.name for detail in told if detail.name), None)
    return "--" + (named or field.name.replace("_", "-"))


@pytest.mark.parametrize("command", KINDS, ids=" ".join)
def test_every_option_of_every_command_is_listed(command, sections):
    section = sections[f"elmo {' '.join(command)}"]
    listed = " ".join(re.findall(r"^`(.*)`$", section + sections["Every command"], re.MULTILINE))
    wanted = [option_of(KINDS[command], field) for field in dataclasses.fields(KINDS[command])]
    wanted += [setting.option for setting in SETTINGS.get(command, list)()]
    missing = set(wanted) - {*re.split(r",? +", listed), "--settings"}
    assert not missing
    assert not re.findall(r"^: (?:\(.*\))?$", section, re.MULTILINE), "an option without a word"


def test_what_is_said_of_options(sections):
    assert "`--model SOURCE`\n: The model" in sections["elmo embed"]
    assert "(default: en-small)" in sections["elmo embed"]
    assert "`-o OUT, --output OUT`" in sections["elmo embed"]
    assert "(small: 0.005)" in sections["elmo train"]  # a default of a recipe
    assert "What is computed: each replaces what the recipe says." in sections["elmo train"]
    assert "`--quiet`" in sections["Every command"]
    assert "`--quiet`" not in sections["elmo embed"]
    assert "```bash\nelmo embed corpus.txt -o vectors.parquet --model my-model\n```" in sections["elmo embed"]
    assert "with `--resume` continues" in sections["elmo embed"]  # as code: typography would make one dash of two


def test_each_task_says_what_it_can_be_told(sections):
    section = sections["elmo task train"]
    for task in TASKS:
        assert f"`--set` for the task `{task}`:" in section
        for setting in find_settings(find_task(task).Config, leaves_out=("inputs",)):
            assert f"\n`{setting.name}={setting.metavar}`\n: " in section
    assert "`hidden=N`\n: width of each direction of the biLSTM. (default: 200)" in section  # of a tagger


def test_marks_of_markdown_are_plain_words(reference):
    assert reference._escape("a_b *c* <UNK> [d] --e-f") == r"a\_b \*c\* \<UNK\> \[d\] `--e-f`"


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. (?:auto)?(?:class|function|exception|data):: elmokit\.(\w+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(elmokit.__all__)


def test_what_properties_say_is_not_read_as_a_type():
    """Sphinx takes what stands before a colon in the first line of a property for its type."""
    kinds = [value for name in elmokit.__all__ if isinstance(value := getattr(elmokit, name), type)]
    said = {
        f"{kind.__name__}.{name}": (value.__doc__ or "").partition("\n")[0]
        for kind in kinds
        for name, value in vars(kind).items()
        if isinstance(value, property)
    }
    assert "ElmoConfig.dim" in said
    assert not [name for name, line in said.items() if ":" in re.sub(r"`[^`]*`", "", line)]
