"""Semantic roles as JSON lines: one predicate per line, with the words of its sentence and a BIO tag for each.

    {"words": ["Dogs", "chase", "cats"], "predicate": 1, "tags": ["B-ARG0", "B-V", "B-ARG1"]}

A path arrives; one example per sentence leaves, with all its predicates: lines of the same sentence stand together.
Other fields are ignored, but for `sent_id`, which tells sentences of the same words apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elmokit.tasks.data import Example, Problems, parse_json_lines, read_lines

__all__ = ["Frame", "RolesExample", "read_propbank"]


FIELDS = "words, predicate and tags"


@dataclass(frozen=True)
class Frame:
    """A predicate and its roles.

    Arguments:
        predicate: its place in the sentence, from 0.
        tags: a BIO tag for each word of the sentence.
    """

    predicate: int
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RolesExample(Example):
    """A sentence and what its predicates say of it.

    Arguments:
        words: the sentence.
        frames: its predicates with their roles; `None` if nobody has said which words are predicates.
    """

    words: tuple[str, ...]
    frames: tuple[Frame, ...] | None = None


def read_propbank(path: str | os.PathLike[str], problems: Problems) -> Iterator[RolesExample]:
    r"""The sentences of a file of JSON lines.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("roles.jsonl").write_text('{"words": ["Dogs", "bark"], "predicate": 1, "tags": ["B-ARG0", "B-V"]}')
        >>> [example.frames for example in read_propbank("roles.jsonl", Problems())]
        [(Frame(predicate=1, tags=('B-ARG0', 'B-V')),)]
    """
    key, frames, place = None, {}, ""
    for number, values in parse_json_lines(path, read_lines(path, problems), problems, holding=FIELDS):
        line = _check_line(values)
        if isinstance(line, str):
            problems.add(path, number, line)
            continue
        if key != line.key or line.frame.predicate in frames:  # the same predicate again: the sentence comes twice
            if key is not None:
                yield RolesExample(words=key[1], frames=tuple(frames.values()), source=place)
            key, frames, place = line.key, {}, f"{os.fspath(path)}:{number}"
        frames[line.frame.predicate] = line.frame
    if key is not None:
        yield RolesExample(words=key[1], frames=tuple(frames.values()), source=place)


@dataclass(frozen=True)
class _Line:
    key: tuple[str, tuple[str, ...]]
    frame: Frame


def _check_line(line: dict[str, Any]) -> _Line | str:
    """What a line holds, or what is wrong with it."""
    if {"words", "predicate", "tags"} - line.keys():
        return f"expected a JSON object with {FIELDS}, found the fields {', '.join(sorted(line))}"[:120]
    words, predicate, tags = line["words"], line["predicate"], line["tags"]
    if not _is_texts(words) or not words or not all(words):
        return "words: expected a list of words, none of them empty"
    if not _is_texts(tags) or len(tags) != len(words):
        found = f"{len(tags)}" if isinstance(tags, list) else "no list"
        return f"tags: expected a list with a tag for each of the {len(words)} words, found {found}"
    if type(predicate) is not int or not 0 <= predicate < len(words):
        return f"predicate: expected the number of a word, from 0 to {len(words) - 1}, found {predicate!r}"
    return _tag_problem(tags) or _Line((str(line.get("sent_id", "")), tuple(words)), Frame(predicate, tuple(tags)))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _tag_problem(tags: list[str]) -> str | None:
    previous = "O"
    for place, tag in enumerate(tags):
        if tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3):
            return f"tag {place}: expected O, B-ROLE or I-ROLE, found {tag!r}"
        if tag.startswith("I-") and previous[2:] != tag[2:]:
            return f"tag {place} is {tag} after {previous}: a role begins with B-"
        previous = tag
    return None
