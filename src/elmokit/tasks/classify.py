"""One class per sentence: a biLSTM that attends to itself, then pools in four ways (McCann et al. 2017's classifier).

Words are mapped to a common width, read by a biLSTM, compared with each other (biattention of the sentence with
itself), and read again with what each word found; the sentence is the maximum, the mean, the minimum and a learned
weighted mean of that. `attends=False` leaves the biattention out: a plain biLSTM with the same pooling, and faster.
ELMo at the output joins what the first biLSTM says.

Shapes: B batch, W words, F features, H both directions of a biLSTM, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.tasks.base import TaskModel, name_training_labels
from elmokit.tasks.config import InputConfig, Labels, Rate, TaskConfig, TrainingConfig, Width
from elmokit.tasks.data import Problems, is_csv, split_words
from elmokit.tasks.data.tables import (
    LabelledSentence,
    is_json_lines,
    keep_whole,
    names_columns,
    read_comma_table,
    read_json_lines,
    read_labelled_lines,
    read_table,
    split_by_looks,
)
from elmokit.tasks.data.trees import read_trees
from elmokit.tasks.network.attention import masked_softmax
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout
from elmokit.tasks.scores.accuracy import class_scores
from elmokit.text import segmenters
from elmokit.text.files import peek_line
from elmokit.validation import check_fields

if TYPE_CHECKING:
    from elmokit.text.segmenters import Segmenter

__all__ = ["TASK", "Classifier", "ClassifyConfig"]

Format = Literal["auto", "trees", "tsv", "csv", "jsonl", "lines"]


@dataclass(frozen=True)
class ClassifyConfig(TaskConfig):
    """The settings of a classifier.

    Arguments:
        inputs: what is known about each word.
        format: of the files: `"trees"` (SST), `"tsv"`, `"csv"`, `"jsonl"`, `"lines"` (label, blank, text), or by
            their looks.
        phrases: learn from the labelled phrases of trees too, not from whole sentences alone.
        words: how a text becomes words: `"blanks"` (it is tokenised), `"segment"` (by elmokit's rules), or `"auto"`:
            as a file looks. It is tokenised where most of its punctuation stands between blanks.
        hidden: width of each direction of the biLSTMs.
        attends: compare the words of a sentence with each other.
        dropout: of the features and of the layers.
    """

    inputs: InputConfig = field(default_factory=lambda: InputConfig(character_filters=64))
    format: Format = "auto"
    phrases: bool = False
    words: Literal["auto", "blanks", "segment"] = "auto"
    hidden: Width = 150
    attends: bool = True
    dropout: Rate = 0.2

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self)


class Classifier(TaskModel):
    """An attentive biLSTM over sentences.

    Arguments:
        config: its settings.
        inputs: features of words.
        labels: K classes.
    """

    name = "classify"
    metric = "accuracy"
    Config = ClassifyConfig
    training_config = TrainingConfig(epochs=20, patience=5, batch_size=32, learning_rate=2e-3, plateau=2)
    config: ClassifyConfig

    def __init__(self, config: ClassifyConfig, inputs: WordInputs, labels: Labels) -> None:
        super().__init__(config, inputs, labels=list(labels))
        self.labels = list(labels)
        self._numbers = {label: number for number, label in enumerate(self.labels)}
        width = 2 * config.hidden
        self.dropout = VariationalDropout(config.dropout)
        self.before = nn.Sequential(nn.Linear(inputs.dim, width), nn.ReLU())
        self.encoder = BiRecurrent(width, config.hidden)
        encoded = width + inputs.output_dim
        self.integrator = BiRecurrent(3 * encoded, config.hidden) if config.attends else None
        pooled = width if config.attends else encoded
        self.to_weight = nn.Linear(pooled, 1)
        self.to_classes = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(4 * pooled, width),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(width, len(self.labels)),
        )

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], *, config: ClassifyConfig, problems: Problems
    ) -> Iterator[LabelledSentence]:
        """The labelled sentences of a file."""
        kind = _guess_format(path) if config.format == "auto" else config.format
        if kind == "trees":
            return read_trees(path, problems=problems)
        readers = {
            "tsv": read_table,
            "csv": read_comma_table,
            "jsonl": read_json_lines,
            "lines": read_labelled_lines,
        }
        if config.words == "auto":
            return split_by_looks(readers[kind](path, splits=keep_whole, problems=problems))
        return readers[kind](
            path, splits=segmenters.words if config.words == "segment" else str.split, problems=problems
        )

    @classmethod
    def read_train(
        cls, path: str | os.PathLike[str], *, config: ClassifyConfig, problems: Problems
    ) -> Iterator[LabelledSentence]:
        """The same, with the phrases of trees where the config asks for them."""
        kind = _guess_format(path) if config.format == "auto" else config.format
        if kind == "trees" and config.phrases:
            return read_trees(path, phrases=True, problems=problems)
        return cls.read(path, config=config, problems=problems)

    @classmethod
    def build(cls, config: ClassifyConfig, examples: Sequence[LabelledSentence], inputs: WordInputs) -> Classifier:
        """A classifier for the classes of these examples."""
        labels = sorted({example.label for example in examples if example.label})
        if len(labels) < 2:
            raise InputError(f"expected at least two classes to tell apart, found {labels or 'none'}")
        return cls(config, inputs, labels)

    def sentences(self, example: LabelledSentence) -> list[list[str]]:
        """The sentence."""
        return [list(example.words)]

    def complaint(self, example: LabelledSentence) -> str | None:
        """A class that was not in the training examples."""
        if example.label in self._numbers:
            return None
        return f"the label {example.label!r} does not occur in {name_training_labels(self.labels)}"

    def loss(self, batch: Sequence[LabelledSentence]) -> Tensor:
        """Cross entropy of the classes."""
        gold_B = torch.tensor([self._numbers[example.label] for example in batch], device=self.device)
        return nn.functional.cross_entropy(self._logits(batch), gold_B)

    def predict(self, batch: Sequence[LabelledSentence]) -> list[dict[str, Any]]:
        """The likeliest class of each sentence, and the probability of every class."""
        rows = [dict(zip(self.labels, row, strict=True)) for row in self._logits(batch).softmax(-1).tolist()]
        return [{"label": max(row, key=row.__getitem__), "probabilities": row} for row in rows]

    def scores(self, examples: Sequence[LabelledSentence], predictions: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Accuracy, and F1 of the classes."""
        return class_scores([example.label for example in examples], [each["label"] for each in predictions])

    def example_of(self, *texts: str, segmenter: Segmenter) -> LabelledSentence:
        """A typed sentence."""
        return LabelledSentence(words=tuple(split_words(texts[0], segmenter)), source="typed")

    def show(self, example: LabelledSentence, prediction: dict[str, Any]) -> str:
        """The class, its probability, the text."""
        label = prediction["label"]
        return f"{label}\t{prediction['probabilities'][label]:.3f}\t{' '.join(example.words)}"

    def _logits(self, batch: Sequence[LabelledSentence]) -> Tensor:
        words = self.inputs([example.words for example in batch])
        hidden_BWH = self.before(self.dropout(words.features_BWF))
        hidden_BWH = words.join_elmo(self.encoder(self.dropout(hidden_BWH), words.lengths))
        if self.integrator is not None:
            found_BWH = _attend_to_itself(hidden_BWH, words.mask_BW)
            compared = [hidden_BWH, hidden_BWH - found_BWH, hidden_BWH * found_BWH]
            hidden_BWH = self.integrator(self.dropout(torch.cat(compared, dim=-1)), words.lengths)
        return self.to_classes(_pool(hidden_BWH, self.to_weight(hidden_BWH).squeeze(-1), words.mask_BW))


def _attend_to_itself(hidden_BWH: Tensor, mask_BW: Tensor) -> Tensor:
    """What each word finds in its sentence: a mean of all words, weighted by how alike they are."""
    alike_BWW = (hidden_BWH @ hidden_BWH.transpose(1, 2)) / hidden_BWH.shape[-1] ** 0.5
    return masked_softmax(alike_BWW, mask_BW.unsqueeze(1)) @ hidden_BWH


def _pool(hidden_BWH: Tensor, weights_BW: Tensor, mask_BW: Tensor) -> Tensor:
    """Maximum, mean, minimum and weighted mean (B, 4H) over the words of each sentence."""
    mask_BW = _not_empty(mask_BW)
    outside_BW1 = ~mask_BW.unsqueeze(-1)
    return torch.cat(
        [
            hidden_BWH.masked_fill(outside_BW1, float("-inf")).amax(1),
            hidden_BWH.masked_fill(outside_BW1, 0).sum(1) / mask_BW.sum(1, keepdim=True),
            hidden_BWH.masked_fill(outside_BW1, float("inf")).amin(1),
            (masked_softmax(weights_BW, mask_BW).unsqueeze(1) @ hidden_BWH).squeeze(1),
        ],
        dim=-1,
    )


def _not_empty(mask_BW: Tensor) -> Tensor:
    """The mask with the first place always seen, so that a sentence without words is zeros and not NaN."""
    first_W = torch.arange(mask_BW.shape[1], device=mask_BW.device) == 0
    return mask_BW | first_W


def _guess_format(path: str | os.PathLike[str]) -> str:
    """How a file looks by its name and its first line."""
    if is_json_lines(path):
        return "jsonl"
    if is_csv(path):
        return "csv"
    first = peek_line(path)
    if first.lstrip().startswith(b"("):
        return "trees"
    if b"\t" not in first and os.fspath(path) == "-" and names_columns(first.decode("utf-8", "replace").split(",")):
        return "csv"  # which standard input has no name to tell
    return "tsv" if b"\t" in first else "jsonl" if first.lstrip().startswith(b"{") else "lines"


TASK = Classifier
