"""Training, one story from top to bottom: text → encoded corpus → batches → steps → a model folder.

    elmo train TEXT… -o DIR [--recipe small] [--field value]…

The model appears in DIR, complete, at the end. Until then, and afterwards for whoever wants to look, `DIR.training`
holds the encoded text, `log.jsonl` (a line now and then) and the last two checkpoints. Called again with the same
arguments, a run that was killed continues from its last checkpoint to the same losses; a finished one says so. Under
`torchrun` every process takes its rows of each batch; the checkpoints do not depend on how many there are.

A run is a function of its number of steps: killed and resumed, alone or on several processes, it passes the same
batches, draws the same dropout and negatives, and logs the same losses, because all of them follow from the seed and
the number of the step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import get_total_norm
from tqdm import tqdm

from elmokit.engines import choose
from elmokit.errors import TrainingError
from elmokit.io.checkpoint import check_finite, compare_shapes
from elmokit.io.locks import lock_output
from elmokit.io.source import as_source
from elmokit.nn.bilm import BilmState
from elmokit.nn.operations import Request
from elmokit.pretrain.batches.preparing import Prepared
from elmokit.pretrain.batches.reader import Prefetcher, Reader
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.batches.streams import StreamReader
from elmokit.pretrain.corpus.encoded import UNKNOWN, EncodedCorpus
from elmokit.pretrain.folder import (
    Changes,
    Texts,
    check_texts,
    compare_settings,
    describe_changes,
    encode_held_out,
    encode_text,
    find_corpus,
    keep_settings,
    refuse_changes,
)
from elmokit.pretrain.held_out import measure_perplexity, to_perplexity
from elmokit.pretrain.journal import Journal, Listener, Meter, RateGuard, write_tensorboard
from elmokit.pretrain.network import build_network
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.place import PATIENCE, Place, find_place
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.saving import Checkpoints, TrainingState, save_model
from elmokit.pretrain.start import Start, choose_start
from elmokit.pretrain.stepping import GraphStepper, PlainStepper, build_stepper
from elmokit.pretrain.stopping import Stop
from elmokit.text.characters import Scheme, make_scheme
from elmokit.text.scripts import find_scripts
from elmokit.validation import build_from
from elmokit.version import describe_version
from elmokit.waits import show_progress

__all__ = ["build_reader", "train"]

RECORD_AFTER = 3  # steps after which a GPU's optimiser step is recorded: its state is there then
ASK_TIME_EVERY = 16  # steps between agreements of several processes on whether time is over
LEAST_COVERAGE = 0.5  # of a text's words
MANY_PASSES = 20
DEAR_STEPS = 3  # times the work of reading a step's words: where moving the weights costs more, the user is told
ENGINES = {"triton": "Triton kernels", "cudnn": "cuDNN"}  # all others are made of torch's own operations
HELD_OUT_TOKENS = 8192  # of held-out text, read at once


def train(
    texts: Texts,
    destination: str | os.PathLike[str],
    config: TrainConfig,
    *,
    held_out: Texts = (),
    tokenised: bool = False,
    held_out_tokenised: bool | None = None,
    start_from: str | os.PathLike[str] | None = None,
    vectors: Any = None,  # noqa: ANN401
    workers: int | None = None,
    device: str | None = None,
    minutes: float | None = None,
    patience: float = PATIENCE,
    tensorboard: bool = False,
    report: Listener | None = None,
    quiet: bool = False,
) -> Path | None:
    """Train a model on text and write it to `destination`; gives that folder, or `None` if `minutes` ran out before.

    Arguments:
        texts: files, globs or `-`; compressed files are unpacked. An encoded corpus folder is taken as it is.
        destination: the model's folder, which must not exist yet; a run begun for it continues.
        config: what to compute. A run continues with what it began with; only how long, how fast and how often it does
            what may change.
        held_out: text for perplexity, never trained on.
        tokenised: the text has one sentence per line, words between spaces.
        held_out_tokenised: the same for the held-out text; like `tokenised` if not given.
        start_from: a source to continue from (see `start.py`): any model that can be loaded.
        vectors: a file of word vectors, or gensim's KeyedVectors, with which the table of a model of words begins.
        workers: processes that segment.
        device: where to compute; a GPU if there is one.
        minutes: stop with a checkpoint after so many minutes; call again to continue.
        patience: seconds that one of several processes waits for the others before it gives up.
        tensorboard: also write the log for TensorBoard, to `DIR.training/tensorboard`.
        report: is handed every line of the log.
        quiet: do not show on standard output what is done.
    """
    stop = Stop(minutes, is_quiet=quiet)
    model_folder = Path(destination)
    folder = model_folder.with_name(model_folder.name + ".training")
    if tensorboard:
        report = write_tensorboard(folder / "tensorboard", then=report)
    with (
        find_place(device, is_quiet=quiet, patience=patience) as place,
        # The first process alone writes, so it alone locks.
        lock_output(model_folder) if place.is_first else nullcontext(),
    ):
        start = choose_start(config, start_from=start_from, vectors=vectors)
        check_texts(texts, held_out, folder)
        settings = {**start.config.to_dict(), **start.origin}
        changes: Changes = {}
        if place.is_first:
            changes = compare_settings(folder, settings, model_folder)
        place.wait()
        if (model_folder / "config.json").is_file():
            if place.is_first:
                refuse_changes(model_folder, folder, changes, texts, start.config, tokenised)
            place.say(f"{model_folder}: this run is finished, and its model is there")
            return model_folder
        if place.is_first:
            encode_text(texts, folder, start.config, tokenised, workers)
            keep_settings(folder, settings)  # only now: before, they would bind somebody whose text was refused
            held_out_tokenised = tokenised if held_out_tokenised is None else held_out_tokenised
            encode_held_out(held_out, find_corpus(texts, folder), folder, held_out_tokenised, workers)
        place.wait(long=True)
        corpus = EncodedCorpus.open(find_corpus(texts, folder))
        held_out_corpus = EncodedCorpus.open(folder / "held-out") if held_out else None
        if place.is_first:
            for each in filter(None, (corpus, held_out_corpus)):
                each.verify()
        place.wait(long=True)
        if not _run(start, corpus, held_out_corpus, place, folder, model_folder, report, changes, stop):
            place.say(f"stopped     after {minutes} minutes with a checkpoint; the same command continues it")
            return None
        source = as_source(model_folder)
        place.say(f"The model is in {model_folder}. Use it:")
        place.say(f"  elmo embed FILE -o vectors.parquet --model {source}")
        place.say(f'  elmo predict "The beginning of a sentence" --model {source}')
        place.say(f"{folder} holds what was needed on the way; keep its log.jsonl, remove the rest when you like.")
    return model_folder


def _run(
    start: Start,
    corpus: EncodedCorpus,
    held_out: EncodedCorpus | None,
    place: Place,
    folder: Path,
    model_folder: Path,
    report: Listener | None,
    changes: Changes,
    stop: Stop,
) -> bool:
    """Train to the end or until it should stop, and save the model at the end; whether that was reached.

    A function of its own: what DistributedDataParallel holds of the group of processes is gone when it returns.
    """
    try:
        training = _Training(start, corpus, held_out, place, folder, report)
        training.introduce()
        training.resume()
        if changes:
            place.say(f"changed     {describe_changes(changes)}")
            training.note("settings", {"changed": {name: now for name, (_, now) in changes.items()}})
        with stop.listen() if place.world == 1 else nullcontext():
            is_finished = training.run(stop)
    except torch.OutOfMemoryError as problem:
        reason = str(problem).split(".")[0]
        raise TrainingError(f"{reason}: start anew with a smaller --tokens-per-batch or model") from problem
    if is_finished and place.is_first:
        save_model(model_folder, training.network, training.scheme_parts, corpus, training.facts())
    place.wait()
    if not is_finished:  # asked to stop in its last step, a run has nothing left to stop
        stop.pass_on()
    return is_finished


class _Training:
    """A network in training: what is held between steps, and the loop.

    Arguments:
        start: what to compute, and what to begin with.
        corpus: what to learn from.
        held_out: text that is never learned from, if there is some.
        place: this process among those of the run.
        folder: where checkpoints and the log are.
        report: is handed every line of the log.
    """

    def __init__(
        self,
        start: Start,
        corpus: EncodedCorpus,
        held_out: EncodedCorpus | None,
        place: Place,
        folder: Path,
        report: Listener | None,
    ) -> None:
        self.start, self.config, self.corpus, self.place = start, start.config, corpus, place
        config = self.config
        model, self.scheme_parts = start.choose_model(corpus)
        scheme = make_scheme(model, **self.scheme_parts)
        self.network = build_network(config, model, corpus, place.device)
        self.optimiser = Optimiser(self.network, config)
        self.reader = build_reader(config, corpus, scheme, place)
        self.stepper = build_stepper(config, self.network, corpus, self.reader, place)
        self.meter = Meter(self.stepper, self.optimiser, place.total)
        self.guard = RateGuard()
        self.journal = Journal(folder / "log.jsonl", report)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.held_out: SentenceReader | None = None
        if held_out is not None:
            # No more at once than a step reads: measuring should not need the most memory. One seed for all runs.
            at_once = min(HELD_OUT_TOKENS, config.tokens_per_batch)
            sizes = {"tokens_per_batch": at_once, "widest_filter": config.widest_filter}
            self.held_out = SentenceReader(held_out, scheme, **sizes, rank=place.rank, world=place.world)
        self.step, self.tokens = 0, 0
        self._move: Callable[[float], Any] = self.optimiser.step
        self._record_at = RECORD_AFTER
        self.evaluations: list[dict[str, float]] = []
        self._has_told_speed = False

    def introduce(self) -> None:
        """Say what is about to be computed, for somebody who sees it for the first time."""
        config, corpus, network = self.config, self.corpus, self.network
        body, output = (sum(p.numel() for p in part.parameters()) for part in (network.body, network.softmax))
        passes = config.tokens / self.reader.tokens_per_epoch
        bilm = network.body.bilm
        details = {"clips": bilm.clips, "has_projection": bilm.config.has_projection, "wants_grad": True}
        engine = choose(Request("recurrence", self.place.device, network.dtype, **details))
        made_of = ENGINES.get(engine.name, "torch")
        processes = f", {self.place.world} processes" if self.place.world > 1 else ""
        others = "are <UNK>" if config.input == "words" else "are read by their letters and predicted as <UNK>"
        others = f"; the others {others}" if corpus.coverage < 1 else ""
        lines = [
            f"text        {corpus.num_tokens:,} words in {corpus.num_sentences:,} sentences",
            f"vocabulary  {corpus.vocabulary_size:,} words, {corpus.coverage:.1%} of the text{others}",
            f"model       {body:,} parameters, {output:,} more in the output layer; "
            f"a word's vector has {network.config.dim} numbers",
            f"computes    on {self.place.device.type}{processes} with {made_of} ({engine.reason})",
            f"plan        {config.tokens:,} words ({passes:,.1f} times the text), {config.tokens_per_batch:,} per step",
        ]
        if passes > MANY_PASSES:
            lines.append(f"            more than {MANY_PASSES} times: --held-out shows whether that still helps")
        reading = 6 * body * config.tokens_per_batch / self.place.world  # forward and backward pass, roughly
        if self.place.device.type == "cpu" and self.optimiser.flops > DEAR_STEPS * reading:
            lines.append(
                f"            Muon costs {self.optimiser.flops / reading:.0f} times as much as reading so few words: "
                "on a CPU --optimiser adamw --learning-rate 3e-4 is much faster"
            )
        lines += self._warn_of_coverage()
        for line in lines:
            self.place.say(line)

    def _warn_of_coverage(self) -> Iterator[str]:
        """Lines about a text of which the vocabulary has less than half."""
        known = self.corpus.coverage
        if known < LEAST_COVERAGE:
            yield f"warning     the vocabulary has only {known:.1%} of the text: the model learns little but <UNK>;"
            yield "            use a larger --vocabulary-size, a smaller --min-count, or text in smaller words"
        known = 1.0 if self.held_out is None else self.held_out.corpus.coverage
        if known < LEAST_COVERAGE:
            yield f"warning     the vocabulary has only {known:.1%} of the held-out text: its perplexity is mostly that"
            yield "            of <UNK>; is it in the same language, and split into words in the same way?"

    def resume(self) -> None:
        """Continue from the last checkpoint, if there is one; what the log says beyond it is dropped."""
        saved = self.checkpoints.latest(self.place.device)
        if saved is None:
            self.place.say(f"starts      {self.start.fill(self.network, self.corpus)}")
        else:
            with self.checkpoints.explain_misfit():
                self._load(build_from(TrainingState, saved))
            self.place.say(f"continues   from its checkpoint at {self.tokens:,} words")
        if self.place.is_first:
            self.journal.truncate(self.step)

    def _load(self, saved: TrainingState) -> None:
        path, own = self.checkpoints.latest_path, self.network.state_dict()
        wanted, found = ({name: tuple(part.shape) for name, part in each.items()} for each in (own, saved.network))
        compare_shapes(wanted, found, path)
        check_finite(saved.network, path)
        self.network.load_state_dict(saved.network)
        self.optimiser.load_state_dict(saved.optimizer, path)
        self.reader.load_state_dict(saved.reader)
        self.step, self.tokens, self.evaluations = saved.step, saved.tokens, saved.evaluations
        if saved.state is not None and isinstance(self.stepper, PlainStepper):
            check_finite(dict(zip(("hidden", "cell"), saved.state, strict=True)), path)
            self.stepper.load_state(BilmState(*saved.state), self.place.rank)
        self.meter.load_state(saved.meter, is_first=self.place.is_first)
        if saved.guard is not None:
            self.guard.load_state(saved.guard)

    def run(self, stop: Stop) -> bool:
        """Train until all words are seen, or until the run should stop; says whether it was the former."""
        self._record_at = self.step + RECORD_AFTER
        self.meter.restart_clock()
        with self._show_progress() as bar, _short_turns(self.place):
            while self.tokens < self.config.tokens:
                end = self._choose_output()
                with self._prefetch() as batches:
                    if not self._run_until(end, batches, bar, stop):
                        return False
        return True

    def _run_until(self, end: int, batches: Prefetcher[Prepared], bar: tqdm, stop: Stop) -> bool:
        """Train until so many words are seen, or until the run should stop; says whether it was the former."""
        config = self.config
        every = {"log": config.log_every, "evaluate": config.evaluate_every, "save": config.checkpoint_every}
        can_record = isinstance(self.stepper, GraphStepper) and config.optimiser != "adagrad"  # torch cannot
        while self.tokens < end:
            prepared, before = next(batches), self.tokens
            words = prepared.batch.global_tokens
            self.step, self.tokens = self.step + 1, self.tokens + words
            self.stepper.zero_grad()
            self.stepper.step(prepared)
            if can_record and self.step == self._record_at:
                self._move = self.optimiser.record()
            self._move(self._rate())
            self.meter.count(words)
            bar.update(words)
            is_last, is_late = self.tokens >= config.tokens, self._is_late(stop)
            due = {name for name, often in every.items() if is_last or before // often < self.tokens // often}
            if "log" in due or self.tokens >= end:  # what follows is another softmax, whose losses do not compare
                self._log(bar)
            if "evaluate" in due:
                self._evaluate()
            if "save" in due or is_late:
                self._save(batches.state_dict())
            if is_late and not is_last:
                return False
        return True

    def _choose_output(self) -> int:
        """Sample the softmax, or make it full from here on; gives the number of words after which that changes."""
        switch = round(self.config.full_after * self.config.tokens)
        if self.config.output == "sampled" and self.tokens < switch:
            return switch
        if self.stepper.sampler is not None:
            self.place.say(f"softmax     full from here on ({self.tokens:,} words)")
        self.stepper.sampler = None
        return self.config.tokens

    def facts(self) -> dict[str, str]:
        """What is known about the model, for its card."""
        words, counts = self.corpus.vocabulary[UNKNOWN + 1 :], self.corpus.counts_V[UNKNOWN + 1 :].tolist()
        facts = {
            **self.start.facts,
            "training_words": f"{self.tokens:,}",
            "corpus": f"{self.corpus.num_tokens:,} words in {self.corpus.num_sentences:,} sentences",
            "scripts": ", ".join(find_scripts(words, counts)),
            "elmokit": describe_version(),
        }
        if self.evaluations and self.evaluations[-1]["tokens"] == self.tokens:  # a run may go on without held-out text
            facts["held_out_perplexity"] = f"{self.evaluations[-1]['mean']:.2f}"
        return facts

    def note(self, kind: str, values: dict[str, Any]) -> None:
        """Add a line to the log, with the place it belongs to."""
        if self.place.is_first:
            self.journal.add({"kind": kind, "step": self.step, "tokens": self.tokens, **values})

    def _prefetch(self) -> Prefetcher[Prepared]:
        """The batches of the steps to come; whatever does not need the device is done by the thread that reads."""
        numbers = count(self.step + 1)
        return Prefetcher(self.reader, lambda batch: self.stepper.prepare(batch, next(numbers)))

    def _rate(self) -> float:
        """The multiplier of the learning rates: by schedule, and halved where too many steps were lost."""
        return self.guard.scale * self.config.rate(self.tokens)

    def _log(self, bar: tqdm) -> None:
        values = self.meter.read()
        steps, skipped = int(values.pop("steps")), int(values["skipped"])
        self._check_finite(values["loss"] + values.get("nearby", 0.0))
        if (reason := self.guard.find_divergence(steps, skipped)) is not None:
            raise self._divergence(reason)
        self.note("train", {**values, "rate": self._rate()})
        if skipped:
            self.place.say(f"skipped     {skipped:,} of the last {steps:,} steps: their gradients were not finite")
        if self.guard.count(steps, skipped):
            self.note("guard", {"rate_scale": self.guard.scale})
            self.place.say(
                f"halved      the learning rates, to {self.guard.scale:g} of the plan: too many steps are lost"
            )
        left = self.config.tokens - self.tokens
        if not self._has_told_speed and left > 0:
            speed = values["words_per_second"]
            self.place.say(f"speed       {speed:,} words/s: about {tqdm.format_interval(left / max(1, speed))} to go")
            self._has_told_speed = True
        text = f"loss {values['loss']:.3f}"
        if self.stepper.sampler is None:  # a sampled loss is of fewer words, so it says nothing of perplexity
            text += f", perplexity {to_perplexity(values['loss']):.1f}"
        if self.evaluations:
            text += f", held-out perplexity {self.evaluations[-1]['mean']:.1f}"
        bar.set_postfix_str(text)

    def _evaluate(self) -> None:
        if self.held_out is None:
            return
        perplexity = measure_perplexity(self.network, self.held_out, self.place)
        self.meter.restart_clock()
        self.evaluations.append({"tokens": self.tokens, **perplexity})
        self.note("held-out", perplexity)
        self.place.say(
            f"held-out perplexity after {self.tokens:,} words: forward {perplexity['forward']:.2f}, "
            f"backward {perplexity['backward']:.2f}, mean {perplexity['mean']:.2f}"
        )

    def _save(self, reader_state: dict[str, Any]) -> None:
        state = None
        if self.config.mode == "streams" and isinstance(self.stepper, PlainStepper):
            state = self.stepper.gather_state()
        meter = self.meter.state()
        weights = [weight.detach() for weight in self.network.parameters()]
        self._check_finite(sum(meter.sums) + sum(meter.nearby) + get_total_norm(weights).item())
        if self.place.is_first:
            self.checkpoints.save(
                self.step,
                {
                    "network": self.network.state_dict(),
                    "optimizer": self.optimiser.state_dict(),
                    "reader": reader_state,
                    "step": self.step,
                    "tokens": self.tokens,
                    "evaluations": self.evaluations,
                    "state": None if state is None else tuple(state),
                    "meter": asdict(meter),
                    "guard": asdict(self.guard.state()),
                },
            )
        self.place.wait()
        self.meter.restart_clock()

    def _check_finite(self, value: float) -> None:
        if not abs(value) < float("inf"):
            raise self._divergence(f"a loss or weight is {value}")

    def _divergence(self, what: str) -> TrainingError:
        kept = self.checkpoints.last_step
        then = "begins anew, for there is no checkpoint yet" if kept is None else f"continues from step {kept:,}"
        return TrainingError(
            f"training diverged: {what} by step {self.step:,} ({self.tokens:,} words); "
            f"the same command with a smaller --learning-rate and --muon-learning-rate {then}"
        )

    def _is_late(self, stop: Stop) -> bool:
        if self.place.world > 1 and (stop.deadline is None or self.step % ASK_TIME_EVERY):
            return False
        return self.place.total([float(stop.is_due)])[0] > 0  # all stop, or none

    @contextmanager
    def _show_progress(self) -> Iterator[tqdm]:
        counts = {"total": self.config.tokens, "initial": self.tokens, "unit": " words", "unit_scale": True}
        with show_progress(desc="training", smoothing=0.05, hidden=not self.place.is_first, **counts) as bar:
            yield bar


def build_reader(config: TrainConfig, corpus: EncodedCorpus, scheme: Scheme, place: Place) -> Reader:
    """The reader of this process's rows."""
    own: dict[str, Any] = {
        "widest_filter": config.widest_filter, "seed": config.seed, "rank": place.rank, "world": place.world,
    }  # fmt: skip
    if config.mode == "streams":
        rows = max(1, config.tokens_per_batch // config.unroll)
        return StreamReader(corpus, scheme, rows=rows, unroll=config.unroll, **own)
    return SentenceReader(corpus, scheme, tokens_per_batch=config.tokens_per_batch, **own)


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
