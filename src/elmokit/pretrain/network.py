# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""The network that is trained: word encoder, both stacks and one output layer, from packed words to their loss.

Arrives: `StepInputs`, the distinct words of a step and, for each direction, the order in which it reads them and the
words it must predict. Leaves: the summed negative log-likelihood, also of each direction, and the next state; where
asked for, with the words nearby as a second task (`nearby.py`). The character encoder runs once per distinct word;
encoder and output layer are shared by the directions, the LSTMs not.

Shapes: N packed words, M = 2N of both directions, P width of a direction, U distinct words, C columns of ids; 2 stands
for forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from elmokit.config import ElmoConfig
from elmokit.devices import move_to_device
from elmokit.engines import why_no_triton
from elmokit.nn.bilm import BiLM, BilmState
from elmokit.nn.output_layer import OutputLayer
from elmokit.nn.word_encoder import WordEncoder
from elmokit.pretrain.batches.batch import Batch
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.nearby import NearbyInputs, NearbyWords
from elmokit.pretrain.recipes import TrainConfig

__all__ = ["LanguageModelNetwork", "StepInputs", "build_network", "keyed_dropout"]

# Outputs and targets of both directions, one after the other, to the summed loss and the loss of each.
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Dropout = Callable[[Tensor, int, int], Tensor]


def build_network(
    config: TrainConfig, model: ElmoConfig, corpus: EncodedCorpus, device: torch.device
) -> LanguageModelNetwork:
    """The network with its first weights, which follow from the seed alone."""
    precision = config.precision
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" else "float32"
    counts_V = torch.from_numpy(np.array(corpus.counts_V))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        softmax = OutputLayer(corpus.vocabulary_size, model.lstm.projection_dim, counts_V=counts_V)
        nearby = NearbyWords(counts_V, model.lstm.projection_dim, weight=config.nearby) if config.nearby else None
        dtype = getattr(torch, precision)
        network = LanguageModelNetwork(model, softmax, dropouts=config.dropouts(), dtype=dtype, nearby=nearby)
    return network.to(device)


@dataclass(frozen=True)
class StepInputs:
    """What one step reads, as tensors.

    Arguments:
        blocks: ids (U, C) of the distinct words, in blocks of equal width; their rows are counted through all blocks.
        words_2N: for each direction the distinct word at each place.
        targets_2N: for each direction the row of the vocabulary to predict there.
        keys_N: a number for each place, from which dropout is drawn.
        batch_sizes: rows that read a word at each step (see `engines/README.md`).
    """

    blocks: list[Tensor]
    words_2N: Tensor
    targets_2N: Tensor
    keys_N: Tensor
    batch_sizes: list[int]

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> StepInputs:
        """The inputs of a batch, as int64 tensors on a device; the copy to a GPU does not wait for it."""
        ids_UC = move_to_device(batch.distinct_UC, device).long()  # sent in as few bytes as it takes, and widened there
        numbers_5N = move_to_device(np.concatenate([batch.words_2N, batch.targets_2N, batch.keys_N[None]]), device)
        return cls([ids_UC], numbers_5N[:2], numbers_5N[2:4], numbers_5N[4], batch.batch_sizes)


class LanguageModelNetwork(nn.Module):
    """Encoder, stacks and output layer.

    Arguments:
        config: the sizes of the model.
        softmax: the output layer.
        dropouts: probabilities with which dropout zeroes what each LSTM layer, and at last the output layer, reads;
            none for no dropout.
        dtype: what encoder and stacks compute in. Parameters stay float32; for bfloat16 they are cast by hand, because
            autocast would run cuDNN's LSTM in float16, where small gradients vanish.
        nearby: the second task; `None` for none.
    """

    def __init__(
        self,
        config: ElmoConfig,
        softmax: OutputLayer,
        *,
        dropouts: Sequence[float] = (),
        dtype: torch.dtype = torch.float32,
        nearby: NearbyWords | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.dropouts = dropouts
        self.dtype = dtype
        self.body = _Body(config)
        self.softmax = softmax
        self.nearby = nearby

    def zero_state(self, num_rows: int) -> BilmState:
        """The state of rows that have read nothing."""
        like = torch.empty(0, dtype=self.dtype, device=next(self.parameters()).device)
        return BilmState.zeros(self.config.lstm, num_rows, like=like)

    def forward(
        self,
        inputs: StepInputs,
        state: BilmState,
        loss: Loss | None = None,
        seed: Tensor | None = None,
        weights: dict[str, Tensor] | None = None,
        nearby: NearbyInputs | None = None,
    ) -> tuple[Tensor, Tensor, BilmState]:
        """The loss to learn from, what it is made of, without gradients, and the next state.

        It is made of the summed negative log-likelihoods of each direction and, where asked for, that of the words
        nearby and how many these are (2 or 4 numbers).

        Arguments:
            inputs: what to read and to predict.
            state: what each row starts from.
            loss: the full softmax unless given, or a sampled one with this step's negatives.
            seed: a number of this step (an integer tensor), from which dropout is drawn; `None` for no dropout.
            weights: what `cast_weights` gave, if the caller wants the gradients of these.
            nearby: what to predict besides.
        """
        loss = self.softmax.full_losses if loss is None else loss
        outputs, state = self.predictions(inputs, state, seed, weights)
        total, losses_M = loss(torch.cat(outputs), inputs.targets_2N.flatten())
        sums = losses_M.view(2, -1).sum(1)
        if nearby is None or self.nearby is None:
            return total, sums, state
        besides = self.nearby(outputs, self.softmax, nearby, inputs.batch_sizes)
        parts = [sums, besides.detach().view(1), sums.new_full((1,), nearby.targets_2K.numel())]
        return total + self.nearby.weight * besides, torch.cat(parts), state

    def predictions(
        self,
        inputs: StepInputs,
        state: BilmState,
        seed: Tensor | None = None,
        weights: dict[str, Tensor] | None = None,
    ) -> tuple[list[Tensor], BilmState]:
        """What the top layers of both directions say (N, P), from which the output layer predicts."""
        weights = self.cast_weights() if weights is None else weights
        return functional_call(self.body, weights, (inputs, state, self._dropout(inputs.keys_N, seed)))

    def cast_weights(self) -> dict[str, Tensor]:
        """The weights of encoder and stacks in the dtype they are computed in."""
        return _cast(dict(self.body.named_parameters()), self.dtype)

    def _dropout(self, keys_N: Tensor, seed: Tensor | None) -> Dropout | None:
        if seed is None or not any(self.dropouts):
            return None

        def drop(values_NP: Tensor, layer: int, direction: int) -> Tensor:
            rate = self.dropouts[layer]
            if rate == 0:
                return values_NP
            return keyed_dropout(values_NP, keys_N, seed=seed, place=2 * layer + direction, rate=rate)

        return drop


class _Body(nn.Module):
    """Encoder and stacks: everything below the output layer."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.encoder = WordEncoder(config)
        self.bilm = BiLM(config.lstm)

    def forward(self, inputs: StepInputs, state: BilmState, dropout: Dropout | None) -> tuple[list[Tensor], BilmState]:
        # The reader has left out the columns that cannot matter.
        vectors_UP = self.encoder(inputs.blocks, trim=False)
        words = _GatherRows.apply(vectors_UP, inputs.words_2N.flatten()).chunk(2)  # type: ignore[union-attr]
        layers, state = self.bilm.read_packed(words, inputs.batch_sizes, state, dropout=dropout)
        top = layers[-1]
        if dropout is not None:
            top = [dropout(top_NP, len(layers), direction) for direction, top_NP in enumerate(top)]
        return top, state


def _cast(weights: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The same weights in another dtype, all of them in one launch, as are their gradients."""
    if all(weight.dtype == dtype for weight in weights.values()):
        return weights
    return dict(zip(weights, _Cast.apply(dtype, *weights.values()), strict=True))  # type: ignore[arg-type]


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.dtypes = [weight.dtype for weight in weights]
        cast = tuple(torch.empty_like(weight, dtype=dtype) for weight in weights)
        torch._foreach_copy_(cast, weights)
        return cast

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        wanted = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        exact = {place: torch.empty_like(gradients[place], dtype=ctx.dtypes[place]) for place in wanted}
        torch._foreach_copy_(list(exact.values()), [gradients[place] for place in wanted])
        return (None, *map(exact.get, range(len(gradients))))


class _GatherRows(torch.autograd.Function):
    """Rows of a table; in the backward pass the gradients of a row are summed in float32.

    A frequent word stands at thousands of places of a step, and a sum of so many numbers stops growing in bfloat16.
    """

    @staticmethod
    def forward(ctx: Any, vectors_UP: Tensor, words_M: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(words_M)
        ctx.num_rows = len(vectors_UP)
        return vectors_UP.index_select(0, words_M)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_words_MP: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (words_M,) = ctx.saved_tensors
        exact = torch.promote_types(d_words_MP.dtype, torch.float32)
        d_vectors_UP = torch.zeros(ctx.num_rows, d_words_MP.shape[1], dtype=exact, device=words_M.device)
        return d_vectors_UP.index_add_(0, words_M, d_words_MP.to(exact)).to(d_words_MP.dtype), None


def keyed_dropout(values_NP: Tensor, keys_N: Tensor, *, seed: Tensor, rate: float, place: int = 0) -> Tensor:
    """Dropout whose mask follows from (seed, place in the network below 64, key of the word, feature) alone.

    Ranks that share a batch, and a run that is resumed, then drop exactly what one uninterrupted process would.
    """
    threshold, scale = int(rate * 2**24), 1 / (1 - rate)
    if why_no_triton(values_NP.device, values_NP.dtype) is None:
        from elmokit.pretrain import dropout_kernel as kernel

        return kernel.keyed_dropout(values_NP, keys_N, seed, place, threshold, scale)
    # Odd multipliers spread seeds and keys over all 64 bits before the upper half is taken.
    mixed_N = (((seed * 64 + place) * 0x1E3779B97F4A7C15 + keys_N.long()) * 0x2545F4914F6CDD1D) >> 32
    hashes_N = _scramble(mixed_N.to(torch.int32))
    features_P = torch.arange(values_NP.shape[1], dtype=torch.int32, device=values_NP.device)
    kept_NP = (_scramble(hashes_N.unsqueeze(1) + features_P * 0x3C6EF372) & 0xFFFFFF) >= threshold
    return values_NP * (kept_NP.to(values_NP.dtype) * scale)


def _scramble(values: Tensor) -> Tensor:
    """A finaliser of 32-bit hashes (constants of lowbias32): every input bit reaches every output bit."""
    values = (values ^ (values >> 16)) * 0x7FEB352D
    values = (values ^ (values >> 15)) * 0x046CA68B
    return values ^ (values >> 16)
