"""The settings of a task from text: what `elmo task train` and `python -m elmokit.tasks.train` take alike.

Settings of the inputs and of the training are options of their own (`--elmo-at both`, `--epochs 20`); those of one
task's own model are given as `--set name=value` (`--set hidden=100`), since each task has others.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.errors import ConfigError
from elmokit.settings import Setting, read_value, settings_of
from elmokit.tasks import TASKS, task_named
from elmokit.tasks.config import InputConfig, TaskConfig, TrainingConfig

__all__ = ["common_settings", "configured", "parsed"]


def common_settings() -> list[Setting]:
    """What every task can be told about its inputs and its training.

    Example:
        >>> [setting.option for setting in common_settings()][:3]
        ['--vectors', '--train-vectors', '--character-filters']
    """
    return settings_of(InputConfig) + settings_of(TrainingConfig)


def configured(
    task: str, values: Mapping[str, str | None], own: Sequence[str] = ()
) -> tuple[TaskConfig, TrainingConfig]:
    """The settings of a task, some of them replaced; `None` leaves the task's own.

    Arguments:
        task: its name.
        values: text by the names of `common_settings`.
        own: `name=value` for settings of the task's own model.

    Example:
        >>> config, training = configured("tag", {"epochs": "5"}, ["hidden=100"])
        >>> config.hidden, training.epochs
        (100, 5)
    """
    kind = task_named(task)
    config, training = kind.Config(), kind.training_config
    config = dataclasses.replace(config, inputs=_replaced(config.inputs, values))
    return dataclasses.replace(config, **_own_values(task, kind.Config, own)), _replaced(training, values)


def parsed(arguments: Sequence[str] | None = None) -> tuple[TaskConfig, TrainingConfig, dict[str, Any]]:
    """The settings that these arguments ask for, and the other arguments of `train`."""
    parser = argparse.ArgumentParser(prog="python -m elmokit.tasks.train", allow_abbrev=False)
    parser.add_argument("task", help="; ".join(f"{name}: {about}" for name, about in TASKS.items()))
    parser.add_argument("--train", required=True, metavar="FILE", help="examples to learn from")
    parser.add_argument("--dev", required=True, metavar="FILE", help="examples that decide when to stop")
    parser.add_argument("--test", default=None, metavar="FILE", help="examples that are scored once, at the end")
    parser.add_argument("-o", "--destination", required=True, metavar="DIR", help="the task model's folder")
    parser.add_argument("--layers-folder", default=None, metavar="DIR", help="where ELMo's layers are kept")
    parser.add_argument("--device", default=None, help="cpu, cuda, …")
    parser.add_argument("--skip-bad", action="store_true", help="count bad examples and go on")
    parser.add_argument("--results-only", action="store_true", help="write results.json and the log, no model")
    parser.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the task's own"
    )
    for setting in common_settings():
        explained = setting.help.replace("%", "%%")
        parser.add_argument(setting.option, dest=setting.name, default=None, metavar=setting.metavar, help=explained)
    values = vars(parser.parse_args(arguments))
    changed = {setting.name: values.pop(setting.name) for setting in common_settings()}
    config, training = configured(values["task"], changed, values.pop("set"))
    return config, training, values


def _replaced(part: Any, values: Mapping[str, str | None]) -> Any:  # noqa: ANN401
    settings = {setting.name: setting for setting in settings_of(type(part))}
    given = {name: text for name, text in values.items() if text is not None and name in settings}
    return dataclasses.replace(part, **{name: read_value(settings[name], text) for name, text in given.items()})


def _own_values(task: str, config: type[TaskConfig], own: Sequence[str]) -> dict[str, Any]:
    settings = {setting.name: setting for setting in settings_of(config, leaves_out=("inputs",))}
    values = {}
    for text in own:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in settings:
            known = ", ".join(f"{setting.name}={setting.metavar}" for setting in settings.values())
            raise ConfigError(f"--set {text!r}: the task {task} can be told {known}")
        values[name] = read_value(settings[name], value.strip())
    return values
