"""The output layer of a language model: from the top layer's outputs, the probabilities of words, or a loss.

Arrives: the top layer's outputs (N, P), in float32 or bfloat16, and the right words. Leaves: the negative
log-likelihood, summed and of each word, in float32. Both directions share the layer: of the forward outputs at word t
it makes the probabilities of word t+1, of the backward outputs those of word t-1; training adds up both and takes the
mean over all predictions (`pretrain/network.py`). The loss is that of the full softmax, or of a sampled one that
normalises among a few words only. `losses` is the definition of correct for every engine of the loss; most engines
never hold the logits of all predictions at once.

Shapes: N predictions, n of them at once, P width, V words of the vocabulary, S sampled words.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.nn.operations import Choice, Sample, choose, describe, find_engine
from elmokit.nn.word_encoder import draw_normal

__all__ = ["OutputLayer", "losses"]

# Predictions whose probabilities over all words are made at once.
_ROWS_AT_ONCE = 256


class OutputLayer(nn.Module):
    """One weight row and one bias per word: softmax(hidden @ weightᵀ + bias).

    Arguments:
        num_words: V.
        width: P.
        counts_V: how often each word occurs; the bias then starts at the log unigram frequencies, so that training
            need not learn them first. Without counts it starts at 0.

    Example:
        >>> import torch
        >>> softmax = OutputLayer(10, 4, counts_V=torch.arange(10, 0, -1))
        >>> hidden, targets = torch.zeros(2, 4), torch.tensor([0, 9])
        >>> round(softmax.full_losses(hidden, targets)[0].item(), 3)  # -log(10/55) - log(1/55)
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
        draw_normal(self.weight, self.weight.shape[1])
        with torch.no_grad():
            self.bias.zero_() if counts_V is None else self.bias.copy_(_log_frequencies(counts_V, len(self.bias)))

    @classmethod
    def from_weights(cls, weights: Mapping[str, Tensor]) -> OutputLayer:
        """The output layer that has these weights, named as in its `state_dict`; they are not copied."""
        with torch.device("meta"):
            layer = cls(*weights["weight"].shape)
        layer.load_state_dict(dict(weights), assign=True)
        return layer

    def engine_for(self, hidden_NP: Tensor) -> Choice:
        """Which engine computes the loss of such outputs, and why."""
        weights = (self.weight, self.bias)
        return choose(describe("loss", (hidden_NP,), others=weights, width=hidden_NP.shape[1]))

    def full_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Negative log-likelihood of the targets among all words, float32: summed, and each (N, without gradients)."""
        return self._losses(hidden_NP, targets_N, None)

    @torch.no_grad()
    def token_losses(self, hidden_NP: Tensor, targets_N: Tensor) -> Tensor:
        """Negative log-likelihood of each target (N), float32, without gradients: for evaluation."""
        return self._losses(hidden_NP, targets_N, None)[1]

    def sampled_losses(
        self,
        hidden_NP: Tensor,
        targets_N: Tensor,
        negatives_S: Tensor,
        log_expected_S: Tensor,
        log_expected_N: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Negative log-likelihood of each target among itself and S drawn words: summed, and each (N).

        A `pretrain.batches.sampling.Sampler` draws them. With `log_expected_N` this is bilm-tf's loss (and
        TensorFlow's), and what training uses: its best solution is the right distribution however few words are drawn,
        but the loss is lower than the full softmax's and comes near it only as S comes near V. Without it the drawn
        words estimate the rest of the full softmax's sum without bias, so loss and gradients come near the full ones as
        S grows. The arguments are those of `operations.Sample`.
        """
        return self._losses(hidden_NP, targets_N, Sample(negatives_S, log_expected_S, log_expected_N))

    def _losses(self, hidden_NP: Tensor, targets_N: Tensor, sample: Sample | None) -> tuple[Tensor, Tensor]:
        engine = find_engine("loss", self.engine_for(hidden_NP).name)
        return engine(hidden_NP, self.weight, self.bias, targets_N, sample)

    @torch.no_grad()
    def log_probs(self, hidden_NP: Tensor) -> Tensor:
        """Log-probability of every word (N, V), float32, without gradients: for prediction."""
        # The same rounding as in training: weights in the dtype of the outputs, sums in float32.
        sum_dtype = _find_sum_dtype(hidden_NP)
        weight_PV, bias_V = self.weight.to(hidden_NP.dtype).to(sum_dtype).t(), self.bias.to(sum_dtype)
        rows = hidden_NP.to(sum_dtype).split(_ROWS_AT_ONCE)
        return torch.cat([torch.addmm(bias_V, rows_nP, weight_PV).log_softmax(1) for rows_nP in rows])

    def extra_repr(self) -> str:
        """What `print(network)` shows."""
        return f"num_words={len(self.weight)}, width={self.weight.shape[1]}"


def losses(
    hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor, targets_N: Tensor, sample: Sample | None = None
) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of the targets, summed (with gradients) and each (N, without); float32.

    Among all words the logits are hidden @ weightᵀ + bias. Among the words of a sample, the logit of each is lowered by
    the logarithm of its expected count, and so is that of the target, where its count is given.
    """
    hidden_NP, weight_VP, bias_V = _round(hidden_NP, weight_VP, bias_V)
    target_logits_N = (hidden_NP * weight_VP[targets_N]).sum(1) + bias_V[targets_N]
    if sample is None:
        losses_N = (hidden_NP @ weight_VP.t() + bias_V).logsumexp(1) - target_logits_N
    else:
        if sample.log_expected_N is not None:
            target_logits_N = target_logits_N - sample.log_expected_N
        logits_NS = hidden_NP @ weight_VP[sample.negatives_S].t() + bias_V[sample.negatives_S] - sample.log_expected_S
        is_target_NS = targets_N.unsqueeze(1) == sample.negatives_S
        others_N = logits_NS.masked_fill(is_target_NS, -torch.inf).logsumexp(1)
        losses_N = torch.logaddexp(others_N, target_logits_N) - target_logits_N
    return losses_N.sum(), losses_N.detach()


def _round(hidden_NP: Tensor, weight_VP: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, weight and bias in the dtype of sums.

    The weight is rounded to the dtype of the outputs first: multiplying rounded numbers exactly and adding them in
    float32 is what the tensor cores of a GPU do with bfloat16. Its gradient is not rounded.
    """
    sum_dtype = _find_sum_dtype(hidden_NP)
    exact_VP = weight_VP.to(sum_dtype)
    rounding_VP = (weight_VP.to(hidden_NP.dtype).to(sum_dtype) - exact_VP).detach()
    return hidden_NP.to(sum_dtype), exact_VP + rounding_VP, bias_V.to(sum_dtype)


def _find_sum_dtype(hidden_NP: Tensor) -> torch.dtype:
    """float32; for outputs in float64, float64."""
    return torch.float64 if hidden_NP.dtype == torch.float64 else torch.float32


def _log_frequencies(counts_V: Tensor, num_words: int) -> Tensor:
    """Logarithm of each word's frequency; a word never counted is taken as seen once."""
    if counts_V.shape != (num_words,):
        raise ConfigError(
            f"an output layer of {num_words} words needs as many counts, but {tuple(counts_V.shape)} came"
        )
    counts = counts_V.double().clamp_min(1)
    return (counts / counts.sum()).log()
