# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""One step of training: a batch becomes gradients and two running sums of its loss.

`Stepper` runs the network operation by operation: on a CPU, with several processes, for the odd batch. On one GPU,
where an LSTM's hundreds of small launches take the host longer than the device, `GraphStepper` records a step of each
shape once (a CUDA graph) and plays it back: the host then only copies a few arrays.

Shapes: N packed words, M = 2N of both directions, U distinct words, C columns of ids, S negatives; 2 stands for
forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn

from elmokit.devices import move_to_device
from elmokit.nn.bilm import BilmState
from elmokit.nn.softmax import Softmax
from elmokit.pretrain.batches.batch import Batch
from elmokit.pretrain.batches.preparing import Layout, Prepared, joined, parts_of
from elmokit.pretrain.batches.sampling import Negatives, Sampler
from elmokit.pretrain.network import LanguageModelNetwork, Loss, StepInputs

__all__ = ["GraphStepper", "Stepper"]


class Stepper:
    """Runs steps one operation at a time.

    Arguments:
        network: what is trained.
        wrapped: the same network behind `DistributedDataParallel`, when several processes train it.
        sampler: draws the negatives of a sampled softmax; `None` for the full one.
        corrects_targets: whether the targets' logits are corrected too (bilm-tf does), see `Softmax.sampled_loss`.
        world: how many processes share a batch.
        seed: of the run, from which dropout is drawn together with the number of the step.

    Attributes:
        loss_sums_2: what was lost in each direction, in nats, until somebody sets it to 0.
    """

    def __init__(
        self,
        network: LanguageModelNetwork,
        *,
        wrapped: nn.Module | None = None,
        sampler: Sampler | None = None,
        corrects_targets: bool = True,
        world: int = 1,
        seed: int = 0,
    ) -> None:
        self.network = network
        self.wrapped = network if wrapped is None else wrapped
        self.sampler = sampler
        self.corrects_targets = corrects_targets
        self.world = world
        self.seed = seed
        self.device = next(network.parameters()).device
        self.state: BilmState | None = None
        self.loss_sums_2 = torch.zeros(2, dtype=torch.float64, device=self.device)

    def prepared(self, batch: Batch[np.ndarray], number: int) -> Prepared:
        """The batch of the step of that number with all that can be known beforehand; for another thread to do."""
        return Prepared(batch, number, self._negatives(batch, number))

    def step(self, prepared: Prepared) -> None:
        """Add the gradients of one batch to the parameters', and its loss to `loss_sums_2`."""
        batch = prepared.batch
        scale = self.world / (2 * batch.global_tokens)
        if not batch.num_tokens:
            # More processes than rows. The others wait for gradients from all, so one word is read for nothing.
            batch, scale = _one_word(batch), 0.0
        inputs = StepInputs.of(batch.to(self.device))
        negatives = [move_to_device(array, self.device) for array in prepared.negatives]
        if batch.starts_fresh or self.state is None:
            self.state = self.network.zero_state(batch.num_rows)
        seed = torch.tensor(self._step_seed(prepared.number), device=self.device)
        self.state = self._run(inputs, self.state, negatives, seed, scale).detach()

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.network.parameters():
            parameter.grad = None

    def gathered_state(self) -> BilmState | None:
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
        """Go on from the state of all rows: this process takes its own."""
        hidden, cell = (part[:, :, rank :: self.world].to(self.device, self.network.dtype) for part in state)
        self.state = BilmState(hidden, cell)

    def _run(
        self, inputs: StepInputs, state: BilmState, negatives: Sequence[Tensor], seed: Tensor, scale: float
    ) -> BilmState:
        total, losses_2, state = self.wrapped(inputs, state, self._loss(negatives), seed)
        total.backward(total.new_full((), scale))
        if scale:
            self.loss_sums_2 += losses_2
        return state

    def _loss(self, negatives: Sequence[Tensor]) -> Loss | None:
        if not negatives:
            return None
        ids_S, log_expected_S, log_expected_2N = negatives

        def sampled(outputs_MP: Tensor, targets_M: Tensor) -> tuple[Tensor, Tensor]:
            softmax = self.network.softmax
            assert isinstance(softmax, Softmax)
            own_M = log_expected_2N.flatten() if self.corrects_targets else None
            return softmax.sampled_losses(outputs_MP, targets_M, ids_S, log_expected_S, own_M)

        return sampled

    def _step_seed(self, number: int) -> int:
        return ((self.seed & 0xFFFFFF) << 32) + number

    def _negatives(self, batch: Batch[np.ndarray], number: int) -> list[np.ndarray]:
        """The negatives of this step, the same for both directions and on all ranks."""
        if self.sampler is None:
            return []
        if not batch.num_tokens:
            batch = _one_word(batch)
        drawn: Negatives = self.sampler.draw(number)
        targets_2N = np.stack([batch.forward_targets_N, batch.backward_targets_N])
        return [drawn.ids_S, drawn.log_expected_S, self.sampler.log_expected(targets_2N, drawn.tries)]


class GraphStepper(Stepper):
    """Plays recorded steps back on a GPU: one recording for each length of sentence.

    To make shapes repeat, the distinct words of a batch are laid out in blocks of fixed size (see `preparing.py`), and
    all that a step reads is copied as one piece of memory. A batch that does not fit runs operation by operation. The
    first batch of a shape always does, so that everything is compiled and loaded when the second is recorded.
    """

    def __init__(
        self,
        network: LanguageModelNetwork,
        layout: Layout,
        *,
        sampler: Sampler | None = None,
        corrects_targets: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(network, sampler=sampler, corrects_targets=corrects_targets, seed=seed)
        self.layout = layout
        self._seen: set[tuple[int, int]] = set()
        self._graphs: dict[tuple[int, int], _Recording] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)  # recorded steps write to these, so they stay where they are
        self._gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    def prepared(self, batch: Batch[np.ndarray], number: int) -> Prepared:
        """The batch of the step of that number with all that can be known beforehand; for another thread to do."""
        plain = super().prepared(batch, number)
        is_even = batch.starts_fresh and bool(batch.num_tokens) and batch.batch_sizes[-1] == batch.num_rows
        laid_out = self.layout.laid_out(batch) if is_even else None
        if laid_out is None:
            return plain
        arrays = [*laid_out, np.array([self._step_seed(number)]), *plain.negatives]
        return plain._replace(arrays=arrays, memory=joined(arrays))

    def step(self, prepared: Prepared) -> None:
        """Write the gradients of one batch to the parameters', and add its loss to `loss_sums_2`."""
        batch, arrays, memory = prepared.batch, prepared.arrays, prepared.memory
        shape = (len(batch.batch_sizes), batch.num_rows)
        if arrays is None or memory is None or shape not in self._seen:
            self._seen.add(shape)
            super().step(prepared)
            return
        if shape not in self._graphs:
            self._graphs[shape] = self._recorded(torch.empty_like(memory, device=self.device), arrays, batch)
        recording = self._graphs[shape]
        recording.memory.copy_(memory.pin_memory() if self._pool else memory, non_blocking=True)
        recording.replay()

    def zero_grad(self) -> None:
        """Nothing to do: a step overwrites them."""

    def _run(
        self, inputs: StepInputs, state: BilmState, negatives: Sequence[Tensor], seed: Tensor, scale: float
    ) -> BilmState:
        """As for others, but gradients go straight to their place: cast on the way, and not added to zeros."""
        weights = self.network.cast_weights()
        total, losses_2, state = self.network(inputs, state, self._loss(negatives), seed, weights)
        output = list(self.network.softmax.parameters())
        gradients = torch.autograd.grad(total, [*weights.values(), *output], total.new_full((), scale))
        gradients = [gradient.contiguous() for gradient in gradients]
        # One launch each: torch takes tensors of one dtype at a time.
        torch._foreach_copy_(self._gradients[: len(weights)], gradients[: len(weights)])
        torch._foreach_copy_(self._gradients[len(weights) :], gradients[len(weights) :])
        self.loss_sums_2 += losses_2
        return state

    def _recorded(self, memory: Tensor, arrays: list[np.ndarray], batch: Batch[np.ndarray]) -> _Recording:
        scale, num_blocks = 1 / (2 * batch.global_tokens), len(self.layout.blocks)
        parts = parts_of(memory, arrays)
        state = self.network.zero_state(batch.num_rows)

        def run() -> None:
            blocks = [block for block in parts[:num_blocks] if len(block)]
            words_2N, targets_2N, keys_N, seed, *negatives = parts[num_blocks:]
            inputs = StepInputs(blocks, words_2N.long(), targets_2N.long(), keys_N, batch.batch_sizes)
            self._run(inputs, state, negatives, seed, scale)

        return _Recording(recorded(run, self._pool), memory, state)


class _Recording(NamedTuple):
    """A recorded step and the memory it reads, which must stay."""

    replay: Callable[[], None]
    memory: Tensor
    state: BilmState


def recorded(run: Callable[[], None], pool: Any) -> Callable[[], None]:  # noqa: ANN401
    """All that this function launches, as one launch."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool):
        run()
    return graph.replay


def _one_word(batch: Batch[np.ndarray]) -> Batch[np.ndarray]:
    """A batch of one row with one word, for a process that has no row of its own."""
    one = np.zeros(1, np.int64)
    return replace(
        batch,
        forward_words_N=one,
        backward_words_N=one,
        forward_targets_N=one,
        backward_targets_N=one,
        keys_N=one,
        row_keys_B=one,
        batch_sizes=[1],
        starts_fresh=True,
    )
