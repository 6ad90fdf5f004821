"""Training, one story from top to bottom: text → encoded corpus → batches → steps → a model folder.

    PYTHONPATH=src python -m elmokit.pretrain.train TEXT… -o DIR [--recipe small] [--field value]…

The model appears in DIR, complete, at the end. Until then, and afterwards for whoever wants to look, `DIR.training` holds
the encoded text, `log.jsonl` (a line now and then) and the last two checkpoints. Called again with the same arguments, a
run that was killed goes on from its last checkpoint to the same losses; a finished one says so. Under `torchrun` every process takes its rows of each batch; the checkpoints
do not depend on how many there are.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from tqdm import tqdm

from elmokit.characters import Scheme, scheme_for
from elmokit.errors import ConfigError, ElmoError
from elmokit.nn.sampling import Sampler
from elmokit.nn.softmax import AdaptiveSoftmax, OutputLayer, Softmax
from elmokit.pretrain.corpus import EncodedCorpus
from elmokit.pretrain.encoding import encode_corpus
from elmokit.pretrain.network import LanguageModelNetwork, StepInputs
from elmokit.pretrain.optim import Optimiser, OptimiserConfig, build_optimizer
from elmokit.pretrain.reader import Prefetcher, Reader, SentenceReader, StreamReader
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.saving import Checkpoints, save_model
from elmokit.pretrain.schedules import rate_at
from elmokit.pretrain.stepping import GraphStepper, Stepper

__all__ = ["HeldOut", "TrainingError", "held_out_perplexity", "train"]

LOG_EVERY_SECONDS = 2.0
RECORD_AFTER = 3  # steps after which a GPU's optimiser step is recorded: its state is there then


class TrainingError(ElmoError, RuntimeError):
    """A run that cannot go on; the message says where its last good checkpoint is."""


def train(
    texts: Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    config: TrainConfig,
    *,
    held_out: Sequence[str | os.PathLike[str]] = (),
    tokenised: bool = False,
    held_out_tokenised: bool | None = None,
    workers: int | None = None,
    device: str | None = None,
    minutes: float | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Path | None:
    """Train a model on text and write it to `destination`; gives that folder, or `None` if `minutes` ran out before.

    Arguments:
        texts: files, globs or `-`; compressed files are unpacked. An encoded corpus folder is taken as it is.
        destination: the model's folder, which must not exist yet; a run begun for it goes on.
        config: what to compute; a run goes on with the configuration it began with.
        held_out: text for perplexity, never trained on.
        tokenised: the text has one sentence a line, words between spaces.
        held_out_tokenised: the same for the held-out text; like `tokenised` if not given.
        workers: processes that segment.
        device: where to compute; a GPU if there is one.
        minutes: stop with a checkpoint after so many minutes; call again to go on.
        report: is handed every line of the log.
    """
    began = time.monotonic()
    # The thread that prepares batches must not keep the one that feeds the GPU waiting for its turn (5 ms by default).
    sys.setswitchinterval(1e-4)
    model_folder = Path(destination)
    folder = model_folder.with_name(model_folder.name + ".training")
    place = _Place.here(device)
    if (model_folder / "config.json").is_file():
        place.say(f"{model_folder}: this run is finished; its model is there")
        return model_folder
    if place.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        _keep_config(folder, config)
        _encoded(texts, folder / "corpus", config, tokenised=tokenised, workers=workers)
        if held_out:
            vocabulary = EncodedCorpus.open(_corpus_folder(texts, folder)).vocabulary
            same = tokenised if held_out_tokenised is None else held_out_tokenised
            _encoded_held_out(held_out, folder / "held-out", vocabulary, tokenised=same, workers=workers)
    place.wait()
    run = _Run(config, folder, EncodedCorpus.open(_corpus_folder(texts, folder)), place, report)
    if held_out:
        run.held_out = HeldOut(EncodedCorpus.open(folder / "held-out"), run.scheme)
    run.resume()
    finished = run.go_on(None if minutes is None else began + 60 * minutes)
    if not finished:
        return None
    if place.is_first:
        save_model(model_folder, run.network, run.scheme_parts, run.corpus.vocabulary, run.card())
    place.wait()
    return model_folder


@dataclass(frozen=True)
class _Place:
    """Which of how many processes this is, and where it computes."""

    rank: int
    world: int
    device: torch.device

    @classmethod
    def here(cls, device: str | None) -> _Place:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if world == 1:
            return cls(0, 1, torch.device(kind))
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if kind.startswith("cuda") else "gloo")
        if kind.startswith("cuda"):
            kind = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
            torch.cuda.set_device(kind)
        return cls(distributed.get_rank(), world, torch.device(kind))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        if self.world > 1:
            distributed.barrier()

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of these numbers over all processes."""
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.world > 1:
            distributed.all_reduce(sums)
        return sums.tolist()

    def say(self, line: str) -> None:
        if self.is_first:
            tqdm.write(line)


class _Run:
    """Everything that a run holds between steps."""

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        corpus: EncodedCorpus,
        place: _Place,
        report: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.config, self.folder, self.corpus, self.place, self.report = config, folder, corpus, place, report
        model, self.scheme_parts = config.model_for(corpus)
        self.scheme = scheme_for(model, **self.scheme_parts)
        torch.manual_seed(config.seed)  # a run owns its process: weights start the same on every rank
        dtype = _dtype(config.precision, place.device)
        self.network = LanguageModelNetwork(model, _output(config, corpus, model), dropout=config.dropout, dtype=dtype)
        self.network.to(place.device)
        self.optimizer = build_optimizer(self.network, _optimiser_config(config))
        self.reader = _reader(config, corpus, self.scheme, place)
        self.stepper = _stepper(config, self.network, corpus, self.scheme, place)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.held_out: HeldOut | None = None
        self.step, self.tokens, self.evaluations = 0, 0, []

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        saved = self.checkpoints.latest(self.place.device)
        if saved is None:
            return
        self.network.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.reader.load_state_dict(saved["reader"])
        self.step, self.tokens, self.evaluations = saved["step"], saved["tokens"], saved["evaluations"]
        if saved["state"] is not None:
            self.stepper.load_state(saved["state"], self.place.rank, self.place.world)
        self.place.say(f"goes on from step {self.step:,}, {self.tokens:,} words")

    def go_on(self, deadline: float | None) -> bool:
        """Train until all words are seen, or the deadline; says whether it was the former."""
        config = self.config
        total = config.tokens
        next_evaluation = _next(self.tokens, config.evaluate_every)
        next_checkpoint = _next(self.tokens, config.checkpoint_every)
        meter = _Meter(self)
        move: Callable[[float], Any] = self.optimizer.step
        first_step = self.step
        bar = tqdm(total=total, initial=self.tokens, unit="w", unit_scale=True, disable=None if self.place.is_first else True)
        with bar, Prefetcher(self.reader) as batches:
            while self.tokens < total:
                batch = next(batches)
                self.tokens += batch.global_tokens
                self.step += 1
                self.stepper.zero_grad()
                self.stepper.step(batch, self.step)
                if isinstance(self.stepper, GraphStepper) and self.step == first_step + RECORD_AFTER:
                    move = self.optimizer.recorded()
                move(self._rate())
                meter.count(batch)
                bar.update(batch.global_tokens)
                late = deadline is not None and time.monotonic() > deadline
                if meter.is_due() or late or self.tokens >= total:
                    meter.log(bar)
                if self.tokens >= next_evaluation or self.tokens >= total:
                    self._evaluate()
                    next_evaluation = _next(self.tokens, config.evaluate_every)
                    meter.restart()
                if self.tokens >= next_checkpoint or late or self.tokens >= total:
                    meter.log(bar)
                    self._save(batches.state_dict())
                    next_checkpoint = _next(self.tokens, config.checkpoint_every)
                if late and self.tokens < total:
                    return False
        return True

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to the log, and hand it to whoever listens."""
        if not self.place.is_first:
            return
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.report is not None:
            self.report(line)

    def card(self) -> dict[str, str]:
        """What is known about the model, for its card."""
        facts = {"tokens": f"{self.tokens:,}", "corpus": f"{self.corpus.num_tokens:,} words"}
        if self.evaluations:
            facts["held_out_perplexity"] = f"{self.evaluations[-1]['mean']:.2f}"
        return facts

    def _rate(self) -> float:
        config = self.config
        return rate_at(
            self.tokens,
            decay=config.decay,
            total=config.tokens,
            warmup=config.warmup_tokens,
            floor=config.final_learning_rate,
        )

    def _evaluate(self) -> None:
        if self.held_out is None:
            return
        perplexity = held_out_perplexity(self.network, self.held_out)
        self.evaluations.append({"tokens": self.tokens, **perplexity})
        self.log({"kind": "held-out", "step": self.step, "tokens": self.tokens, **perplexity})
        self.place.say(
            f"held-out perplexity after {self.tokens:,} words: forward {perplexity['forward']:.2f}, "
            f"backward {perplexity['backward']:.2f}, mean {perplexity['mean']:.2f}"
        )

    def _save(self, reader_state: dict[str, Any]) -> None:
        state = self.stepper.gathered_state(self.place.rank, self.place.world) if self.config.mode == "streams" else None
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
                    "state": state,
                },
            )
        self.place.wait()


class _Meter:
    """Loss and speed since the last line of the log."""

    def __init__(self, run: _Run) -> None:
        self.run, self.tokens = run, 0
        self.restart()

    def restart(self) -> None:
        self.since, self.tokens_since = time.monotonic(), self.tokens

    def count(self, batch: Any) -> None:  # noqa: ANN401
        self.tokens += batch.global_tokens
        self.own_tokens = getattr(self, "own_tokens", 0) + batch.num_tokens

    def is_due(self) -> bool:
        # All processes must agree on when to add their losses up, so with several the steps decide, not the clock.
        if self.run.place.world > 1:
            return self.run.step % 50 == 0
        return time.monotonic() - self.since >= LOG_EVERY_SECONDS

    def log(self, bar: tqdm) -> None:
        if not getattr(self, "own_tokens", 0):
            return
        run = self.run
        forward, backward, tokens = run.place.total([*run.stepper.take_loss_sums(), self.own_tokens])
        loss = (forward + backward) / (2 * tokens)
        self.own_tokens = 0
        seconds = max(1e-9, time.monotonic() - self.since)
        speed = (self.tokens - self.tokens_since) / seconds
        self.restart()
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss became {loss} at step {run.step:,} ({run.tokens:,} words): the last good checkpoint is kept in "
                f"{run.checkpoints.folder}; go on from it with a smaller learning rate"
            )
        run.log(
            {
                "kind": "train", "step": run.step, "tokens": run.tokens, "loss": loss, "forward": forward / tokens,
                "backward": backward / tokens, "words_per_second": round(speed), "rate": run._rate(),
            }
        )  # fmt: skip
        bar.set_postfix_str(f"loss {loss:.3f}, perplexity {math.exp(min(loss, 50)):.1f}")


class HeldOut:
    """Held-out text as the batches of one pass over it."""

    def __init__(self, corpus: EncodedCorpus, scheme: Scheme, *, tokens_per_batch: int = 8192) -> None:
        self.corpus = corpus
        self.reader = SentenceReader(corpus, scheme, tokens_per_batch=tokens_per_batch)


@torch.no_grad()
def held_out_perplexity(network: LanguageModelNetwork, held_out: HeldOut) -> dict[str, float]:
    """Full-softmax perplexity of each direction and their mean, every sentence from the zero state, in float32."""
    device = next(network.parameters()).device
    sums_2 = torch.zeros(2, dtype=torch.float64, device=device)
    tokens, dtype = 0, network.dtype
    network.dtype = torch.float32
    try:
        for batch in held_out.reader.one_epoch():
            inputs = StepInputs.of(batch.to(device))
            losses_2, _ = network(inputs, network.zero_state(batch.num_rows))
            sums_2 += losses_2
            tokens += batch.num_tokens
    finally:
        network.dtype = dtype
    forward, backward = (sums_2 / tokens).tolist()
    return {"forward": math.exp(forward), "backward": math.exp(backward), "mean": math.exp((forward + backward) / 2)}


def _corpus_folder(texts: Sequence[str | os.PathLike[str]], folder: Path) -> Path:
    given = Path(texts[0]) if len(texts) == 1 else None
    return given if given is not None and (given / "corpus.json").is_file() else folder / "corpus"


def _encoded(
    texts: Sequence[str | os.PathLike[str]], folder: Path, config: TrainConfig, *, tokenised: bool, workers: int | None
) -> None:
    if (_corpus_folder(texts, folder.parent) / "corpus.json").is_file():
        return
    if not texts:
        raise ConfigError("no text was given: name files, globs or - for standard input")
    encode_corpus(
        list(texts),
        folder,
        vocabulary_size=config.vocabulary_size,
        min_count=config.min_count,
        tokenised=tokenised,
        workers=workers,
    )


def _encoded_held_out(
    texts: Sequence[str | os.PathLike[str]], folder: Path, vocabulary: Sequence[str], *, tokenised: bool, workers: int | None
) -> None:
    if not (folder / "corpus.json").is_file():
        encode_corpus(list(texts), folder, vocabulary=vocabulary, tokenised=tokenised, workers=workers)


def _keep_config(folder: Path, config: TrainConfig) -> None:
    """A run keeps its configuration; another one in its folder is refused, except for how long and how often."""
    path = folder / "training.json"
    values = config.to_dict()
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        free = {"evaluate_every", "checkpoint_every"}
        changed = sorted(name for name in values if name not in free and before.get(name) != json.loads(json.dumps(values[name])))
        if changed:
            raise ConfigError(
                f"{folder} holds a run with another {', '.join(changed)}: go on with the same settings, or choose another folder"
            )
    path.write_text(json.dumps(values, indent=2), encoding="utf-8")


def _dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" else "float32"
    return getattr(torch, precision)


def _output(config: TrainConfig, corpus: EncodedCorpus, model: Any) -> OutputLayer:  # noqa: ANN401
    width, size = model.lstm.projection_dim, corpus.vocabulary_size
    if config.output == "adaptive":
        return AdaptiveSoftmax(size, width)
    return Softmax(size, width, counts_V=torch.from_numpy(np.array(corpus.counts_V)))


def _optimiser_config(config: TrainConfig) -> OptimiserConfig:
    return OptimiserConfig(
        optimiser=config.optimiser,
        learning_rate=config.learning_rate,
        muon_learning_rate=config.muon_learning_rate,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        loss_scale=20.0 if config.optimiser == "adagrad" else 1.0,  # bilm-tf multiplies its loss by its 20 steps
    )


def _reader(config: TrainConfig, corpus: EncodedCorpus, scheme: Scheme, place: _Place) -> Reader:
    shared: dict[str, Any] = {
        "widest_filter": config.widest_filter, "seed": config.seed, "rank": place.rank, "world": place.world,
    }  # fmt: skip
    if config.mode == "streams":
        rows = max(1, config.tokens_per_batch // config.unroll)
        return StreamReader(corpus, scheme, rows=rows, unroll=config.unroll, **shared)
    return SentenceReader(corpus, scheme, tokens_per_batch=config.tokens_per_batch, **shared)


def _stepper(
    config: TrainConfig, network: LanguageModelNetwork, corpus: EncodedCorpus, scheme: Scheme, place: _Place
) -> Stepper:
    sampler = None
    if config.output == "sampled":
        number = min(config.num_negatives, corpus.vocabulary_size - 1)
        if config.sampler == "unigram":
            sampler = Sampler.unigram(corpus.counts_V, num_samples=number, alpha=config.sampler_power, seed=config.seed)
        else:
            sampler = Sampler.log_uniform(corpus.vocabulary_size, num_samples=number, seed=config.seed)
    if place.device.type == "cuda" and place.world == 1 and config.mode == "sentences":
        return GraphStepper(
            network,
            tokens_per_batch=config.tokens_per_batch,
            columns=scheme.columns,
            padding_id=int(scheme.begin_ids[-1]),
            widest_filter=config.widest_filter,
            sampler=sampler,
        )
    wrapped = nn.parallel.DistributedDataParallel(network) if place.world > 1 else None
    return Stepper(network, wrapped=wrapped, sampler=sampler, world=place.world)


def _next(tokens: int, every: int) -> int:
    return (tokens // every + 1) * every


if __name__ == "__main__":
    from elmokit.pretrain.arguments import parsed

    _config, _values = parsed()
    train(_values.pop("texts"), _values.pop("destination"), _config, **_values)
