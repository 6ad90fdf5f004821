"""Cross-entropy of an output layer over a large vocabulary, in plain torch, some rows at a time.

The logits of all rows together would be the largest tensor of a training step by far, so they are made for a few rows,
turned into the loss and into gradients while they are still in the cache, and forgotten: the backward pass only
multiplies by the gradient of the sum. That is three matmuls per step, as many as plain torch needs, where recomputing
the logits would take four.

Shapes: N predictions, n of them in a chunk, P width, V words, S sampled words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.nn.operations import Sample

__all__ = ["losses", "subtract_targets"]

# Logits of one chunk. Smaller is kinder to caches, larger to the matmuls that sum the weight's gradient.
CHUNK_BYTES = 64 * 2**20

# Where no gradients are wanted, logits are made in tiles that stay in a core's cache: twice as fast on a CPU.
TILE_ROWS, TILE_WORDS = 1024, 512


def losses(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor, sample: Sample | None = None
) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of the targets, summed (with gradients) and each (N, without).

    Arguments:
        hidden_NP: outputs of the network; their dtype is that of the matmuls.
        weight_VP: one row per word.
        bias_V: one number per word.
        targets_N: rows of the right words, 0 to V - 1.
        sample: the words to tell them from; all words unless given.

    Example:
        >>> losses(torch.zeros(3, 4), torch.zeros(5, 4), torch.zeros(5), torch.tensor([0, 1, 4]))[0]
        tensor(4.8283)
    """
    learns = any(tensor.requires_grad for tensor in (hidden_NP, weight_VP, bias_V))
    wants_grad = torch.is_grad_enabled() and learns
    if sample is None and not wants_grad:
        losses_N = _evaluate(hidden_NP, weight_VP, bias_V, targets_N)
        return losses_N.sum(), losses_N
    compute = partial(_full_losses, targets_N=targets_N)
    if sample is not None:
        compute = partial(_sampled_losses, targets_N=targets_N, sample=sample)
    return cast(tuple[Tensor, Tensor], _Summed.apply(hidden_NP, weight_VP, bias_V, compute, wants_grad))


class _Gradients(NamedTuple):
    """Gradients of the summed loss."""

    hidden_NP: Tensor
    weight_VP: Tensor | None  # where somebody wants it
    bias_V: Tensor | None


Losses = Callable[..., Tensor]


class _Summed(torch.autograd.Function):
    """The sum of losses whose gradients were made together with them."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden_NP: Tensor,
        weight_VP: Tensor,
        bias_V: Tensor,
        compute: Losses,
        wants_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        # Rows that are only read want no gradients: a table of their size would cost more than the rest of the step.
        gradients = None
        if wants_grad:
            wanted, exact = any(ctx.needs_input_grad[1:3]), _exact_dtype(hidden_NP)
            zeros = [torch.zeros_like(table, dtype=exact) if wanted else None for table in (weight_VP, bias_V)]
            gradients = _Gradients(torch.zeros_like(hidden_NP), *zeros)
        losses_N = compute(hidden_NP, weight_VP, bias_V, gradients=gradients)
        if gradients is not None:
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(losses_N)
        return losses_N.sum(), losses_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        wanted = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        # In the dtype of the loss: a factor rounded to bfloat16 would scale all gradients by up to 0.4 %.
        scaled = [
            (part.to(grad.dtype) * grad).to(part.dtype) if needed and part is not None else None
            for part, needed in wanted
        ]
        return (*scaled, None, None)


def _full_losses(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor, *, gradients: _Gradients | None
) -> Tensor:
    """The loss of each row (N); the gradients of their sum are added to `gradients`."""
    exact, weight_VP, bias_V = _exact(hidden_NP, weight_VP, bias_V)
    losses_N = torch.empty(len(hidden_NP), dtype=exact, device=hidden_NP.device)
    for rows in _chunks(len(hidden_NP), len(weight_VP) * losses_N.element_size()):
        hidden_nP, targets_n1 = hidden_NP[rows].to(exact), targets_N[rows].unsqueeze(1)
        logits_nV = torch.addmm(bias_V, hidden_nP, weight_VP.t())
        total_n1 = logits_nV.logsumexp(1, keepdim=True)
        losses_N[rows] = (total_n1 - logits_nV.gather(1, targets_n1)).squeeze(1)
        if gradients is not None:
            d_logits_nV = logits_nV.sub_(total_n1).exp_()
            d_logits_nV.scatter_add_(1, targets_n1, torch.full_like(total_n1, -1))
            gradients.hidden_NP[rows] = (d_logits_nV @ weight_VP).to(hidden_NP.dtype)
            if gradients.weight_VP is not None and gradients.bias_V is not None:
                gradients.weight_VP.addmm_(d_logits_nV.t(), hidden_nP)
                gradients.bias_V.add_(d_logits_nV.sum(0))
    return losses_N


def _evaluate(hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor) -> Tensor:
    """The loss of each row (N), for evaluation."""
    exact, weight_VP, bias_V = _exact(hidden_NP, weight_VP, bias_V)
    hidden_NP = hidden_NP.to(exact)
    tiles = list(zip(weight_VP.split(TILE_WORDS), bias_V.split(TILE_WORDS), strict=True))
    totals = [
        torch.stack([torch.addmm(bias_v, rows_nP, weight_vP.t()).logsumexp(1) for weight_vP, bias_v in tiles])
        for rows_nP in hidden_NP.split(TILE_ROWS)
    ]
    total_N = torch.cat([total_Tn.logsumexp(0) for total_Tn in totals])
    return subtract_targets(total_N, hidden_NP, weight_VP, bias_V, targets_N)


def subtract_targets(
    total_N: Tensor, hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor
) -> Tensor:
    """The loss of each row (N) from the logarithm of the sum over all words: the logit of its target is taken off."""
    own_N = (hidden_NP * weight_VP[targets_N]).sum(1) + bias_V[targets_N]
    return (total_N - own_N).clamp_min(0)  # rounding may leave a certain word a hair above 1


def _sampled_losses(
    hidden_NP: Tensor,
    weight_VP: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    sample: Sample,
    *,
    gradients: _Gradients | None,
) -> Tensor:
    """The loss of each row (N); the gradients of their sum are added to `gradients`."""
    negatives_S, log_expected_S, log_expected_N = sample
    exact, weight_VP, bias_V = _exact(hidden_NP, weight_VP, bias_V)
    weight_SP, bias_S = weight_VP[negatives_S], bias_V[negatives_S] - log_expected_S.to(exact)
    bias_N = bias_V[targets_N] - (0 if log_expected_N is None else log_expected_N.to(exact))
    losses_N = torch.empty_like(bias_N)
    for rows in _chunks(len(hidden_NP), len(negatives_S) * losses_N.element_size()):
        hidden_nP, targets_n = hidden_NP[rows].to(exact), targets_N[rows]
        own_nP = weight_VP[targets_n]
        own_n = (hidden_nP * own_nP).sum(1) + bias_N[rows]
        logits_nS = torch.addmm(bias_S, hidden_nP, weight_SP.t())
        logits_nS.masked_fill_(targets_n.unsqueeze(1) == negatives_S, -torch.inf)
        total_n = torch.logaddexp(logits_nS.logsumexp(1), own_n)
        losses_N[rows] = total_n - own_n
        if gradients is not None:
            # A row's target stands beside the sampled words, not among them, so its probability is kept apart.
            d_logits_nS = logits_nS.sub_(total_n.unsqueeze(1)).exp_()
            d_own_n1 = torch.expm1(own_n - total_n).unsqueeze(1)
            gradients.hidden_NP[rows] = (d_logits_nS @ weight_SP + d_own_n1 * own_nP).to(hidden_NP.dtype)
            if gradients.weight_VP is not None and gradients.bias_V is not None:
                gradients.weight_VP.index_add_(0, negatives_S, d_logits_nS.t() @ hidden_nP)
                gradients.weight_VP.index_add_(0, targets_n, d_own_n1 * hidden_nP)
                gradients.bias_V.index_add_(0, negatives_S, d_logits_nS.sum(0))
                gradients.bias_V.index_add_(0, targets_n, d_own_n1.squeeze(1))
    return losses_N


def _exact(hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor) -> tuple[torch.dtype, Tensor, Tensor]:
    """The dtype of sums, and weight and bias in it.

    The weight is rounded to the dtype of the outputs first: multiplying rounded numbers exactly and adding them in
    float32 is what the tensor cores of a GPU do with bfloat16.
    """
    exact = _exact_dtype(hidden_NP)
    return exact, weight_VP.to(hidden_NP.dtype).to(exact), bias_V.to(exact)


def _exact_dtype(hidden_NP: Tensor) -> torch.dtype:
    return torch.float64 if hidden_NP.dtype == torch.float64 else torch.float32


def _chunks(num_rows: int, bytes_per_row: int) -> Iterator[slice]:
    """Runs of rows whose logits fit into `CHUNK_BYTES` (at least one row each)."""
    size = max(1, CHUNK_BYTES // bytes_per_row)
    for start in range(0, num_rows, size):
        yield slice(start, start + size)
