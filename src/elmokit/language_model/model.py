"""LanguageModel: the biLM with its output layer; text in, probabilities of words out.

Arrives: text or words. Leaves: perplexity of a text, score of a sentence, likely next and previous words, words that
could stand in another's place. The forward model reads `<S> w1 … wn` and predicts `w1 … wn </S>`; the backward model
reads `</S> wn … w1` and predicts `wn … w1 <S>`. `nn/output_layer.py` is the output layer, `scores.py` adds up. Every
sentence is read from nothing, unless `perplexity` is told to carry state.

Shapes: N predictions, T places of a text, V words of the output layer, P width of a direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from elmokit import io
from elmokit.devices import find_device, move_to_device
from elmokit.errors import CheckpointError, InputError, suggest
from elmokit.language_model.scores import Perplexity, Score, ScoredWord, Tally, count_bytes, count_word_bytes
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState, Reading
from elmokit.nn.output_layer import OutputLayer
from elmokit.nn.packing import BoundedText, add_boundaries
from elmokit.reading.batching import (
    BATCHES_PER_WINDOW,
    CARRY_BATCH_SIZE,
    batch_by_length,
    choose_budget,
    split_into_windows,
)
from elmokit.reading.encoder import Sentence, TextEncoder, split_sentence
from elmokit.text.segmenters import RuleSegmenter, Segmenter

__all__ = ["LanguageModel", "Perplexity", "Score", "ScoredWord", "find_places"]

Direction = Literal["forward", "backward"]
StartState = Literal["zero", "carry"]

BEGIN_WORD, END_WORD, UNKNOWN_WORD = SPECIAL_WORDS = ("<S>", "</S>", "<UNK>")


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
        >>> lm = LanguageModel(Elmo.random(ElmoConfig.tiny()), OutputLayer(5, 64), words)
        >>> text = lm.perplexity(["The bank lent the money.", ["the", "bank"]])
        >>> text.tokens, text.sentences, text.oov_rate
        (10, 2, 0.5)
        >>> len(lm.score("the bank").words), len(lm.predict("the", top=2))
        (2, 2)
    """

    def __init__(
        self,
        elmo: Elmo,
        softmax: OutputLayer,
        output_words: Sequence[str],
        *,
        device: str | torch.device | None = None,
        segmenter: Segmenter | None = None,
    ) -> None:
        self.output_words = list(output_words)
        self._rows = _number_words(self.output_words, softmax)
        self.elmo = elmo.eval() if device is None else elmo.eval().to(device)
        self.softmax = softmax.eval().to(self.elmo.device)
        self.segmenter = RuleSegmenter() if segmenter is None else segmenter
        self._encoder = TextEncoder(self.elmo)

    @classmethod
    def from_pretrained(
        cls,
        source: str | PathLike[str],
        *,
        device: str | torch.device | None = None,
        segmenter: Segmenter | None = None,
    ) -> LanguageModel:
        """The language model of a source: a model's name, a folder, a `.zip` or a hub id; on a GPU if there is one."""
        checkpoint = io.load(source, softmax=True)
        try:
            return cls.from_checkpoint(checkpoint, device=find_device(device), segmenter=segmenter)
        except CheckpointError as problem:
            raise CheckpointError(f"{source}: {problem}") from problem

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: io.Checkpoint,
        *,
        elmo: Elmo | None = None,
        device: str | torch.device | None = None,
        segmenter: Segmenter | None = None,
    ) -> LanguageModel:
        """The language model of what was read from files.

        Arguments:
            checkpoint: loaded with its output layer.
            elmo: the network that was built of it, for whoever uses that, too; built anew if not given.
            device: where to compute; where the network already is if not given.
            segmenter: splits strings.
        """
        if checkpoint.softmax is None:
            raise CheckpointError(
                "this model comes without its output layer, and only that can predict words: "
                "put softmax.safetensors and vocab.txt (AllenNLP: the softmax .hdf5 and the vocabulary) beside it, "
                "or take a model that was saved with them"
            )
        if checkpoint.output_words is None:
            raise CheckpointError(
                f"the output layer has {io.num_output_words(checkpoint.softmax):,} rows and no list says "
                "which words they are: put vocab.txt, one word per line, beside it"
            )
        softmax = OutputLayer.from_weights(
            {n.removeprefix("softmax."): value for n, value in checkpoint.softmax.items()}
        )
        elmo = Elmo.from_checkpoint(checkpoint) if elmo is None else elmo
        return cls(elmo, softmax, checkpoint.output_words, device=device, segmenter=segmenter)

    def __repr__(self) -> str:
        return f"LanguageModel(dim={self.elmo.config.dim}, words={len(self.output_words)}, device={str(self.device)!r})"

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.elmo.device

    def perplexity(
        self,
        lines: Iterable[Sentence],
        *,
        state: StartState = "zero",
        batch_size: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Perplexity:
        """How well the model predicts a text, with all words of its vocabulary in the race.

        Arguments:
            lines: any iterable; memory does not grow with it. A string is split into sentences and words (and may
                hold none); a list of words is one sentence, and an empty one still has its boundary to predict.
            state: `"zero"` reads every sentence from nothing. `"carry"` takes batches in input order, 64 sentences
                unless told, and row r of a batch continues row r of the one before; each call starts from nothing.
            batch_size: sentences read together; unset, as many as fit a number of words. It changes the result in
                `"carry"` only; with 1 every sentence follows the one before it.
            progress: called after every batch with the share of the sentences taken from `lines` that are scored.
        """
        if isinstance(lines, (str, bytes)):
            raise InputError("expected an iterable of lines, found a single string: put it into a list, [text]")
        if state not in get_args(StartState):
            raise InputError(f"asked for state={state!r}: use one of {', '.join(map(repr, get_args(StartState)))}")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: expected 1 or more sentences, or None")
        carries, budget = state == "carry", choose_budget(self.device.type)
        batch_size = batch_size or (CARRY_BATCH_SIZE if carries else None)
        tally, remembered = Tally(), None
        windows = split_into_windows(
            self._split_lines(lines, tally),
            budget=budget,
            batch_size=batch_size,
            num_batches=1 if carries else BATCHES_PER_WINDOW,
        )
        for window in windows:
            text, targets_T = self._encode(window), self._find_targets(window)
            limit = budget if batch_size is None else None
            batches = batch_by_length(text.lengths_B.tolist(), budget=limit, batch_size=batch_size)
            before = None if remembered is None else remembered.resize(len(window))
            losses, num_read = [], tally.num_sentences + len(window)
            for rows in [range(len(window))] if carries else batches:
                reading = self._predict(text, rows, before)
                losses.append(self._losses(reading, targets_T))
                remembered = reading.state if carries else None
                tally.num_sentences += len(rows)
                if progress is not None:
                    progress(tally.num_sentences / num_read)
            tally.add_losses(losses)
            tally.num_tokens += len(targets_T) - len(window)  # of two boundaries each direction predicts one
            tally.num_unknown += int((targets_T == self._rows[UNKNOWN_WORD]).sum())
        return tally.result()

    def score(self, sentence: Sentence) -> Score:
        """Log-probability of a sentence in both directions, and of each of its words.

        Arguments:
            sentence: a string, which is ONE sentence here, or a list of words.
        """
        words = self._split(sentence)
        forward_N, backward_N = self._losses(self._read(words), self._find_targets([words]))
        forward, backward = (-forward_N).tolist(), (-backward_N).flip(0).tolist()  # both from left to right
        scored = tuple(map(ScoredWord, words, forward[:-1], backward[1:]))
        return Score(scored, end=forward[-1], begin=backward[0])

    def predict(self, text: Sentence, *, top: int = 5, direction: Direction = "forward") -> list[tuple[str, float]]:
        """The likeliest words after a text or, backward, before it, with their probabilities, best first.

        `</S>` says that the sentence ends here (backward, `<S>`: that it begins here). `<UNK>` and the other boundary
        are left out: the probabilities are those among the words that can be shown, and sum to 1 over all of them.

        Arguments:
            text: the beginning of a sentence (backward: its end), as a string or a list of words. A string may
                have several sentences: the prediction continues the last (backward: it precedes the first).
            top: how many words.
            direction: `"forward"` or `"backward"`.
        """
        if direction not in get_args(Direction):
            raise InputError(f"asked for direction={direction!r}: use 'forward' or 'backward'")
        if isinstance(text, str):
            sentences = self.segmenter(text) or [[]]
            words = [word.text for word in sentences[-1 if direction == "forward" else 0]]
        else:
            words = self._split(text)
        last_1P = self._read(words).layers[-1][direction == "backward"][-1:]
        hidden = UNKNOWN_WORD, (BEGIN_WORD if direction == "forward" else END_WORD)
        return self._pick_best(self.softmax.log_probs(last_1P)[0], top, [self._rows[word] for word in hidden])

    def substitutes(
        self, sentence: Sentence, word: str, *, top: int = 5, occurrence: int = 1
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
            occurrence: which one if the word stands there more than once: 2 for the second, as on the command line.
        """
        words = self._split(sentence)
        places = find_places(word, words)
        if not 1 <= occurrence <= len(places):
            times = f"but it stands there {len(places)} time(s), counted from 1"
            raise InputError(f"asked for occurrence={occurrence} of {word!r}, {times}")
        place = places[occurrence - 1]
        forward_NP, backward_NP = self._read(words).layers[-1]
        outputs_2P = torch.stack([forward_NP[place], backward_NP[len(words) - 1 - place]])
        log_probs_2V = self.softmax.log_probs(outputs_2P)
        same = [row for spelling, row in self._rows.items() if spelling.casefold() == word.casefold()]
        hidden = [self._rows[special] for special in SPECIAL_WORDS]
        # Without the prior both models push the words that are frequent anywhere: docs/how-to/language-model.md.
        log_prior_V = -torch.arange(1, log_probs_2V.shape[1] + 1, device=log_probs_2V.device).log()
        return self._pick_best(log_probs_2V.sum(0) - log_prior_V, top, same + hidden)

    def _split(self, sentence: Sentence, name: str = "the sentence") -> list[str]:
        return list(map(str, split_sentence(sentence, self.segmenter, name=name)))

    def _split_lines(self, lines: Iterable[Sentence], tally: Tally) -> Iterator[list[str]]:
        for number, line in enumerate(lines):
            if isinstance(line, str):
                tally.num_bytes += count_bytes(line.split())
                yield from ([word.text for word in sentence] for sentence in self.segmenter(line))
            else:
                words = self._split(line, f"line {number}")
                tally.num_bytes += count_word_bytes(words)
                yield words

    def _read(self, words: list[str]) -> Reading:
        return self._predict(self._encode([words]), [0])

    def _encode(self, sentences: Sequence[list[str]]) -> BoundedText:
        with self._encoder.spare_threads():
            return self._encoder.encode(sentences)

    @torch.inference_mode()
    def _predict(self, text: BoundedText, rows: Sequence[int], state: BilmState | None = None) -> Reading:
        with self._encoder.spare_threads():
            return self.elmo.bilm.read(text, rows=rows, state=state, for_prediction=True)

    def _find_targets(self, sentences: Sequence[list[str]]) -> Tensor:
        """The row of the output layer for each place (T) of the text of these sentences."""
        begin, end, unknown = (self._rows[word] for word in SPECIAL_WORDS)
        rows_N = np.array([self._rows.get(word, unknown) for words in sentences for word in words], np.int64)
        lengths_B = np.array([len(words) for words in sentences], np.int64)
        return move_to_device(add_boundaries(rows_N, lengths_B, begin=begin, end=end)[0], self.device)

    @torch.inference_mode()
    def _losses(self, reading: Reading, targets_T: Tensor) -> tuple[Tensor, Tensor]:
        """Negative log-likelihood of each prediction (N), forward and backward."""
        targets_2N = targets_T[torch.stack([reading.positions_2N[0] + 1, reading.positions_2N[1] - 1])]
        with self._encoder.spare_threads():  # both at once: the weights are then read once
            losses_N = self.softmax.token_losses(torch.cat(reading.layers[-1]), targets_2N.flatten())
        forward_N, backward_N = losses_N.chunk(2)
        return forward_N, backward_N

    def _pick_best(self, scores_V: Tensor, top: int, hidden: Sequence[int]) -> list[tuple[str, float]]:
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


def _number_words(words: Sequence[str], softmax: OutputLayer) -> dict[str, int]:
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
    if len(softmax.bias) != len(words):
        raise CheckpointError(
            f"expected {len(softmax.bias):,} words, one for each row of the output layer, found {len(words):,}: "
            "take the list the model was trained with"
        )
    return rows


def find_places(word: str, words: Sequence[str]) -> list[int]:
    """Where the word stands, which must be somewhere; spelt exactly so if it is there, else in other capitals."""
    places = [place for place, other in enumerate(words) if other == word]
    places = places or [place for place, other in enumerate(words) if other.casefold() == word.casefold()]
    if not places and len(parts := word.split()) > 1:
        raise InputError(f"expected one word, found {len(parts)}: {word!r}; substitutes stand for one word")
    if not places:
        found = f"only the words: {' '.join(words)}" if words else "no words"
        raise InputError(f"expected {word!r} in the sentence, found {found}{suggest(word, words)}")
    return places
