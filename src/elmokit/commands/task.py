"""`elmo task train | evaluate | predict`: task models over word vectors and ELMo.

Labelled files arrive and a task model leaves; or a task model and text arrive and predictions leave. The work is in
`elmokit.tasks`. Settings of the inputs and of the training are options (`--elmo-at both`, `--epochs 20`); those of one
task's own model are given as `--set name=value` (`--set hidden=100`), since each task has others.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elmokit.commands.base import (
    DEFAULT_MODEL,
    Command,
    Computation,
    Device,
    File,
    MaybeFile,
    Switch,
    check_task_folder,
    refuse_files,
    say,
)
from elmokit.commands.settings import Setting, find_settings, make_options, replace_fields, show_value
from elmokit.errors import ConfigError, InputError, OutputError
from elmokit.tasks import TASKS, find_task
from elmokit.tasks.config import InputConfig, TaskConfig, TrainingConfig
from elmokit.text.files import STANDARD_INPUT, find_files

if TYPE_CHECKING:
    from elmokit.tasks.base import TaskModel
    from elmokit.tasks.data import Example
    from elmokit.text.segmenters import Segmenter, Word

__all__ = ["TASK_COMMANDS", "TASK_SUMMARY", "change_task", "task_settings"]

TASK_SUMMARY = """Task models over word vectors and ELMo.

elmo task train     labelled files in, a task model out
elmo task evaluate  scores of a task model on a labelled file
elmo task predict   what a task model says of your own text

Tasks: {tasks}

`elmo task NAME --help` explains a command.""".format(
    tasks="\n       ".join(f"{name:<10}{about}" for name, about in TASKS.items())
)

LONGEST_LINE = 120  # characters of scores
Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
ElmoAgain = Annotated[str | None, tyro.conf.arg(metavar="SOURCE", help_behavior_hint="(default: as it was trained)")]


def task_settings() -> list[Setting]:
    """What every task can be told about its inputs and its training.

    Example:
        >>> [setting.option for setting in task_settings()][:3]
        ['--vectors', '--train-vectors', '--character-filters']
    """
    return find_settings(InputConfig) + find_settings(TrainingConfig)


def change_task(task: str, given: Mapping[str, str], own: Iterable[str] = ()) -> tuple[TaskConfig, TrainingConfig]:
    """The settings of a task's model and of its training, some of them replaced.

    Arguments:
        task: its name.
        given: text by the names of `task_settings`.
        own: `name=value` for settings of the task's own model.

    Example:
        >>> config, training = change_task("tag", {"epochs": "5"}, ["hidden=100"])
        >>> config.hidden, training.epochs
        (100, 5)
    """
    kind = find_task(task)
    settings = {setting.name: setting for setting in find_settings(kind.Config, leaves_out=("inputs",))}
    values = {}
    for text in own:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in settings:
            known = ", ".join(f"{setting.name}={setting.metavar}" for setting in settings.values())
            raise ConfigError(f"--set {text!r}: the task {task} can be told {known}")
        values[name] = value.strip()
    config = replace_fields(kind.Config(), values)
    return replace(config, inputs=replace_fields(config.inputs, given)), replace_fields(kind.training_config, given)


def _hint(setting: Setting) -> str:
    """The usual value of a setting; tasks may have their own."""
    if setting.name == "elmo":
        return f"default: {DEFAULT_MODEL}"
    part = TaskConfig().inputs if hasattr(TaskConfig().inputs, setting.name) else TrainingConfig()
    is_the_same = setting.name in ("vectors", "seed", "share") or bool(setting.choices)
    return f"default: {show_value(getattr(part, setting.name))}" + ("" if is_the_same else " or the task's own")


@dataclass(frozen=True, kw_only=True)
class TaskTrain(Computation):
    """Train a task model on labelled files.

    Layers of a frozen ELMo model are computed once per sentence and kept, so an epoch costs only the task's own layers.
    The model appears in DIR at the end, with results.json and log.jsonl beside its weights.

    Example: elmo task train tag --train train.conll --dev dev.conll -o names --vectors glove.txt --elmo my-model
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="|".join(TASKS))]
    """What to learn."""
    train: File
    """Labelled examples to learn from; the format is recognised."""
    dev: File
    """Labelled examples whose score decides when to stop and which weights to keep."""
    test: MaybeFile = None
    """Labelled examples that are scored once, at the end."""
    destination: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """Where the task model goes: a new folder, or one of an earlier task model."""
    set: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]],
        tyro.conf.arg(metavar="NAME=VALUE...", help_behavior_hint=""),
    ] = ()
    """Settings of the task's own model, such as hidden=100; a wrong name shows all there are."""
    layers_folder: MaybeFile = None
    """Where ELMo's layers are kept for the next run; elmo-layers beside DIR unless told."""
    device: Device = None
    skip_bad: Switch = False
    """Leave out what cannot be used in the files, and count it."""
    results_only: Switch = False
    """Write results.json alone and no model, for experiments of many runs."""
    settings: make_options(task_settings(), _hint) = field(default_factory=dict)  # pyright: ignore[reportInvalidTypeForm]
    """What a word is known by, and how the model learns."""

    def run(self) -> None:
        """Train and report progress."""
        if self.task in TASKS:  # else the name of the task is the first thing to tell
            find_files(filter(None, [self.train, self.dev, self.test]))
        own = [text for texts in self.set for text in texts]
        config, training = change_task(self.task, {"elmo": DEFAULT_MODEL, **self.settings}, own)
        from elmokit.tasks.train import train

        results = train(
            self.task,
            train=self.train,
            dev=self.dev,
            test=self.test,
            destination=self.destination,
            config=config,
            training=training,
            layers_folder=self.layers_folder,
            device=self.device,
            skip_bad=self.skip_bad,
            results_only=self.results_only,
            report=self.advise,
            progress=not self.quiet,
        )
        for name, scores in (("dev", results.dev), ("test", results.test)):
            if scores:
                say(_scores_line(name, scores, results.metric))
        for place, mix in results.mixes.items():
            weights = " ".join(f"{weight:.2f}" for weight in mix["weights"])
            say(f"ELMo at the {place}: layers {weights}, gamma {mix['gamma']:.2f}")
        best = f"epoch {results.best_epoch} of {len(results.history)} was the best"
        say(f"{self.destination}: {best}, {results.seconds:.0f} s")


@dataclass(frozen=True, kw_only=True)
class TaskEvaluate(Computation):
    """Score a task model on a labelled file, by the rules of the field.

    Example: elmo task evaluate names test.conll
    """

    folder: Folder
    """The task model."""
    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]
    """Labelled examples, in a format that training takes."""
    predictions: MaybeFile = None
    """Also write what the model predicted, as one JSON value per line."""
    elmo: ElmoAgain = None
    """Where its ELMo model is, if it moved."""
    device: Device = None
    skip_bad: Switch = False
    """Leave out what cannot be used in the file, and count it."""
    json: Switch = False
    """Print one JSON object instead of a line of scores."""

    def run(self) -> None:
        """Predict, compare, print."""
        check_task_folder(self.folder)
        find_files([self.file])
        if self.predictions is not None and not Path(self.predictions).parent.is_dir():
            place = Path(self.predictions).parent
            raise OutputError(f"cannot write {self.predictions}: the folder {place} does not exist")
        from elmokit.tasks.base import load_task
        from elmokit.tasks.data import Problems
        from elmokit.tasks.train import read_examples

        model = load_task(self.folder, elmo=self.elmo, device=self.device)
        problems = Problems(skips=self.skip_bad)
        examples = model.usable(read_examples(type(model), self.file, model.config, problems), problems)
        if summary := problems.summary():
            self.advise(summary)
        if not examples:
            raise InputError(f"{self.file}: expected examples that this model can be scored on, found none")
        predictions = model.predict_all(examples, progress=True)
        if self.predictions is not None:
            lines = (json.dumps(prediction, ensure_ascii=False) + "\n" for prediction in predictions)
            Path(self.predictions).write_text("".join(lines), encoding="utf-8")
        scores = model.scores(examples, predictions)
        say(json.dumps(scores) if self.json else _scores_line(f"{len(examples):,} examples", scores, model.metric))


@dataclass(frozen=True, kw_only=True)
class TaskPredict(Computation):
    """Show what a task model says of your own text.

    A task over one sentence takes each text by itself; one over two (infer, answer) takes them in pairs, and a file
    has them on one line with a tab between. A .csv has them in the columns that its first row names so: text or
    sentence; premise and hypothesis; passage and question.

    Example: elmo task predict names "Ann Lee moved to Oslo in May."
    """

    folder: Folder
    """The task model."""
    texts: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TEXT...", help_behavior_hint="(or --file)")
    ] = ()
    """What to predict for, in quotes; - takes each line of standard input."""
    file: MaybeFile = None
    """A file of such texts, one per line; blank lines do not count, - is standard input."""
    tokenised: Switch = False
    """Words stand between spaces; take them as they are."""
    elmo: ElmoAgain = None
    """Where its ELMo model is, if it moved."""
    device: Device = None
    json: Switch = False
    """Print one JSON object per text: its words, and what the model says of them."""

    def run(self) -> None:
        """Predict and print one block per text."""
        check_task_folder(self.folder)
        refuse_files(self.texts, command=f"elmo task predict {shlex.quote(str(self.folder))} --file")
        if self.file is not None:
            find_files([self.file])
        from elmokit.tasks.base import load_task

        model = load_task(self.folder, elmo=self.elmo, device=self.device)
        examples = list(self._examples(model))
        if not examples:
            raise InputError("expected text to predict for, found none: one example per line")
        predictions = model.predict_all(examples, progress=True)
        for example, prediction in zip(examples, predictions, strict=True):
            said = json.dumps(_to_json(model, example, prediction), ensure_ascii=False) if self.json else None
            say(model.show(example, prediction) if said is None else said)

    def _examples(self, model: TaskModel) -> Iterator[Example]:
        from elmokit.text.segmenters import RuleSegmenter

        segmenter = _split_at_blanks if self.tokenised else RuleSegmenter()
        count, needed = len(model.texts), " and ".join(model.texts)
        sources = [*self.texts, *filter(None, [self.file])]
        if not sources:
            raise InputError(f"expected text to predict for ({needed}): type it in quotes, or name a --file")
        if STANDARD_INPUT in sources:
            find_files(source for source in sources if source == STANDARD_INPUT)  # it can be read once
        for is_typed, group in groupby(self.texts, STANDARD_INPUT.__ne__):
            typed = list(group) if is_typed else []
            if len(typed) % count:
                raise InputError(f"the task {model.name} takes {needed} together, found {len(typed)} text(s)")
            for start in range(0, len(typed), count):
                yield model.example_of(*typed[start : start + count], segmenter=segmenter)
            if not is_typed:
                yield from _read_examples(STANDARD_INPUT, model, segmenter)
        if self.file is not None:
            yield from _read_examples(self.file, model, segmenter)


TASK_COMMANDS: dict[str, type[Command]] = {"train": TaskTrain, "evaluate": TaskEvaluate, "predict": TaskPredict}


def _to_json(model: TaskModel, example: Example, prediction: Any) -> dict[str, Any]:  # noqa: ANN401
    """A prediction beside the words it is about; places in it count these words."""
    said = prediction if isinstance(prediction, dict) else {"labels": prediction}
    sentences = model.sentences(example)
    if len(model.texts) == 1:
        return {"words": [word for sentence in sentences for word in sentence], **said}
    *first, last = sentences
    return {model.texts[0]: [word for sentence in first for word in sentence], model.texts[1]: list(last), **said}


def _read_examples(name: str, model: TaskModel, segmenter: Segmenter) -> Iterator[Example]:
    """What the lines of files, or of standard input, ask about."""
    needed = " and ".join(model.texts)
    for place, fields in _read_texts(name, model.texts):
        if len(fields) != len(model.texts):
            raise InputError(f"{place}: expected {needed} with a tab between, found {len(fields)} field(s)")
        try:
            yield model.example_of(*fields, segmenter=segmenter)
        except InputError as problem:
            raise InputError(f"{place}: {problem}") from None


def _read_texts(name: str, names: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Where they stand, and the texts of each line, or of each row of a .csv, that are asked about."""
    from elmokit.tasks.data import Problems, is_csv, read_csv
    from elmokit.tasks.data.tables import TEXT_COLUMNS
    from elmokit.text.files import LONGEST_SENTENCE, LineReader

    for file in find_files(name):
        if not is_csv(file):
            lines = (line for line in LineReader([file], longest=LONGEST_SENTENCE) if line.raw.strip())
            yield from ((line.place, line.text().split("\t") if len(names) > 1 else [line.text()]) for line in lines)
            continue
        rows = read_csv(file, Problems())
        first, header = next(rows, (1, [""]))
        columns = [_find_column(header, name, TEXT_COLUMNS[name], place=f"{file}:{first}") for name in names]
        for number, fields in rows:
            if len(fields) != len(header):
                raise InputError(f"{file}:{number}: expected {len(header)} fields, found {len(fields)}")
            yield f"{file}:{number}", [fields[column] for column in columns]


def _find_column(header: Iterable[str], name: str, known: Sequence[str], *, place: str) -> int:
    folded = [field.strip().lower() for field in header]
    found = next((folded.index(other) for other in known if other in folded), None)
    if found is None:
        raise InputError(
            f"{place}: expected a row that names the column of the {name} ({', '.join(known)}), found "
            f"{', '.join(folded)[:60]!r}; name it so"
        )
    return found


def _split_at_blanks(text: str) -> list[list[Word]]:
    """A segmenter for text that is one sentence in words already."""
    from elmokit.text.segmenters import Word

    return [[Word(found.group(), found.start(), found.end()) for found in re.finditer(r"[^ \t\r\n]+", text)]]


def _scores_line(name: str, scores: dict[str, float], metric: str) -> str:
    """All scores, that which decides first; precision, recall and F1 of one kind together, on a line each if many."""
    shown = {score: f"{100 * scores[score]:.2f}" for score in sorted(scores, key=lambda score: score != metric)}
    line = f"{name}: " + "  ".join(f"{score} {value}" for score, value in shown.items())
    if len(line) <= LONGEST_LINE:
        return line
    groups: dict[str, list[str]] = {}
    for score, value in shown.items():
        kind, _, what = score.rpartition("_")
        parted = what in ("precision", "recall", "f1") and score != metric and f"{kind}_recall" in shown
        groups.setdefault(kind if parted else "", []).append(f"{what if parted else score} {value}")
    width = max(map(len, groups)) + 2
    rows = [
        f"{name}: {'  '.join(groups.pop('', []))}",
        *(f"  {kind:<{width}}{'  '.join(v)}" for kind, v in groups.items()),
    ]
    return "\n".join(rows)
