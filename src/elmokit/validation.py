"""One strict validator for everything that is read from a file: types from annotations, bounds beside them.

Plain values arrive (what JSON or a pickle of plain values holds); a dataclass leaves whose fields have the types that
its annotations say, within the bounds that stand beside them: `cell_dim: Annotated[int, Bounds(1, 65_536)]`. Nothing
is converted but a list to a tuple: a float is no whole number, a word is no boolean, and no number is infinite. What
does not hold is one `ConfigError` that names the field. Configurations call `check_fields` when they are made, so that
one made by hand is held to the same.

A class that says `ignores_others = True` describes a file of which we read a part; others refuse unknown fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import reprlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from elmokit.errors import ConfigError

__all__ = ["Bounds", "Count", "build_from", "check_arguments", "check_fields"]

Kind = TypeVar("Kind")


class Bounds(NamedTuple):
    """What a number, or the number of entries of a list, must be within."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def complain(self, number: float) -> str:
        """What was expected of this number; nothing if it is within the bounds."""
        if self.at_least is not None and number < self.at_least:
            return f"{self.at_least:,} or more"
        if self.above is not None and number <= self.above:
            return f"above {self.above:,}"
        if self.at_most is not None and number > self.at_most:
            return f"at most {self.at_most:,}"
        if self.below is not None and number >= self.below:
            return f"below {self.below:,}"
        return ""


Count = Annotated[int, Bounds(0, 2**62)]  # how many of something that may be nothing


def build_from(kind: type[Kind], values: object, where: str = "") -> Kind:
    """The dataclass of such values, the dataclasses in it included.

    Arguments:
        kind: the dataclass, or a named tuple.
        values: its fields by name.
        where: the name of these values in messages, empty for a whole file.

    Example:
        >>> from elmokit.config import LstmConfig
        >>> build_from(LstmConfig, {"cell_dim": 2048}, "lstm").cell_dim
        2048
        >>> build_from(LstmConfig, {"cell_dim": 2048.0}, "lstm")
        Traceback (most recent call last):
        elmokit.errors.ConfigError: lstm.cell_dim is 2048.0: expected a whole number
    """
    hints, has_default = _find_hints(kind), _find_fields(kind)
    names = list(has_default)
    if not isinstance(values, dict):
        raise ConfigError(f"{where or 'the config'} should be an object with the fields {names}, found {_show(values)}")
    unknown = sorted(str(name) for name in values if name not in names)
    if unknown and not getattr(kind, "ignores_others", False):
        raise ConfigError(f"{where or 'the config'} has the unknown fields {unknown!s:.200}; known are {names}")
    for name in names:
        if name not in values and not has_default[name]:
            found = ", ".join(sorted(map(str, values))) or "nothing"
            raise ConfigError(f"expected {_join(where, name)}, found only {found:.200}")
    given = {name: _convert(values[name], hints[name], _join(where, name)) for name in names if name in values}
    return kind(**given)


def check_fields(config: object, where: str = "") -> None:
    """Refuse a dataclass with a field of another type than its annotation, or out of bounds; lists become tuples."""
    hints = _find_hints(type(config))
    for field in dataclasses.fields(config):  # pyright: ignore[reportArgumentType]
        value = getattr(config, field.name)
        converted = _convert(value, hints[field.name], _join(where, field.name))
        if converted is not value:
            object.__setattr__(config, field.name, converted)


def check_arguments(
    function: Callable[..., Any], values: Mapping[str, object], *, leaves_out: Collection[str] = ()
) -> dict[str, Any]:
    """The values as keyword arguments of a function that takes them and no others, held to its annotations.

    Arguments:
        function: has an annotation for each argument.
        values: arguments by name.
        leaves_out: arguments that come from elsewhere.
    """
    hints = get_type_hints(function, include_extras=True)
    wanted = [name for name in inspect.signature(function).parameters if name in hints and name not in leaves_out]
    if sorted(values) != sorted(wanted):
        raise ConfigError(f"it should have the fields {wanted}, found {sorted(values)!s:.200}")
    return {name: _convert(values[name], hints[name], name) for name in wanted}


def _convert(value: Any, hint: Any, name: str) -> Any:  # noqa: ANN401
    """The value as one of this type, or a `ConfigError` that names it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _check_bounds(_convert(value, parts[0], name), parts[1], parts[0], name)
    if origin in (Union, types.UnionType):
        return _convert_union(value, parts, name)
    if origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in parts):
            raise ConfigError(f"{name} is {_show(value)}: use one of {parts}")
        return value
    if hint in (bool, int, float, str):
        return _check_plain(value, hint, name)
    if origin in (list, Sequence, tuple):
        return _convert_list(value, origin, parts, name)
    return _convert_object(value, hint, name)


def _convert_object(value: Any, hint: Any, name: str) -> Any:  # noqa: ANN401
    parts = get_args(hint)
    if hint is Any:
        return value
    if get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise _mismatch(value, hint, name)
        keys = [_convert(key, parts[0], f"a name in {name}") for key in value]
        return {key: _convert(value[key], parts[1], f"{name}.{key!s:.60}") for key in keys}
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_field_defaults")):
        return value if isinstance(value, hint) else build_from(hint, value, name)
    if isinstance(hint, type) and not isinstance(value, hint):
        raise _mismatch(value, hint, name)
    return value


def _check_plain(value: Any, hint: type, name: str) -> Any:  # noqa: ANN401
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        bool: isinstance(value, bool),
        int: is_number and isinstance(value, int),
        float: is_number,
        str: isinstance(value, str),
    }
    if not fits[hint]:
        raise _mismatch(value, hint, name)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}: expected a finite number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{name} has half of a surrogate pair, {_show(value)}: expected Unicode text") from None
    return value


def _convert_union(value: Any, parts: tuple[Any, ...], name: str) -> Any:  # noqa: ANN401
    if value is None and type(None) in parts:
        return None
    kinds = [part for part in parts if part is not type(None)]
    if len(kinds) > 1:
        for kind in kinds:
            try:
                return _convert(value, kind, name)
            except ConfigError:
                continue
        raise _mismatch(value, Union[tuple(kinds)], name)  # noqa: UP007 - `|` makes no union of a tuple
    try:
        return _convert(value, kinds[0], name)
    except ConfigError as problem:
        if dataclasses.is_dataclass(kinds[0]) or type(None) not in parts:
            raise
        raise ConfigError(f"{problem}, or null for none") from problem


def _convert_list(value: Any, origin: Any, parts: tuple[Any, ...], name: str) -> Any:  # noqa: ANN401
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name} is {_show(value)}: expected a list")
    is_fixed = origin is tuple and parts[-1] is not Ellipsis
    if is_fixed and len(value) != len(parts):
        raise ConfigError(f"{name} is {_show(value)}: expected a list of {len(parts)} entries")
    kinds = parts if is_fixed else [parts[0]] * len(value)
    items = [_convert(item, kind, f"{name}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True))]
    is_same = all(new is old for new, old in zip(items, value, strict=True))
    if origin is tuple:
        return value if is_same and isinstance(value, tuple) else tuple(items)
    return value if is_same and isinstance(value, list) else items


def _check_bounds(value: Any, bounds: Bounds, hint: Any, name: str) -> Any:  # noqa: ANN401
    if value is None:
        return value
    is_number = isinstance(value, (int, float))
    expected = bounds.complain(value if is_number else len(value))
    if not expected:
        return value
    if is_number:
        kind = "a whole number" if hint is int else "a number"
        of = "" if expected.startswith(("above", "below")) else "of "
        raise ConfigError(f"{name} is {_show(value)}: expected {kind} {of}{expected}")
    raise ConfigError(f"{name} has {len(value):,} {'characters' if hint is str else 'entries'}: expected {expected}")


def _mismatch(value: object, hint: Any, name: str) -> ConfigError:  # noqa: ANN401
    return ConfigError(f"{name} is {_show(value)}: expected {_describe(hint)}")


def _describe(hint: Any) -> str:  # noqa: ANN401
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", dict: "an object"}
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_describe(part) for part in get_args(hint))
    hint = get_origin(hint) or hint
    return plain.get(hint, f"a {getattr(hint, '__name__', hint)}")


def _show(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length():,} bits"
    text = " ".join(reprlib.repr(value).split())  # the beginning alone of what may be a million entries
    return text if len(text) <= 60 else f"{text[:57]}..."


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _find_fields(kind: Any) -> dict[str, bool]:  # noqa: ANN401
    """The fields of a dataclass or a named tuple, and whether each has a default."""
    if not dataclasses.is_dataclass(kind):
        return {name: name in kind._field_defaults for name in kind._fields}
    missing = dataclasses.MISSING
    return {
        field.name: field.default is not missing or field.default_factory is not missing
        for field in dataclasses.fields(kind)
        if field.init
    }


@cache
def _find_hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
