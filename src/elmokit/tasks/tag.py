"""A label for each word: a biLSTM over the words' features and a CRF over the labels.

Names, chunks and parts of speech differ only in the column their labels come from. Labels of spans are learned as
IOBES, whatever scheme the file has, and the CRF knows which label may follow which (a span that begins must end), so
every prediction is well-formed; predictions leave in IOB2. ELMo at the output joins what the biLSTM says (Peters et al.
2018 put it at the input for names).

Shapes: B batch, W words, F features, H both directions of the biLSTM, K labels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.devices import move_to_device
from elmokit.errors import InputError
from elmokit.tasks.base import TaskModel, name_training_labels
from elmokit.tasks.config import InputConfig, Labels, NumLayers, Rate, TaskConfig, TrainingConfig, Width
from elmokit.tasks.data import Problems, split_words
from elmokit.tasks.data.columns import TaggedSentence, read_columns
from elmokit.tasks.network.crf import Crf
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout
from elmokit.tasks.scores.accuracy import accuracy
from elmokit.tasks.scores.spans import is_iob, is_tag, span_scores, spans_of, tag_of, to_iobes
from elmokit.validation import check_fields

if TYPE_CHECKING:
    from elmokit.text.segmenters import Segmenter

__all__ = ["TASK", "TagConfig", "Tagger"]

START, END = "<start>", "<end>"


@dataclass(frozen=True)
class TagConfig(TaskConfig):
    """The settings of a tagger.

    Arguments:
        inputs: what is known about each word.
        column: of the training file that holds the labels: a number from 1, `"last"`, or a name of CoNLL-U.
        hidden: width of each direction of the biLSTM.
        num_layers: of the biLSTM.
        dropout: of the features, between the layers, and of the biLSTM's output.
        use_crf: score whole sequences of labels; off, each word is classified alone.
    """

    inputs: InputConfig = field(default_factory=lambda: InputConfig(character_filters=128))
    column: str = "last"
    hidden: Width = 200
    num_layers: NumLayers = 2
    dropout: Rate = 0.5
    use_crf: bool = True

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        object.__setattr__(self, "column", str(self.column))
        check_fields(self)


class Tagger(TaskModel):
    """A biLSTM-CRF.

    Arguments:
        config: its settings.
        inputs: features of words.
        labels: K labels as the model knows them: IOBES for spans.
    """

    name = "tag"
    Config = TagConfig
    training_config = TrainingConfig(epochs=40, patience=8, batch_size=32)
    config: TagConfig

    def __init__(self, config: TagConfig, inputs: WordInputs, labels: Labels) -> None:
        super().__init__(config, inputs, labels=list(labels))
        self.labels = list(labels)
        self.has_spans = is_iob(self.labels)
        self._numbers = {label: number for number, label in enumerate(self.labels)}
        self.dropout = VariationalDropout(config.dropout)
        self.contextual = BiRecurrent(inputs.dim, config.hidden, num_layers=config.num_layers, dropout=config.dropout)
        self.to_labels = nn.Linear(2 * config.hidden + inputs.output_dim, len(self.labels))
        self.crf = _build_crf(self.labels, has_spans=self.has_spans) if config.use_crf else None

    @property
    def metric(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """F1 of spans where there are spans, else accuracy."""
        return "f1" if self.has_spans else "accuracy"

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, config: TagConfig, problems: Problems) -> Iterator[TaggedSentence]:
        """The sentences of a CoNLL or CoNLL-U file."""
        return read_columns(path, column=config.column, problems=problems)

    @classmethod
    def build(cls, config: TagConfig, examples: Sequence[TaggedSentence], inputs: WordInputs) -> Tagger:
        """A tagger for the labels of these examples."""
        seen = sorted({label for example in examples for label in example.labels})
        if len(seen) < 2 and not is_iob(seen):
            raise InputError(
                f"expected at least two labels to tell apart, found {seen or 'none'}; their column is --set column=…"
            )
        if is_iob(seen):
            kinds = sorted({span.kind for example in examples for span in spans_of(example.labels)})
            seen = ["O", *(tag_of(mark, kind) for kind in kinds for mark in "BIES")]
        return cls(config, inputs, seen)

    def sentences(self, example: TaggedSentence) -> list[list[str]]:
        """The sentence."""
        return [list(example.words)]

    def complaint(self, example: TaggedSentence) -> str | None:
        """Labels that were not in the training examples."""
        unknown = None
        if self.has_spans:  # what is no tag of a span would pass as O
            unknown = next((label for label in example.labels if not is_tag(label)), None)
        if unknown is None:
            pairs = zip(example.labels, self._inner(example), strict=True)
            unknown = next((label for label, inner in pairs if inner not in self._numbers), None)
        if unknown is None:
            return None
        kinds = [span.kind for span in spans_of(self.labels) if span.kind] if self.has_spans else []
        known = kinds or self.labels
        return f"the label {unknown!r} does not occur in {name_training_labels(dict.fromkeys(known))}"

    def loss(self, batch: Sequence[TaggedSentence]) -> Tensor:
        """Negative log-likelihood of the labels, a sentence on the mean."""
        logits_BWK, mask_BW = self._logits(batch)
        gold_BW = np.zeros(mask_BW.shape, np.int64)
        for row, example in enumerate(batch):
            gold_BW[row, : len(example.labels)] = [self._numbers[each] for each in self._inner(example)]
        gold_BW = move_to_device(gold_BW, self.device)
        if self.crf is None:
            return nn.functional.cross_entropy(logits_BWK[mask_BW], gold_BW[mask_BW])
        return self.crf.loss(logits_BWK, gold_BW, mask_BW) / len(batch)

    def predict(self, batch: Sequence[TaggedSentence]) -> list[list[str]]:
        """The labels of each sentence; spans in IOB2."""
        logits_BWK, mask_BW = self._logits(batch)
        if self.crf is None:
            rows = logits_BWK.argmax(-1).tolist()
        else:
            rows = self.crf.decode(logits_BWK, [len(example.words) for example in batch])
        labels = [
            [self.labels[number] for number in row[: len(example.words)]]
            for row, example in zip(rows, batch, strict=True)
        ]
        return [_to_iob2(row) for row in labels] if self.has_spans else labels

    def scores(self, examples: Sequence[TaggedSentence], predictions: Sequence[Sequence[str]]) -> dict[str, float]:
        """F1 of spans as conlleval counts, or accuracy of labels."""
        gold = [example.labels for example in examples]
        if self.has_spans:
            return span_scores(gold, predictions)
        return {
            "accuracy": accuracy([each for row in gold for each in row], [each for row in predictions for each in row])
        }

    def example_of(self, *texts: str, segmenter: Segmenter) -> TaggedSentence:
        """A typed sentence."""
        return TaggedSentence(words=tuple(split_words(texts[0], segmenter)), source="typed")

    def show(self, example: TaggedSentence, prediction: Sequence[str]) -> str:
        """Spans in brackets, or each word with its label."""
        if not self.has_spans:
            return " ".join(f"{word}/{label}" for word, label in zip(example.words, prediction, strict=True))
        words = list(example.words)
        for kind, first, last in spans_of(prediction):
            words[first] = f"[{words[first]}"
            words[last] = f"{words[last]} {kind}]" if kind else f"{words[last]}]"
        return " ".join(words)

    def _inner(self, example: TaggedSentence) -> Sequence[str]:
        return to_iobes(example.labels) if self.has_spans else example.labels

    def _logits(self, batch: Sequence[TaggedSentence]) -> tuple[Tensor, Tensor]:
        words = self.inputs([example.words for example in batch])
        hidden_BWH = self.contextual(self.dropout(words.features_BWF), words.lengths)
        return self.to_labels(words.join_elmo(self.dropout(hidden_BWH))), words.mask_BW


def _build_crf(labels: Sequence[str], *, has_spans: bool) -> Crf:
    """A CRF over these labels, which knows what may follow what where they are of spans."""

    def find_allowed(before: Sequence[str], after: Sequence[str]) -> Tensor:
        allowed = _may_follow(before, after) if has_spans else np.ones((len(before), len(after)), bool)
        return torch.tensor(allowed)

    return Crf(find_allowed([START], labels)[0], find_allowed(labels, labels), find_allowed(labels, [END])[:, 0])


def _may_follow(labels: Sequence[str], following: Sequence[str]) -> np.ndarray:
    """Whether each IOBES label may be followed by each other; the ends of a sentence are outside of every span.

    Example:
        >>> _may_follow(["B-PER", "O"], ["E-PER", "O", "I-LOC"]).tolist()
        [[True, False, False], [False, True, False]]
    """
    kinds = {label[2:]: number for number, label in enumerate([*labels, *following])}
    is_open = np.array([label[:1] in ("B", "I") for label in labels])
    goes_on = np.array([label[:1] in ("I", "E") for label in following])
    before, after = (np.array([kinds[label[2:]] for label in each]) for each in (labels, following))
    is_same_kind = before[:, None] == after
    return (is_open[:, None] == goes_on) & (~is_open[:, None] | is_same_kind)


def _to_iob2(iobes: Sequence[str]) -> list[str]:
    return [{"E": "I", "S": "B"}.get(label[:1], label[:1]) + label[1:] for label in iobes]


TASK = Tagger
