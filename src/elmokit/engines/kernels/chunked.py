"""Cross-entropy of an output layer over a large vocabulary, in plain torch, some rows at a time.

Arrives: what the network says (N, P), the output layer, the right words. Leaves: the summed loss. The logits of all
rows together would be the largest tensor of a training step by far, so they are made for a few rows, turned into the
loss and into gradients while they are still in the cache, and forgotten: backward only multiplies by the gradient of
the sum. That is three products a step, as many as plain torch needs, where recomputing the logits would take four.

Shapes: N predictions, n of them in a chunk, P width, V words, S sampled words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["linear_cross_entropies", "linear_cross_entropy", "sampled_cross_entropies"]

# Logits of one chunk. Smaller is kinder to caches, larger to the products that sum the weight's gradient.
CHUNK_BYTES = 64 * 2**20

# Where no gradients are wanted, logits are made in tiles that stay in a core's cache: twice as fast on a CPU.
TILE_ROWS, TILE_WORDS = 1024, 512


def linear_cross_entropy(
    hidden_NP: Tensor,
    weight_VP: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    *,
    reduction: Literal["sum", "none"] = "sum",
) -> Tensor:
    """Negative log-likelihood of the targets under softmax(hidden @ weightᵀ + bias).

    Arguments:
        hidden_NP: outputs of the network; their dtype is that of the products.
        weight_VP: one row a word.
        bias_V: one number a word.
        targets_N: rows of the right words, 0 to V - 1.
        reduction: `"sum"` for their sum, which has gradients; `"none"` for each alone (N), which has none.

    Example:
        >>> linear_cross_entropy(torch.zeros(3, 4), torch.zeros(5, 4), torch.zeros(5), torch.tensor([0, 1, 4]))
        tensor(4.8283)
    """
    if reduction == "none":
        with torch.no_grad():
            return _losses_alone(hidden_NP, weight_VP, bias_V, targets_N)
    return linear_cross_entropies(hidden_NP, weight_VP, bias_V, targets_N)[0]


def linear_cross_entropies(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor
) -> tuple[Tensor, Tensor]:
    """The summed loss, which has gradients, and the loss of each row (N), which has none."""
    return _summed(partial(_full_losses, targets_N=targets_N), hidden_NP, weight_VP, bias_V)


def sampled_cross_entropies(
    hidden_NP: Tensor,
    weight_VP: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    negatives_S: Tensor,
    log_expected_S: Tensor,
    log_expected_N: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss of telling each target from the sampled words, whose logits are corrected by their expected counts.

    Gives the sum, which has gradients, and the loss of each row (N), which has none.

    Arguments:
        hidden_NP: outputs of the network; their dtype is that of the products.
        weight_VP: one row a word.
        bias_V: one number a word.
        targets_N: rows of the right words.
        negatives_S: rows of the sampled words, shared by all predictions; where one is the target, it is left out.
        log_expected_S: logarithm of the expected count of each sampled word.
        log_expected_N: the same of each target, as bilm-tf corrects; `None` leaves the targets' logits as they are.
    """
    losses = partial(
        _sampled_losses,
        targets_N=targets_N,
        negatives_S=negatives_S,
        log_expected_S=log_expected_S,
        log_expected_N=log_expected_N,
    )
    return _summed(losses, hidden_NP, weight_VP, bias_V)


class _Gradients(NamedTuple):
    """Gradients of the summed loss."""

    hidden_NP: Tensor
    weight_VP: Tensor
    bias_V: Tensor


Losses = Callable[..., tuple[Tensor, _Gradients | None]]


def _summed(losses: Losses, hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor]:
    learns = any(tensor.requires_grad for tensor in (hidden_NP, weight_VP, bias_V))
    wants_grad = torch.is_grad_enabled() and learns
    return cast(tuple[Tensor, Tensor], _Summed.apply(hidden_NP, weight_VP, bias_V, losses, wants_grad))


class _Summed(torch.autograd.Function):
    """The sum of losses whose gradients were made together with them."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        hidden_NP: Tensor,
        weight_VP: Tensor,
        bias_V: Tensor,
        losses: Losses,
        wants_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        losses_N, gradients = losses(hidden_NP, weight_VP, bias_V, wants_grad=wants_grad)
        if gradients is not None:
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(losses_N)
        return losses_N.sum(), losses_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        wanted = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        # In the dtype of the loss: a factor rounded to bfloat16 would scale all gradients by up to 0.4 %.
        scaled = [(part.to(grad.dtype) * grad).to(part.dtype) if needed else None for part, needed in wanted]
        return (*scaled, None, None)


def _full_losses(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor, *, wants_grad: bool
) -> tuple[Tensor, _Gradients | None]:
    """The loss of each row (N) and, where asked for, the gradients of their sum."""
    exact, weight_VP, bias_V = _exact(hidden_NP, weight_VP, bias_V)
    losses_N = torch.empty(len(hidden_NP), dtype=exact, device=hidden_NP.device)
    gradients = _Gradients(*map(torch.zeros_like, (hidden_NP, weight_VP, bias_V))) if wants_grad else None
    for rows in _chunks(len(hidden_NP), len(weight_VP) * losses_N.element_size()):
        hidden_nP, targets_n1 = hidden_NP[rows].to(exact), targets_N[rows].unsqueeze(1)
        logits_nV = torch.addmm(bias_V, hidden_nP, weight_VP.t())
        total_n1 = logits_nV.logsumexp(1, keepdim=True)
        losses_N[rows] = (total_n1 - logits_nV.gather(1, targets_n1)).squeeze(1)
        if gradients is not None:
            share_nV = logits_nV.sub_(total_n1).exp_()
            share_nV.scatter_add_(1, targets_n1, torch.full_like(total_n1, -1))
            gradients.hidden_NP[rows] = (share_nV @ weight_VP).to(hidden_NP.dtype)
            gradients.weight_VP.addmm_(share_nV.t(), hidden_nP)
            gradients.bias_V.add_(share_nV.sum(0))
    return losses_N, gradients


def _losses_alone(hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor) -> Tensor:
    """The loss of each row (N), for evaluation."""
    exact, weight_VP, bias_V = _exact(hidden_NP, weight_VP, bias_V)
    hidden_NP = hidden_NP.to(exact)
    tiles = list(zip(weight_VP.split(TILE_WORDS), bias_V.split(TILE_WORDS), strict=True))
    totals = [
        torch.stack([torch.addmm(bias_v, rows_nP, weight_vP.t()).logsumexp(1) for weight_vP, bias_v in tiles])
        for rows_nP in hidden_NP.split(TILE_ROWS)
    ]
    own_N = (hidden_NP * weight_VP[targets_N]).sum(1) + bias_V[targets_N]
    # Rounding may leave a certain word a hair above 1.
    return (torch.cat([total_Tn.logsumexp(0) for total_Tn in totals]) - own_N).clamp_min(0)


def _sampled_losses(
    hidden_NP: Tensor,
    weight_VP: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    negatives_S: Tensor,
    log_expected_S: Tensor,
    log_expected_N: Tensor | None,
    *,
    wants_grad: bool,
) -> tuple[Tensor, _Gradients | None]:
    """The loss of each row (N) and, where asked for, the gradients of their sum."""
    exact, weight_VP, bias_V = _exact(hidden_NP, weight_VP, bias_V)
    weight_SP, bias_S = weight_VP[negatives_S], bias_V[negatives_S] - log_expected_S.to(exact)
    bias_N = bias_V[targets_N] - (0 if log_expected_N is None else log_expected_N.to(exact))
    losses_N = torch.empty_like(bias_N)
    gradients = _Gradients(*map(torch.zeros_like, (hidden_NP, weight_VP, bias_V))) if wants_grad else None
    for rows in _chunks(len(hidden_NP), len(negatives_S) * losses_N.element_size()):
        hidden_nP, targets_n = hidden_NP[rows].to(exact), targets_N[rows]
        own_nP = weight_VP[targets_n]
        own_n = (hidden_nP * own_nP).sum(1) + bias_N[rows]
        logits_nS = torch.addmm(bias_S, hidden_nP, weight_SP.t())
        logits_nS.masked_fill_(targets_n.unsqueeze(1) == negatives_S, -torch.inf)
        total_n = torch.logaddexp(logits_nS.logsumexp(1), own_n)
        losses_N[rows] = total_n - own_n
        if gradients is not None:
            # A row's target stands beside the sampled words, not among them, so its share is kept apart.
            share_nS = logits_nS.sub_(total_n.unsqueeze(1)).exp_()
            own_share_n1 = torch.expm1(own_n - total_n).unsqueeze(1)
            gradients.hidden_NP[rows] = (share_nS @ weight_SP + own_share_n1 * own_nP).to(hidden_NP.dtype)
            gradients.weight_VP.index_add_(0, negatives_S, share_nS.t() @ hidden_nP)
            gradients.weight_VP.index_add_(0, targets_n, own_share_n1 * hidden_nP)
            gradients.bias_V.index_add_(0, negatives_S, share_nS.sum(0))
            gradients.bias_V.index_add_(0, targets_n, own_share_n1.squeeze(1))
    return losses_N, gradients


def _exact(hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor) -> tuple[torch.dtype, Tensor, Tensor]:
    """The dtype of sums, and weight and bias in it.

    The weight is rounded to the dtype of the products first: multiplying rounded numbers exactly and adding them in
    float32 is what the tensor cores of a GPU do with bfloat16.
    """
    exact = torch.float64 if hidden_NP.dtype == torch.float64 else torch.float32
    return exact, weight_VP.to(hidden_NP.dtype).to(exact), bias_V.to(exact)


def _chunks(num_rows: int, bytes_a_row: int) -> Iterator[slice]:
    """Runs of rows whose logits fit into `CHUNK_BYTES` (at least one row each)."""
    size = max(1, CHUNK_BYTES // bytes_a_row)
    for start in range(0, num_rows, size):
        yield slice(start, start + size)
