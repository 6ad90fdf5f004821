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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, distributed, nn

from elmokit.nn.bilm import BilmState
from elmokit.nn.sampling import Negatives, Sampler
from elmokit.nn.softmax import Softmax
from elmokit.pretrain.batches import Batch
from elmokit.pretrain.network import LanguageModelNetwork, Loss, StepInputs

__all__ = ["GraphStepper", "Layout", "Stepper"]

SHORT_COLUMNS = 24  # words of up to 15 bytes, their markers, and a window of padding for filters up to 7 wide
SHORT_SHARE, LONG_SHARE = 0.32, 0.03  # distinct words of a batch, short and long, as shares of its tokens


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

    def step(self, batch: Batch[np.ndarray], number: int) -> None:
        """Add the gradients of one batch to the parameters' and its loss to `loss_sums_2`."""
        scale = self.world / (2 * batch.global_tokens)
        if not batch.num_tokens:
            # More processes than rows. The others wait for gradients from all, so one word is read for nothing.
            batch, scale = _one_word(batch), 0.0
        inputs = StepInputs.of(batch.to(self.device))
        negatives = self._negatives(batch, number)
        if batch.starts_fresh or self.state is None:
            self.state = self.network.zero_state(batch.num_rows)
        seed = torch.tensor(self._step_seed(number), device=self.device)
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
        (total * scale).backward()
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

    def _negatives(self, batch: Batch[np.ndarray], number: int) -> list[Tensor]:
        """The negatives of this step, the same for both directions and on all ranks."""
        if self.sampler is None:
            return []
        drawn: Negatives = self.sampler.draw(number)
        targets_2N = np.stack([batch.forward_targets_N, batch.backward_targets_N])
        arrays = (drawn.ids_S, drawn.log_expected_S, self.sampler.log_expected(targets_2N, drawn.tries))
        return [_moved(array, self.device) for array in arrays]


class GraphStepper(Stepper):
    """Plays recorded steps back on a GPU: one recording for each length of sentence.

    To make shapes repeat, the distinct words of a batch are laid out in two blocks of fixed size, short words and long
    ones (which spares the short ones the long ones' columns). A batch that does not fit runs operation by operation.
    The first batch of a shape always does, so that everything is compiled and loaded when the second is recorded.
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
        self._pool = torch.cuda.graph_pool_handle()
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)  # recorded steps write to these, so they stay where they are

    def step(self, batch: Batch[np.ndarray], number: int) -> None:
        """Add the gradients of one batch to the parameters' and its loss to `loss_sums_2`."""
        shape = (len(batch.batch_sizes), batch.num_rows)
        arrays = self.layout.laid_out(batch) if batch.starts_fresh and batch.batch_sizes[-1] == shape[1] else None
        if arrays is None or shape not in self._seen:
            self._seen.add(shape)
            super().step(batch, number)
            return
        tensors = [torch.from_numpy(array).pin_memory() for array in arrays]
        seeds = torch.tensor([self._step_seed(number)]).pin_memory()
        negatives = self._negatives(batch, number)
        if shape not in self._graphs:
            scale = 1 / (2 * batch.global_tokens)
            self._graphs[shape] = self._recorded([t.to(self.device) for t in tensors], negatives, batch, scale)
        recording = self._graphs[shape]
        for static, tensor in zip(recording.inputs, [*tensors, seeds, *negatives], strict=True):
            static.copy_(tensor, non_blocking=True)
        recording.graph.replay()

    def zero_grad(self) -> None:
        """Forget all gradients, in place: recorded steps know where they are."""
        torch._foreach_zero_([parameter.grad for parameter in self.network.parameters() if parameter.grad is not None])

    def _recorded(
        self, arrays: list[Tensor], negatives: list[Tensor], batch: Batch[np.ndarray], scale: float
    ) -> _Recording:
        seed = torch.zeros(1, dtype=torch.int64, device=self.device)
        static_negatives = [tensor.clone() for tensor in negatives]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self._pool):
            short_UC, long_UC, words_2N, targets_2N, keys_N = arrays
            blocks = [block.long() for block in (short_UC, long_UC) if len(block)]
            inputs = StepInputs(blocks, words_2N.long(), targets_2N.long(), keys_N.long(), batch.batch_sizes)
            self._run(inputs, self.network.zero_state(batch.num_rows), static_negatives, seed, scale)
        return _Recording(graph, [*arrays, seed, *static_negatives])


@dataclass(frozen=True)
class Layout:
    """How the distinct words of a batch are laid out in two blocks of fixed size.

    Arguments:
        num_short: rows of the block of short words.
        num_long: rows of the block of long ones.
        columns: of a long word.
        padding_id: what follows a word's last character.
        widest_filter: width of the model's widest convolution, which must see so much padding after a word.
    """

    num_short: int
    num_long: int
    columns: int
    padding_id: int
    widest_filter: int

    @classmethod
    def of(cls, tokens_per_batch: int, *, columns: int, padding_id: int, widest_filter: int) -> Layout:
        """The layout that nearly all batches of this size fit."""
        num_short = _rounded(SHORT_SHARE * tokens_per_batch, 256)
        num_long = _rounded(LONG_SHARE * tokens_per_batch, 64) if columns > SHORT_COLUMNS else 0
        return cls(num_short, num_long, columns, padding_id, widest_filter)

    def laid_out(self, batch: Batch[np.ndarray]) -> list[np.ndarray] | None:
        """The two blocks, the words and targets (2, N) that point at them, and the keys; `None` if they do not fit."""
        distinct_UC = batch.distinct_UC
        width = min(SHORT_COLUMNS, self.columns)
        if distinct_UC.shape[1] <= width:
            is_long_U = np.zeros(len(distinct_UC), bool)
        else:
            is_long_U = distinct_UC[:, width - self.widest_filter] != self.padding_id
        (long,), (short,) = is_long_U.nonzero(), (~is_long_U).nonzero()
        if len(short) > self.num_short or len(long) > self.num_long:
            return None
        short_UC = np.full((self.num_short, width), self.padding_id, distinct_UC.dtype)
        short_UC[: len(short), : distinct_UC.shape[1]] = distinct_UC[short, :width]
        long_UC = np.full((self.num_long, self.columns), self.padding_id, distinct_UC.dtype)
        long_UC[: len(long), : distinct_UC.shape[1]] = distinct_UC[long]
        rows_U = np.empty(len(distinct_UC), np.int32)
        rows_U[short] = np.arange(len(short), dtype=np.int32)
        rows_U[long] = self.num_short + np.arange(len(long), dtype=np.int32)
        words_2N = np.stack([rows_U[batch.forward_words_N], rows_U[batch.backward_words_N]])
        targets_2N = np.stack([batch.forward_targets_N, batch.backward_targets_N]).astype(np.int32)
        return [short_UC, long_UC, words_2N, targets_2N, batch.position_keys_N().astype(np.int32)]


class _Recording:
    """A recorded step and the tensors it reads."""

    def __init__(self, graph: torch.cuda.CUDAGraph, inputs: list[Tensor]) -> None:
        self.graph, self.inputs = graph, inputs


def _rounded(value: float, multiple: int) -> int:
    return -(-int(value) // multiple) * multiple


def _moved(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


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
