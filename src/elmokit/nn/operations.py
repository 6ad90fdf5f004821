"""The three operations that the network calls by contract, and where faster implementations of them are registered.

    words        encode(weights, blocks, *, trim) -> vectors         reference: `word_encoder.py`
    recurrence   run(recurrences, batch_sizes, clips) -> results     reference: `lstmp.py`
    loss         losses(hidden, weight, bias, targets, sample) -> …  reference: `output_layer.py`

Each reference is plain torch, slow and obvious: the definition of correct. `elmokit.engines` registers faster
implementations, called engines, when it is imported; the network never imports it and runs the references without it.
Before each call the network describes what it is about to compute (`Request`) and is told which implementation to use
and why (`Choice`).

Shapes: N packed words or predictions, B rows (sentences), D input width, H cell width, P output width, E width of a
character or word vector, S symbols (of an encoder) or sampled words (of a loss), K channels, V words, w filter width.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from elmokit.config import Activation
from elmokit.errors import EngineError

__all__ = [
    "Choice",
    "Clips",
    "EncoderWeights",
    "EngineModule",
    "LayerState",
    "Linear",
    "LstmpWeights",
    "Operation",
    "Precision",
    "Recurrence",
    "Request",
    "Sample",
    "choose",
    "describe",
    "find_engine",
    "get_parameters",
    "register_engines",
]

Operation = Literal["words", "recurrence", "loss"]
Precision = Literal["float32", "int8"]
Linear = tuple[Tensor, Tensor]  # weight (out, in) and bias (out), as `nn.Linear` keeps them


class EncoderWeights(NamedTuple):
    """What turns ids into word vectors; a part that a model does not have is `None` or empty."""

    words_VE: Tensor | None = None
    symbols_SE: Tensor | None = None
    filters: tuple[Linear, ...] = ()  # weight (K, E, w) and bias (K)
    activation: Activation = "relu"
    highways: tuple[tuple[Linear, Linear], ...] = ()  # gate and transform
    projection: Linear | None = None

    def tensors(self) -> list[Tensor]:
        """All weights."""
        pairs = (*self.filters, *chain.from_iterable(self.highways), self.projection or ())
        tables = [table for table in (self.words_VE, self.symbols_SE) if table is not None]
        return [*tables, *chain.from_iterable(pairs)]


class LstmpWeights(NamedTuple):
    """The weights of one layer in one direction, used as `x @ W`; gates lie in the order i, j, f, o."""

    input_D4H: Tensor
    recurrent_P4H: Tensor
    bias_4H: Tensor  # the forget gate's +1 is already in it
    projection_HP: Tensor | None  # None: the output is the gated cell itself


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; `None` clips nothing."""

    cell: float | None
    projection: float | None


class LayerState(NamedTuple):
    """What a layer remembers of each row: its last output and its cell."""

    hidden_BP: Tensor
    cell_BH: Tensor


class Recurrence(NamedTuple):
    """One layer in one direction with everything it needs: words in the order in which it reads them."""

    inputs_ND: Tensor
    weights: LstmpWeights
    state: LayerState


class Sample(NamedTuple):
    """Randomly drawn words, among which (and the target) a sampled softmax normalises, instead of all words.

    Arguments:
        negatives_S: the drawn words, the same for all predictions; where one is the target, it is left out.
        log_expected_S: logarithm of each drawn word's expected count.
        log_expected_N: logarithm of each target's expected count, which lowers its logit as it does those of the drawn
            words: training does this, as bilm-tf. `None`: the logit of the target stays as it is.
    """

    negatives_S: Tensor
    log_expected_S: Tensor
    log_expected_N: Tensor | None = None


class Request(NamedTuple):
    """What is about to be computed, as far as the choice of an engine depends on it.

    Arguments:
        operation: one of the three.
        device: where the weights are.
        dtype: of inputs and weights; `None` if they differ.
        precision: `"int8"` where matmuls of 8-bit numbers are near enough.
        wants_grad: whether gradients will be asked for.
        is_plain: whether these are ordinary tensors with memory, outside tracing, compilation, `torch.func` and
            dispatch modes, so that native code may read their pointers.
        clips: of a recurrence.
        has_projection: of a recurrence.
        width: P of an output layer.
        num_symbols: of a character encoder.
        filters: (w, K) of a character encoder.
    """

    operation: Operation
    device: torch.device
    dtype: torch.dtype | None
    precision: Precision = "float32"
    wants_grad: bool = False
    is_plain: bool = True
    clips: Clips = Clips(None, None)
    has_projection: bool = True
    width: int = 0
    num_symbols: int = 0
    filters: tuple[tuple[int, int], ...] = ()


class Choice(NamedTuple):
    """An engine, why it was taken, and whether a row's result has the same bits whatever other rows the batch has."""

    name: str
    reason: str
    is_batch_invariant: bool = False

    def __str__(self) -> str:
        """The line that `elmo info` and the log show."""
        return f"engine={self.name} ({self.reason})"


def describe(
    operation: Operation,
    tensors: Iterable[Tensor | None],
    *,
    others: Iterable[Tensor] = (),
    **details: Any,  # noqa: ANN401
) -> Request:
    """The request for computing with these tensors now.

    Arguments:
        operation: one of the three.
        tensors: weights and inputs; where they are not all of one dtype, the request has none, which few engines take.
        others: tensors whose dtype does not matter, because every engine casts them.
        details: further fields of `Request`.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    dtypes = {tensor.dtype for tensor in given}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    given += others
    wants_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    return Request(operation, given[0].device, dtype, wants_grad=wants_grad, is_plain=_are_plain(given), **details)


def _are_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether native code may read the pointers of these tensors, without torch noticing.

    Not while torch compiles, traces, or a dispatch mode such as its counter of operations is on, and not the tensors of
    `torch.func`, of forward-mode differentiation or of subclasses: those have no memory or more than their memory.
    """
    is_tracing = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    if is_tracing or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    if not set(map(type, tensors)) <= {Tensor, nn.Parameter}:
        return False
    try:
        addresses = list(map(Tensor.data_ptr, tensors))
    except RuntimeError:  # a wrapper of `torch.func`
        return False
    if not all(addresses) and any(tensor.numel() for tensor in tensors if not tensor.data_ptr()):
        return False
    may_be_dual = forward_ad._current_level >= 0
    return not (may_be_dual and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors))


_log = logging.getLogger("elmokit.engines")
_ENGINES: dict[tuple[Operation, str], str] = {
    ("words", "reference"): "elmokit.nn.word_encoder:encode",
    ("recurrence", "reference"): "elmokit.nn.lstmp:run",
    ("loss", "reference"): "elmokit.nn.output_layer:losses",
}
_told: set[tuple[Operation, Choice]] = set()


def _choose_reference(request: Request) -> Choice:
    del request
    return Choice("reference", "elmokit.engines is not imported")


_choose: Callable[[Request], Choice] = _choose_reference
_forget: Callable[[Iterable[Tensor]], None] = lambda weights: None  # noqa: E731


def register_engines(
    engines: Mapping[tuple[Operation, str], str],
    choose: Callable[[Request], Choice],
    forget: Callable[[Iterable[Tensor]], None],
) -> None:
    """Register faster implementations.

    Arguments:
        engines: the function of each, as "module:function", imported when it is first chosen.
        choose: which one a request gets, and why.
        forget: drops cached copies of weights that may have changed without raising `Tensor._version`.
    """
    global _choose, _forget
    _ENGINES.update(engines)
    _choose, _forget = choose, forget


def choose(request: Request) -> Choice:
    """The engine for this request; a choice that is met for the first time is logged, with its reason."""
    if torch.compiler.is_compiling():
        return Choice("reference", "inside a compiled graph")
    choice = _choose(request)
    if (request.operation, choice) not in _told:
        _told.add((request.operation, choice))
        _log.info("%s: %s", request.operation, choice)
    return choice


def find_engine(operation: Operation, name: str) -> Callable[..., Any]:
    """The function of that name; an unknown name is an `EngineError` that lists the known ones."""
    path = _ENGINES.get((operation, name))
    if path is None:
        known = ", ".join(sorted(one for of, one in _ENGINES if of == operation))
        raise EngineError(f"no engine for {operation} is called {name!r}: use one of {known}")
    return _load(path)


@functools.cache
def _load(path: str) -> Callable[..., Any]:
    module, function = path.split(":")
    return getattr(importlib.import_module(module), function)


def get_parameters(module: nn.Module, *names: str) -> list[Tensor]:
    """The parameters of these names, in half the time that attributes of the module take: one sentence notices it."""
    own = cast("dict[str, Tensor]", module._parameters)
    return [own[name] if name in own else getattr(module, name) for name in names]


class EngineModule(nn.Module):
    """A module whose weights an engine may keep a copy of, laid out in another order.

    Engines notice changes that torch counts in `Tensor._version`: optimisers, `copy_`, `load_state_dict`. Changes that
    are not counted, such as `weight.data.mul_(2)`, are noticed from the next `train()`, `eval()` or `to()` on.
    """

    def train(self, mode: bool = True) -> EngineModule:
        """Switch between training and evaluation, as any module; engines drop their copies of the weights."""
        _forget(self.parameters())
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EngineModule:
        _forget(self.parameters())
        return super()._apply(fn, recurse)
