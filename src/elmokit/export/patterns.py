r"""Patterns of the package `regex`, rewritten so that Python's own `re` and JavaScript read them alike.

A pattern with Unicode properties, set differences, `\X` and possessive repeats arrives; a `Portable` one leaves,
which finds the same words. The segmenter of an exported model thus needs no package, and there is one set of rules.

How: every set and every property is asked of `regex` itself, character by character, and written as plain ranges, so
the Unicode version is that of the export wherever the pattern runs. Letters under `(?i:…)` become sets of their cases.
`\X` is spelled out by Unicode's rules for graphemes (UAX #29). Possessive repeats become greedy ones: they only save
time in the rules of `text/segmenters.py`, where a shorter repeat never fits either; tests compare on random text.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import NamedTuple

import regex

__all__ = ["Portable", "make_portable", "write_set"]


class Portable(NamedTuple):
    """Patterns in parts: text, and numbers of sets that are inserted there; letters would else be listed ten times."""

    patterns: dict[str, list[str | int]]
    sets: list[str]

    def join(self, name: str) -> str:
        """The whole pattern of this name."""
        return "".join(part if isinstance(part, str) else self.sets[part] for part in self.patterns[name])


def make_portable(patterns: dict[str, regex.Pattern[str]]) -> Portable:
    r"""The patterns in the syntax that `re` and JavaScript (flag `u`) share.

    Example:
        >>> make_portable({"consonants": regex.compile(r"[[a-z]--[aeiou]]++\.", regex.V1)}).join("consonants")
        '[b-df-hj-np-tv-z]+\\.'
    """
    numbers: dict[str, int] = {}
    written = {name: _Writer(pattern, numbers).write() for name, pattern in patterns.items()}
    return Portable(written, list(numbers))


def write_set(members: str) -> str:
    r"""A set of these characters, as ranges.

    Example:
        >>> write_set("cab-")
        '[\\-a-c]'
    """
    return f"[{_write_ranges(sorted(map(ord, members)))}]"


# A grapheme by the values of Grapheme_Cluster_Break (UAX #29, GB3 to GB13 without GB9c, which `regex` does not know).
_HANGUL = r"\p{GCB=L}*(?:\p{GCB=V}+|\p{GCB=LV}\p{GCB=V}*|\p{GCB=LVT})\p{GCB=T}*|\p{GCB=L}+|\p{GCB=T}+"
_CONTROLS = r"\p{GCB=Control}\p{GCB=CR}\p{GCB=LF}"
_FOLLOWERS = r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]"
GRAPHEME = (
    rf"(?:\r\n|[{_CONTROLS}]|\p{{GCB=Prepend}}*(?:\p{{GCB=RI}}\p{{GCB=RI}}|{_HANGUL}"
    r"|\p{Extended_Pictographic}(?:\p{GCB=Extend}*\p{GCB=ZWJ}\p{Extended_Pictographic})*"
    rf"|[^{_CONTROLS}]){_FOLLOWERS}*|[^{_CONTROLS}])"
)

_TOKEN = re.compile(
    r"""\\(?:[pP]\{[^}]*\}|u[0-9A-Fa-f]{4}|[Xs]|.)   # an escape
    |\(\?i\)|\(\?i:|\(\?(?:[:=!]|<[=!])|\(|\)        # groups, with or without a regard to cases
    |(?:[*+?]|\{[0-9,]+\})\+?                        # repeats, possessive or not
    |.""",
    re.VERBOSE | re.DOTALL,
)


class _Writer:
    """One pattern, read from left to right; sets that are new get the next number."""

    def __init__(self, pattern: regex.Pattern[str], numbers: dict[str, int]) -> None:
        self._source = pattern.pattern
        self._flags = pattern.flags & regex.V1
        self._parts: list[str | int] = []
        self._numbers = numbers
        self._ignores_case = [False]  # of the groups that are open

    def write(self) -> list[str | int]:
        place = 0
        while place < len(self._source):
            if self._source[place] == "[":
                end = _find_end(self._source, place)
                self._add_set(self._source[place:end])
                place = end
            else:
                found = _TOKEN.match(self._source, place)
                assert found is not None
                self._add_token(found.group())
                place = found.end()
        return self._parts

    def _add_token(self, token: str) -> None:
        if token == "(?i)":
            self._ignores_case[-1] = True
        elif token.startswith("("):
            self._ignores_case.append(self._ignores_case[-1] or token == "(?i:")
            self._add("(?:" if token == "(?i:" else token)
        elif token == ")":
            self._ignores_case.pop()
            self._add(token)
        elif token == r"\X":
            for part in _spell_grapheme():
                self._add_set(part[1:]) if part.startswith("\0") else self._add(part)
        elif token.startswith(r"\p") or token == r"\s":
            self._add_set(token)
        elif token[0] in "*+?{" and len(token) > 1 and token[-1] == "+":
            self._add(token[:-1])  # possessive
        elif token[0] in "*+?{|^$.":
            assert token != ".", "a dot means different things in different languages"
            self._add(token)
        else:
            self._add_letter(_unescape(token))

    def _add_letter(self, letter: str) -> None:
        if self._ignores_case[-1] and letter.isalpha():
            self._add_set(letter)
        else:
            self._add(letter if letter == "-" else _escape(letter))  # a sign only within sets

    def _add(self, text: str) -> None:
        if self._parts and isinstance(self._parts[-1], str):
            self._parts[-1] += text
        else:
            self._parts.append(text)

    def _add_set(self, source: str) -> None:
        members = _list_members(source, self._flags | (regex.IGNORECASE if self._ignores_case[-1] else 0))
        self._parts.append(self._numbers.setdefault(members, len(self._numbers)))


def _find_end(source: str, start: int) -> int:
    """Where the set that begins at `start` ends; sets lie within sets."""
    depth, place = 0, start
    while True:
        if source[place] == "\\":
            place += 1
        elif source[place] == "[":
            depth += 1
        elif source[place] == "]":
            depth -= 1
        place += 1
        if depth == 0:
            return place


@cache
def _spell_grapheme() -> tuple[str, ...]:
    r"""`GRAPHEME` in parts, the sets among them behind `\0`."""
    parts = re.split(r"(\[[^\]]*\]|\\p\{[^}]*\})", GRAPHEME)
    return tuple(f"\0{part}" if number % 2 else part for number, part in enumerate(parts) if part)


@cache
def _list_members(source: str, flags: int) -> str:
    """All characters that a set or property of `regex` holds, as a set of plain ranges."""
    is_negated = source.startswith("[^")
    positive = "[" + source[2:] if is_negated else source  # a few exclusions are shorter than all the rest
    pattern = regex.compile(f"(?:{positive})", flags)
    members = [ord(sign) for sign in pattern.findall(_list_characters())]
    return f"[{'^' if is_negated else ''}{_write_ranges(members)}]"


@cache
def _list_characters() -> str:
    return "".join(map(chr, range(sys.maxunicode + 1)))


def _write_ranges(members: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in members:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = []
    for first, last in ranges:
        joint = "-" if last > first + 1 else ""
        texts.append(_escape(chr(first)) + (joint + _escape(chr(last)) if last > first else ""))
    return "".join(texts)


def _unescape(token: str) -> str:
    if not token.startswith("\\"):
        return token
    if token[1] == "u" and len(token) > 2:
        return chr(int(token[2:], 16))
    return {"n": "\n", "r": "\r", "t": "\t"}.get(token[1], token[1])


def _escape(letter: str) -> str:
    """A letter as both languages write it; JavaScript allows no escape that is not needed."""
    if letter in r"\^$.*+?()[]{}|/-":
        return f"\\{letter}"
    if "\x20" < letter < "\x7f" or letter > "\uffff":
        return letter
    return f"\\u{ord(letter):04x}"
