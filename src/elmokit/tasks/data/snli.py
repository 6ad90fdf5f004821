"""Pairs of sentences with a label: SNLI and MultiNLI JSON lines, tables such as SICK's, or three parallel files.

A path arrives; `PairExample`s leave, one per pair. The kind of file is recognised:

* `s1.dev` (or `s2.dev`, `labels.dev`): premises, hypotheses and labels lie in three files of one folder, one line per
  pair, with words already between blanks;
* a first line that begins with `{`: one JSON object per line;
* a .csv: fields between commas, named by the first row;
* anything else: fields between tabs, named by the first line, or premise, hypothesis and label in this order.

Fields go by the names that corpora give them (`NAMES`), whatever their case. Labels are put in small letters, so SICK's
`ENTAILMENT` is SNLI's. A pair on whose label the annotators did not agree (`-`) is left out, as is the custom.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from elmokit.errors import InputError
from elmokit.tasks.data import Example, Problems, is_csv, parse_json_lines, read_csv, read_lines
from elmokit.tasks.data.tables import QUOTED, TEXT_COLUMNS, unquote
from elmokit.text.segmenters import words

__all__ = ["PairExample", "read_pairs"]

NAMES = {
    "premise": TEXT_COLUMNS["premise"],
    "hypothesis": TEXT_COLUMNS["hypothesis"],
    "label": ("gold_label", "entailment_judgment", "entailment_label", "label"),
}
NO_LABEL = ("-", "-1")  # as SNLI writes it, and as corpora with numbered labels do
_PARALLEL = re.compile(r"(s1|s2|labels)\.([^.]+)$")


@dataclass(frozen=True)
class PairExample(Example):
    """A premise, a hypothesis and what the one says of the other.

    Arguments:
        premise: its words.
        hypothesis: its words.
        label: in small letters; `None` where the file has none.
    """

    premise: list[str]
    hypothesis: list[str]
    label: str | None = None


def read_pairs(path: str | os.PathLike[str], *, problems: Problems | None = None) -> Iterator[PairExample]:
    r"""The pairs of a file.

    Arguments:
        path: as above, plain or packed.
        problems: what to do about pairs that cannot be used; stops at the first if not given.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("pairs.tsv").write_text("sentence1\tsentence2\tgold_label\nIt rains.\tIt is dry.\tcontradiction\n")
        >>> next(read_pairs("pairs.tsv")).label
        'contradiction'
    """
    problems = Problems() if problems is None else problems
    parallel = _PARALLEL.fullmatch(Path(path).name)
    found = _parallel(Path(path).parent, parallel[2], problems) if parallel else _rows(path, problems)
    for source, values, is_split in found:
        label = values.get("label") or None
        lacks = next((name for name in ("premise", "hypothesis") if not values.get(name, "").strip()), None)
        if lacks is not None:
            problems.add_at(source, f"expected a {lacks}, found {'an empty one' if lacks in values else 'none'}")
        elif label not in NO_LABEL:
            premise, hypothesis = (
                (str.split if is_split else words)(values[name]) for name in ("premise", "hypothesis")
            )
            yield PairExample(premise, hypothesis, label, source=source)


_Fields = tuple[str, Mapping[str, str], bool]  # source, fields by our names, whether words stand between blanks


def _rows(path: str | os.PathLike[str], problems: Problems) -> Iterator[_Fields]:
    if is_csv(path):
        yield from _table(path, read_csv(path, problems), problems, between="commas")
        return
    lines = ((number, text) for number, text in read_lines(path, problems) if text.strip())
    first = next(lines, None)
    if first is None or not first[1].lstrip().startswith("{"):
        yield from _table(path, _split_at_tabs(chain([first] if first else [], lines)), problems)
        return
    for number, found in parse_json_lines(path, chain([first], lines), problems, holding="two sentences and a label"):
        by_name = {str(key).lower(): value for key, value in found.items() if isinstance(value, (str, int))}
        columns = _find_columns(list(by_name))
        values = {ours: _clean(ours, str(by_name[theirs])) for ours, theirs in columns.items()}
        yield f"{os.fspath(path)}:{number}", values, False


def _split_at_tabs(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line, without the quotes that a program put around them."""
    is_quoted = None
    for number, text in lines:
        fields = text.split("\t")
        if is_quoted is None:
            is_quoted = all(QUOTED.fullmatch(field) for field in fields)
        yield number, [unquote(field, always=is_quoted) for field in fields]


def _table(
    path: str | os.PathLike[str],
    rows: Iterator[tuple[int, list[str]]],
    problems: Problems,
    *,
    between: Literal["tabs", "commas"] = "tabs",
) -> Iterator[_Fields]:
    first = next(rows, None)
    if first is None:
        raise InputError(f"{os.fspath(path)}: expected pairs of sentences, found an empty file")
    header = [name.strip().strip('"').lower() for name in first[1]]
    named = _find_columns(header)
    if "premise" in named and "hypothesis" in named:
        columns = {ours: header.index(theirs) for ours, theirs in named.items()}
    elif len(header) in (2, 3) and not named and between == "tabs":
        columns = dict(zip(("premise", "hypothesis", "label"), range(len(header)), strict=False))
        rows = chain([first], rows)
    else:
        raise InputError(
            f"{os.fspath(path)}:{first[0]}: expected a line that names the fields, such as sentence1, sentence2 and "
            f"gold_label between {between}, found {', '.join(first[1]):.60}"
        )
    for number, found in rows:
        if len(found) != len(header):
            problems.add(path, number, f"expected {len(header)} fields between {between}, found {len(found)}")
            continue
        yield f"{os.fspath(path)}:{number}", {ours: _clean(ours, found[at]) for ours, at in columns.items()}, False


def _parallel(folder: Path, part: str, problems: Problems) -> Iterator[_Fields]:
    paths = [folder / f"{name}.{part}" for name in ("s1", "s2", "labels")]
    for path in paths:
        if not path.is_file():
            raise InputError(f"expected three files s1.{part}, s2.{part} and labels.{part}, but {path} is not there")
    premises, hypotheses, labels = (dict(read_lines(path, problems)) for path in paths)
    counts = [max(lines, default=0) for lines in (premises, hypotheses, labels)]
    if len(set(counts)) > 1:
        names = " and ".join(path.name for path in paths[1:])
        raise InputError(f"expected as many lines in {paths[0]}, {names}, found {', '.join(map(str, counts))}")
    if not premises:
        raise InputError(f"{paths[0]}: expected premises, found an empty file")
    for number in sorted(premises.keys() & hypotheses.keys() & labels.keys()):  # lines that are no text are left out
        values = {
            "premise": premises[number],
            "hypothesis": hypotheses[number],
            "label": labels[number].strip().lower(),
        }
        if any(value.strip() for value in values.values()):  # blank lines may end the files
            yield f"{paths[0]}:{number}", values, True


def _find_columns(found: list[str]) -> dict[str, str]:
    """Our names of the fields that are there, with theirs."""
    return {ours: name for ours, names in NAMES.items() for name in reversed(names) if name in found}


def _clean(name: str, value: str) -> str:
    return value.strip().lower() if name == "label" else value
