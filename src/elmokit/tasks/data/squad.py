"""Questions about texts whose answers are spans of them: SQuAD 1.1's JSON.

A file arrives; `QuestionExample`s leave, in its order. A text (a paragraph) is segmented into sentences and words once
and shared by all its questions; words keep their character spans, so an answer of words is also a piece of the original
text. Answers are given as text and the character where it begins. A span need not fall on words (`two` in `two-man`):
the words that it touches are then the best there is.

SQuAD's training part is also around without its true positions, each answer marked where its text first occurs. So an
example has two lists of word spans: those that are marked, and all places where its answers stand as whole words.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from elmokit.errors import InputError
from elmokit.tasks.data import Example, Problems, read_lines
from elmokit.text.segmenters import RuleSegmenter, Segmenter

__all__ = ["Passage", "QuestionExample", "read_questions"]

WordRange = tuple[int, int]  # first and last word, counted from 0 over all sentences


@dataclass(frozen=True, eq=False)
class Passage:
    """A text that questions are asked about.

    Arguments:
        text: as it was written.
        sentences: its words, sentence by sentence.
        starts: of each word, the character where it begins.
        ends: of each word, the character after it.
    """

    text: str
    sentences: list[list[str]]
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, text: str, segmenter: Segmenter | None = None) -> Passage:
        """The passage of a text.

        Example:
            >>> passage = Passage.of("It rained. We stayed in.")
            >>> passage.sentences, passage.piece((2, 4))
            ([['It', 'rained', '.'], ['We', 'stayed', 'in', '.']], '. We stayed')
        """
        sentences = (segmenter or RuleSegmenter())(text)
        words = [word for sentence in sentences for word in sentence]
        return cls(
            text,
            [[word.text for word in sentence] for sentence in sentences],
            [word.start for word in words],
            [word.end for word in words],
        )

    @property
    def num_words(self) -> int:
        """Words of all sentences."""
        return len(self.starts)

    def piece(self, span: WordRange) -> str:
        """The original text from the first to the last word of a span."""
        return self.text[self.starts[span[0]] : self.ends[span[1]]]

    def span_of(self, start: int, end: int) -> WordRange | None:
        """The words that these characters touch; `None` if there is none."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end) - 1
        return (first, last) if first <= last else None

    def occurrences(self, answer: str) -> list[WordRange]:
        """Every place where a text stands as whole words.

        Example:
            >>> Passage.of("All in all, socially we all are.").occurrences("all")
            [(2, 2), (6, 6)]
        """
        found = []
        start = self.text.find(answer) if answer else -1
        while start >= 0:
            span = self.span_of(start, start + len(answer))
            if span is not None and (self.starts[span[0]], self.ends[span[1]]) == (start, start + len(answer)):
                found.append(span)
            start = self.text.find(answer, start + 1)
        return found


@dataclass(frozen=True)
class QuestionExample(Example):
    """A question about a passage.

    Arguments:
        passage: shared by all its questions.
        question: its words.
        answers: the reference answers; none where they are not known.
        marked: the words of each different answer where the file says it stands.
        name: the question's id in its file.
    """

    passage: Passage
    question: list[str]
    answers: tuple[str, ...] = ()
    marked: tuple[WordRange, ...] = ()
    name: str = field(default="", compare=False)

    @cached_property
    def everywhere(self) -> tuple[WordRange, ...]:
        """All places of the answers as whole words; those marked where there is none."""
        found = {span for answer in set(self.answers) for span in self.passage.occurrences(answer.strip())}
        return tuple(sorted(found)) or self.marked


def read_questions(
    path: str | os.PathLike[str], *, problems: Problems | None = None, segmenter: Segmenter | None = None
) -> Iterator[QuestionExample]:
    """The questions of a SQuAD file; without answers where it has none.

    Arguments:
        path: JSON as SQuAD 1.1 has it, plain or packed.
        problems: what to do about questions that cannot be used; stops at the first if not given.
        segmenter: splits passages and questions into words; the rule of `elmokit.text.segmenters` if not given.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> question = {"question": "Who stayed?", "answers": [{"text": "We", "answer_start": 11}]}
        >>> passage = {"context": "It rained. We stayed in.", "qas": [question]}
        >>> _ = Path("questions.json").write_text(json.dumps({"data": [{"paragraphs": [passage]}]}))
        >>> next(read_questions("questions.json")).marked
        ((3, 3),)
    """
    problems = Problems() if problems is None else problems
    segmenter = RuleSegmenter() if segmenter is None else segmenter
    articles = _objects(_json(path), "data", os.fspath(path))
    num_questions = 0
    for number, article in enumerate(articles):
        for place, paragraph in _parts(article, "paragraphs", f"{os.fspath(path)}: data[{number}]", problems):
            text = paragraph.get("context")
            if not isinstance(text, str) or not text.strip():
                problems.add_at(place, f"expected a text in `context`, found {text!r:.60}")
                continue
            passage = Passage.of(text, segmenter)
            for source, entry in _parts(paragraph, "qas", place, problems):
                num_questions += 1
                example = None
                with problems.within_one():
                    example = _read_question(entry, passage, segmenter, source)
                if example is not None:
                    yield example
    if not num_questions:
        raise InputError(f"{os.fspath(path)}: expected questions in data[].paragraphs[].qas[], found none")


def _read_question(entry: dict[str, Any], passage: Passage, segmenter: Segmenter, source: str) -> QuestionExample:
    question = entry.get("question")
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"{source}: expected a text in `question`, found {question!r:.60}")
    words = [word.text for sentence in segmenter(question) for word in sentence]
    name = str(entry.get("id", ""))
    if entry.get("is_impossible"):
        raise InputError(
            f"{source}: question {name} has no answer in its text (SQuAD 2.0): only such that have one can be taken"
        )
    answers = entry.get("answers", [])
    if not isinstance(answers, list):
        raise InputError(f"{source}: expected a list in `answers`, found {answers!r:.60}")
    spans = dict.fromkeys(_find_marked(answer, passage, name, source) for answer in answers)
    return QuestionExample(
        passage, words, tuple(answer["text"] for answer in answers), tuple(spans), name=name, source=source
    )


def _find_marked(answer: Any, passage: Passage, name: str, source: str) -> WordRange:  # noqa: ANN401
    """The words of an answer where the file says it stands, or else where it stands as whole words first."""
    text = answer.get("text") if isinstance(answer, dict) else None
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
        raise InputError(f'{source}: expected an answer {{"text": "…", "answer_start": 0}}, found {answer!r:.60}')
    if not text.strip():
        raise InputError(f"{source}: question {name} has an answer without words")
    end = start + len(text)
    if start < 0 or passage.text[start:end] != text:
        there = passage.text[start:end] if start >= 0 else ""
        elsewhere = passage.text.find(text)
        hint = f"; it stands at {elsewhere}" if elsewhere >= 0 else ", nor anywhere else in its context"
        raise InputError(
            f"{source}: the answer {text!r:.60} of question {name} is not at character {start}, {there!r:.60} is{hint}"
        )
    span = passage.span_of(start, end)
    if span is None:
        raise InputError(f"{source}: the answer {text!r:.60} of question {name} touches no word")
    whole = passage.starts[span[0]] >= start and passage.ends[span[1]] <= end
    return span if whole else next(iter(passage.occurrences(text.strip())), span)


def _json(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401
    text = "\n".join(line for _, line in read_lines(path, Problems()))
    if not text.strip():
        raise InputError(f"{os.fspath(path)}: expected SQuAD's JSON, found an empty file")
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as problem:
        line = f":{problem.lineno}" if isinstance(problem, json.JSONDecodeError) else ""
        raise InputError(
            f"{os.fspath(path)}{line}: expected SQuAD's JSON, but it cannot be read: {problem}"
        ) from problem


def _objects(found: Any, key: str, place: str) -> list[Any]:  # noqa: ANN401
    values = found.get(key) if isinstance(found, dict) else None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(
            f"{place}: expected a list of objects in `{key}`, as SQuAD has it (data[].paragraphs[].qas[]), "
            f"found {found if values is None else values!r:.60}"
        )
    return values


def _parts(found: dict[str, Any], key: str, place: str, problems: Problems) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, each with its place in the file."""
    values = []
    with problems.within_one():
        values = _objects(found, key, place)
    for number, value in enumerate(values):
        yield f"{place}.{key}[{number}]", value
