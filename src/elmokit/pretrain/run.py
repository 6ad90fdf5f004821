"""A run: everything that is held between steps, and the loop.

An encoded corpus and a configuration arrive; a trained network leaves. A run is a function of its number of steps:
killed and resumed, alone or on several processes, it passes the same batches, draws the same dropout and negatives, and
logs the same losses, because all of them follow from the seed and the number of the step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

from torch.nn.utils import get_total_norm
from tqdm import tqdm

from elmokit.engines import best_for
from elmokit.errors import TrainingError
from elmokit.nn.bilm import BilmState
from elmokit.pretrain.averaging import WeightAverage
from elmokit.pretrain.batches.preparing import Prepared
from elmokit.pretrain.batches.reader import Prefetcher
from elmokit.pretrain.building import built_network, built_reader, built_stepper, optimiser_config
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.held_out import TOKENS_PER_BATCH, HeldOut, perplexity_of
from elmokit.pretrain.journal import Journal, Meter, Report
from elmokit.pretrain.optim.optimiser import build_optimizer
from elmokit.pretrain.place import Place
from elmokit.pretrain.saving import Checkpoints
from elmokit.pretrain.start import Start
from elmokit.pretrain.stepping import GraphStepper
from elmokit.pretrain.unfreezing import Stages
from elmokit.text.characters import make_scheme

__all__ = ["Run"]

RECORD_AFTER = 3  # steps after which a GPU's optimiser step is recorded: its state is there then
ASK_TIME_EVERY = 16  # steps between agreements of several processes on whether time is over
MANY_PASSES = 20


class Run:
    """A network in training.

    Arguments:
        start: what to compute, and what to begin with.
        folder: where checkpoints and the log are.
        corpus: what to learn from.
        place: this process among those of the run.
        held_out: the folder of the encoded held-out text, if there is one.
        report: is handed every line of the log.
    """

    def __init__(
        self,
        start: Start,
        folder: Path,
        corpus: EncodedCorpus,
        place: Place,
        *,
        held_out: Path | None = None,
        report: Report | None = None,
    ) -> None:
        self.start, self.config, self.corpus, self.place = start, start.config, corpus, place
        config = self.config
        model, self.scheme_parts = start.model_for(corpus)
        self.scheme = scheme = make_scheme(model, **self.scheme_parts)
        self.network = built_network(config, model, corpus, place.device)
        self.optimizer = build_optimizer(self.network, optimiser_config(config))
        self.reader = built_reader(config, corpus, scheme, place)
        self.stages = Stages.of(config, learns_output=start.learns_output(corpus))
        self.learning = self.optimizer.groups
        self.stepper = built_stepper(config, self.network, corpus, self.reader, place)
        self.average = WeightAverage(self.network, tokens=config.average_tokens) if config.average_tokens else None
        self.meter = Meter(self.stepper, self.optimizer, place.total)
        self.journal = Journal(folder / "log.jsonl", report)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.held_out: HeldOut | None = None
        if held_out is not None:
            text = EncodedCorpus.open(held_out)
            # No more at once than a step reads: measuring should not need the most memory.
            at_once = min(TOKENS_PER_BATCH, config.tokens_per_batch)
            self.held_out = HeldOut(text, scheme, place, widest_filter=config.widest_filter, tokens_per_batch=at_once)
        self.step, self.tokens = 0, 0
        self.evaluations: list[dict[str, float]] = []
        self._has_told_speed = False

    def introduce(self) -> None:
        """Say what is about to be computed, for somebody who sees it for the first time."""
        config, corpus, network = self.config, self.corpus, self.network
        body, output = (sum(p.numel() for p in part.parameters()) for part in (network.body, network.softmax))
        passes = config.tokens / self.reader.tokens_per_epoch
        engine = best_for(self.place.device, network.dtype, network.body.bilm.clips, trains=True)
        processes = f", {self.place.world} processes" if self.place.world > 1 else ""
        say = self.place.say
        say(f"text        {corpus.num_tokens:,} words in {corpus.num_sentences:,} sentences")
        say(
            f"vocabulary  {corpus.vocabulary_size:,} words, {corpus.coverage:.1%} of the text; the others "
            f"{'are <UNK>' if config.input == 'words' else 'are read by their letters and predicted as <UNK>'}"
        )
        say(
            f"model       {body:,} parameters, {output:,} more in the output layer; "
            f"a word's vector has {network.config.dim} numbers"
        )
        say(f"computes    on {self.place.device.type}{processes}, {engine}")
        say(f"plan        {config.tokens:,} words ({passes:,.1f} times the text), {config.tokens_per_batch:,} a step")
        if passes > MANY_PASSES:
            say(f"            more than {MANY_PASSES} times is rarely worth it: --tokens N makes it shorter")

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one; what the log says beyond it is dropped."""
        saved = self.checkpoints.latest(self.place.device)
        if saved is None:
            self.place.say(f"starts      {self.start.fill(self.network, self.corpus)}")
        else:
            self.network.load_state_dict(saved["network"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.reader.load_state_dict(saved["reader"])
            self.step, self.tokens, self.evaluations = saved["step"], saved["tokens"], saved["evaluations"]
            if saved["state"] is not None:
                self.stepper.load_state(BilmState(*saved["state"]), self.place.rank)
            if self.average is not None and saved.get("average") is not None:
                self.average.load_state_dict(saved["average"])
            if "meter" in saved:
                self.meter.go_on_from(saved["meter"], is_first=self.place.is_first)
            self.place.say(f"goes on     from its checkpoint at {self.tokens:,} words")
        self._enter_stage()
        if self.place.is_first:
            self.journal.go_on_from(self.step)

    def go_on(self, deadline: float | None = None) -> bool:
        """Train until all words are seen, or the deadline (of `time.monotonic`); says whether it was the former."""
        config, first_step = self.config, self.step
        every = {"log": config.log_every, "evaluate": config.evaluate_every, "save": config.checkpoint_every}
        move: Callable[[float], Any] = self.optimizer.step
        can_record = config.optimiser != "adagrad"  # torch cannot
        self.meter.restart_clock()
        with self._bar() as bar, _short_turns(self.place), self._prepared_batches() as batches:
            while self.tokens < config.tokens:
                if self._enter_stage():
                    move, first_step = self.optimizer.step, self.step
                prepared, before = next(batches), self.tokens
                words = prepared.batch.global_tokens
                self.tokens += words
                self.step += 1
                self.stepper.zero_grad()
                self.stepper.step(prepared)
                is_ready = self.step == first_step + RECORD_AFTER
                if is_ready and can_record and isinstance(self.stepper, GraphStepper):
                    move = self.optimizer.recorded()
                move(self.stages.rate(self.tokens, config))
                if self.average is not None:
                    self.average.count(words)
                self.meter.count(words)
                bar.update(words)
                is_last, is_late = self.tokens >= config.tokens, self._is_late(deadline)
                due = {name for name, often in every.items() if is_last or before // often < self.tokens // often}
                if "log" in due:
                    self._log(bar)
                if "evaluate" in due:
                    self._evaluate()
                if "save" in due or is_late:
                    self._save(batches.state_dict())
                if is_late and not is_last:
                    return False
        return True

    def _prepared_batches(self) -> Prefetcher[Prepared]:
        """The batches of the steps to come; whatever does not need the device is done by the thread that reads."""
        numbers = count(self.step + 1)
        return Prefetcher(self.reader, lambda batch: self.stepper.prepared(batch, next(numbers)))

    def _enter_stage(self) -> bool:
        """Let those layer groups learn whose turn it is; says whether they are others than before."""
        learning = self.stages.learning(self.tokens, self.optimizer.groups)
        if learning == self.learning:
            return False
        self.learning, before = learning, self.stepper
        self.optimizer.set_trainable(learning)
        # Recorded steps, and processes that add up gradients, must know who learns.
        self.stepper = built_stepper(self.config, self.network, self.corpus, self.reader, self.place)
        self.stepper.state, self.stepper.loss_sums_2 = before.state, before.loss_sums_2
        self.meter.follow(self.stepper)
        self.place.say(f"learning    {', '.join(reversed(learning))} from {self.tokens:,} words on")
        return True

    def averaged(self) -> AbstractContextManager[None]:
        """The network as it is evaluated and saved, for a while: with the mean of its weights, if so configured."""
        return nullcontext() if self.average is None else self.average.applied()

    def facts(self) -> dict[str, str]:
        """What is known about the model, for its card."""
        facts = {
            **self.start.facts,
            "training_words": f"{self.tokens:,}",
            "corpus": f"{self.corpus.num_tokens:,} words in {self.corpus.num_sentences:,} sentences",
        }
        if self.evaluations:
            facts["held_out_perplexity"] = f"{self.evaluations[-1]['mean']:.2f}"
        return facts

    def note(self, line: dict[str, Any]) -> None:
        """Add a line to the log, with the place it belongs to."""
        if self.place.is_first:
            self.journal.add({"kind": line.pop("kind"), "step": self.step, "tokens": self.tokens, **line})

    def _log(self, bar: tqdm) -> None:
        values = self.meter.read()
        steps, skipped = values.pop("steps"), values["skipped"]
        self._check_finite(values["loss"])
        if skipped > steps / 2:
            raise self._divergence(f"the gradients of {skipped:,} of the last {steps:,} steps were not finite")
        if skipped:
            self.place.say(f"skipped     {skipped:,} of the last {steps:,} steps: their gradients were not finite")
        self.note({"kind": "train", **values, "rate": self.stages.rate(self.tokens, self.config)})
        left = self.config.tokens - self.tokens
        if not self._has_told_speed and left > 0:
            speed = values["words_per_second"]
            self.place.say(f"speed       {speed:,} words/s: about {tqdm.format_interval(left / max(1, speed))} to go")
            self._has_told_speed = True
        bar.set_postfix_str(self._postfix(values["loss"]))

    def _postfix(self, loss: float) -> str:
        """Loss and perplexity, for the bar. A sampled loss is of fewer words, so it says nothing of perplexity."""
        text = f"loss {loss:.3f}"
        if self.config.output != "sampled":
            text += f", perplexity {perplexity_of(loss):.1f}"
        if self.evaluations:
            text += f", held-out perplexity {self.evaluations[-1]['mean']:.1f}"
        return text

    def _evaluate(self) -> None:
        if self.held_out is None:
            return
        with self.averaged():
            perplexity = self.held_out.perplexity(self.network)
        self.meter.restart_clock()
        self.evaluations.append({"tokens": self.tokens, **perplexity})
        self.note({"kind": "held-out", **perplexity})
        self.place.say(
            f"held-out perplexity after {self.tokens:,} words: forward {perplexity['forward']:.2f}, "
            f"backward {perplexity['backward']:.2f}, mean {perplexity['mean']:.2f}"
        )

    def _save(self, reader_state: dict[str, Any]) -> None:
        state = self.stepper.gathered_state() if self.config.mode == "streams" else None
        meter = self.meter.state()
        weights = [weight.detach() for weight in self.network.parameters()]
        self._check_finite(sum(meter["sums"]) + get_total_norm(weights).item())
        if self.place.is_first:
            self.checkpoints.save(
                self.step,
                {
                    "network": self.network.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "reader": reader_state,
                    "step": self.step,
                    "tokens": self.tokens,
                    "evaluations": self.evaluations,
                    "state": None if state is None else tuple(state),
                    "meter": meter,
                    "average": None if self.average is None else self.average.state_dict(),
                },
            )
        self.place.wait()
        self.meter.restart_clock()

    def _check_finite(self, value: float) -> None:
        if not abs(value) < float("inf"):
            raise self._divergence(f"a loss or weight is {value}")

    def _divergence(self, what: str) -> TrainingError:
        kept = self.checkpoints.last_step
        where = "there is no checkpoint yet" if kept is None else f"its checkpoint at step {kept:,} is kept"
        return TrainingError(
            f"training diverged: {what} by step {self.step:,} ({self.tokens:,} words); "
            f"{where}. The same command with a smaller --learning-rate and --muon-learning-rate goes on from there"
        )

    def _is_late(self, deadline: float | None) -> bool:
        if deadline is None or (self.place.world > 1 and self.step % ASK_TIME_EVERY):
            return False
        return self.place.total([float(time.monotonic() > deadline)])[0] > 0  # all stop, or none

    @contextmanager
    def _bar(self) -> Iterator[tqdm]:
        total, hidden = self.config.tokens, None if self.place.is_first else True
        with tqdm(
            total=total, initial=self.tokens, unit=" words", unit_scale=True, disable=hidden, smoothing=0.05
        ) as bar:
            yield bar


@contextmanager
def _short_turns(place: Place) -> Iterator[None]:
    """Let the thread that prepares batches not keep the one that feeds a GPU waiting for its turn (5 ms by default)."""
    before = sys.getswitchinterval()
    if place.device.type == "cuda":
        sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
