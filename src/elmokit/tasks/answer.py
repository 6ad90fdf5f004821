"""Span question answering: BiDAF with self-attention (Seo et al. 2017; Clark and Gardner 2018).

A passage and a question arrive; the span of the passage that answers it leaves. Both are read by one biGRU; the passage
then reads the question (attention flow) and, through a second biGRU, itself (self-attention); two more biGRUs give each
word a score as the first and as the last of the answer. The best span of at most `longest_answer` words wins. With ELMo
at the output, its vectors join what the first biGRU has read, as in the paper.

Questions about one passage share it: in a batch it is read once, its sentences going to the biLM one by one.
A prediction is `{"answer": str, "start": int, "end": int, "probability": float}`, characters of the passage.

Shapes: B questions, P passages, W words of a passage, V of a question, D width of encoded words, H hidden.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.errors import InputError
from elmokit.tasks.base import TaskModel
from elmokit.tasks.config import InputConfig, NumWords, Rate, TaskConfig, TrainingConfig, Width
from elmokit.tasks.data import Problems, split_words
from elmokit.tasks.data.squad import Passage, QuestionExample, read_questions
from elmokit.tasks.network.attention import AttentionFlow, SelfAttention
from elmokit.tasks.network.inputs import WordBatch, WordInputs
from elmokit.tasks.network.recurrent import BiRecurrent, VariationalDropout
from elmokit.tasks.scores.squad import squad_scores
from elmokit.text.segmenters import Segmenter
from elmokit.validation import check_fields

__all__ = ["TASK", "Answer", "AnswerConfig", "best_spans", "span_loss"]

Places = Literal["marked", "everywhere"]


@dataclass(frozen=True)
class AnswerConfig(TaskConfig):
    """Sizes of the model.

    Arguments:
        inputs: what is known about each word.
        hidden: width of each direction of all biGRUs.
        dropout: at the input of each of them.
        longest_answer: words that an answer has at most.
        longest_passage: words that a passage has at most; self-attention takes memory with their square.
        places: which spans count as right in training: those that the file marks, or every place in the passage where
            the answer's text stands.
    """

    inputs: InputConfig = field(default_factory=lambda: InputConfig(character_filters=100, elmo_at="both"))
    hidden: Width = 100
    dropout: Rate = 0.2
    longest_answer: NumWords = 20
    longest_passage: NumWords = 2000
    places: Places = "everywhere"

    def __post_init__(self) -> None:
        """Reject what cannot be built."""
        check_fields(self)


class Answer(TaskModel):
    """The answer to a question, as a span of a passage.

    Arguments:
        config: its settings.
        inputs: the features of words.
    """

    name = "answer"
    metric = "f1"
    Config = AnswerConfig
    training_config = TrainingConfig(
        epochs=10, patience=3, batch_size=96, batch_words=40_000, learning_rate=2e-3, average=0.999, plateau=1
    )
    texts = ("passage", "question")
    config: AnswerConfig

    def __init__(self, config: AnswerConfig, inputs: WordInputs) -> None:
        super().__init__(config, inputs)
        hidden, both = config.hidden, 2 * config.hidden
        encoded = both + inputs.output_dim
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiRecurrent(inputs.dim, hidden, kind="gru")
        self.flow = AttentionFlow(encoded)
        self.flow_projection = nn.Linear(4 * encoded, both)
        self.reader = BiRecurrent(both, hidden, kind="gru")
        self.itself = SelfAttention(both)
        self.itself_projection = nn.Linear(3 * both, both)
        self.start_reader = BiRecurrent(both, hidden, kind="gru")
        self.end_reader = BiRecurrent(2 * both, hidden, kind="gru")
        self.start_score, self.end_score = nn.Linear(both, 1), nn.Linear(both, 1)

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], *, config: AnswerConfig, problems: Problems
    ) -> Iterator[QuestionExample]:
        """The questions of a SQuAD file."""
        for example in read_questions(path, problems=problems):
            complaint = _too_long(example.passage, config.longest_passage)
            if complaint is None:
                yield example
            else:
                problems.add_at(example.source, complaint)

    @classmethod
    def build(cls, config: AnswerConfig, examples: Sequence[QuestionExample], inputs: WordInputs) -> Answer:
        """A fresh model; it needs to know nothing of the examples."""
        return cls(config, inputs)

    def sentences(self, example: QuestionExample) -> list[list[str]]:
        """The sentences of the passage, then the question."""
        return [*example.passage.sentences, example.question]

    def size(self, example: QuestionExample) -> int:
        """Words of the passage: what a batch is padded to."""
        return example.passage.num_words

    def complaint(self, example: QuestionExample) -> str | None:
        """Why a question cannot be learned from or scored."""
        return None if example.answers else f"question {example.name} has no answer"

    def forward(self, batch: Sequence[QuestionExample]) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of each word as the first and as the last of the answer (B, W), and the mask of words (B, W)."""
        passages_BWD, mask_BW, lengths = self._encode_passages(batch)
        questions = self.inputs([example.question for example in batch])
        read_BWD = self.flow(
            self.dropout(passages_BWD), self.dropout(self._encode(questions)), mask_BW, questions.mask_BW
        )
        words_BWH = self._reread(F.relu(self.flow_projection(read_BWD)), mask_BW, lengths)
        starts_BWH = self.start_reader(self.dropout(words_BWH), lengths)
        ends_BWH = self.end_reader(self.dropout(torch.cat([words_BWH, starts_BWH], dim=2)), lengths)
        return self.start_score(starts_BWH).squeeze(2), self.end_score(ends_BWH).squeeze(2), mask_BW

    def _encode_passages(self, batch: Sequence[QuestionExample]) -> tuple[Tensor, Tensor, list[int]]:
        """The encoded passage of each question, with its mask and number of words; each passage is encoded once."""
        shared = {id(example.passage): example.passage for example in batch}
        sentences = [words for passage in shared.values() for words in passage.sentences]
        counts = [len(passage.sentences) for passage in shared.values()]
        passages = self.inputs(sentences).join_sentences(counts)
        rows = {key: row for row, key in enumerate(shared)}
        chosen = [rows[id(example.passage)] for example in batch]
        chosen_B = torch.tensor(chosen, device=self.device)
        encoded_BWD = self._encode(passages).index_select(0, chosen_B)
        return encoded_BWD, passages.mask_BW.index_select(0, chosen_B), [passages.lengths[row] for row in chosen]

    def _encode(self, words: WordBatch) -> Tensor:
        """Words in their context, by the biGRU that passages and questions share."""
        return words.join_elmo(self.encoder(self.dropout(words.features_BWF), words.lengths))

    def _reread(self, words_BWH: Tensor, mask_BW: Tensor, lengths: Sequence[int]) -> Tensor:
        """The passage, to which what it finds in itself is added."""
        context_BWH = self.reader(self.dropout(words_BWH), lengths)
        found_BWH = self.itself(self.dropout(context_BWH), mask_BW)
        return words_BWH + F.relu(self.itself_projection(found_BWH))

    def loss(self, batch: Sequence[QuestionExample]) -> Tensor:
        """The mean of -log P(a right first word) - log P(a right last word)."""
        start_BW, end_BW, mask_BW = self(batch)
        spans = [getattr(example, self.config.places) for example in batch]
        rows = [row for row, found in enumerate(spans) for _ in found]
        firsts, lasts = zip(*(span for found in spans for span in found), strict=True)
        places_3N = torch.tensor([rows, firsts, lasts], device=self.device)
        return span_loss(start_BW, mask_BW, places_3N[0], places_3N[1]) + span_loss(
            end_BW, mask_BW, places_3N[0], places_3N[2]
        )

    def predict(self, batch: Sequence[QuestionExample]) -> list[dict[str, Any]]:
        """The best span of each passage."""
        spans, probabilities = best_spans(*self(batch), longest=self.config.longest_answer)
        return [
            {
                "answer": example.passage.piece((first, last)),
                "start": example.passage.starts[first],
                "end": example.passage.ends[last],
                "probability": probability,
            }
            for example, (first, last), probability in zip(batch, spans, probabilities, strict=True)
        ]

    def scores(self, examples: Sequence[QuestionExample], predictions: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Exact match and F1 as SQuAD's own program counts them, from 0 to 1."""
        return squad_scores([found["answer"] for found in predictions], [example.answers for example in examples])

    def example_of(self, *texts: str, segmenter: Segmenter) -> QuestionExample:
        """A typed question about a typed passage."""
        passage = Passage.of(texts[0], segmenter)
        if not passage.num_words:
            raise InputError("expected a passage, found no words")
        question = split_words(texts[1], segmenter, what="question")
        complaint = _too_long(passage, self.config.longest_passage)
        if complaint is not None:
            raise InputError(complaint)
        return QuestionExample(passage, question, source="typed")

    def show(self, example: QuestionExample, prediction: dict[str, Any]) -> str:
        """The answer, and how sure it is."""
        return f"{prediction['answer']} ({prediction['probability']:.2f})  {' '.join(example.question)}"


def span_loss(scores_BW: Tensor, mask_BW: Tensor, rows_N: Tensor, places_N: Tensor) -> Tensor:
    """The mean over rows of -log of the probability of all right places of a row together.

    Arguments:
        scores_BW: of each place, before the softmax.
        mask_BW: which places there are.
        rows_N: the row of each right place; every row has one at least.
        places_N: its place.
    """
    is_right_BW = torch.zeros_like(mask_BW)
    is_right_BW[rows_N, places_N] = True
    least = torch.finfo(scores_BW.dtype).min
    every_B, right_B = (scores_BW.masked_fill(~chosen, least).logsumexp(1) for chosen in (mask_BW, is_right_BW))
    return (every_B - right_B).mean()


def best_spans(
    start_BW: Tensor, end_BW: Tensor, mask_BW: Tensor, *, longest: int
) -> tuple[list[tuple[int, int]], list[float]]:
    """The likeliest span of at most `longest` words of each row, its first and last word, and its probability.

    Example:
        >>> start, end = torch.tensor([[0.0, 9.0, 8.0]]), torch.tensor([[9.0, 0.0, 8.0]])
        >>> best_spans(start, end, torch.ones(1, 3, dtype=torch.bool), longest=2)[0]
        [(1, 2)]
    """
    nothing = -torch.inf
    start_BW, end_BW = (scores.masked_fill(~mask_BW, nothing).log_softmax(1) for scores in (start_BW, end_BW))
    longest = min(longest, start_BW.shape[1])
    # Row by row, word by word: the scores of ending here, one further, two further, ...
    ends_BWL = F.pad(end_BW, (0, longest - 1), value=nothing).unfold(1, longest, 1)
    best_B, flat_B = (start_BW.unsqueeze(2) + ends_BWL).flatten(1).max(1)
    firsts = flat_B // longest
    spans = torch.stack([firsts, firsts + flat_B % longest], dim=1).tolist()
    return [(first, last) for first, last in spans], best_B.exp().tolist()


def _too_long(passage: Passage, longest: int) -> str | None:
    if passage.num_words <= longest:
        return None
    return (
        f"the passage has {passage.num_words:,} words, but only {longest:,} are read at once (longest_passage): "
        "split it, or raise the limit"
    )


TASK = Answer
