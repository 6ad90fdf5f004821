"""LanguageModel: the biLM with its output layer; text in, probabilities of words out.

Arrives: text or words. Leaves: perplexity of a text, score of a sentence, likely next and previous words, words that
could stand in another's place. `predictions.py` runs the network, `nn/softmax.py` is the output layer, `scores.py`
adds up. Every sentence is read from nothing, unless `perplexity` is told to carry state.

Shapes: N predictions, T places of a passage, U distinct words, V words of the output layer, P width of a direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from elmokit import io
from elmokit.devices import find_device
from elmokit.embed.batching import CARRY_BATCH_SIZE, batches_by_length, token_budget, windows
from elmokit.errors import CheckpointError, InputError
from elmokit.language_model.predictions import Passage, PredictionReader, Predictions
from elmokit.language_model.scores import Perplexity, Score, ScoredWord, Tally, num_bytes
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState
from elmokit.nn.softmax import Softmax
from elmokit.text.segmenters import RuleSegmenter, Segmenter

__all__ = ["LanguageModel", "Perplexity", "Score", "ScoredWord"]

Sentence = str | Sequence[str]
Direction = Literal["forward", "backward"]
StateMode = Literal["zero", "carry"]

BEGIN_WORD, END_WORD, UNKNOWN_WORD = SPECIAL_WORDS = ("<S>", "</S>", "<UNK>")
CACHE_WORDS = 100_000


class LanguageModel:
    """A biLM with its output layer.

    Arguments:
        elmo: the network; it is put into evaluation mode and belongs to the LanguageModel.
        softmax: the output layer.
        output_words: the word of each of its rows, `<S>`, `</S>` and `<UNK>` among them.
        device: where to compute; where the network already is if not given.
        segmenter: splits strings into sentences and words; the rule of `elmokit.text.segmenters` if not given.

    Example:
        >>> from elmokit import ElmoConfig
        >>> words = ["<S>", "</S>", "<UNK>", "the", "bank"]
        >>> lm = LanguageModel(Elmo.random(ElmoConfig.tiny()), Softmax(5, 64), words)
        >>> text = lm.perplexity(["The bank lent the money.", ["the", "bank"]])
        >>> text.tokens, text.sentences, text.oov_rate
        (10, 2, 0.5)
        >>> len(lm.score("the bank").words), len(lm.predict("the", top=2))
        (2, 2)
    """

    def __init__(
        self,
        elmo: Elmo,
        softmax: Softmax,
        output_words: Sequence[str],
        *,
        device: str | torch.device | None = None,
        segmenter: Segmenter | None = None,
    ) -> None:
        self.output_words = list(output_words)
        self._rows = _rows_of(self.output_words, softmax)
        self.elmo = elmo.eval() if device is None else elmo.eval().to(device)
        self.softmax = softmax.eval().to(self.elmo.device)
        self.segmenter = RuleSegmenter() if segmenter is None else segmenter
        self._reader = PredictionReader(self.elmo, cache_words=CACHE_WORDS)

    @classmethod
    def from_pretrained(
        cls,
        source: str | PathLike[str],
        *,
        device: str | torch.device | None = None,
        segmenter: Segmenter | None = None,
    ) -> LanguageModel:
        """The language model of a source: a bundled name, a folder, a `.zip` or a hub id; on a GPU if there is one."""
        checkpoint = io.load(source, softmax=True)
        if checkpoint.softmax is None:
            raise CheckpointError(
                f"{source}: this model comes without its output layer, and only that can predict words: "
                "put softmax.safetensors and vocab.txt (AllenNLP: the softmax .hdf5 and the vocabulary) beside it, "
                "or take a model that was saved with them"
            )
        if checkpoint.output_words is None:
            raise CheckpointError(
                f"{source}: the output layer has {io.num_output_words(checkpoint.softmax):,} rows and no list says "
                "which words they are: put vocab.txt, one word a line, beside it"
            )
        softmax = Softmax.from_weights({n.removeprefix("softmax."): value for n, value in checkpoint.softmax.items()})
        elmo = Elmo.from_checkpoint(checkpoint)
        return cls(elmo, softmax, checkpoint.output_words, device=find_device(device), segmenter=segmenter)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.elmo.device

    def perplexity(
        self, lines: Iterable[Sentence], *, state: StateMode = "zero", batch_size: int | None = None
    ) -> Perplexity:
        """How well the model predicts a text, with all words of its vocabulary in the race.

        Arguments:
            lines: any iterable; memory does not grow with it. A string is split into sentences and words (and may
                hold none); a list of words is one sentence, and an empty one still has its boundary to predict.
            state: `"zero"` reads every sentence from nothing. `"carry"` takes batches in input order, 64 sentences
                unless told, and row r of a batch goes on where row r of the one before stopped, from nothing at the
                start of this call.
            batch_size: sentences read together; unset, as many as fit a number of words. It changes the result in
                `"carry"` only; with 1 every sentence follows the one before it.
        """
        if isinstance(lines, (str, bytes)):
            raise InputError("expected an iterable of lines, found a single string: put it into a list, [text]")
        if state not in get_args(StateMode):
            raise InputError(f"asked for state={state!r}: use one of {', '.join(map(repr, get_args(StateMode)))}")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: expected 1 or more sentences, or None")
        tally = Tally()
        sentences = self._sentences_of(lines, tally)
        if state == "carry":
            self._tally_in_order(sentences, tally, batch_size or CARRY_BATCH_SIZE)
        else:
            self._tally_by_length(sentences, tally, batch_size)
        return tally.result()

    def score(self, sentence: Sentence) -> Score:
        """Log-probability of a sentence in both directions, and of each of its words.

        Arguments:
            sentence: a string, which is ONE sentence here, or a list of words.
        """
        words = self._words_of(sentence)
        passage, predictions = self._read_one(words)
        forward_N, backward_N = self._losses(predictions, self._targets(passage))
        forward, backward = (-forward_N).tolist(), (-backward_N).flip(0).tolist()  # both from left to right
        scored = tuple(map(ScoredWord, words, forward[:-1], backward[1:]))
        return Score(scored, end=forward[-1], begin=backward[0])

    def predict(self, text: Sentence, *, top: int = 5, direction: Direction = "forward") -> list[tuple[str, float]]:
        """The likeliest words after a text or, backward, before it, with their probabilities, best first.

        `</S>` says that the sentence ends here (backward, `<S>`: that it begins here). `<UNK>` and the other boundary
        are left out: the probabilities are those among the words that can be shown, and sum to 1 over all of them.

        Arguments:
            text: the beginning of a sentence (backward: its end), as a string or a list of words. Of a string with
                several sentences the last (backward: the first) is gone on with.
            top: how many words.
            direction: `"forward"` or `"backward"`.
        """
        if direction not in get_args(Direction):
            raise InputError(f"asked for direction={direction!r}: use 'forward' or 'backward'")
        if isinstance(text, str):
            sentences = self.segmenter(text) or [[]]
            words = [word.text for word in sentences[-1 if direction == "forward" else 0]]
        else:
            words = self._words_of(text)
        _, predictions = self._read_one(words)
        last_1P = predictions.outputs_NP[direction == "backward"][-1:]
        hidden = UNKNOWN_WORD, (BEGIN_WORD if direction == "forward" else END_WORD)
        return self._best(self.softmax.log_probs(last_1P)[0], top, [self._rows[word] for word in hidden])

    def substitutes(
        self, sentence: Sentence, word: str, *, top: int = 5, occurrence: int = 0
    ) -> list[tuple[str, float]]:
        """Words that could stand in the place of a word of this sentence, with their probabilities, best first.

        The forward model has seen the words before the place, the backward model those after it, neither the word.
        Both are combined as if the two sides were independent given the word: p(w | left) · p(w | right) / p(w),
        scaled to sum to 1 over all words that may be shown. p(w), how frequent a word is anywhere, follows Zipf's law
        from its place in the vocabulary, which is sorted by falling frequency. The word itself, in capitals or not,
        the boundaries and `<UNK>` may not be shown.

        Arguments:
            sentence: a string, which is ONE sentence here, or a list of words.
            word: the word to replace, spelt as in the sentence; capitals matter only where both spellings occur.
            top: how many words.
            occurrence: which one, from 0, if the word stands there more than once.
        """
        words = self._words_of(sentence)
        place = _place_of(word, words, occurrence)
        _, predictions = self._read_one(words)
        before_1P = predictions.outputs_NP[0][place : place + 1]
        after_1P = predictions.outputs_NP[1][len(words) - 1 - place : len(words) - place]
        log_probs_2V = self.softmax.log_probs(torch.cat([before_1P, after_1P]))
        same = [row for spelling, row in self._rows.items() if spelling.casefold() == word.casefold()]
        hidden = [self._rows[special] for special in SPECIAL_WORDS]
        # Without the prior both models push the words that are frequent anywhere: docs/how-to/language-model.md.
        log_prior_V = -torch.arange(1, log_probs_2V.shape[1] + 1, device=log_probs_2V.device).log()
        return self._best(log_probs_2V.sum(0) - log_prior_V, top, same + hidden)

    def _words_of(self, sentence: Sentence) -> Sequence[str]:
        if isinstance(sentence, str):
            return [word.text for part in self.segmenter(sentence) for word in part]
        return _checked_words(sentence, "the sentence")

    def _sentences_of(self, lines: Iterable[Sentence], tally: Tally) -> Iterator[Sequence[str]]:
        for number, line in enumerate(lines):
            if isinstance(line, str):
                tally.num_bytes += num_bytes(line.split())
                for sentence in self.segmenter(line):
                    yield [word.text for word in sentence]
            else:
                tally.num_bytes += num_bytes(_checked_words(line, f"line {number}")) or 1
                yield line

    def _tally_by_length(self, sentences: Iterable[Sequence[str]], tally: Tally, batch_size: int | None) -> None:
        budget = token_budget(self.device.type)
        for window in windows(sentences, budget=budget, batch_size=batch_size):
            passage = self._reader.passage(window)
            targets_T = self._targets(passage)
            batches = batches_by_length(passage.lengths_S.tolist(), budget=budget, batch_size=batch_size)
            readings = (self._reader.read(passage, batch) for batch in batches)
            tally.add(passage, targets_T == self._rows[UNKNOWN_WORD], [self._losses(r, targets_T) for r in readings])

    def _tally_in_order(self, sentences: Iterable[Sequence[str]], tally: Tally, batch_size: int) -> None:
        state: BilmState | None = None
        for batch in windows(sentences, budget=0, whole_batches=batch_size):
            passage = self._reader.passage(batch)
            targets_T = self._targets(passage)
            before = None if state is None else state.rows(len(batch))
            predictions = self._reader.read(passage, range(len(batch)), before)
            state = predictions.state
            tally.add(passage, targets_T == self._rows[UNKNOWN_WORD], [self._losses(predictions, targets_T)])

    def _read_one(self, words: Sequence[str]) -> tuple[Passage, Predictions]:
        passage = self._reader.passage([words])
        return passage, self._reader.read(passage, [0])

    def _targets(self, passage: Passage) -> np.ndarray:
        """The row of the output layer (T) for each place of a passage."""
        unknown, known = self._rows[UNKNOWN_WORD], self._rows.get
        rows_U = [self._rows[BEGIN_WORD], self._rows[END_WORD], *(known(word, unknown) for word in passage.words)]
        return np.array(rows_U, np.int64)[passage.numbers_T]

    @torch.inference_mode()
    def _losses(self, predictions: Predictions, targets_T: np.ndarray) -> tuple[Tensor, Tensor]:
        """Negative log-likelihood of each prediction (N), forward and backward."""
        forward_N, backward_N = (
            self.softmax.token_losses(outputs_NP, torch.from_numpy(targets_T[places_N]).to(outputs_NP.device))
            for outputs_NP, places_N in zip(predictions.outputs_NP, predictions.places_N, strict=True)
        )
        return forward_N, backward_N

    def _best(self, scores_V: Tensor, top: int, hidden: Sequence[int]) -> list[tuple[str, float]]:
        """The `top` words of the highest scores (log-probabilities up to a constant), without the hidden rows."""
        if top < 1:
            raise InputError(f"asked for top={top} words: expected 1 or more")
        scores_V = scores_V.index_fill(0, torch.tensor(hidden, device=scores_V.device), -torch.inf)
        shown = len(scores_V) - len(set(hidden))
        best = scores_V.log_softmax(0).topk(min(top, shown))
        return [
            (self.output_words[row], math.exp(value))
            for row, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def _rows_of(words: Sequence[str], softmax: Softmax) -> dict[str, int]:
    """The row of each word in an output layer; the first, should a word stand there twice."""
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    missing = [word for word in SPECIAL_WORDS if word not in rows]
    if missing:
        raise CheckpointError(
            f"expected {', '.join(SPECIAL_WORDS)} among the {len(words):,} words of the output layer, "
            f"found no {', '.join(missing)}: take the list the model was trained with"
        )
    if isinstance(softmax, Softmax) and len(softmax.bias) != len(words):
        raise CheckpointError(
            f"expected {len(softmax.bias):,} words, one for each row of the output layer, found {len(words):,}: "
            "take the list the model was trained with"
        )
    return rows


def _checked_words(sentence: object, what: str) -> Sequence[str]:
    if not isinstance(sentence, (list, tuple)):
        raise InputError(f"{what} is a {type(sentence).__name__}: expected a string or a list of words")
    for word in sentence:
        if not isinstance(word, str):
            raise InputError(f"{what} has the word {word!r} of type {type(word).__name__}: expected strings")
    return sentence


def _place_of(word: str, words: Sequence[str], occurrence: int) -> int:
    """Where the word stands; spelt exactly so if it is there, else in other capitals."""
    places = [place for place, other in enumerate(words) if other == word]
    places = places or [place for place, other in enumerate(words) if other.casefold() == word.casefold()]
    if not places:
        raise InputError(f"expected {word!r} in the sentence, found only the words: {' '.join(words)}")
    if not 0 <= occurrence < len(places):
        raise InputError(
            f"asked for occurrence {occurrence} of {word!r}, counted from 0, but it stands there {len(places)} time(s)"
        )
    return places[occurrence]
