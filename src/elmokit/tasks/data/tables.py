"""Sentences with one label each: tab-separated lines, CSV, JSON lines, or `label text`.

A path arrives; `LabelledSentence`s leave. In a TSV a line is `label<TAB>text`; a header (`label`, `text` or `sentence`,
in any order among other columns) is recognised, and then says which column is which; more than two columns need one.
Quotes that a program put around fields are taken off. A CSV always has a header. A line of JSON has `label` and `text`,
`sentence` or `words` (a list, taken as it is). How a text becomes words is told, or seen: many labelled corpora are
tokenised, and what people write is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NoReturn

from elmokit.errors import InputError
from elmokit.tasks.data import Example, Problems, parse_json_lines, read_csv, read_lines
from elmokit.text import segmenters

__all__ = [
    "TEXT_COLUMNS",
    "LabelledSentence",
    "is_json_lines",
    "keep_whole",
    "names_columns",
    "read_comma_table",
    "read_json_lines",
    "read_labelled_lines",
    "read_table",
    "split_by_looks",
    "unquote",
]

TEXT_NAMES = ("text", "sentence", "document", "question")
LABEL_NAMES = ("label", "class", "category")
# Where a .csv has what a task is asked about: columns by the names of `TaskModel.texts`.
TEXT_COLUMNS = {
    "sentence": TEXT_NAMES,
    "document": TEXT_NAMES,
    "passage": ("passage", "context", "text"),
    "question": ("question",),
    "premise": ("sentence1", "sentence_a", "premise", "context", "text"),
    "hypothesis": ("sentence2", "sentence_b", "hypothesis", "hypo"),
}
QUOTED = re.compile(r'"(?:[^"]|"")*"')
# What ends a sentence or a part of it, after a letter or digit of the same word, and between blanks.
ATTACHED = re.compile(r"\w[.,!?;:…。，！？；：、]+(?!\S)|[。，！？；：、]\S")
APART = re.compile(r"(?<!\S)[.,!?;:…。，！？；：、]+(?!\S)")
Splitter = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class LabelledSentence(Example):
    """A sentence with a label; without one, something to predict.

    Arguments:
        words: of the sentence.
        label: its class.
    """

    words: tuple[str, ...]
    label: str = ""


def read_table(
    path: str | os.PathLike[str], *, splits: Splitter = str.split, problems: Problems | None = None
) -> Iterator[LabelledSentence]:
    r"""The labelled sentences of a tab-separated file.

    Arguments:
        path: the file.
        splits: how a text becomes words.
        problems: what happens to lines with too few fields.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("my.tsv").write_text("good\ta fine film\nbad\ta dull one\n")
        >>> [(each.label, each.words) for each in read_table("my.tsv")]
        [('good', ('a', 'fine', 'film')), ('bad', ('a', 'dull', 'one'))]
    """
    problems = problems or Problems()
    lines = ((number, line.split("\t")) for number, line in read_lines(path, problems) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    places, is_quoted = _header(path, first), all(QUOTED.fullmatch(field) for field in first[1])
    label_place, text_place = places or (0, 1)
    for number, fields in lines if places else chain([first], lines):
        if len(fields) <= max(label_place, text_place):
            problems.add(path, number, f"expected a label and a text with a tab between, found {len(fields)} field(s)")
            continue
        label, text = (unquote(fields[place], always=is_quoted) for place in (label_place, text_place))
        yield from _make_example(path, number, label, splits(text), problems)


def read_comma_table(
    path: str | os.PathLike[str], *, splits: Splitter = str.split, problems: Problems | None = None
) -> Iterator[LabelledSentence]:
    """The labelled sentences of a .csv, whose first row names the columns."""
    problems = problems or Problems()
    rows = read_csv(path, problems)
    first = next(rows, None)
    if first is None:
        return
    label_place, text_place = _header(path, first) or _refuse_header(path, first)
    for number, fields in rows:
        if len(fields) != len(first[1]):
            problems.add(path, number, f"expected {len(first[1])} fields, as in the first row, found {len(fields)}")
            continue
        yield from _make_example(path, number, fields[label_place], splits(fields[text_place]), problems)


def read_json_lines(
    path: str | os.PathLike[str], *, splits: Splitter = str.split, problems: Problems | None = None
) -> Iterator[LabelledSentence]:
    """The labelled sentences of a file with one JSON object per line."""
    problems = problems or Problems()
    for number, values in parse_json_lines(path, read_lines(path, problems), problems, holding="label and text"):
        label = next((values[name] for name in LABEL_NAMES if name in values), None)
        words = values.get("words")
        if words is None:
            text = next((values[name] for name in TEXT_NAMES if name in values), None)
            words = splits(text) if isinstance(text, str) else None
        if label is None or not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            problems.add(path, number, f"expected label and text (or words), found the fields {sorted(values)}")
            continue
        yield from _make_example(path, number, str(label), words, problems)


def read_labelled_lines(
    path: str | os.PathLike[str], *, splits: Splitter = str.split, problems: Problems | None = None
) -> Iterator[LabelledSentence]:
    """The labelled sentences of a file whose lines begin with a label and a blank; of `DESC:manner`, `DESC` counts."""
    problems = problems or Problems()
    for number, line in read_lines(path, problems):
        if line.strip():
            label, _, text = line.strip().partition(" ")
            yield from _make_example(path, number, label.partition(":")[0], splits(text), problems)


class WholeText(str):
    """A text that is to be split into words when the others of its file are known."""

    __slots__ = ()


def keep_whole(text: str) -> Sequence[str]:
    """A text as its only word, for `split_by_looks`."""
    return [WholeText(text)] if text.strip() else []


def split_by_looks(examples: Iterable[LabelledSentence]) -> Iterator[LabelledSentence]:
    """Examples whose texts were kept whole, with their words: by blanks where the texts look tokenised, else by rules.

    Example:
        >>> texts = ["A fine film , at last .", "So so .", "Mr. Lee is dull"]
        >>> examples = [LabelledSentence(words=tuple(keep_whole(text)), label="x") for text in texts]
        >>> [" ".join(example.words) for example in split_by_looks(examples)] == texts
        True
        >>> [" ".join(example.words) for example in split_by_looks(examples[2:])]
        ['Mr. Lee is dull']
    """
    found = list(examples)
    texts = [word for example in found for word in example.words if isinstance(word, WholeText)]
    num_apart, num_attached = (sum(len(kind.findall(text)) for text in texts) for kind in (APART, ATTACHED))
    split = str.split if num_apart and num_apart >= num_attached else segmenters.words
    for example in found:
        is_whole = isinstance(example.words[0], WholeText)
        yield replace(example, words=tuple(split(str(example.words[0])))) if is_whole else example


def is_json_lines(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file says that it holds JSON lines."""
    return any(suffix in (".json", ".jsonl", ".ndjson") for suffix in Path(path).suffixes)


def names_columns(fields: Sequence[str]) -> bool:
    """Whether fields are a header: they name the label and the text."""
    names = [_fold(field) for field in fields]
    return any(name in LABEL_NAMES for name in names) and any(name in TEXT_NAMES for name in names)


def _fold(field: str) -> str:
    return field.strip().strip('"').lower()


def _make_example(
    path: str | os.PathLike[str], number: int, label: str, words: Sequence[str], problems: Problems
) -> Iterator[LabelledSentence]:
    if not label.strip() or not words:
        problems.add(
            path, number, f"expected a label and a text, found an empty {'text' if label.strip() else 'label'}"
        )
    else:
        yield LabelledSentence(words=tuple(words), label=label.strip(), source=f"{os.fspath(path)}:{number}")


def unquote(field: str, *, always: bool = False) -> str:
    r"""A field as it was before a program wrote it as CSV; such programs quote what holds quotes itself, or `always`.

    Example:
        >>> unquote('"a ""fine"" film"'), unquote('"Great film"')
        ('a "fine" film', '"Great film"')
    """
    is_quoted = QUOTED.fullmatch(field) and (always or '""' in field[1:-1])
    return field[1:-1].replace('""', '"') if is_quoted else field


def _header(path: str | os.PathLike[str], first: tuple[int, list[str]]) -> tuple[int, int] | None:
    """Places of label and text, if the first line names them; an error if it names only one, or should."""
    names = [_fold(field) for field in first[1]]
    label = next((names.index(name) for name in LABEL_NAMES if name in names), None)
    text = next((names.index(name) for name in TEXT_NAMES if name in names), None)
    if label is not None and text is not None:
        return label, text
    is_name = names[0] in TEXT_NAMES and names[0] != "question"  # which may well be a label
    if label is None and len(names) < 3 and not is_name:
        return None
    return _refuse_header(path, first)


def _refuse_header(path: str | os.PathLike[str], first: tuple[int, list[str]]) -> NoReturn:
    found = ", ".join(field.strip() for field in first[1])
    raise InputError(
        f"{os.fspath(path)}:{first[0]}: expected a line that names the label ({', '.join(LABEL_NAMES)}) and the text "
        f"({', '.join(TEXT_NAMES)}) among its columns, found {found[:60]!r}; name them so"
    )
