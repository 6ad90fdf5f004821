"""Texts with word senses: SemCor as JSON lines, Raganato's evaluation sets as XML, and WordNet's list of senses.

Paths arrive; a `SenseText` leaves, sentences of words and the instances in them, each a span of words with its lemma,
its part of speech and the WordNet sense keys that people gave it. A sense key such as `bank%1:14:00::` holds its lemma
and, after the %, the number of its part of speech. Expressions (`took_place`) are taken apart into words, since
that is how the text was written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from elmokit.errors import InputError
from elmokit.probe.frozen import WordSpan
from elmokit.text.files import PACKED_SUFFIXES, Line, LineReader
from elmokit.text.labelled import Problems

__all__ = ["Instance", "SenseText", "WordNet", "read_sense_texts", "read_wordnet", "split_sense"]

# The number after the % of a sense key; 5 is an adjective that WordNet lists under another one.
POS_OF_NUMBER = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}


class Instance(NamedTuple):
    """One annotated word or expression: which set it is of, where it stands, what it may mean."""

    dataset: str
    span: WordSpan
    lemma: str
    pos: str
    senses: tuple[str, ...]


@dataclass
class SenseText:
    """Sentences, and the instances in their order."""

    sentences: list[list[str]] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)

    def extend(self, other: SenseText) -> None:
        """Append another text."""
        before = len(self.sentences)
        self.sentences += other.sentences
        for instance in other.instances:
            span = instance.span._replace(sentence=instance.span.sentence + before)
            self.instances.append(instance._replace(span=span))


@dataclass(frozen=True)
class WordNet:
    """What is needed of WordNet.

    Arguments:
        numbers: of every sense key its number among the senses of its lemma and part of speech, the commonest being 1.
        first: the first sense of each lemma and part of speech.
    """

    numbers: dict[str, int]
    first: dict[tuple[str, str], str]


def read_sense_texts(paths: Sequence[str | PathLike[str]], problems: Problems | None = None) -> SenseText:
    """The text of some files: `.jsonl` as SemCor's, `.data.xml` with its `.gold.key.txt` beside it as Raganato's.

    Arguments:
        paths: the files.
        problems: what happens to sentences of JSON, and to annotated words of XML, that cannot be used.
    """
    text = SenseText()
    known: set[str] = set()
    for path in paths:
        found = _read_sense_text(Path(path), problems or Problems())
        names = {instance.dataset for instance in found.instances}
        if twice := sorted(names & known):
            raise InputError(
                f"{path}: {', '.join(twice)} came before: give either ALL.data.xml or the sets it is made of"
            )
        known |= names
        text.extend(found)
    return text


def read_wordnet(path: str | PathLike[str]) -> WordNet:
    r"""The senses of WordNet's `index.sense`; the first of a lemma has the lowest number.

    Example:
        >>> _ = Path("index.sense").write_text("dog%1:05:00:: 02084071 1 42\ndog%1:06:00:: 03901548 6 0\n")
        >>> read_wordnet("index.sense").first
        {('dog', 'NOUN'): 'dog%1:05:00::'}
    """
    numbers: dict[str, int] = {}
    best: dict[tuple[str, str], tuple[int, str]] = {}
    for line in LineReader([path]):
        fields = line.text().split()
        if not fields:
            continue
        if len(fields) != 4 or not fields[2].isdecimal():
            raise InputError(
                f"{line.place}: expected a sense key, an offset, the number of the sense and a count, found "
                f"{line.text()[:60]!r}; is this WordNet's index.sense?"
            )
        lemma, pos = split_sense(fields[0], line.place)
        numbers[fields[0]] = int(fields[2])
        found = (int(fields[2]), fields[0])
        best[lemma, pos] = min(found, best.get((lemma, pos), found))
    if not best:
        raise InputError(f"{path}: expected senses of WordNet, found none")
    return WordNet(numbers, {key: sense for key, (_, sense) in best.items()})


def _read_sense_text(path: Path, problems: Problems) -> SenseText:
    base = path.name
    for suffix in PACKED_SUFFIXES:
        base = base.removesuffix(suffix)
    if base.endswith(".jsonl"):
        text = _read_jsonl(path, problems)
    elif base.endswith(".data.xml"):
        text = _read_xml(path, problems)
    else:
        raise InputError(f"{path}: expected SemCor as .jsonl, or .data.xml with its .gold.key.txt beside it")
    if not text.instances:
        skipped = f" ({problems.summary()})" if problems.num_bad else ""
        raise InputError(f"{path}: expected words with senses, found none{skipped}")
    return text


def split_sense(sense: str, place: str = "") -> tuple[str, str]:
    """Lemma and part of speech of a sense key; `place` is where it stands, for an error.

    Example:
        >>> split_sense("bank%1:14:00::")
        ('bank', 'NOUN')
    """
    lemma, percent, rest = sense.partition("%")
    if not percent or rest[:1] not in POS_OF_NUMBER:
        raise InputError(f"{place}: expected a sense key such as bank%1:14:00::, found {sense[:60]!r}")
    return lemma, POS_OF_NUMBER[rest[0]]


def _words_of(token: str) -> list[str]:
    return token.replace("_", " ").split() or [token]


def _read_jsonl(path: Path, problems: Problems) -> SenseText:
    text = SenseText()
    for line in LineReader([path]):
        if line.raw.strip():
            with problems.within_one():
                words, instances = _read_sentence(line, path.name, len(text.sentences))
                text.sentences.append(words)
                text.instances += instances
    return text


def _read_sentence(line: Line, dataset: str, number: int) -> tuple[list[str], list[Instance]]:
    """The words of a line of JSON, and the instances among them."""
    tokens, senses = _check_sentence(line.text(), line.place)
    words: list[str] = []
    instances: list[Instance] = []
    for token, keys in zip(tokens, senses, strict=True):
        start = len(words)
        words += _words_of(token)
        if keys:
            (lemma, pos), *_ = [split_sense(key, line.place) for key in keys]
            instances.append(Instance(dataset, WordSpan(number, start, len(words)), lemma, pos, tuple(keys)))
    return words, instances


def _check_sentence(raw: str, place: str) -> tuple[list[str], list[list[str] | None]]:
    try:
        values: Any = json.loads(raw)
    except ValueError as problem:
        raise InputError(f"{place}: expected a JSON object, found {raw[:60]!r} ({problem})") from None
    values = values if isinstance(values, dict) else {}
    words, senses = values.get("words"), values.get("senses")
    if not _is_list_of(words, str) or not _is_list_of(senses, object) or len(senses) != len(words):
        raise InputError(f'{place}: expected "words", a list of strings, and "senses", a list as long')
    for keys in senses:
        if keys is not None and not _is_list_of(keys, str):
            raise InputError(f"{place}: expected a list of sense keys or null for each word, found {keys!r:.60}")
    return words, senses


def _is_list_of(value: Any, kind: type) -> bool:  # noqa: ANN401
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _read_xml(path: Path, problems: Problems) -> SenseText:
    name = path.name.partition(".data.xml")[0]
    gold_path = path.with_name(f"{name}.gold.key.txt")
    gold = _read_gold(gold_path, problems)
    reader = _RaganatoReader(path, name, gold, gold_path, problems)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: reader.start(tag, attributes, parser.CurrentLineNumber)
    parser.CharacterDataHandler = reader.characters
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = lambda *_: reader.fail(parser.CurrentLineNumber, "expected no entities of its own")
    try:
        for line in LineReader([path]):
            parser.Parse(line.raw + b"\n", False)
        parser.Parse(b"", True)
    except expat.ExpatError as problem:
        raise InputError(f"{path}:{problem.lineno}: expected XML: {expat.ErrorString(problem.code)}") from None
    return reader.text


def _read_gold(path: Path, problems: Problems) -> dict[str, tuple[str, ...]]:
    if not path.exists():
        raise InputError(f"{path}: expected the sense keys of the .data.xml beside it, found no such file")
    gold: dict[str, tuple[str, ...]] = {}
    for line in LineReader([path]):
        with problems.within_one():
            fields = line.text().split()
            if len(fields) == 1:
                raise InputError(f"{line.place}: expected an id and sense keys, found {fields[0][:60]!r} alone")
            for sense in fields[1:]:
                split_sense(sense, line.place)
            if fields:
                gold[fields[0]] = tuple(fields[1:])
    return gold


class _RaganatoReader:
    """What has been read of a `.data.xml` so far; the handlers of an XML parser."""

    def __init__(
        self, path: Path, name: str, gold: dict[str, tuple[str, ...]], gold_path: Path, problems: Problems
    ) -> None:
        self.text = SenseText()
        self._problems = problems
        self._path, self._name, self._gold, self._gold_path = path, name, gold, gold_path
        self._instance: dict[str, str] | None = None
        self._pieces: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str], line: int) -> None:
        if tag == "sentence":
            self.text.sentences.append([])
        elif tag in ("wf", "instance"):
            if not self.text.sentences:
                self.fail(line, f"expected <{tag}> inside a <sentence>")
            self._pieces = []
        if tag == "instance":
            with self._problems.within_one():  # one that cannot be used is a word like any other
                self._check(attributes, line)
                self._instance = attributes

    def _check(self, attributes: dict[str, str], line: int) -> None:
        missing = [name for name in ("id", "lemma", "pos") if name not in attributes]
        if missing or attributes["pos"] not in POS_OF_NUMBER.values():
            self.fail(line, f"expected an instance with id, lemma and pos (NOUN, VERB, ADJ, ADV), found {attributes}")
        if attributes["id"] not in self._gold:
            self.fail(line, f"{self._gold_path.name} has no senses for {attributes['id']!r}")

    def characters(self, text: str) -> None:
        if self._pieces is not None:
            self._pieces.append(text)

    def end(self, tag: str) -> None:
        if tag not in ("wf", "instance") or self._pieces is None:
            return
        words = self.text.sentences[-1]
        start = len(words)
        words += _words_of("".join(self._pieces))
        if self._instance is not None:
            span = WordSpan(len(self.text.sentences) - 1, start, len(words))
            identity, lemma, pos = (self._instance[name] for name in ("id", "lemma", "pos"))
            # In ALL.data.xml an id begins with the set that the instance is from: senseval2.d000.s000.t000.
            parts = identity.split(".")
            dataset = parts[0] if len(parts) > 3 else self._name
            self.text.instances.append(Instance(dataset, span, lemma.lower(), pos, self._gold[identity]))
        self._instance = self._pieces = None

    def fail(self, line: int, what: str) -> None:
        raise InputError(f"{self._path}:{line}: {what}")
