"""The output layer of a language model: what the network says of the next word becomes a loss, or probabilities.

Arrives: the top layer's outputs (N, P), in float32 or bfloat16, and the right words. Leaves: the summed negative
log-likelihood in float32. Two ways to train: the full softmax and a sampled one. Neither ever holds the logits of all
predictions at once; `kernels/` says how.

Shapes: N predictions, P width, V words of the vocabulary, S sampled words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from elmokit.engines import Choice
from elmokit.engines.kernels import best_for, kernel_named
from elmokit.errors import ConfigError

__all__ = ["Softmax"]

# Predictions whose probabilities over all words are made at once.
_ROWS_AT_ONCE = 256


class Softmax(nn.Module):
    """One weight row and one bias a word: softmax(hidden @ weightᵀ + bias).

    Arguments:
        num_words: V.
        width: P.
        counts_V: how often each word occurs; the bias then starts at the log unigram frequencies, so that training
            need not learn them first. Without counts it starts at 0.

    Example:
        >>> import torch
        >>> softmax = Softmax(10, 4, counts_V=torch.arange(10, 0, -1))
        >>> hidden, targets = torch.zeros(2, 4), torch.tensor([0, 9])
        >>> round(softmax.full_loss(hidden, targets).item(), 3)  # -log(10/55) - log(1/55)
        5.712
        >>> softmax.log_probs(hidden).exp().sum(1)
        tensor([1.0000, 1.0000])
    """

    def __init__(self, num_words: int, width: int, *, counts_V: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_words, width))
        self.bias = nn.Parameter(torch.empty(num_words))
        self.reset_parameters(counts_V)

    def reset_parameters(self, counts_V: Tensor | None = None) -> None:
        """Draw the weight as bilm-tf does: normal, variance 1 / fan-in."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.weight.shape[1]))
        with torch.no_grad():
            self.bias.zero_() if counts_V is None else self.bias.copy_(_log_frequencies(counts_V, len(self.bias)))

    @classmethod
    def from_weights(cls, weights: Mapping[str, Tensor]) -> Softmax:
        """The output layer that has these weights, named as in its `state_dict`; they are not copied."""
        with torch.device("meta"):
            layer = cls(*weights["weight"].shape)
        layer.load_state_dict(dict(weights), assign=True)
        return layer

    def engine_for(self, hidden_NP: Tensor) -> Choice:
        """Which kernel computes the loss of such outputs, and why."""
        return best_for(hidden_NP.device, hidden_NP.dtype, hidden_NP.shape[1])

    def full_loss(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Negative log-likelihood of the targets among all words, summed, float32."""
        return self.full_losses(hidden_NP, targets_N)[0]

    def full_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss among all words, which has gradients, and the loss of each target (N), which has none."""
        kernel = kernel_named(self.engine_for(hidden_NP).name)
        return kernel.linear_cross_entropies(hidden_NP, self.weight, self.bias, targets_N)

    def token_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Negative log-likelihood of each target (N), float32, without gradients: for evaluation."""
        kernel = kernel_named(self.engine_for(hidden_NP).name)
        return kernel.linear_cross_entropy(hidden_NP, self.weight, self.bias, targets_N, reduction="none")

    def sampled_loss(
        self,
        hidden_NP: Tensor,
        targets_N: Tensor,
        negatives_S: Tensor,
        log_expected_S: Tensor,
        log_expected_N: Tensor | None = None,
    ) -> Tensor:
        """Loss of telling each target from S words drawn by a `nn.sampling.Sampler`, summed, float32.

        With the targets' own correction this is bilm-tf's loss (and TensorFlow's): its best solution is the right
        distribution however few words are drawn, but the loss is lower than the full softmax's and comes near it
        only as S comes near V. Without it the drawn words estimate the rest of the full softmax's sum without bias,
        so loss and gradients come near the full ones as S grows.

        Arguments:
            hidden_NP: the outputs.
            targets_N: the right words.
            negatives_S: the drawn words, the same for all predictions; where one is the target, it is left out.
            log_expected_S: logarithm of each drawn word's expected count.
            log_expected_N: logarithm of each target's expected count, or `None`.
        """
        return self.sampled_losses(hidden_NP, targets_N, negatives_S, log_expected_S, log_expected_N)[0]

    def sampled_losses(
        self,
        hidden_NP: Tensor,
        targets_N: Tensor,
        negatives_S: Tensor,
        log_expected_S: Tensor,
        log_expected_N: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The sum of `sampled_loss`, which has gradients, and the loss of each target (N), which has none."""
        kernel = kernel_named(self.engine_for(hidden_NP).name)
        return kernel.sampled_cross_entropies(
            hidden_NP, self.weight, self.bias, targets_N, negatives_S, log_expected_S, log_expected_N
        )

    @torch.no_grad()
    def log_probs(self, hidden_NP: Tensor) -> Tensor:
        """Log-probability of every word (N, V), float32, without gradients: for prediction."""
        # The same rounding as in training: weights in the dtype of the outputs, sums in float32.
        weight_PV = self.weight.to(hidden_NP.dtype).to(self.bias.dtype).t()
        rows = hidden_NP.to(self.bias.dtype).split(_ROWS_AT_ONCE)
        return torch.cat([torch.addmm(self.bias, rows_nP, weight_PV).log_softmax(1) for rows_nP in rows])

    def extra_repr(self) -> str:
        """What `print(network)` shows."""
        return f"num_words={len(self.weight)}, width={self.weight.shape[1]}"


def _log_frequencies(counts_V: Tensor, num_words: int) -> Tensor:
    """Logarithm of each word's share; a word never counted is taken as seen once."""
    if counts_V.shape != (num_words,):
        raise ConfigError(
            f"an output layer of {num_words} words needs as many counts, but {tuple(counts_V.shape)} came"
        )
    counts = counts_V.double().clamp_min(1)
    return (counts / counts.sum()).log()
