"""Coreference in the columns of CoNLL-2011 and 2012, as LitBank has them.

    #begin document (name); part 0
    name  0  0  She   ...  (3)
    name  0  1  saw   ...  -
    name  0  2  her   ...  (4|(3)
    name  0  3  aunt  ...  4)

Columns stand between tabs, or between blanks; the fourth is the word, the last says which mentions begin and end there.
A path arrives; one example per document leaves. Mentions may stand within one another but neither cross nor leave their
sentence: with `--skip-bad` the later of two that cross is left out, and so is a bracket without its other half; a
document with a line that cannot be read is left out whole.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from elmokit.tasks.data import Example, Problems, read_lines

__all__ = ["CorefExample", "Mention", "cut", "read_conll_coref"]

Mention = tuple[int, int]
"""First and last word of a mention, counted from 0 over the whole document."""

WORD_COLUMN = 3
NOTHING = {"", "-", "_", "*"}
BRACKET = re.compile(r"(\()?([^()|]+)(\))?")
BEGIN = re.compile(r"#begin document\s*(.*)")


@dataclass(frozen=True, kw_only=True)
class CorefExample(Example):
    """A document and which of its mentions mean the same.

    Arguments:
        name: what the file calls the document.
        sentences: its words.
        clusters: mentions that mean the same, each (first word, last word) counted over the whole document; `None` if
            nobody has said.
        marks_single: whether the document also marks mentions that mean the same as no other.
    """

    name: str = ""
    sentences: tuple[tuple[str, ...], ...]
    clusters: tuple[tuple[Mention, ...], ...] | None = None
    marks_single: bool = False

    @property
    def num_words(self) -> int:
        """Words of the document."""
        return sum(map(len, self.sentences))


def read_conll_coref(path: str | os.PathLike[str], problems: Problems) -> Iterator[CorefExample]:
    r"""The documents of a file.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("one.conll").write_text("a 0 0 She (1)\na 0 1 saw -\na 0 2 herself (1)\n")
        >>> next(read_conll_coref("one.conll", Problems())).clusters
        (((0, 0), (2, 2)),)
    """
    document = _Document(os.fspath(path), problems)
    for number, text in read_lines(path, problems):
        if begin := BEGIN.match(text):
            yield from document.finish()
            document = _Document(os.fspath(path), problems, name=begin[1].strip(), first_line=number)
        elif not text.strip():
            document.end_sentence()
        elif not text.startswith("#"):
            document.add(number, text)
    yield from document.finish()


def cut(document: CorefExample, max_words: int) -> list[tuple[int, CorefExample]]:
    """A document in parts of at most so many words, cut between sentences where it can be; the first word of each too.

    A mention that is cut through is lost; links between parts are.

    Example:
        >>> document = CorefExample(sentences=(("Ann", "left"), ("She", "ran")), clusters=(((0, 0), (2, 2)),))
        >>> [(start, part.clusters) for start, part in cut(document, 3)]
        [(0, (((0, 0),),)), (2, (((0, 0),),))]
    """
    groups: list[list[tuple[str, ...]]] = []
    room = 0
    for sentence in document.sentences:
        for words in (sentence[first : first + max_words] for first in range(0, len(sentence), max_words)):
            if len(words) > room:
                groups.append([])
                room = max_words
            groups[-1].append(words)
            room -= len(words)
    parts, start = [], 0
    for group in groups:
        end = start + sum(map(len, group))
        clusters = document.clusters and tuple(
            inside
            for cluster in document.clusters
            if (inside := tuple((a - start, b - start) for a, b in cluster if start <= a and b < end))
        )
        parts.append((start, dataclasses.replace(document, sentences=tuple(group), clusters=clusters)))
        start = end
    return parts


@dataclass
class _Document:
    """A document as far as it has been read."""

    path: str
    problems: Problems
    name: str = ""
    first_line: int = 1
    sentences: list[tuple[str, ...]] = field(default_factory=list)
    clusters: dict[str, list[Mention]] = field(default_factory=dict)
    num_words: int = 0  # of finished sentences
    words: list[str] = field(default_factory=list)  # of this sentence
    lines: list[int] = field(default_factory=list)
    begun: dict[str, list[int]] = field(default_factory=dict)
    mentions: list[tuple[int, int, str]] = field(default_factory=list)
    num_columns: int | None = None  # CoNLL-2012 has a column more for each predicate of a sentence
    is_bad: bool = False

    def add(self, line: int, text: str) -> None:
        """One word."""
        columns = text.split("\t") if "\t" in text else text.split()
        if len(columns) <= WORD_COLUMN + 1 or not columns[WORD_COLUMN].strip():
            self._bad_line(line, f"expected at least {WORD_COLUMN + 2} columns, the fourth a word, found {text[:60]!r}")
            return
        if self.num_columns not in (None, len(columns)):
            self._bad_line(line, f"expected {self.num_columns} columns as in the lines before it, found {len(columns)}")
            return
        self.num_columns = len(columns)
        self.words.append(columns[WORD_COLUMN].strip())
        self.lines.append(line)
        # The last column that holds something: some files end their lines with a tab.
        field_ = next((column.strip() for column in reversed(columns[WORD_COLUMN + 1 :]) if column.strip()), "")
        if field_ not in NOTHING:
            for part in field_.split("|"):
                self._bracket(line, part, field_)

    def end_sentence(self) -> None:
        """What was begun must have ended, and nothing may cross."""
        for entity, starts in self.begun.items():
            for start in starts:
                self.problems.add(self.path, self.lines[start], f"mention ({entity} does not end in its sentence")
        kept: list[tuple[int, int, str]] = []
        for mention in sorted(self.mentions):
            problem = self._conflict(mention, kept)
            if problem:
                self.problems.add(self.path, self.lines[mention[0]], problem)
            else:
                kept.append(mention)
        for start, end, entity in kept:
            self.clusters.setdefault(entity, []).append((self.num_words + start, self.num_words + end))
        if self.words:
            self.sentences.append(tuple(self.words))
            self.num_words += len(self.words)
        self.words, self.lines, self.begun, self.mentions, self.num_columns = [], [], {}, [], None

    def finish(self) -> Iterator[CorefExample]:
        """The document, if there is one."""
        self.end_sentence()
        if self.sentences and not self.is_bad:
            yield CorefExample(
                name=self.name or os.path.basename(self.path),
                sentences=tuple(self.sentences),
                clusters=tuple(tuple(mentions) for mentions in self.clusters.values()),
                marks_single=any(len(mentions) == 1 for mentions in self.clusters.values()),
                source=f"{self.path}:{self.first_line}",
            )

    def _bad_line(self, line: int, message: str) -> None:
        if not self.is_bad:  # one document, one problem
            self.problems.add(self.path, line, message)
        self.is_bad = True

    def _bracket(self, line: int, part: str, whole: str) -> None:
        """`(3`, `3)` or `(3)`."""
        place = len(self.words) - 1
        match = BRACKET.fullmatch(part)
        if not match or not (match[1] or match[3]):
            self.problems.add(self.path, line, f"expected mentions such as (3, 3) or (3), joined by |, found {whole!r}")
            return
        begins, entity, ends = match.groups()
        if begins:
            self.begun.setdefault(entity, []).append(place)
        if ends:
            starts = self.begun.get(entity)
            if not starts:
                self.problems.add(self.path, line, f"mention {entity}) ends here but did not begin in this sentence")
                return
            self.mentions.append((starts.pop(), place, entity))

    def _conflict(self, mention: tuple[int, int, str], others: list[tuple[int, int, str]]) -> str | None:
        """Why this mention cannot stand beside others, of which none begins after it."""
        start, end, entity = mention
        for other_start, other_end, other in others:
            if (start, end) == (other_start, other_end):
                return f"the same words are a mention of {other} and of {entity}: expected one entity"
            if other_start < start <= other_end < end:
                return (
                    f"mention ({entity}) of lines {self.lines[start]} to {self.lines[end]} crosses ({other}) of lines "
                    f"{self.lines[other_start]} to {self.lines[other_end]}: mentions may only stand within one another"
                )
        return None
