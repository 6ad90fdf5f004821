"""Settings from text: every type of field, and what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from elmokit.commands.settings import find_settings, read_value
from elmokit.errors import ConfigError


@dataclass(frozen=True)
class Things:
    """All kinds of things."""

    count: int = 1
    """How many,
    or more."""
    rate: float = 1.0
    bound: float | None = None
    """Numbers."""
    on: bool = False
    """A switch."""
    kind: Literal["a", "b"] = "a"
    """`"a"` or `"b"`."""
    name: str | None = None
    """Text."""
    widths: tuple[int, ...] = ()
    """Several."""


SETTINGS = {setting.name: setting for setting in find_settings(Things)}


def test_explanations_stand_below_the_fields():
    assert SETTINGS["count"].help == "How many, or more."
    assert SETTINGS["rate"].help == ""
    assert SETTINGS["bound"].help == "Numbers."
    assert SETTINGS["kind"].help == "a or b."
    assert [setting.metavar for setting in SETTINGS.values()] == ["N", "X", "X|none", "yes|no", "a|b", "TEXT", "JSON"]
    assert [setting.name for setting in find_settings(Things, leaves_out=("count",))][0] == "rate"


GOOD = [
    ("count", "1_000", 1000),
    ("count", "1e3", 1000),
    ("rate", "1e-3", 0.001),
    ("rate", "2", 2.0),
    ("bound", "none", None),
    ("bound", "0.5", 0.5),
    ("on", "yes", True),
    ("on", "False", False),
    ("kind", "b", "b"),
    ("name", "x_y", "x_y"),
    ("name", "none", None),
    ("widths", "[1, 2]", [1, 2]),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_text_becomes_a_value(name, text, value):
    found = read_value(SETTINGS[name], text)
    assert found == value
    assert type(found) is type(value)


BAD = [("count", "1.5"), ("count", "x"), ("count", "true"), ("rate", "x"), ("rate", "none"), ("on", "1"), ("kind", "c")]


@pytest.mark.parametrize(
    ("name", "text"), [*BAD, ("widths", "1,2"), ("count", "1e999"), ("rate", "NaN"), ("rate", "-Infinity")]
)
def test_other_text_is_an_error(name, text):
    with pytest.raises(ConfigError, match=f"--{name} is '{text}': (expected|use one of a, b)"):
        read_value(SETTINGS[name], text)
