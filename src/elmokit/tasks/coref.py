"""Coreference: which mentions of a document mean the same, from end to end, after Lee et al. 2017 and 2018.

A document arrives; clusters of mentions leave. A biLSTM reads each sentence; every span of a few words gets a vector
and a score that it is a mention (`mentions.py`); the best are kept, and each of them chooses among the mentions before
it, or none. The score of mentions is also trained on the annotated mentions themselves: where the data marks single
mentions, those without an antecedent or a successor (LitBank does, OntoNotes does not), the model predicts them too.

Memory is bounded: a document of more than `max_words` is cut between sentences and each part is read on its own, so
that no mention of one part is linked to one of another. A warning names the document.

A prediction is `{"clusters": [[[int, int]]]}`: mentions as first and last word, counted over the document.

Shapes: as in `mentions.py`; B sentences, W words of a sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional

from elmokit.tasks.base import TaskModel
from elmokit.tasks.config import NumWords, Rate, TaskConfig, TrainingConfig, Width
from elmokit.tasks.data import Problems
from elmokit.tasks.data.conll_coref import CorefExample, Mention, cut, read_conll_coref
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.network.mentions import AntecedentScores, SpanVectors, find_spans, keep_best_spans, link
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout
from elmokit.tasks.scores.coref import coreference_scores
from elmokit.validation import Bounds, check_fields

if TYPE_CHECKING:
    from elmokit.text.segmenters import Segmenter

__all__ = ["TASK", "Coref", "CorefConfig"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CorefConfig(TaskConfig):
    """Sizes of the model.

    Arguments:
        hidden: of each direction of the biLSTM.
        span_dim: width of a span's vector.
        max_width: words of a mention at most; longer ones are not found.
        spans_a_word: how many spans are kept as possible mentions, for each word of the document.
        num_antecedents: mentions before it among which a mention chooses.
        max_words: of a part of a document that is read at once.
        train_words: of a part of a document that is learned from at once; shorter parts give more steps per epoch.
        dropout: before and after the biLSTM, and of spans.
    """

    hidden: Width = 200
    span_dim: Width = 200
    max_width: Annotated[int, Bounds(1, 1024)] = 12
    spans_a_word: Annotated[float, Bounds(above=0, at_most=100)] = 0.3
    num_antecedents: Annotated[int, Bounds(1, 2**14)] = 50
    max_words: NumWords = 4000
    train_words: NumWords = 1000
    dropout: Rate = 0.3

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self)


class Coref(TaskModel):
    """The clusters of a document.

    Arguments:
        config: sizes.
        inputs: features of words.
        keeps_single: whether mentions that mean the same as no other are clusters of their own.
    """

    name = "coref"
    metric = "conll_f1"
    Config = CorefConfig
    training_config = TrainingConfig(
        epochs=60, patience=12, plateau=4, batch_size=1, batch_words=4000, learning_rate=2e-3
    )
    texts = ("document",)
    config: CorefConfig

    def __init__(self, config: CorefConfig, inputs: WordInputs, *, keeps_single: bool) -> None:
        super().__init__(config, inputs, keeps_single=keeps_single)
        self.keeps_single = keeps_single
        self._told: set[str] = set()
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiRecurrent(inputs.dim, config.hidden)
        dim = 2 * config.hidden + inputs.output_dim
        self.spans = SpanVectors(dim, config.span_dim, max_width=config.max_width, dropout=config.dropout)
        self.antecedents = AntecedentScores(
            config.span_dim, num_antecedents=config.num_antecedents, dropout=config.dropout
        )

    @classmethod
    def read(cls, path: str | PathLike[str], *, config: CorefConfig, problems: Problems) -> Iterator[CorefExample]:
        """Documents in CoNLL's columns."""
        return read_conll_coref(path, problems)

    @classmethod
    def read_train(
        cls, path: str | PathLike[str], *, config: CorefConfig, problems: Problems
    ) -> Iterator[CorefExample]:
        """Parts of documents."""
        for document in cls.read(path, config=config, problems=problems):
            yield from (part for _, part in cut(document, config.train_words))

    @classmethod
    def build(cls, config: CorefConfig, examples: Sequence[CorefExample], inputs: WordInputs) -> Coref:
        """A fresh model; single mentions are kept if these examples mark any."""
        return cls(config, inputs, keeps_single=any(example.marks_single for example in examples))

    def sentences(self, example: CorefExample) -> list[list[str]]:
        """The sentences of the document; one that is longer than a part may be is cut."""
        return [list(words) for _, part in cut(example, self.config.max_words) for words in part.sentences]

    def loss(self, batch: Sequence[CorefExample]) -> Tensor:
        """For each word of the documents: cross-entropy of mentions and of their antecedents."""
        parts = [part for example in batch for _, part in cut(example, self.config.max_words)]
        return torch.stack([self._part_loss(part) for part in parts]).sum() / sum(part.num_words for part in parts)

    def predict(self, batch: Sequence[CorefExample]) -> list[dict[str, Any]]:
        """The clusters of each document."""
        predictions = []
        for example in batch:
            parts = cut(example, self.config.max_words)
            if len(parts) > 1:
                self._tell_of_parts(example, len(parts))
            clusters = [
                [[start + word for word in mention] for mention in cluster]
                for start, part in parts
                for cluster in self._part_clusters(part)
            ]
            predictions.append({"clusters": clusters})
        return predictions

    def scores(self, examples: Sequence[CorefExample], predictions: Sequence[dict[str, Any]]) -> dict[str, float]:
        """MUC, B³, CEAFφ4 and their mean."""
        found = [
            [[(start, end) for start, end in cluster] for cluster in prediction["clusters"]]
            for prediction in predictions
        ]
        return coreference_scores([example.clusters or () for example in examples], found)

    def example_of(self, *texts: str, segmenter: Segmenter) -> CorefExample:
        """A typed document."""
        sentences = (tuple(word.text for word in sentence) for sentence in segmenter(texts[0]))
        return CorefExample(sentences=tuple(words for words in sentences if words), name="the text")

    def show(self, example: CorefExample, prediction: dict[str, Any]) -> str:
        """A line for each cluster of several mentions: `Alice (word 1) = she (word 5)`."""
        words = [word for sentence in example.sentences for word in sentence]
        lines = [
            " = ".join(f"{' '.join(words[start : end + 1])} (word {start + 1})" for start, end in cluster)
            for cluster in prediction["clusters"]
            if len(cluster) > 1
        ]
        return "\n".join(lines) or "no two mentions that mean the same found"

    def _tell_of_parts(self, example: CorefExample, num_parts: int) -> None:
        """Once a document, however often it is scored."""
        name = example.name or example.source
        if name not in self._told:
            self._told.add(name)
            log.warning(
                f"{name}: {example.num_words:,} words, more than the {self.config.max_words:,} that are read at once: "
                f"read in {num_parts} parts, between which no mentions are linked"
            )

    def _mentions(self, part: CorefExample) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors (T, V, S) and scores (T, V) of all spans, and which of them there are (T, V)."""
        words = self.inputs([list(words) for words in part.sentences])
        hidden_BWH = self.dropout(self.encoder(self.dropout(words.features_BWF), words.lengths))
        vectors_TVS, scores_TV = self.spans(words.join_elmo(hidden_BWH)[words.mask_BW])
        return vectors_TVS, scores_TV, find_spans(words.lengths, self.config.max_width).to(self.device)

    def _choose_spans(self, part: CorefExample, vectors_TVS: Tensor, scores_TV: Tensor, is_span_TV: Tensor) -> _Chosen:
        count = max(1, int(self.config.spans_a_word * part.num_words))
        kept = keep_best_spans(scores_TV.detach(), is_span_TV, count)
        starts_K, ends_K = torch.tensor(kept, device=self.device).T
        widths_K = ends_K - starts_K
        pair_scores_KA, antecedents_KA = self.antecedents(
            vectors_TVS[starts_K, widths_K], scores_TV[starts_K, widths_K]
        )
        return _Chosen(kept, scores_TV[starts_K, widths_K], pair_scores_KA, antecedents_KA)

    def _part_loss(self, part: CorefExample) -> Tensor:
        vectors_TVS, scores_TV, is_span_TV = self._mentions(part)
        gold_TV = torch.zeros(scores_TV.shape)
        cluster_of = {mention: number for number, cluster in enumerate(part.clusters or ()) for mention in cluster}
        for start, end in cluster_of:
            if end - start < self.config.max_width:
                gold_TV[start, end - start] = 1
        gold_TV = gold_TV.to(self.device)
        mention_loss = functional.binary_cross_entropy_with_logits(
            scores_TV[is_span_TV], gold_TV[is_span_TV], reduction="sum"
        )
        chosen = self._choose_spans(part, vectors_TVS, scores_TV, is_span_TV)
        return mention_loss + chosen.loss(cluster_of)

    def _part_clusters(self, part: CorefExample) -> list[list[Mention]]:
        chosen = self._choose_spans(part, *self._mentions(part))
        best_K, which_K = chosen.pair_scores_KA.max(1)
        antecedents = chosen.antecedents_KA.gather(1, which_K.unsqueeze(1)).squeeze(1).tolist()
        links = [place if score > 0 else None for place, score in zip(antecedents, best_K.tolist(), strict=True)]
        is_mention = (chosen.scores_K > 0).tolist()
        return [
            [chosen.spans[mention] for mention in cluster]
            for cluster in link(links)
            if len(cluster) > 1 or (self.keeps_single and is_mention[cluster[0]])
        ]


@dataclass(frozen=True)
class _Chosen:
    """The spans of a part that were kept, with their scores."""

    spans: list[Mention]
    scores_K: Tensor
    pair_scores_KA: Tensor
    antecedents_KA: Tensor

    def loss(self, cluster_of: dict[Mention, int]) -> Tensor:
        """-log of the probability that each span chooses a right antecedent: any of its cluster, none if there is none.

        Having no antecedent scores 0.
        """
        device = self.scores_K.device
        numbers = [cluster_of.get(span, -1) for span in self.spans]
        clusters_K = torch.tensor(numbers, device=device)
        is_right_KA = (clusters_K[self.antecedents_KA] == clusters_K.unsqueeze(1)) & (clusters_K >= 0).unsqueeze(1)
        is_right_KA &= self.pair_scores_KA > -torch.inf
        scores_KA = functional.pad(self.pair_scores_KA, (1, 0))
        is_right_KA = torch.cat([~is_right_KA.any(1, keepdim=True), is_right_KA], dim=1)
        right_K = scores_KA.masked_fill(~is_right_KA, -torch.inf).logsumexp(1)
        return (scores_KA.logsumexp(1) - right_K).sum()


TASK = Coref
