"""Natural-language inference: does a hypothesis follow from a premise, contradict it, or neither?

Pairs of sentences arrive; a label each leaves. The model is ESIM (Chen et al. 2017): both sentences are read by one
biLSTM; each word looks for its like in the other sentence and is compared with what it finds; a second biLSTM reads the
comparisons; their mean and maximum over each sentence decide. With ELMo at the output, its vectors join what the first
biLSTM has read, as in the paper. Other than in ESIM, words keep their features beside what the biLSTM has read: like
words then find each other from the first step on, without which a few thousand pairs teach it little.

A prediction is `{"label": str, "probabilities": {label: float}}`.

Shapes: B pairs, W words of the premises, V of the hypotheses, F features, D width of encoded words, H hidden, N labels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.errors import InputError
from elmokit.tasks.base import TaskModel, name_training_labels
from elmokit.tasks.config import InputConfig, Labels, Rate, TaskConfig, TrainingConfig, Width
from elmokit.tasks.data import Problems, split_words
from elmokit.tasks.data.snli import PairExample, read_pairs
from elmokit.tasks.network.attention import align_softly
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout
from elmokit.tasks.scores.accuracy import class_scores
from elmokit.text.segmenters import Segmenter
from elmokit.validation import check_fields

__all__ = ["TASK", "Infer", "InferConfig", "compare_pairs", "pool_mean_and_maximum"]


@dataclass(frozen=True)
class InferConfig(TaskConfig):
    """Sizes of the model.

    Arguments:
        inputs: what is known about each word.
        hidden: width of each direction of both biLSTMs, and of the last hidden layer.
        dropout: at the input of each biLSTM and of each of the last two layers.
    """

    inputs: InputConfig = field(default_factory=lambda: InputConfig(character_filters=64, elmo_at="both"))
    hidden: Width = 100
    dropout: Rate = 0.3

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self)


class Infer(TaskModel):
    """The label of a pair of sentences.

    Arguments:
        config: its settings.
        inputs: the features of words.
        labels: all there are.
    """

    name = "infer"
    metric = "accuracy"
    Config = InferConfig
    training_config = TrainingConfig(
        epochs=30, patience=6, batch_size=32, batch_words=4000, learning_rate=1e-3, plateau=2
    )
    texts = ("premise", "hypothesis")
    config: InferConfig

    def __init__(self, config: InferConfig, inputs: WordInputs, labels: Labels) -> None:
        super().__init__(config, inputs, labels=list(labels))
        self.labels = list(labels)
        hidden = config.hidden
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiRecurrent(inputs.dim, hidden)
        self.comparison = nn.Linear(4 * (2 * hidden + inputs.output_dim + inputs.dim), hidden)
        self.composition = BiRecurrent(hidden, hidden)
        self.classifier = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(4 * 2 * hidden, hidden),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(hidden, len(self.labels)),
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, config: Any, problems: Problems) -> Iterator[PairExample]:  # noqa: ANN401
        """The pairs of a file; see `data/snli.py` for the formats."""
        return read_pairs(path, problems=problems)

    @classmethod
    def build(cls, config: InferConfig, examples: Sequence[PairExample], inputs: WordInputs) -> Infer:
        """A fresh model for the labels of these pairs."""
        labels = sorted({example.label for example in examples if example.label is not None})
        if len(labels) < 2:
            raise InputError(
                f"expected at least two labels to tell apart, found {labels or 'none in a field label or gold_label'}"
            )
        return cls(config, inputs, labels)

    def sentences(self, example: PairExample) -> list[list[str]]:
        """The premise and the hypothesis."""
        return [example.premise, example.hypothesis]

    def complaint(self, example: PairExample) -> str | None:
        """Why a pair cannot be learned from or scored: its label."""
        if example.label is None:
            return "expected a label, found none"
        if example.label not in self.labels:
            return f"the label {example.label!r} does not occur in {name_training_labels(self.labels)}"
        return None

    def forward(self, batch: Sequence[PairExample]) -> Tensor:
        """The scores of each label (B, N), before the softmax."""
        # One call for both sides, so that both biLSTMs run once over 2B rows.
        words = self.inputs([example.premise for example in batch] + [example.hypothesis for example in batch])
        features_BWF = self.dropout(words.features_BWF)
        encoded = torch.cat([words.join_elmo(self.encoder(features_BWF, words.lengths)), features_BWF], dim=2)
        premise_BWD, hypothesis_BWD = encoded.chunk(2)
        premise_BW, hypothesis_BW = words.mask_BW.chunk(2)
        in_hypothesis, in_premise = align_softly(premise_BWD, hypothesis_BWD, premise_BW, hypothesis_BW)
        enhanced = torch.cat([compare_pairs(premise_BWD, in_hypothesis), compare_pairs(hypothesis_BWD, in_premise)])
        comparisons = self.dropout(F.relu(self.comparison(enhanced)))
        pooled = pool_mean_and_maximum(self.composition(comparisons, words.lengths), words.mask_BW)
        return self.classifier(torch.cat(pooled.chunk(2), dim=1))

    def loss(self, batch: Sequence[PairExample]) -> Tensor:
        """The mean cross-entropy."""
        rows = [self.labels.index(example.label) for example in batch if example.label is not None]
        return F.cross_entropy(self(batch), torch.tensor(rows, device=self.device))

    def predict(self, batch: Sequence[PairExample]) -> list[dict[str, Any]]:
        """The likeliest label of each pair, and the probabilities of all."""
        probabilities = self(batch).softmax(1).tolist()
        return [
            {"label": self.labels[row.index(max(row))], "probabilities": dict(zip(self.labels, row, strict=True))}
            for row in probabilities
        ]

    def scores(self, examples: Sequence[PairExample], predictions: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Accuracy, F1 of each label and their mean, from 0 to 1."""
        return class_scores([str(pair.label) for pair in examples], [found["label"] for found in predictions])

    def example_of(self, *texts: str, segmenter: Segmenter) -> PairExample:
        """The pair of a typed premise and hypothesis."""
        premise, hypothesis = (
            split_words(text, segmenter, what=what) for text, what in zip(texts, self.texts, strict=True)
        )
        return PairExample(premise, hypothesis, source="typed")

    def show(self, example: PairExample, prediction: dict[str, Any]) -> str:
        """The label, and how sure it is."""
        label = prediction["label"]
        pair = f"{' '.join(example.premise)} → {' '.join(example.hypothesis)}"
        return f"{label} ({prediction['probabilities'][label]:.2f})  {pair}"


def compare_pairs(words_BWD: Tensor, found_BWD: Tensor) -> Tensor:
    """Words beside what they found, their difference and their product: (B, W, 4D)."""
    return torch.cat([words_BWD, found_BWD, words_BWD - found_BWD, words_BWD * found_BWD], dim=-1)


def pool_mean_and_maximum(words_BWD: Tensor, mask_BW: Tensor) -> Tensor:
    """The mean and the maximum over the words of each row: (B, 2D).

    Example:
        >>> pool_mean_and_maximum(torch.tensor([[[1.0], [-3.0], [9.0]]]), torch.tensor([[True, True, False]])).tolist()
        [[-1.0, 1.0]]
    """
    mask_BW1 = mask_BW.unsqueeze(2)
    mean_BD = (words_BWD * mask_BW1).sum(1) / mask_BW1.sum(1).clamp(min=1)
    return torch.cat([mean_BD, words_BWD.masked_fill(~mask_BW1, torch.finfo(words_BWD.dtype).min).amax(1)], dim=1)


TASK = Infer
