"""Settings as text: the fields of a frozen dataclass become options of a command line, explained by their docstrings.

A dataclass arrives; `Setting`s leave, each with the string that stands below it in the class. Text comes
back and becomes a value of the field's type. Any command line can be built from that, with or without tyro.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Collection
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from elmokit.errors import ConfigError

__all__ = ["Setting", "read_value", "settings_of"]

METAVARS = {int: "N", float: "X", bool: "yes|no", str: "TEXT"}


class Setting(NamedTuple):
    """One field that can be set.

    Arguments:
        name: of the field.
        type: `int`, `float`, `bool`, `str`, or another, whose values are written as JSON.
        is_optional: whether `none` is a value.
        choices: all values there are, where they are listed.
        help: the string below the field.
    """

    name: str
    type: Any
    is_optional: bool
    choices: tuple[str, ...]
    help: str

    @property
    def option(self) -> str:
        """As it is written on a command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def metavar(self) -> str:
        """What values look like."""
        if self.choices:
            return "|".join(self.choices)
        return METAVARS.get(self.type, "JSON") + ("|none" if self.is_optional and self.type is not str else "")


def settings_of(part: type, *, prefix: str = "", leaves_out: Collection[str] = ()) -> list[Setting]:
    """The fields of a dataclass as settings.

    Arguments:
        part: the dataclass.
        prefix: put before their names, such as `"lstm."`.
        leaves_out: fields that cannot be set.

    Example:
        >>> from elmokit.config import LstmConfig
        >>> [setting.option for setting in settings_of(LstmConfig)][:2]
        ['--num-layers', '--cell-dim']
    """
    texts, hints = _explanations(part), get_type_hints(part)
    return [
        _setting(prefix + field.name, hints[field.name], texts.get(field.name, ""))
        for field in dataclasses.fields(part)
        if field.name not in leaves_out
    ]


def read_value(setting: Setting, text: str) -> Any:  # noqa: ANN401
    """The text as a value of the setting's type; numbers may be written 1e9 or 1_000_000.

    Example:
        >>> from elmokit.config import LstmConfig
        >>> read_value(settings_of(LstmConfig)[1], "1e3")
        1000
    """
    if setting.is_optional and text.lower() == "none":
        return None
    if setting.type is str:
        if setting.choices and text not in setting.choices:
            raise ConfigError(f"{setting.option} is {text!r}: use one of {', '.join(setting.choices)}")
        return text
    if setting.type is bool:
        if text.lower() in ("yes", "no", "true", "false"):
            return text.lower() in ("yes", "true")
    else:
        value = _json(text if setting.type not in (int, float) else text.replace("_", ""))
        if setting.type not in (int, float) and value is not None:
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if setting.type is float:
                return float(value)
            if value == int(value):
                return int(value)
            raise ConfigError(f"{setting.option} is {text!r}: expected a whole number")
    raise ConfigError(f"{setting.option} is {text!r}: expected {setting.metavar}")


def _setting(name: str, hint: Any, text: str) -> Setting:  # noqa: ANN401
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    is_optional = type(None) in get_args(hint)
    kind = kinds[0] if is_optional and len(kinds) == 1 else hint
    if get_origin(kind) is Literal:
        return Setting(name, str, is_optional, get_args(kind), text)
    return Setting(name, kind, is_optional, (), text)


def _json(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _explanations(part: type) -> dict[str, str]:
    """The string below each field, as text without code marks. Read from the source, which `python -OO` keeps."""
    (definition,) = ast.parse(inspect.getsource(part)).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = inspect.cleandoc(ast.literal_eval(below.value)).replace("`", "").replace('"', "")
            texts[ast.unparse(field.target)] = " ".join(text.split())
    return texts
