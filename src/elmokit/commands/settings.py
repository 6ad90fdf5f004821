"""The fields of a configuration as options: text comes from the command line, a changed configuration leaves.

Each field of a dataclass becomes an option that is explained by the string below the field. Options are read as text
and kept only where they are given: a recipe or a task decides about the others.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, get_args, get_origin, get_type_hints

import tyro

from elmokit.errors import ConfigError

__all__ = ["Setting", "find_settings", "make_options", "read_docstrings", "read_value", "replace_fields", "show_value"]

METAVARS = {int: "N", float: "X", bool: "yes|no", str: "TEXT"}
Part = TypeVar("Part")


class Setting(NamedTuple):
    """One field that can be set.

    Arguments:
        name: of the field, behind the prefix of its part.
        type: `int`, `float`, `bool`, `str`, or another, whose values are written as JSON.
        is_optional: whether `none` is a value.
        choices: all possible values, where they are listed.
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


def find_settings(part: type, *, prefix: str = "", leaves_out: Collection[str] = ()) -> list[Setting]:
    """The fields of a dataclass as settings.

    Arguments:
        part: the dataclass.
        prefix: put before their names, such as `"lstm."`.
        leaves_out: fields that cannot be set.

    Example:
        >>> from elmokit.config import LstmConfig
        >>> [setting.option for setting in find_settings(LstmConfig)][:2]
        ['--num-layers', '--cell-dim']
    """
    texts, hints = read_docstrings(part), get_type_hints(part)
    return [
        _make_setting(prefix + field.name, hints[field.name], texts.get(field.name, ""))
        for field in dataclasses.fields(part)
        if field.name not in leaves_out
    ]


def make_options(settings: Iterable[Setting], hint: Callable[[Setting], str]) -> Any:  # noqa: ANN401
    """The type of a command's field that takes these settings: a dictionary with the text of those that are given.

    Arguments:
        settings: become options.
        hint: tells in brackets what holds where an option is not given.
    """
    options = {
        setting.name: Annotated[
            str,
            tyro.conf.arg(
                name=setting.option.removeprefix("--"),
                metavar=setting.metavar,
                help=setting.help,
                help_behavior_hint=f"({hint(setting)})",
            ),
        ]
        for setting in settings
    }
    return tyro.conf.OmitArgPrefixes[TypedDict("Options", options, total=False)]  # pyright: ignore[reportArgumentType]


def replace_fields(part: Part, given: Mapping[str, str], *, prefix: str = "") -> Part:
    """The dataclass with the given fields replaced; `given` may also have those of others.

    Example:
        >>> from elmokit.config import LstmConfig
        >>> replace_fields(LstmConfig(), {"lstm.cell_dim": "1e3", "seed": "1"}, prefix="lstm.").cell_dim
        1000
    """
    settings = {setting.name: setting for setting in find_settings(type(part), prefix=prefix)}
    values = {name: read_value(settings[name], text) for name, text in given.items() if name in settings}
    return dataclasses.replace(part, **{name.removeprefix(prefix): value for name, value in values.items()})  # pyright: ignore[reportArgumentType]


def read_value(setting: Setting, text: str) -> Any:  # noqa: ANN401
    """The text as a value of the setting's type; numbers may be written 1e9 or 1_000_000."""
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
        value = _read_json(text if setting.type not in (int, float) else text.replace("_", ""))
        if setting.type not in (int, float) and value is not None:
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            if setting.type is float:
                return float(value)
            if value == int(value):
                return int(value)
            raise ConfigError(f"{setting.option} is {text!r}: expected a whole number")
    expected = {int: "a whole number", float: "a number", bool: "yes or no"}.get(setting.type, setting.metavar)
    raise ConfigError(f"{setting.option} is {text!r}: expected {expected}{' or none' if setting.is_optional else ''}")


def show_value(value: Any) -> str:  # noqa: ANN401
    """A value as it would be written on the command line.

    Example:
        >>> [show_value(value) for value in (True, None, 0.001, ((1, 32),))]
        ['yes', 'none', '0.001', '[[1, 32]]']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else json.dumps(value) if isinstance(value, tuple) else str(value)


def read_docstrings(part: type) -> dict[str, str]:
    """The string below each field, without code marks. It stands in the source, also for `python -OO`."""
    (definition,) = ast.parse(dedent(inspect.getsource(part))).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value).replace("`", "").replace('"', "")
            texts[ast.unparse(field.target)] = " ".join(text.split())
    return texts


def _make_setting(name: str, hint: Any, text: str) -> Setting:  # noqa: ANN401
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    is_optional = type(None) in get_args(hint)
    kind = kinds[0] if is_optional and len(kinds) == 1 else hint
    if get_origin(kind) is Literal:
        return Setting(name, str, is_optional, get_args(kind), text)
    return Setting(name, kind, is_optional, (), text)


def _read_json(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
