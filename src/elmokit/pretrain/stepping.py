# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""One step of training: a batch becomes gradients and running sums of its losses.

`PlainStepper` runs the network operation by operation: on a CPU, with several processes, with carried state. On one
GPU, where an LSTM's hundreds of small launches take the host longer than the device, `GraphStepper` records a step of
each shape once (a CUDA graph) and plays it back: the host then only copies a few arrays.

Shapes: N packed words, M = 2N of both directions, U distinct words, C columns of ids, S negatives; 2 stands for
forward and backward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn

from elmokit.devices import move_to_device, record_launches
from elmokit.nn.bilm import BilmState
from elmokit.pretrain.batches.batch import Batch
from elmokit.pretrain.batches.preparing import Layout, Prepared, join_arrays, split_memory
from elmokit.pretrain.batches.reader import Reader
from elmokit.pretrain.batches.sampling import Sampler
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.nearby import NearbyInputs, NearbySampler
from elmokit.pretrain.network import LanguageModelNetwork, Loss, StepInputs
from elmokit.pretrain.place import Place, choose_sum_dtype
from elmokit.pretrain.recipes import TrainConfig

__all__ = ["GraphStepper", "PlainStepper", "Stepper", "build_stepper", "fit_layout"]

FITTED_BATCHES = 32  # by which the layout of recorded steps is chosen


def build_stepper(
    config: TrainConfig, network: LanguageModelNetwork, corpus: EncodedCorpus, reader: Reader, place: Place
) -> Stepper:
    """Recorded steps where they can be: on one GPU, with whole sentences."""
    sampler = _build_sampler(config, corpus) if config.output == "sampled" else None
    nearby = NearbySampler(corpus.counts_V, seed=config.seed) if config.nearby else None
    draws: dict[str, Any] = {"sampler": sampler, "nearby": nearby, "seed": config.seed}
    if place.device.type == "cuda" and place.world == 1 and isinstance(reader, SentenceReader):
        return GraphStepper(network, fit_layout(config, reader), **draws)
    return PlainStepper(network, world=place.world, **draws)


def fit_layout(config: TrainConfig, reader: SentenceReader) -> Layout:
    """How the distinct words of this reader's batches are laid out, by what its first batches are like."""
    scheme = reader.scheme
    return Layout.fit(
        islice(reader.one_epoch(), FITTED_BATCHES),
        columns=scheme.columns,
        padding_id=int(scheme.begin_ids[-1]),
        widest_filter=config.widest_filter,
    )


def _build_sampler(config: TrainConfig, corpus: EncodedCorpus) -> Sampler:
    number = min(config.num_negatives, corpus.vocabulary_size - 1)
    if config.sampler == "log_uniform":
        return Sampler.log_uniform(corpus.vocabulary_size, num_samples=number, seed=config.seed)
    return Sampler.unigram(corpus.counts_V, num_samples=number, seed=config.seed)


class Stepper(ABC):
    """Turns batches into gradients. A thread that reads the corpus calls `prepare`, the training loop all others.

    Arguments:
        network: what is trained.
        sampler: draws the negatives of a sampled softmax; `None` for the full one.
        nearby: draws the words nearby; `None` where the next word alone is predicted.
        seed: of the run, from which dropout is drawn together with the number of the step.

    Attributes:
        sampler: set to `None` between two batches, it makes the softmax full from then on.
        loss_sums: the loss of each direction, in nats, and with a second task that of the words nearby and their
            number, summed until somebody sets it to 0.
    """

    def __init__(
        self, network: LanguageModelNetwork, *, sampler: Sampler | None, nearby: NearbySampler | None, seed: int
    ) -> None:
        self.network, self.sampler, self.nearby = network, sampler, nearby
        self.device = next(network.parameters()).device
        number = 2 if nearby is None else 4
        self.loss_sums = torch.zeros(number, dtype=choose_sum_dtype(self.device), device=self.device)
        self._seed = seed

    @abstractmethod
    def prepare(self, batch: Batch, number: int) -> Prepared:
        """The batch of the step of that number with all that can be known beforehand."""

    @abstractmethod
    def zero_grad(self) -> None:
        """Make room for the gradients of the next step."""

    @abstractmethod
    def step(self, prepared: Prepared) -> None:
        """Give the parameters the gradients of one batch, and add its loss to `loss_sums`."""

    def _seed_of(self, number: int) -> int:
        return ((self._seed & 0xFFFFFF) << 32) + number

    def _prepare_plainly(self, batch: Batch, number: int) -> Prepared:
        """The batch with all that is drawn for its step, the same on all ranks."""
        nearby = [] if self.nearby is None else self.nearby.draw(batch, number)
        if self.sampler is None:
            return Prepared(batch, number, [], nearby)
        targets_2N = (batch if batch.num_tokens else _one_word(batch)).targets_2N
        drawn = self.sampler.draw(number)
        log_expected_2N = self.sampler.log_expected(targets_2N, drawn.tries)
        return Prepared(batch, number, [drawn.ids_S, drawn.log_expected_S, log_expected_2N], nearby)

    def _inputs(self, batch: Batch, prepared: Prepared) -> tuple[StepInputs, list[Tensor], list[Tensor], Tensor]:
        """What a step reads, its negatives, the words nearby and its seed, on the device."""
        negatives, nearby = (
            [move_to_device(array, self.device) for array in arrays] for arrays in (prepared.negatives, prepared.nearby)
        )
        seed = torch.tensor(self._seed_of(prepared.number), device=self.device)
        return StepInputs.of(batch, self.device), negatives, nearby, seed

    def _loss(self, negatives: Sequence[Tensor]) -> Loss | None:
        if not negatives:
            return None
        ids_S, log_expected_S, log_expected_2N = negatives

        def sampled(outputs_MP: Tensor, targets_M: Tensor) -> tuple[Tensor, Tensor]:
            own_M = log_expected_2N.flatten()
            return self.network.softmax.sampled_losses(outputs_MP, targets_M, ids_S, log_expected_S, own_M)

        return sampled


class PlainStepper(Stepper):
    """Runs steps one operation at a time, alone or as one of several processes, from zero or carried state.

    Arguments:
        network: what is trained.
        sampler: draws the negatives of a sampled softmax; `None` for the full one.
        seed: of the run.
        world: how many processes share a batch; they add up their gradients.
        nearby: draws the words nearby; `None` where the next word alone is predicted.
    """

    def __init__(
        self,
        network: LanguageModelNetwork,
        *,
        sampler: Sampler | None = None,
        seed: int = 0,
        world: int = 1,
        nearby: NearbySampler | None = None,
    ) -> None:
        super().__init__(network, sampler=sampler, nearby=nearby, seed=seed)
        self.world = world
        self.state: BilmState | None = None
        self._wrapped = nn.parallel.DistributedDataParallel(network) if world > 1 else network

    def prepare(self, batch: Batch, number: int) -> Prepared:
        """Draw the negatives and the words nearby."""
        return self._prepare_plainly(batch, number)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.network.parameters():
            parameter.grad = None

    def step(self, prepared: Prepared) -> None:
        """Run one batch forward and backward, and keep the state where it is carried."""
        batch = prepared.batch
        scale = self.world / (2 * batch.global_tokens)
        if not batch.num_tokens:
            # More processes than rows. The others wait for gradients from all, so one word is read for nothing.
            batch, scale = _one_word(batch), 0.0
        inputs, negatives, nearby, seed = self._inputs(batch, prepared)
        if batch.starts_fresh or self.state is None:
            self.state = self.network.zero_state(batch.num_rows)
        besides = NearbyInputs(*nearby) if nearby else None
        total, losses, state = self._wrapped(inputs, self.state, self._loss(negatives), seed, nearby=besides)
        total.backward(total.new_full((), scale))
        if scale:
            self.loss_sums += losses
        self.state = state.detach()

    def gather_state(self) -> BilmState | None:
        """The carried state of all rows of the global batch; every process must ask."""
        if self.state is None or self.world == 1:
            return self.state
        gathered: list[tuple[Tensor, ...]] = [()] * self.world
        distributed.all_gather_object(gathered, tuple(part.cpu() for part in self.state))
        states = [BilmState(*parts) for parts in gathered]
        num_rows = sum(state.num_rows for state in states)
        whole = BilmState.zeros(self.network.config.lstm, num_rows, like=states[0].hidden)
        for rank, (hidden, cell) in enumerate(states):  # rank r takes rows r, r + world, …
            whole.hidden[:, :, rank :: self.world], whole.cell[:, :, rank :: self.world] = hidden, cell
        return whole

    def load_state(self, state: BilmState, rank: int) -> None:
        """Continue from the state of all rows: this process takes its own."""
        hidden, cell = (part[:, :, rank :: self.world].to(self.device, self.network.dtype) for part in state)
        self.state = BilmState(hidden, cell)


class GraphStepper(Stepper):
    """Plays recorded steps back on a GPU: one recording for each length of sentence.

    To make shapes repeat, the distinct words of a batch are laid out in blocks of fixed size (see `preparing.py`), and
    all that a step reads is copied as one piece of memory. A batch that does not fit runs operation by operation. The
    first batch of a shape always does, so that everything is compiled and loaded when the second is recorded.

    Arguments:
        network: what is trained.
        layout: of the distinct words.
        sampler: draws the negatives of a sampled softmax; `None` for the full one.
        seed: of the run.
        nearby: draws the words nearby; `None` where the next word alone is predicted.
    """

    def __init__(
        self,
        network: LanguageModelNetwork,
        layout: Layout,
        *,
        sampler: Sampler | None = None,
        seed: int = 0,
        nearby: NearbySampler | None = None,
    ) -> None:
        super().__init__(network, sampler=sampler, nearby=nearby, seed=seed)
        self.layout = layout
        self._seen: set[tuple[int, int, bool]] = set()
        self._graphs: dict[tuple[int, int, bool], _Recording] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)  # recorded steps write to these, so they stay where they are
        self._gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    def prepare(self, batch: Batch, number: int) -> Prepared:
        """Draw what is random, and lay all that a recorded step reads out in one piece of memory."""
        plain = self._prepare_plainly(batch, number)
        is_even = batch.starts_fresh and bool(batch.num_tokens) and batch.batch_sizes[-1] == batch.num_rows
        laid_out = self.layout.lay_out(batch) if is_even else None
        if laid_out is None:
            return plain
        arrays = [*laid_out, np.array([self._seed_of(number)]), *plain.negatives, *plain.nearby]
        return plain._replace(arrays=arrays, memory=join_arrays(arrays))

    def zero_grad(self) -> None:
        """Nothing to do: a step overwrites them."""

    def step(self, prepared: Prepared) -> None:
        """Play the recorded step of this shape back; record it at its second batch."""
        batch, arrays, memory = prepared.batch, prepared.arrays, prepared.memory
        shape = (len(batch.batch_sizes), batch.num_rows, bool(prepared.negatives))
        if arrays is None or memory is None or shape not in self._seen:
            self._seen.add(shape)
            inputs, negatives, nearby, seed = self._inputs(batch, prepared)
            state = self.network.zero_state(batch.num_rows)
            self._run(inputs, state, negatives, nearby, seed, 1 / (2 * batch.global_tokens))
            return
        if shape not in self._graphs:
            self._graphs[shape] = self._record(torch.empty_like(memory, device=self.device), arrays, prepared)
        recording = self._graphs[shape]
        recording.memory.copy_(memory.pin_memory() if self._pool else memory, non_blocking=True)
        recording.replay()

    def _run(
        self,
        inputs: StepInputs,
        state: BilmState,
        negatives: Sequence[Tensor],
        nearby: Sequence[Tensor],
        seed: Tensor,
        scale: float,
    ) -> None:
        """Gradients go straight to their place: cast on the way, and not added to zeros."""
        weights, besides = self.network.cast_weights(), NearbyInputs(*nearby) if nearby else None
        total, losses, _ = self.network(inputs, state, self._loss(negatives), seed, weights, besides)
        output = list(self.network.parameters())[len(weights) :]
        gradients = torch.autograd.grad(total, [*weights.values(), *output], total.new_full((), scale))
        gradients = [gradient.contiguous() for gradient in gradients]
        # One launch each: torch takes tensors of one dtype at a time.
        torch._foreach_copy_(self._gradients[: len(weights)], gradients[: len(weights)])
        torch._foreach_copy_(self._gradients[len(weights) :], gradients[len(weights) :])
        self.loss_sums += losses

    def _record(self, memory: Tensor, arrays: list[np.ndarray], prepared: Prepared) -> _Recording:
        batch, num_negatives = prepared.batch, len(prepared.negatives)
        scale, num_blocks = 1 / (2 * batch.global_tokens), len(self.layout.blocks)
        parts = split_memory(memory, arrays)
        state = self.network.zero_state(batch.num_rows)

        def run() -> None:
            blocks = [block for block in parts[:num_blocks] if len(block)]
            words_2N, targets_2N, keys_N, seed, *drawn = parts[num_blocks:]
            inputs = StepInputs(blocks, words_2N.long(), targets_2N.long(), keys_N, batch.batch_sizes)
            self._run(inputs, state, drawn[:num_negatives], drawn[num_negatives:], seed, scale)

        return _Recording(record_launches(run, self._pool), memory, state)


class _Recording(NamedTuple):
    """A recorded step and the memory it reads, which must stay."""

    replay: Callable[[], None]
    memory: Tensor
    state: BilmState


def _one_word(batch: Batch) -> Batch:
    """A batch of one row with one word, for a process that has no row of its own."""
    one, two = np.zeros(1, np.int64), np.zeros((2, 1), np.int64)
    return replace(batch, words_2N=two, targets_2N=two, keys_N=one, batch_sizes=[1], starts_fresh=True)
