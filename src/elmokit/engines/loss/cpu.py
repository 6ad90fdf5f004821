"""The loss of an output layer on a processor, in C++, for evaluation: equal to the reference within 1e-5.

Arrives: outputs of the network and the right words. Leaves: the negative log-likelihood of each, among all words.
Logits are made panel by panel and summed at once (`cpp/loss.cpp`): none is stored. The weights are read where they are:
laid out beforehand they would need their memory twice, 1.6 GB for the published models.

Shapes: N predictions, P width, V words.
"""

from __future__ import annotations

from torch import Tensor

from elmokit.engines.cpp.building import library
from elmokit.engines.cpp.threads import num_threads
from elmokit.engines.loss import chunked
from elmokit.nn.operations import Sample

__all__ = ["losses"]


def losses(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor, sample: Sample | None = None
) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of the targets, summed and each (N); among the words of a sample by torch."""
    if sample is not None:
        return chunked.losses(hidden_NP, weight_VP, bias_V, targets_N, sample)
    hidden_NP, weight_VP, bias_V = (part.detach().float().contiguous() for part in (hidden_NP, weight_VP, bias_V))
    total_N = hidden_NP.new_empty(len(hidden_NP))
    library().elmokit_log_sums(
        weight_VP.data_ptr(), bias_V.data_ptr(), *weight_VP.shape, hidden_NP.data_ptr(), len(hidden_NP),
        total_N.data_ptr(), num_threads(len(hidden_NP) * weight_VP.numel()),
    )  # fmt: skip
    losses_N = chunked.subtract_targets(total_N, hidden_NP, weight_VP, bias_V, targets_N)
    return losses_N.sum(), losses_N
