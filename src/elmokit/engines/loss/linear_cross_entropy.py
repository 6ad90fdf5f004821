# ruff: noqa: ANN001, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
# pyright: reportIndexIssue=false, reportMissingImports=false
"""Cross-entropy over a large vocabulary whose logits never leave the chip, as Triton kernels, forward and backward.

Seen from the outputs, the softmax is attention whose keys and values are both the weight rows: the gradient of a row's
loss is sum_v p_v w_v - w_target. So one pass in the manner of FlashAttention gives the loss and the gradient of the
outputs together; a second pass, the same with the roles of outputs and words exchanged, makes the logits again and sums
the gradient of the weight: four matmuls in all. Where the GPU has the memory for a table of all probabilities,
`stored_probabilities.py` takes the full softmax in three.

- Programs of the first pass own a block of rows and run over a part of the vocabulary; the parts ("splits") fill
  the last wave of programs, and `_combine_kernel` adds them up. It also handles each row's target, once, so that the
  inner loop compares nothing.
- Logits are kept in units of log 2: exp2 is one instruction.
- A sampled softmax runs the same kernels over the sampled rows, with the target's logit beside them.

Sums are float32 and in a fixed order: two runs give the same bits (but for the targets' rows of a sampled softmax,
which torch adds atomically unless `torch.use_deterministic_algorithms` is on).

Shapes: N rows (predictions), V words, S sampled words, P = K width, C columns: the words compared with (V or S).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.nn.operations import Sample

__all__ = ["losses"]

LOG2E = math.log2(math.e)
_LOG2E = tl.constexpr(LOG2E)
_LN2 = tl.constexpr(1 / LOG2E)
# A logit that is never chosen; finite, so that a tile of nothing else gives no NaN.
_NEVER = tl.constexpr(-1e30)
# How float32 is multiplied: three matmuls of TF32 parts, as good as float32 and on the tensor cores.
FLOAT32_PRECISION = "tf32x3"
_ROWS_COMBINED = 16
_NUMBERS_SCALED = 4096
_MOST_SPLITS = 8
_MOST_PARTIAL_BYTES = 2**30


class Tiles(NamedTuple):
    """Sizes of a kernel: the block a program owns, the block it steps over, and how it is scheduled."""

    owned: int
    stepped: int
    warps: int
    stages: int


# By bytes of a number and width; benchmarks/linear_cross_entropy.py tries others. (64, 16, 8, 2) for (4, 256) reads on
# an H200 (triton 3.6) where it must not, though the interpreter finds it right.
FORWARD_TILES = {
    (2, 64): Tiles(128, 128, 8, 3),
    (2, 128): Tiles(128, 128, 8, 3),
    (2, 256): Tiles(128, 64, 8, 2),
    (2, 512): Tiles(64, 64, 8, 2),
    (4, 64): Tiles(64, 64, 4, 2),
    (4, 128): Tiles(64, 32, 4, 2),
    (4, 256): Tiles(16, 32, 4, 1),
    (4, 512): Tiles(16, 32, 4, 1),
}
WEIGHT_TILES = dict(FORWARD_TILES)  # a table of its own: the benchmark changes one without the other


def losses(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor, sample: Sample | None = None
) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of the targets, summed (with gradients) and each (N, without); see `chunked.py`."""
    from elmokit.engines.loss import stored_probabilities

    wants_grad = torch.is_grad_enabled() and hidden_NP.requires_grad
    if sample is None and wants_grad and stored_probabilities.fits(hidden_NP, len(weight_VP)):
        return stored_probabilities.losses(hidden_NP, weight_VP, bias_V, targets_N)
    compared = (None, None, None) if sample is None else sample
    return cast(tuple[Tensor, Tensor], _Summed.apply(hidden_NP, weight_VP, bias_V, targets_N, *compared, wants_grad))


class _Problem(NamedTuple):
    """What the kernels read, in the dtype of the matmuls; biases are float32, in units of log 2."""

    hidden_NP: Tensor
    columns_CP: Tensor
    bias_C: Tensor
    words_VP: Tensor  # where the rows of the targets are found; in any dtype, and rounded when they are read
    bias_N: Tensor  # of the targets
    targets_N: Tensor
    ids_C: Tensor | None  # which words the columns are, when they are a sample

    @classmethod
    def full(cls, hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor) -> _Problem:
        words_VP = weight_VP.to(hidden_NP.dtype).contiguous()
        bias_V = bias_V.float() * LOG2E
        return cls(hidden_NP.contiguous(), words_VP, bias_V, words_VP, bias_V[targets_N], targets_N, None)

    @classmethod
    def sampled(
        cls,
        hidden_NP: Tensor,
        weight_VP: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        negatives_S: Tensor,
        log_expected_S: Tensor,
        log_expected_N: Tensor | None,
    ) -> _Problem:
        bias_S = (bias_V[negatives_S].float() - log_expected_S) * LOG2E
        bias_N = bias_V[targets_N].float() - (0 if log_expected_N is None else log_expected_N)
        columns_SP = weight_VP[negatives_S].to(hidden_NP.dtype)  # of all other rows only the targets' are read
        words_VP = weight_VP.contiguous()
        return cls(hidden_NP.contiguous(), columns_SP, bias_S, words_VP, bias_N * LOG2E, targets_N, negatives_S)


class _Summed(torch.autograd.Function):
    """The summed loss; the gradient of the outputs is made in forward, that of weight and bias in backward."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden_NP: Tensor,
        weight_VP: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        negatives_S: Tensor | None,
        log_expected_S: Tensor | None,
        log_expected_N: Tensor | None,
        wants_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        inputs = hidden_NP, weight_VP, bias_V, targets_N
        if negatives_S is None or log_expected_S is None:
            problem = _Problem.full(*inputs)
        else:
            problem = _Problem.sampled(*inputs, negatives_S, log_expected_S, log_expected_N)
        losses_N, totals_N, grad_hidden_NP = _forward(problem, wants_grad=wants_grad)
        ctx.save_for_backward(*problem, losses_N, totals_N, grad_hidden_NP)
        ctx.weight_dtype, ctx.bias_dtype = weight_VP.dtype, bias_V.dtype
        ctx.mark_non_differentiable(losses_N)
        return losses_N.sum(), losses_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        *parts, losses_N, totals_N, grad_hidden_NP = ctx.saved_tensors
        problem = _Problem(*parts)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        hidden = _scale(grad_hidden_NP, grad) if needs_hidden else None
        weight = bias = None
        if needs_weight or needs_bias:
            weight, bias = _weight_gradients(problem, totals_N, grad)
            if problem.ids_C is not None:
                weight, bias = _spread(problem, weight, bias, losses_N, grad)
            weight, bias = weight.to(ctx.weight_dtype), bias.to(ctx.bias_dtype)
        return hidden, weight if needs_weight else None, bias if needs_bias else None, *[None] * 5


def _spread(
    problem: _Problem, weight_SP: Tensor, bias_S: Tensor, losses_N: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of a sample's rows at their place in the vocabulary, and those of the targets beside them."""
    assert problem.ids_C is not None
    weight_VP = torch.zeros(problem.words_VP.shape, dtype=torch.float32, device=grad.device)
    bias_V = torch.zeros(len(weight_VP), dtype=torch.float32, device=grad.device)
    d_own_N = torch.expm1(-losses_N) * grad
    weight_VP.index_add_(0, problem.ids_C, weight_SP)
    weight_VP.index_add_(0, problem.targets_N, d_own_N.unsqueeze(1) * problem.hidden_NP)
    bias_V.index_add_(0, problem.ids_C, bias_S)
    bias_V.index_add_(0, problem.targets_N, d_own_N)
    return weight_VP, bias_V


def _scale(values_NP: Tensor, factor: Tensor) -> Tensor:
    """Values times a factor in float32: it is often 1 / N, which bfloat16 would miss by up to 0.4 %."""
    result_NP = torch.empty_like(values_NP)
    if values_NP.numel():
        with torch.cuda.device_of(values_NP):
            _scale_kernel[(triton.cdiv(values_NP.numel(), _NUMBERS_SCALED),)](
                values_NP, factor.float(), result_NP, values_NP.numel(), BLOCK=_NUMBERS_SCALED
            )
    return result_NP


def splits_for(num_blocks: int, num_tiles: int, slots: int, most: int = _MOST_SPLITS) -> int:
    """Into how many parts the inner loop is cut, so that the last wave of programs leaves few slots empty."""

    def busy(splits: int) -> float:
        programs = max(1, num_blocks) * splits
        return programs / (slots * math.ceil(programs / slots))

    candidates = range(1, max(1, min(most, num_tiles)) + 1)
    good = [splits for splits in candidates if busy(splits) >= 0.95]
    return good[0] if good else max(candidates, key=busy)


@functools.lru_cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def parts_of(num_owned: int, num_stepped: int, tiles: Tiles, width: int, device: torch.device) -> tuple[int, int, int]:
    """Blocks of programs, splits of their loop, and how far a split reaches (whole tiles, none of them empty)."""
    num_blocks, num_tiles = triton.cdiv(num_owned, tiles.owned), triton.cdiv(num_stepped, tiles.stepped)
    slots = _num_processors(device) * max(1, 8 // tiles.warps)
    most = min(_MOST_SPLITS, _MOST_PARTIAL_BYTES // max(1, 4 * num_owned * width))
    splits = splits_for(num_blocks, num_tiles, slots, most)
    reach = triton.cdiv(num_tiles, splits) * tiles.stepped
    return num_blocks, triton.cdiv(num_stepped, reach), reach


def precision_of(tensor: Tensor) -> str:
    return FLOAT32_PRECISION if tensor.dtype == torch.float32 else "tf32"  # bfloat16 matmuls have no such choice


def _forward(problem: _Problem, *, wants_grad: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (N), normalisers (N) in units of log 2, and the gradient of the outputs (N, P; empty if not wanted)."""
    return _forward_op(*problem, wants_grad)


# Schemas are written out: what torch infers from annotations differs between its versions.
@torch.library.custom_op(
    "elmokit::linear_cross_entropy",
    mutates_args=(),
    schema="(Tensor hidden_NP, Tensor columns_CP, Tensor bias_C, Tensor words_VP, Tensor bias_N, Tensor targets_N, "
    "Tensor? ids_C, bool wants_grad) -> (Tensor, Tensor, Tensor)",
)
def _forward_op(
    hidden_NP: Tensor,
    columns_CP: Tensor,
    bias_C: Tensor,
    words_VP: Tensor,
    bias_N: Tensor,
    targets_N: Tensor,
    ids_C: Tensor | None,
    wants_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows, width = hidden_NP.shape
    tiles = FORWARD_TILES[hidden_NP.element_size(), width]
    blocks, splits, reach = parts_of(num_rows, len(columns_CP), tiles, width, hidden_NP.device)
    numbers = functools.partial(torch.empty, dtype=torch.float32, device=hidden_NP.device)
    part_totals, part_means = numbers(splits, num_rows), numbers(splits if wants_grad else 0, num_rows, width)
    losses_N, totals_N = numbers(num_rows), numbers(num_rows)
    grad_hidden_NP = torch.empty_like(hidden_NP) if wants_grad else hidden_NP.new_empty(0)
    if num_rows == 0:
        return losses_N, totals_N, grad_hidden_NP
    ids = targets_N if ids_C is None else ids_C
    _forward_kernel[(blocks, splits)](
        hidden_NP, columns_CP, bias_C, ids, targets_N, part_totals, part_means, num_rows, len(columns_CP), reach,
        K=width, BLOCK_M=tiles.owned, BLOCK_V=tiles.stepped, SAMPLED=ids_C is not None, WANTS_GRAD=wants_grad,
        PRECISION=precision_of(hidden_NP), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    _combine_kernel[(triton.cdiv(num_rows, _ROWS_COMBINED),)](
        hidden_NP, words_VP, bias_N, targets_N, part_totals, part_means, losses_N, totals_N, grad_hidden_NP, num_rows,
        splits, K=width, BLOCK_M=_ROWS_COMBINED, SAMPLED=ids_C is not None, WANTS_GRAD=wants_grad, num_warps=4,
    )  # fmt: skip
    return losses_N, totals_N, grad_hidden_NP


@_forward_op.register_fake
def _(hidden_NP, columns_CP, bias_C, words_VP, bias_N, targets_N, ids_C, wants_grad):
    grad_hidden = torch.empty_like(hidden_NP) if wants_grad else hidden_NP.new_empty(0)
    return torch.empty_like(bias_N), torch.empty_like(bias_N), grad_hidden


def _weight_gradients(problem: _Problem, totals_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the columns (C, P) and of their biases (C), float32, of `scale` times the summed loss."""
    hidden_NP, columns_CP, bias_C, _, _, targets_N, ids_C = problem
    return _weight_op(hidden_NP, columns_CP, bias_C, targets_N, ids_C, totals_N, scale.float())


@torch.library.custom_op(
    "elmokit::linear_cross_entropy_weight",
    mutates_args=(),
    schema="(Tensor hidden_NP, Tensor columns_CP, Tensor bias_C, Tensor targets_N, Tensor? ids_C, Tensor totals_N, "
    "Tensor scale) -> (Tensor, Tensor)",
)
def _weight_op(
    hidden_NP: Tensor,
    columns_CP: Tensor,
    bias_C: Tensor,
    targets_N: Tensor,
    ids_C: Tensor | None,
    totals_N: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor]:
    num_columns, width = columns_CP.shape
    tiles = WEIGHT_TILES[hidden_NP.element_size(), width]
    blocks, splits, reach = parts_of(num_columns, max(1, len(hidden_NP)), tiles, width, hidden_NP.device)
    weight = torch.empty(splits, num_columns, width, dtype=torch.float32, device=hidden_NP.device)
    bias = torch.empty(splits, num_columns, dtype=torch.float32, device=hidden_NP.device)
    ids = targets_N if ids_C is None else ids_C
    _weight_kernel[(blocks, splits)](
        hidden_NP, columns_CP, bias_C, ids, targets_N, totals_N, scale, weight, bias, len(hidden_NP), num_columns,
        reach, K=width, BLOCK_V=tiles.owned, BLOCK_M=tiles.stepped, SAMPLED=ids_C is not None,
        PRECISION=precision_of(hidden_NP), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return (weight[0], bias[0]) if splits == 1 else (weight.sum(0), bias.sum(0))


@_weight_op.register_fake
def _(hidden_NP, columns_CP, bias_C, targets_N, ids_C, totals_N, scale):
    return torch.empty_like(columns_CP, dtype=torch.float32), torch.empty_like(bias_C)


@triton.jit(do_not_specialize=["num_rows", "reach"])
def _forward_kernel(
    hidden, columns, bias, ids, targets, part_totals, part_means, num_rows, num_columns, reach,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, SAMPLED: tl.constexpr, WANTS_GRAD: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of rows and a part of the columns: log of the summed exponentials, and the mean weight row."""
    split = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, K)
    row_ok = rows < num_rows
    hidden_MK = tl.load(hidden + rows[:, None] * K + ks[None, :], mask=row_ok[:, None], other=0.0)
    if SAMPLED:
        target_M = tl.load(targets + rows, mask=row_ok, other=-1).to(tl.int32)
    top_M = tl.full((BLOCK_M,), _NEVER, tl.float32)
    total_M = tl.zeros((BLOCK_M,), tl.float32)
    mean_MK = tl.zeros((BLOCK_M, K), tl.float32)
    first = split * reach
    last = tl.minimum(first + reach, num_columns)
    for start in range(first, last, BLOCK_V):
        cols = start + tl.arange(0, BLOCK_V)
        ok = cols < last
        columns_VK = tl.load(columns + cols[:, None] * K + ks[None, :], mask=ok[:, None], other=0.0)
        bias_V = tl.load(bias + cols, mask=ok, other=_NEVER)
        logits_MV = tl.dot(hidden_MK, tl.trans(columns_VK), input_precision=PRECISION) * _LOG2E + bias_V[None, :]
        if SAMPLED:
            ids_V = tl.load(ids + cols, mask=ok, other=-2).to(tl.int32)
            logits_MV = tl.where(ids_V[None, :] == target_M[:, None], _NEVER, logits_MV)
        new_top_M = tl.maximum(top_M, tl.max(logits_MV, 1))
        shrink_M = tl.exp2(top_M - new_top_M)
        exp_MV = tl.exp2(logits_MV - new_top_M[:, None])
        total_M = total_M * shrink_M + tl.sum(exp_MV, 1)
        if WANTS_GRAD:
            mean_MK = mean_MK * shrink_M[:, None]
            mean_MK = tl.dot(exp_MV.to(columns_VK.dtype), columns_VK, mean_MK, input_precision=PRECISION)
        top_M = new_top_M
    offset = split.to(tl.int64) * num_rows
    tl.store(part_totals + offset + rows, top_M + tl.log2(total_M), mask=row_ok)
    if WANTS_GRAD:
        mean_MK = mean_MK / total_M[:, None]
        tl.store(part_means + offset * K + rows[:, None] * K + ks[None, :], mean_MK, mask=row_ok[:, None])


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def _combine_kernel(
    hidden, words, bias, targets, part_totals, part_means, losses, totals, grad_hidden, num_rows, num_splits,
    K: tl.constexpr, BLOCK_M: tl.constexpr, SAMPLED: tl.constexpr, WANTS_GRAD: tl.constexpr,
):  # fmt: skip
    """For a block of rows: add up the splits, and bring in the target: its logit, its row."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, K)
    row_ok = rows < num_rows
    mask = row_ok[:, None]
    at = rows[:, None] * K + ks[None, :]
    target_M = tl.load(targets + rows, mask=row_ok, other=0)
    own_MK = tl.load(words + target_M.to(tl.int64)[:, None] * K + ks[None, :], mask=mask, other=0.0)
    own_MK = own_MK.to(hidden.dtype.element_ty).to(tl.float32)
    hidden_MK = tl.load(hidden + at, mask=mask, other=0.0).to(tl.float32)
    own_M = tl.sum(hidden_MK * own_MK, 1) * _LOG2E + tl.load(bias + rows, mask=row_ok, other=0.0)

    top_M = own_M  # a sum taken relative to the target's logit or to a larger one never overflows
    part = part_totals + rows
    for _ in range(num_splits):
        top_M = tl.maximum(top_M, tl.load(part, mask=row_ok, other=0.0))
        part += num_rows
    total_M = tl.exp2(own_M - top_M) if SAMPLED else tl.zeros((BLOCK_M,), tl.float32)
    part = part_totals + rows
    for _ in range(num_splits):
        total_M += tl.exp2(tl.load(part, mask=row_ok, other=0.0) - top_M)
        part += num_rows
    total_M = top_M + tl.log2(total_M)
    tl.store(losses + rows, (total_M - own_M) * _LN2, mask=row_ok)
    tl.store(totals + rows, total_M, mask=row_ok)
    if WANTS_GRAD:
        d_own_M = (tl.exp2(own_M - total_M) - 1.0) if SAMPLED else tl.full((BLOCK_M,), -1.0, tl.float32)
        grad_MK = own_MK * d_own_M[:, None]
        part = part_totals + rows
        mean = part_means + at
        for _ in range(num_splits):
            part_M = tl.load(part, mask=row_ok, other=_NEVER)
            grad_MK += tl.load(mean, mask=mask, other=0.0) * tl.exp2(part_M - total_M)[:, None]
            part += num_rows
            mean += num_rows * K
        tl.store(grad_hidden + at, grad_MK.to(grad_hidden.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows", "reach"])
def _weight_kernel(
    hidden, columns, bias, ids, targets, totals, scale, grad_columns, grad_bias, num_rows, num_columns, reach,
    K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, SAMPLED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of columns and a part of the rows: the gradient of these weight rows and biases."""
    split = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    ks = tl.arange(0, K)
    ok = cols < num_columns
    columns_VK = tl.load(columns + cols[:, None] * K + ks[None, :], mask=ok[:, None], other=0.0)
    bias_V = tl.load(bias + cols, mask=ok, other=_NEVER)
    ids_V = tl.load(ids + cols, mask=ok, other=-2).to(tl.int32) if SAMPLED else cols
    grad_VK = tl.zeros((BLOCK_V, K), tl.float32)
    grad_V = tl.zeros((BLOCK_V,), tl.float32)
    first = split * reach
    last = tl.minimum(first + reach, num_rows)
    for start in range(first, last, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        row_ok = rows < last
        hidden_MK = tl.load(hidden + rows[:, None] * K + ks[None, :], mask=row_ok[:, None], other=0.0)
        total_M = tl.load(totals + rows, mask=row_ok, other=-_NEVER)
        target_M = tl.load(targets + rows, mask=row_ok, other=-1).to(tl.int32)
        logits_VM = tl.dot(columns_VK, tl.trans(hidden_MK), input_precision=PRECISION) * _LOG2E
        d_logits_VM = tl.exp2(logits_VM + (bias_V[:, None] - total_M[None, :]))
        hit_VM = ids_V[:, None] == target_M[None, :]
        d_logits_VM = tl.where(hit_VM, 0.0 if SAMPLED else d_logits_VM - 1.0, d_logits_VM)
        grad_VK = tl.dot(d_logits_VM.to(hidden_MK.dtype), hidden_MK, grad_VK, input_precision=PRECISION)
        grad_V += tl.sum(d_logits_VM, 1)
    factor = tl.load(scale)
    offset = split.to(tl.int64) * num_columns
    tl.store(grad_columns + offset * K + cols[:, None] * K + ks[None, :], grad_VK * factor, mask=ok[:, None])
    tl.store(grad_bias + offset + cols, grad_V * factor, mask=ok)


@triton.jit
def _scale_kernel(values, factor, result, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    scaled = tl.load(values + place, mask=inside, other=0.0).to(tl.float32) * tl.load(factor)
    tl.store(result + place, scaled.to(result.dtype.element_ty), mask=inside)
