"""The output layer of a language model: what the network says of the next word becomes a loss, or probabilities.

Arrives: the top layer's outputs (N, P), in float32 or bfloat16, and the right words. Leaves: the summed negative
log-likelihood in float32. Three ways to train: the full softmax, a sampled one, and an adaptive one. None of them ever
holds the logits of all predictions at once; `kernels/` says how.

Shapes: N predictions, P width, V words of the vocabulary, S sampled words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from elmokit.engines import Choice
from elmokit.engines.kernels import best_for, kernel_named
from elmokit.errors import ConfigError

__all__ = ["AdaptiveSoftmax", "OutputLayer", "Softmax", "output_layer_of"]

# Predictions whose probabilities over all words are made at once.
_ROWS_AT_ONCE = 256


class OutputLayer(nn.Module):
    """What every output layer can do; `Softmax` and `AdaptiveSoftmax` are the two there are."""

    def full_loss(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Negative log-likelihood of the targets among all words, summed, float32."""
        return self.full_losses(hidden_NP, targets_N)[0]

    def full_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """The same sum, which has gradients, and the loss of each target (N), which has none."""
        raise NotImplementedError

    def token_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Negative log-likelihood of each target (N), float32, without gradients: for evaluation."""
        raise NotImplementedError

    def log_probs(self, hidden_NP: Tensor) -> Tensor:
        """Log-probability of every word (N, V), float32, without gradients: for prediction."""
        raise NotImplementedError


class Softmax(OutputLayer):
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

    def engine_for(self, hidden_NP: Tensor) -> Choice:
        """Which kernel computes the loss of such outputs, and why."""
        return best_for(hidden_NP.device, hidden_NP.dtype, hidden_NP.shape[1])

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


class AdaptiveSoftmax(OutputLayer):
    """Frequent words in full width, rarer ones in narrower clusters (Grave et al. 2017): less work on a CPU.

    Ids must be sorted by falling frequency. It wraps `torch.nn.AdaptiveLogSoftmaxWithLoss`, whose own parameters are
    trained and stored under `adaptive`.

    Arguments:
        num_words: V.
        width: P.
        cutoffs: first id of each cluster after the head, rising; unset, V/50 and V/5.
        divisor: each cluster is so many times narrower than the one before.

    Example:
        >>> import torch
        >>> softmax = AdaptiveSoftmax(100, 16)
        >>> softmax.full_loss(torch.zeros(2, 16), torch.tensor([0, 99])).shape
        torch.Size([])
    """

    def __init__(
        self, num_words: int, width: int, *, cutoffs: Sequence[int] | None = None, divisor: float = 4.0
    ) -> None:
        super().__init__()
        chosen = sorted({max(1, num_words // 50), max(2, num_words // 5)}) if cutoffs is None else list(cutoffs)
        if not chosen or any(not 0 < cutoff < num_words for cutoff in chosen) or sorted(set(chosen)) != chosen:
            raise ConfigError(
                f"cutoffs {chosen} do not divide a vocabulary of {num_words} words: "
                f"give rising numbers from 1 to {num_words - 1}"
            )
        self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(width, num_words, chosen, div_value=divisor, head_bias=True)

    def full_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss among all words, which has gradients, and the loss of each target (N), which has none."""
        losses_N = -self.adaptive(self._cast(hidden_NP), targets_N).output
        return losses_N.sum(), losses_N.detach()

    @torch.no_grad()
    def token_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Negative log-likelihood of each target (N), float32, without gradients: for evaluation."""
        return -self.adaptive(self._cast(hidden_NP), targets_N).output

    @torch.no_grad()
    def log_probs(self, hidden_NP: Tensor) -> Tensor:
        """Log-probability of every word (N, V), float32, without gradients: for prediction."""
        rows = self._cast(hidden_NP).split(_ROWS_AT_ONCE)
        return torch.cat([self.adaptive.log_prob(rows_nP) for rows_nP in rows])

    def _cast(self, hidden_NP: Tensor) -> Tensor:
        return hidden_NP.to(self.adaptive.head.weight.dtype)


def output_layer_of(weights: Mapping[str, Tensor]) -> OutputLayer:
    """The output layer that these weights, named as in its `state_dict`, are of; they are not copied.

    Example:
        >>> output_layer_of(Softmax(10, 4).state_dict())
        Softmax(num_words=10, width=4)
    """
    with torch.device("meta"):
        if "weight" in weights:
            layer: OutputLayer = Softmax(*weights["weight"].shape)
        else:
            num_rows, width = weights["adaptive.head.weight"].shape
            sizes = [len(weights[name]) for name in sorted(weights) if name.endswith(".1.weight")]
            cutoffs = [num_rows - len(sizes) + sum(sizes[:number]) for number in range(len(sizes))]
            narrow = len(weights["adaptive.tail.0.0.weight"])
            layer = AdaptiveSoftmax(cutoffs[-1] + sizes[-1], width, cutoffs=cutoffs, divisor=width / max(1, narrow))
    layer.load_state_dict(dict(weights), assign=True)
    return layer


def _log_frequencies(counts_V: Tensor, num_words: int) -> Tensor:
    """Logarithm of each word's share; a word never counted is taken as seen once."""
    if counts_V.shape != (num_words,):
        raise ConfigError(
            f"an output layer of {num_words} words needs as many counts, but {tuple(counts_V.shape)} came"
        )
    counts = counts_V.double().clamp_min(1)
    return (counts / counts.sum()).log()
