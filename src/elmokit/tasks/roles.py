"""Semantic roles: who did what to whom, after He et al. 2017, "Deep Semantic Role Labeling".

A sentence and the places of its predicates arrive; a BIO tag for each word and predicate leaves. Each predicate reads
the sentence anew: an indicator beside the words' features marks its place, several biLSTMs with highway connections run
over both, and Viterbi finds the best tags that are well formed. Typed text does not say which words are predicates, so
a second, small biLSTM learns that at the same time; it has no part in scores of gold predicates.

A prediction is `{"words": [str], "predicates": [int], "frames": [{"predicate": int, "tags": [str]}]}`: `predicates` are
those that the model found itself, `frames` the roles of the predicates that the example names, else of these.

The original alternates eight directions with highways inside the cells; here each layer reads in both directions and
has its highway around it, so that torch's own LSTM can run it.

Shapes: B sentences, F frames (a sentence with one predicate marked), W words, N words without padding, D features, H
hidden, T tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.tasks.base import TaskModel
from elmokit.tasks.config import Labels, NumLayers, Rate, TaskConfig, TrainingConfig, Width
from elmokit.tasks.data import Problems
from elmokit.tasks.data.propbank import RolesExample, read_propbank
from elmokit.tasks.network.crf import viterbi
from elmokit.tasks.network.inputs import WordBatch, WordInputs
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout
from elmokit.tasks.scores.srl import arguments, role_scores
from elmokit.validation import check_fields

if TYPE_CHECKING:
    from elmokit.text.segmenters import Segmenter

__all__ = ["TASK", "HighwayBiLstm", "Roles", "RolesConfig", "score_transitions"]

OUTSIDE = "O"


@dataclass(frozen=True)
class RolesConfig(TaskConfig):
    """Sizes of the model.

    Arguments:
        hidden: of each direction of each biLSTM.
        num_layers: biLSTMs above one another.
        indicator_dim: width of the vector that marks the predicate.
        detector_hidden: of each direction of the biLSTM that looks for predicates.
        dropout: before each biLSTM and after the last, the same for all words of a sentence.
    """

    hidden: Width = 256
    num_layers: NumLayers = 3
    indicator_dim: Width = 32
    detector_hidden: Width = 64
    dropout: Rate = 0.3

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self)


class Roles(TaskModel):
    """The roles of each predicate of a sentence.

    Arguments:
        config: sizes.
        inputs: features of words.
        tags: all BIO tags, O first.
    """

    name = "roles"
    metric = "f1"
    Config = RolesConfig
    training_config = TrainingConfig(epochs=30, patience=6, plateau=2, batch_size=32, batch_words=8000)
    config: RolesConfig

    def __init__(self, config: RolesConfig, inputs: WordInputs, tags: Labels) -> None:
        super().__init__(config, inputs, tags=list(tags))
        self.tags = list(tags)
        self._numbers = {tag: number for number, tag in enumerate(self.tags)}
        self.indicator = nn.Embedding(2, config.indicator_dim)
        self.encoder = HighwayBiLstm(
            inputs.dim + config.indicator_dim, config.hidden, num_layers=config.num_layers, dropout=config.dropout
        )
        self.output = nn.Linear(2 * config.hidden + inputs.output_dim, len(self.tags))
        self.dropout = VariationalDropout(config.dropout)
        self.detector = BiRecurrent(inputs.dim, config.detector_hidden)
        self.detector_output = nn.Linear(2 * config.detector_hidden + inputs.output_dim, 1)

    @classmethod
    def read(cls, path: str | PathLike[str], *, config: RolesConfig, problems: Problems) -> Iterator[RolesExample]:
        """Sentences of PropBank as JSON lines."""
        return read_propbank(path, problems)

    @classmethod
    def build(cls, config: RolesConfig, examples: Sequence[RolesExample], inputs: WordInputs) -> Roles:
        """A fresh model for the roles of these examples."""
        roles = {tag[2:] for example in examples for frame in example.frames or () for tag in frame.tags} - {""}
        return cls(config, inputs, [OUTSIDE, *(f"{part}-{role}" for role in sorted(roles) for part in "BI")])

    def sentences(self, example: RolesExample) -> list[list[str]]:
        """The sentence."""
        return [list(example.words)]

    def size(self, example: RolesExample) -> int:
        """Words that are read: the sentence once for each predicate."""
        return len(example.words) * max(1, len(example.frames or ()))

    def complaint(self, example: RolesExample) -> str | None:
        """A role that was never seen in training cannot be learned or found."""
        for frame in example.frames or ():
            for tag in frame.tags:
                if tag not in self._numbers:
                    return f"the role {tag[2:]} of predicate {frame.predicate} does not occur in the training data"
        return None

    def loss(self, batch: Sequence[RolesExample]) -> Tensor:
        """Cross-entropy of the tags of a word, and of whether it is a predicate."""
        words = self._words(batch)
        frames = [(row, frame) for row, example in enumerate(batch) for frame in example.frames or ()]
        predicates = [{frame.predicate for frame in example.frames or ()} for example in batch]
        is_predicate_N = torch.tensor(
            [
                float(place in places)
                for places, length in zip(predicates, words.lengths, strict=True)
                for place in range(length)
            ]
        ).to(self.device)
        found_BW = self._predicate_scores(words)
        loss = functional.binary_cross_entropy_with_logits(found_BW[words.mask_BW], is_predicate_N)
        if frames:
            marked = words.take_rows([row for row, _ in frames])
            scores_FWT = self._tag_scores(marked, [frame.predicate for _, frame in frames])
            gold_N = torch.tensor([self._numbers[tag] for _, frame in frames for tag in frame.tags]).to(self.device)
            loss = loss + functional.cross_entropy(scores_FWT[marked.mask_BW], gold_N)
        return loss

    def predict(self, batch: Sequence[RolesExample]) -> list[dict[str, Any]]:
        """Tags for the predicates that an example names, else for those that the model finds."""
        words = self._words(batch)
        found_BW = ((self._predicate_scores(words) > 0) & words.mask_BW).cpu()
        predictions: list[dict[str, Any]] = []
        for example, found_W in zip(batch, found_BW, strict=True):
            predicates = found_W.nonzero().flatten().tolist()
            predictions.append({"words": list(example.words), "predicates": predicates, "frames": []})
        asked = [
            (row, predicate)
            for row, example in enumerate(batch)
            for predicate in (
                predictions[row]["predicates"]
                if example.frames is None
                else [frame.predicate for frame in example.frames]
            )
        ]
        if asked:
            marked = words.take_rows([row for row, _ in asked])
            scores_FWT = self._tag_scores(marked, [predicate for _, predicate in asked]).log_softmax(-1)
            bars = (part.to(self.device) for part in score_transitions(self.tags))
            paths = viterbi(scores_FWT, marked.lengths, *bars)
            for (row, predicate), path in zip(asked, paths, strict=True):
                tags = [self.tags[tag] for tag in path]
                predictions[row]["frames"].append({"predicate": predicate, "tags": tags})
        return predictions

    def scores(self, examples: Sequence[RolesExample], predictions: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Of the roles of gold predicates; and `predicate_f1`, of the predicates that the model found itself."""
        gold = [frame.tags for example in examples for frame in example.frames or ()]
        scores = role_scores(gold, [frame["tags"] for said in predictions for frame in said["frames"]])
        pairs = [
            ({frame.predicate for frame in example.frames or ()}, set(said["predicates"]))
            for example, said in zip(examples, predictions, strict=True)
        ]
        right = sum(len(wanted & found) for wanted, found in pairs)
        total = sum(len(wanted) + len(found) for wanted, found in pairs)
        return scores | {"predicate_f1": 2 * right / total if total else 0.0}

    def example_of(self, *texts: str, segmenter: Segmenter) -> RolesExample:
        """A typed sentence, its predicates unknown."""
        return RolesExample(words=tuple(word.text for sentence in segmenter(texts[0]) for word in sentence))

    def show(self, example: RolesExample, prediction: dict[str, Any]) -> str:
        """A line for each predicate: `chase: ARG0 [Dogs] ARG1 [cats]`."""
        words = prediction["words"]
        lines = []
        for frame in prediction["frames"]:
            parts = [
                f"{role} [{' … '.join(' '.join(words[start : end + 1]) for start, end in spans)}]"
                for role, spans in sorted(arguments(frame["tags"]), key=lambda argument: argument[1])
                if role != "V"
            ]
            lines.append(f"{words[frame['predicate']]}: {' '.join(parts) or 'no roles'}")
        return "\n".join(lines) or "no predicate found"

    def _words(self, batch: Sequence[RolesExample]) -> WordBatch:
        return self.inputs([self.sentences(example)[0] for example in batch])

    def _predicate_scores(self, words: WordBatch) -> Tensor:
        """(B, W), above 0 where a predicate is."""
        hidden_BWH = self.dropout(self.detector(self.dropout(words.features_BWF), words.lengths))
        return self.detector_output(words.join_elmo(hidden_BWH)).squeeze(-1)

    def _tag_scores(self, marked: WordBatch, predicates: Sequence[int]) -> Tensor:
        """(F, W, T)."""
        num_frames, num_words = marked.mask_BW.shape
        places_FW = torch.arange(num_words, device=self.device).expand(num_frames, -1)
        is_predicate_FW = places_FW == torch.tensor(predicates, device=self.device).unsqueeze(1)
        features_FWD = torch.cat([marked.features_BWF, self.indicator(is_predicate_FW.long())], dim=-1)
        return self.output(marked.join_elmo(self.encoder(features_FWD, marked.lengths)))


class HighwayBiLstm(nn.Module):
    """BiLSTMs above one another, each with a highway around it: r ⊙ lstm(x) + (1 - r) ⊙ W x, r = σ(V x + b).

    Arguments:
        dim: width of what arrives; 2 · `hidden` leaves.
        hidden: of each direction.
        num_layers: how many.
        dropout: of what enters each layer and leaves the last, one mask for all words of a row.

    Example:
        >>> HighwayBiLstm(8, 5, num_layers=2, dropout=0.1)(torch.zeros(2, 4, 8), [4, 3]).shape
        torch.Size([2, 4, 10])
    """

    def __init__(self, dim: int, hidden: int, *, num_layers: int, dropout: float) -> None:
        super().__init__()
        widths = [dim] + [2 * hidden] * (num_layers - 1)
        self.layers = nn.ModuleList(BiRecurrent(width, hidden) for width in widths)
        self.gates = nn.ModuleList(nn.Linear(width, 2 * hidden) for width in widths)
        self.carries = nn.ModuleList(nn.Linear(width, 2 * hidden, bias=False) for width in widths)
        self.dropout = VariationalDropout(dropout)

    def forward(self, words_BWD: Tensor, lengths: Sequence[int]) -> Tensor:
        """The words in context (B, W, 2H)."""
        for layer, gate, carry in zip(self.layers, self.gates, self.carries, strict=True):
            words_BWD = self.dropout(words_BWD)
            share_BWH = gate(words_BWD).sigmoid()
            words_BWD = share_BWH * layer(words_BWD, lengths) + (1 - share_BWH) * carry(words_BWD)
        return self.dropout(words_BWD)


def score_transitions(tags: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Scores of tags that begin a sentence (T,), and of tags after others (T, T): 0, or -inf for what may not be.

    Example:
        >>> start, follow = score_transitions(["O", "B-V", "I-V"])
        >>> start.tolist(), follow[0].tolist()  # I-X stands only after B-X or I-X
        ([0.0, 0.0, -inf], [0.0, 0.0, -inf])
    """
    may_start_T = torch.tensor([not tag.startswith("I-") for tag in tags])
    same_TT = torch.tensor([[before[1:] == after[1:] for after in tags] for before in tags])
    start_T, follow_TT = (
        torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf) for allowed in (may_start_T, may_start_T | same_TT)
    )
    return start_T, follow_TT


TASK = Roles
